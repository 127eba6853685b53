#include "engine/backends/cuda/members/nccl.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve::cuda {
namespace {

// nccl.h's, the same in every release of NCCL 2, declared here so that no build needs it.
struct UniqueId {
  char bytes[128];
};
constexpr int kSuccess = 0, kBytes = 0;  // ncclSuccess, ncclInt8

struct Nccl {
  int (*get_unique_id)(UniqueId* id) = nullptr;
  int (*comm_init_rank)(void** comm, int ranks, UniqueId id, int rank) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void* from, size_t count, int type, int peer, void* comm, cudaStream_t stream) = nullptr;
  int (*receive)(void* to, size_t count, int type, int peer, void* comm, cudaStream_t stream) = nullptr;
  const char* (*error_string)(int error) = nullptr;
  const char* (*last_error)(void* comm) = nullptr;  // since 2.13, or null
  std::string refusal;                              // empty: all are there
};

template <class Function>
void find(void* library, const char* name, Function& function, std::string& refusal) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && refusal.empty()) {
    refusal = std::string("ranks of GPUs need ") + name + ", which libnccl.so.2 has not: install NCCL 2.7 or later";
  }
}

Nccl open() {
  Nccl nccl;
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const text = dlerror();
    nccl.refusal = std::string("ranks of GPUs need NCCL 2: install libnccl2, or the wheel nvidia-nccl-cu13 (") +
                   (text != nullptr ? text : "libnccl.so.2 does not open") + ")";
    return nccl;
  }
  find(library, "ncclGetUniqueId", nccl.get_unique_id, nccl.refusal);
  find(library, "ncclCommInitRank", nccl.comm_init_rank, nccl.refusal);
  find(library, "ncclGroupStart", nccl.group_start, nccl.refusal);
  find(library, "ncclGroupEnd", nccl.group_end, nccl.refusal);
  find(library, "ncclSend", nccl.send, nccl.refusal);
  find(library, "ncclRecv", nccl.receive, nccl.refusal);
  find(library, "ncclGetErrorString", nccl.error_string, nccl.refusal);
  nccl.last_error = reinterpret_cast<const char* (*)(void*)>(dlsym(library, "ncclGetLastError"));
  return nccl;
}

const Nccl& nccl() {
  static const Nccl opened = open();
  return opened;
}

void require_nccl(int result, const char* what) {
  if (result == kSuccess) return;
  std::string detail = std::string("NCCL: ") + nccl().error_string(result) + ", while " + what;
  if (nccl().last_error != nullptr) {
    const char* const more = nccl().last_error(nullptr);
    if (more != nullptr && *more != '\0') detail += std::string(": ") + more;
  }
  throw large::LargeStop{LargeStatus::kFault, detail};
}

}  // namespace

const char* nccl_refusal() { return nccl().refusal.empty() ? nullptr : nccl().refusal.c_str(); }

std::string Communicator::name() {
  if (name_.empty()) {
    UniqueId id{};
    require_nccl(nccl().get_unique_id(&id), "naming a ring");
    name_.assign(id.bytes, sizeof(id.bytes));
  }
  return name_;
}

void Communicator::join(const std::string& name, int own, int members) {
  UniqueId id{};
  std::memcpy(id.bytes, name.data(), std::min(name.size(), sizeof(id.bytes)));
  require_nccl(nccl().comm_init_rank(&comm_, members, id, own), "joining a ring");
}

void Communicator::begin() { require_nccl(nccl().group_start(), "beginning an exchange"); }

void Communicator::send(const void* from, size_t bytes, int partner, cudaStream_t stream) {
  require_nccl(nccl().send(from, bytes, kBytes, partner, comm_, stream), "sending columns");
}

void Communicator::receive(void* to, size_t bytes, int partner, cudaStream_t stream) {
  require_nccl(nccl().receive(to, bytes, kBytes, partner, comm_, stream), "receiving columns");
}

void Communicator::end() { require_nccl(nccl().group_end(), "exchanging columns"); }

}  // namespace svdserve::cuda
