#include "engine/backends/cuda/members/cuda_rank.h"

#include <cstring>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include "engine/backends/cuda/members/decompose_ring.h"
#include "engine/backends/cuda/members/nccl_environment.h"
#include "engine/backends/ranks/rank_socket.h"
#include "engine/backends/ranks/serve_rank.h"

namespace svdserve::cuda {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(ranks::MemoryHandle));

// Handles are of whole blocks of the driver, in which it may put several small allocations.
constexpr uint64_t kBlockBytes = uint64_t{2} << 20;

// Between signs of life of a rank that waits for its partner.
constexpr std::chrono::milliseconds kSign{50};
// An exchange takes milliseconds, and joining a ring seconds. Where none of the two has failed, something is wrong between
// them. Then members give up one after the other, so that one is left.
constexpr std::chrono::seconds kPatience{120}, kMorePatience{20};
// NCCL also fails because of the other one. The leader hears of that from the other one within these signs.
constexpr int kSignsAfterFailure = 200;

// f() on another thread, with waits() from time to time. A thread that is not done by `patience` is left behind.
void run_while(const std::function<void()>& f, const std::function<void()>& waits, std::chrono::seconds patience) {
  auto promise = std::make_shared<std::promise<void>>();
  std::future<void> done = promise->get_future();
  std::thread([f, promise = std::move(promise)] {
    try {
      f();
      promise->set_value();
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  const auto until = std::chrono::steady_clock::now() + patience;
  while (done.wait_for(kSign) != std::future_status::ready) {
    if (std::chrono::steady_clock::now() > until) {
      throw large::LargeStop{LargeStatus::kFault, "an exchange with another GPU did not end"};
    }
    waits();
  }
  done.get();
}

}  // namespace

const char* rank_refusal(const int32_t* devices, int32_t count) {
  if (const char* const refusal = nccl_refusal(); refusal != nullptr) return refusal;
  thread_local std::string text;
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t j = 0; j < count; ++j) {
      if (i == j || reaches(devices[i], devices[j]) != 0) continue;
      text = "ranks need GPUs that reach each other's memory, but GPU " + std::to_string(devices[i]) +
             " does not reach that of GPU " + std::to_string(devices[j]);
      return text.c_str();
    }
  }
  return nullptr;
}

void serve_rank(int32_t socket, int32_t device) {
  ranks::RankSocket leader((ranks::Descriptor(socket)));
  set_nccl_environment();
  (void)cudaSetDevice(device);  // where that fails, the first call does
  CudaRankKind kind(device);
  ranks::serve_rank<CudaRankKind, Complex>(leader, kind);
}

ranks::SharedBlock share_device_memory(uint64_t bytes) {
  ranks::SharedBlock block;
  block.bytes = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  void* memory = nullptr;
  require(cudaMalloc(&memory, block.bytes), "allocating a checkpoint");
  block.memory = {memory, [](void* m) { (void)cudaFree(m); }};
  cudaIpcMemHandle_t handle;
  require(cudaIpcGetMemHandle(&handle, memory), "sharing a checkpoint");
  std::memcpy(block.handle.data(), &handle, sizeof(handle));
  return block;
}

std::string CudaRankKind::ring_name(int own, int members) { return own == 0 && members > 1 ? communicator.name() : ""; }

std::shared_ptr<void> CudaRankKind::open(const ranks::Descriptor& /*file*/, const ranks::MemoryHandle& handle,
                                         uint64_t /*bytes*/) {
  cudaIpcMemHandle_t h;
  std::memcpy(&h, handle.data(), sizeof(h));
  void* memory = nullptr;
  require(cudaIpcOpenMemHandle(&memory, h, cudaIpcMemLazyEnablePeerAccess), "opening a checkpoint");
  return {memory, [](void* m) { (void)cudaIpcCloseMemHandle(m); }};
}

template <class E>
CudaRank<E>::CudaRank(CudaRankKind& kind) : Base(kind.device), communicator_(kind.communicator) {}

template <class E>
void CudaRank<E>::reserve(const ring::RingShape& shape, int /*own*/, int members, void* /*common*/) {
  members_ = members;
  Base::reserve(shape);
}

template <class E>
void CudaRank<E>::exchange(int own, int partner, const ring::UnionPlace& sent, const ring::UnionPlace& got,
                           const std::string& name, const std::function<void()>& waits) {
  const auto work = [this, own, partner, sent, got, name] {
    const OnDevice here(this->device());
    if (!communicator_.has_joined()) communicator_.join(name, own, members_);
    swap(partner, sent, got);
    require(cudaStreamSynchronize(this->stream()), "exchanging columns with another GPU");
  };
  try {
    run_while(work, waits, kPatience + (members_ - 1 - own) * kMorePatience);
  } catch (const large::LargeStop& stop) {
    for (int sign = 0; !stop.device_lost && sign < kSignsAfterFailure; ++sign) {
      std::this_thread::sleep_for(kSign);
      waits();
    }
    throw;
  }
}

template <class E>
void CudaRank<E>::swap(int partner, const ring::UnionPlace& sent, const ring::UnionPlace& got) {
  communicator_.begin();
  for (const auto& piece : this->pieces(sent)) {
    if (piece.bytes > 0) communicator_.send(piece.data, piece.bytes, partner, this->stream());
  }
  for (const auto& piece : this->pieces(got)) {
    if (piece.bytes > 0) communicator_.receive(piece.data, piece.bytes, partner, this->stream());
  }
  communicator_.end();
}

template class CudaRank<double>;
template class CudaRank<Complex>;

}  // namespace svdserve::cuda
