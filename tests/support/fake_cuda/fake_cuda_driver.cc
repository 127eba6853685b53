// Stands for libcuda.so.1 where there is no driver: the engine asks only whether it opens.
extern "C" int svdserve_fake_cuda_driver() { return 0; }
