// One kernel source, many targets. A kernel header is compiled once for every instruction set of the CPU: Highway's
// foreach_target.h includes it repeatedly. Later come the scalar lane, once, and nvcc. Such a header
//   - starts with the include guard that toggles with HWY_TARGET_TOGGLE (the only way to be included once per target);
//   - puts its code between SVD_KERNEL_BEGIN and SVD_KERNEL_END, which open a namespace of the target and, for Highway,
//     the pragma that lets the compiler use the target's instructions.
// A translation unit that does not include Highway gets namespace svdserve::scalar and the plain lane.
#ifndef SVDSERVE_ENGINE_CORE_KERNEL_NAMESPACE_H_
#define SVDSERVE_ENGINE_CORE_KERNEL_NAMESPACE_H_

#if defined(HWY_HIGHWAY_INCLUDED)
#define SVD_KERNEL_BEGIN    \
  HWY_BEFORE_NAMESPACE();   \
  namespace svdserve {      \
  namespace HWY_NAMESPACE { \
  namespace hn = hwy::HWY_NAMESPACE;
#define SVD_KERNEL_END \
  }                    \
  }                    \
  HWY_AFTER_NAMESPACE();
#else
#define SVD_KERNEL_BEGIN \
  namespace svdserve {   \
  namespace scalar {
#define SVD_KERNEL_END \
  }                    \
  }
#endif

// A function of the kernels. It is always inlined, so that arrays of lanes stay in registers and the target's
// instructions are allowed. It is callable from the device where there is one.
#if defined(__CUDACC__)
#define SVD_HD __host__ __device__ __forceinline__
#define SVD_HD_CALLED SVD_HD
#define SVD_UNROLL _Pragma("unroll")
#define SVD_UNROLL_DEVICE _Pragma("unroll (Size::kValue != 0 ? 32 : 1)")
#define SVD_LOOP _Pragma("unroll 1")
#define SVD_ROW_LOOP _Pragma("unroll 4")
#define SVD_LAMBDA
#else
#define SVD_HD inline __attribute__((always_inline))
// A long function outside of inner loops that kernels need in several places: a CPU calls it, to compile it once.
#define SVD_HD_CALLED inline __attribute__((noinline))
#if defined(HWY_HIGHWAY_INCLUDED) && !defined(SVD_NO_UNROLL)
// Loops over compile-time sizes (at most kLargestFixedSize) are unrolled whole; run-time ones eightfold.
#define SVD_UNROLL _Pragma("GCC unroll 8")
#else
#define SVD_UNROLL  // the scalar lane on a CPU is a reference, and sanitizer builds are to end: no unrolling
#endif
#define SVD_ROW_LOOP  // along a row of a matrix, whose numbers a GPU's thread reads some steps ahead
#define SVD_LOOP      // a loop that a GPU keeps as one: its body is long, and instructions come slowly
// Loops that a GPU thread unrolls where it knows the Size, so that the arrays they index stay in registers. A CPU need
// not unroll them.
#define SVD_UNROLL_DEVICE
// After the parameter list of a lambda of a kernel: inlined always, too.
#define SVD_LAMBDA __attribute__((always_inline))
#endif

#endif  // SVDSERVE_ENGINE_CORE_KERNEL_NAMESPACE_H_
