#include "engine/backends/cuda/large/decompose_large.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "engine/algorithms/large/large_driver.h"
#include "engine/algorithms/large/predicted_work.h"
#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/device/library_loader.h"
#include "engine/backends/cuda/large/cuda_large_backend.h"
#include "engine/backends/cuda/large/general_eigenproblem.h"
#include "engine/backends/cuda/large/large_lane.h"
#include "engine/backends/cuda/large/reflectors.h"
#include "engine/backends/cuda/p_steps/gram_step.h"
#include "engine/backends/streamed/streamed_backend.h"

namespace svdserve::cuda {
namespace {

template <size_t N>
void copy_text(const std::string& from, char (&to)[N]) {
  std::snprintf(to, N, "%s", from.c_str());
}

// Where a job has less memory than it would like: for its small pieces, at most.
constexpr uint64_t kSmallPiecesBytes = uint64_t{256} << 20;

// The memory of one job, freed at its end.
class JobArena {
 public:
  // is_short: of these bytes, large pieces are allocated one by one.
  JobArena(uint64_t bytes, bool is_short) {
    const uint64_t at_once = is_short ? std::min(bytes, kSmallPiecesBytes) : bytes;
    require(cudaMalloc(&memory_, at_once), "allocating a large matrix's memory");
    if (!is_short) {
      arena_ = std::make_unique<DeviceArena>(memory_, at_once);
      return;
    }
    const auto allocate = [](uint64_t size) -> void* {
      void* piece = nullptr;
      if (cudaMalloc(&piece, size) == cudaSuccess) return piece;
      (void)cudaGetLastError();
      return nullptr;
    };
    arena_ = std::make_unique<DeviceArena>(
        memory_, at_once,
        DeviceArena::Allocations{bytes - at_once, allocate, [](void* piece) { (void)cudaFree(piece); }});
  }
  ~JobArena() {
    arena_.reset();
    (void)cudaFree(memory_);
  }
  JobArena(const JobArena&) = delete;
  JobArena& operator=(const JobArena&) = delete;
  DeviceArena& arena() { return *arena_; }

 private:
  void* memory_ = nullptr;
  std::unique_ptr<DeviceArena> arena_;
};

// panels: bytes for panels of matrices that lie in the host's memory; 0: they lie in the device's.
template <class E>
LargeOutcome decompose(LargeLane& lane, DeviceArena& arena, const LargePlan& plan, uint64_t panels,
                       const LargeOperands& operands, const LargeControl& control) {
  const LargeWatch watch(control);
  CudaLargeBackend<E> backend(lane, arena, watch);
  if (panels == 0) return large::decompose(backend, plan, operands, control);
  streamed::StreamedBackend<CudaLargeBackend<E>> by_panels(backend, panels, watch);
  return large::block_jacobi(by_panels, plan, operands, control);
}

LargeOutcome by_kind(LargeLane& lane, DeviceArena& arena, const LargePlan& plan, uint64_t panels,
                     const LargeOperands& operands, const LargeControl& control) {
  if (plan.options.kind == LargeKind::kGeneral) return general_eigenproblem(lane, arena, plan, operands, control);
  return is_complex(plan.problem.dtype) ? decompose<Complex>(lane, arena, plan, panels, operands, control)
                                        : decompose<double>(lane, arena, plan, panels, operands, control);
}

template <class E>
uint64_t matrix_bytes(int64_t rows, int64_t cols) {
  return static_cast<uint64_t>(CudaLargeBackend<E>::leading_dimension(rows)) * static_cast<uint64_t>(cols) * sizeof(E);
}

// The small pieces of an SVD: a QR, the triangles of two, the p-steps, which pairs are known and the lists of pairs. The
// lines that are moved within a matrix at once come on top.
template <class E>
uint64_t small_pieces_bytes(int64_t m, int64_t n) {
  const int64_t blocks = n / 32 + 2;
  const uint64_t moved =
      std::min(matrix_bytes<E>(m, m), CudaLargeBackend<E>::kMoved * sizeof(E) + 64 * matrix_bytes<E>(m, 1));
  return Reflectors<E>::workspace_bytes(n) + 2 * CudaLargeBackend<E>::scalar_bytes(n) +
         CudaLargeBackend<E>::p_step_bytes(n) + moved +
         static_cast<uint64_t>(GramStepVersions::ints(blocks) * 4 + blocks * blocks * 8);
}

// Singular values alone: the tall matrix and X, or X and R^H of its own QR. An eigenbasis has X, the Gram matrix, the
// basis, and four for cuSOLVER's. A tall matrix without a QR has these three and R^-1 beside it.
template <class E>
uint64_t values_bytes(const LargePlan& plan) {
  const int64_t m = std::max(plan.problem.rows, plan.problem.cols), n = std::min(plan.problem.rows, plan.problem.cols);
  const uint64_t tall = matrix_bytes<E>(m, n), square = matrix_bytes<E>(n, n);
  const uint64_t matrices = large::may_start_by_eigenbasis(plan) ? std::max(tall + 4 * square, 7 * square)
                                                                 : std::max(tall + square, 2 * square);
  return matrices + small_pieces_bytes<E>(m, n);
}

// With vectors, where matrices that are not used for a while leave. Two at a time: the tall matrix and its left basis; X and
// W; in the certificate a basis and its Gram matrix, or the operand and U. An eigenbasis is there with the Gram matrix and
// R, and cuSOLVER's has four more. Its W is there when it multiplies the tall matrix. A group of lines comes on top.
template <class E>
uint64_t parking_bytes(const LargePlan& plan) {
  const bool wide = plan.problem.rows < plan.problem.cols;
  const int64_t m = std::max(plan.problem.rows, plan.problem.cols), n = std::min(plan.problem.rows, plan.problem.cols);
  const int64_t left = wide ? plan.right_rows : plan.left_columns;
  const uint64_t tall = matrix_bytes<E>(m, n), basis = matrix_bytes<E>(m, std::max(n, left));
  const uint64_t square = matrix_bytes<E>(n, n);
  uint64_t matrices = large::may_start_by_eigenbasis(plan) ? tall + std::max(basis + square, 5 * square)
                                                           : std::max(tall + basis, 2 * square);
  if (plan.options.certificate) matrices = std::max(matrices, basis + matrix_bytes<E>(left, left));
  return matrices + matrix_bytes<E>(m, std::min(m, large::kGroupOfLines)) + small_pieces_bytes<E>(m, n);
}

// Parked at most: A' and Q, R_2 and Q_2, X_2, and X or W; or the bases in the certificate.
uint64_t parked_bytes(const LargePlan& plan) {
  const auto m = static_cast<uint64_t>(std::max(plan.problem.rows, plan.problem.cols));
  const auto n = static_cast<uint64_t>(std::min(plan.problem.rows, plan.problem.cols));
  const auto bases = static_cast<uint64_t>(plan.problem.rows * plan.left_columns + plan.right_rows * plan.problem.cols);
  return std::max(m * n + 3 * n * n, bases) * (is_complex(plan.problem.dtype) ? sizeof(Complex) : sizeof(double));
}

}  // namespace

const char* large_refusal() {
  const std::string& refusal = libraries().refusal;
  return refusal.empty() ? nullptr : refusal.c_str();
}

namespace {

bool has_vectors(const LargePlan& plan) { return plan.left_columns > 0 || plan.right_rows > 0; }

uint64_t slack_bytes(const Problem& p) {
  return 2 * kTransferBytes + (uint64_t{64} << 20) + static_cast<uint64_t>(std::max(p.rows, p.cols)) * 1024;
}

// With room for these: the tall matrix and its copy when it is permuted; X, its copy, W and the Gram matrix. The workspace of
// the eigenbasis, the left basis, its copy and the rest come on top. TRIDIAGONAL: M, V, a product, a copy, and four for
// the eigenbasis: cuSOLVER's, ours takes two. FACTORED: the SVD of G, and matrices of M's order. A general matrix without
// Xgeev: no memory is enough, so that the processor takes it.
uint64_t plain_device_bytes(const LargePlan& plan) {
  const Problem& p = plan.problem;
  if (plan.options.kind == LargeKind::kGeneral) {
    return libraries().has_geev() ? general_eigenproblem_device_bytes(plan) : kAnyRoom;
  }
  const bool complex = is_complex(p.dtype);
  const auto size = complex ? matrix_bytes<Complex> : matrix_bytes<double>;
  if (plan.options.method == Method::kTridiagonal) return 8 * size(p.rows, p.cols) + slack_bytes(p);
  if (large::is_factored(plan)) {
    // A definite matrix has an ordinary one, which may begin by an eigenbasis.
    const LargePlan svd = large::factor_svd_plan(plan, p.cols, LargeKind::kSvd);
    // M before G's SVD, or the basis behind it; the certificate's matrices.
    return plain_device_bytes(svd) + (plan.options.certificate ? 4 : 2) * size(p.rows, p.rows);
  }
  const bool wide = p.rows < p.cols;
  const int64_t m = std::max(p.rows, p.cols), n = std::min(p.rows, p.cols);
  if (!has_vectors(plan) && plan.options.top_k == 0) {
    return slack_bytes(p) + (complex ? values_bytes<Complex>(plan) : values_bytes<double>(plan));
  }
  const int64_t left = wide ? plan.right_rows : plan.left_columns;
  uint64_t bytes = size(m, n) + 2 * size(m, std::max(n, left)) + 7 * size(n, n);
  if (plan.options.certificate) bytes += size(m, n) + 2 * size(std::max(m, left), left);
  return bytes + slack_bytes(p) +
         (complex ? CudaLargeBackend<Complex>::p_step_bytes(n) : CudaLargeBackend<double>::p_step_bytes(n));
}

// Room that small pieces leave unused.
uint64_t gaps_bytes(const Problem& p) {
  return std::min(kSmallPiecesBytes, static_cast<uint64_t>(p.rows) * static_cast<uint64_t>(p.cols) * sizeof(double));
}

JobMemory parked_job(const LargePlan& plan) {
  const bool complex = is_complex(plan.problem.dtype);
  const uint64_t matrices = complex ? parking_bytes<Complex>(plan) : parking_bytes<double>(plan);
  return {{parked_bytes(plan), slack_bytes(plan.problem) + gaps_bytes(plan.problem) + matrices}, true};
}

// All matrices lie in the host's memory. At most: A' and Q, Q_2, W, X, and W^H W with a group of lines; or A', the left
// basis, Q_2, W and X; or the bases with a Gram matrix, or with A.
uint64_t streamed_host_bytes(const LargePlan& plan) {
  const bool wide = plan.problem.rows < plan.problem.cols;
  const auto m = static_cast<uint64_t>(std::max(plan.problem.rows, plan.problem.cols));
  const auto n = static_cast<uint64_t>(std::min(plan.problem.rows, plan.problem.cols));
  const auto left = static_cast<uint64_t>(wide ? plan.right_rows : plan.left_columns);
  const uint64_t group = std::min(n, uint64_t{streamed::StreamedBackend<CudaLargeBackend<double>>::kGroupOfLines});
  uint64_t entries = has_vectors(plan) ? m * n + 4 * n * n + group * n : m * n + n * n;
  entries = std::max(entries, m * n + m * left + 3 * n * n);
  if (plan.options.certificate) entries = std::max(entries, m * left + n * n + std::max(left * left, m * n));
  return entries * (is_complex(plan.problem.dtype) ? sizeof(Complex) : sizeof(double));
}

// Device memory of streamed matrices: what is no panel, and a panel of the largest.
struct StreamedBytes {
  uint64_t fixed, panel;
};
template <class E>
StreamedBytes streamed_bytes(const LargePlan& plan) {
  constexpr int64_t kWidestBlock = 64;
  const int64_t m = std::max(plan.problem.rows, plan.problem.cols), n = std::min(plan.problem.rows, plan.problem.cols);
  const int64_t widest = std::max({n, plan.left_columns, plan.right_rows});
  const uint64_t of_panels = 2 * large::kSuperBlocks * CudaLargeBackend<E>::scalar_bytes(1);  // QRs of panels have more
  return {slack_bytes(plan.problem) + gaps_bytes(plan.problem) + small_pieces_bytes<E>(m, n) + of_panels,
          streamed::panel_bytes<E>(CudaLargeBackend<E>::leading_dimension(m), widest, kWidestBlock)};
}
StreamedBytes streamed_bytes(const LargePlan& plan) {
  return is_complex(plan.problem.dtype) ? streamed_bytes<Complex>(plan) : streamed_bytes<double>(plan);
}

// In whole matrices where they fit, then in as few as may be, then in panels.
JobMemory job_of(const LargePlan& plan, uint64_t device_room) {
  JobMemory job = job_on_device(plan);
  if (job.workspace.device_bytes <= device_room || !may_leave(plan)) return job;
  if (has_vectors(plan)) {
    job = parked_job(plan);
    if (job.workspace.device_bytes <= device_room) return job;
  }
  return streamed_job(plan, device_room);
}

}  // namespace

bool may_leave(const LargePlan& plan) { return !is_eigenproblem(plan.options.kind) && plan.options.top_k == 0; }

JobMemory job_on_device(const LargePlan& plan) {
  JobMemory job;
  job.workspace.device_bytes = plain_device_bytes(plan);
  if (plan.options.kind == LargeKind::kGeneral) job.workspace.host_bytes = general_eigenproblem_host_bytes(plan);
  return job;
}

JobMemory streamed_job(const LargePlan& plan, uint64_t device_room) {
  constexpr uint64_t kMostPanels = 3 * large::kSuperBlocks + 2;  // no operation has more at a time
  const auto [fixed, panel] = streamed_bytes(plan);
  const uint64_t room = device_room > fixed ? device_room - fixed : 0;
  const uint64_t panels = std::clamp(room, streamed::kLeastPanels * panel, kMostPanels * panel);
  return {{streamed_host_bytes(plan), fixed + panels}, true, panels};
}

LargeWorkspace large_memory(const LargePlan* plan, uint64_t device_room) {
  return job_of(*plan, device_room).workspace;
}

// Q and R; R_2 and X_0; X and W, and those before the last sweep.
uint64_t large_state_bytes(const LargePlan* plan) {
  if (!large::has_states(*plan)) return 0;
  if (large::is_factored(*plan)) {
    const LargePlan svd = large::factor_svd_plan(*plan, plan->problem.cols, LargeKind::kHyperbolicSvd);
    return large_state_bytes(&svd);
  }
  const bool complex = is_complex(plan->problem.dtype), vectors = plan->left_columns > 0 || plan->right_rows > 0;
  const auto m = std::max(plan->problem.rows, plan->problem.cols), n = std::min(plan->problem.rows, plan->problem.cols);
  const auto rows = static_cast<uint64_t>(m), cols = static_cast<uint64_t>(n), blocks = cols / 32 + 2;
  const uint64_t entries = vectors ? rows * cols + 6 * cols * cols : 3 * cols * cols;
  const auto scalar_bytes = complex ? CudaLargeBackend<Complex>::scalar_bytes : CudaLargeBackend<double>::scalar_bytes;
  const uint64_t scalars = scalar_bytes(n) + large::kSuperBlocks * scalar_bytes(1);  // QRs of panels have more
  constexpr uint64_t kNamesAndNumbers = 16 << 10, kArraysOfRows = 3 * 8, kArraysOfColumns = 16 * 8;
  return entries * (complex ? sizeof(Complex) : sizeof(double)) + 2 * scalars + kArraysOfRows * rows +
         kArraysOfColumns * cols + sizeof(int32_t) * blocks * blocks + kNamesAndNumbers;
}

void put_outcome(const LargeOutcome& from, SvdserveCudaLargeOutcome& to) {
  to = {};
  to.report = from;
  to.members = from.members;
  copy_text(from.detail, to.detail);
  to.phase_count = static_cast<int32_t>(std::min<size_t>(from.phases.size(), kSvdserveCudaMaxPhases));
  for (int32_t i = 0; i < to.phase_count; ++i) {
    const LargePhaseTime& phase = from.phases[static_cast<size_t>(i)];
    copy_text(phase.name, to.phases[i].name);
    to.phases[i].seconds = phase.seconds;
    to.phases[i].flops = phase.flops;
  }
}

OwnControl::OwnControl(const SvdserveCudaLargeControl& control) : states_(control.states) {
  control_.cancel = control.cancel;
  control_.states = states_.get();
  control_.device_room = control.device_room;
  if (control.progress != nullptr) {
    control_.progress = [&control](const LargeProgress& p) { control.progress(control.user, &p); };
  }
}

LargeOutcome run_on_lane(int32_t device, const JobMemory& job,
                         const std::function<LargeOutcome(LargeLane&, DeviceArena&)>& f) {
  LargeOutcome outcome;
  try {
    require(cudaSetDevice(device), "choosing a device");
    std::unique_ptr<LargeLane> lane = take_lane(device);
    {
      JobArena memory(job.workspace.device_bytes, job.is_short);
      outcome = f(*lane, memory.arena());
      // Whatever became of it, nothing of it is left in the stream, or the device is lost.
      if (!outcome.device_lost && cudaStreamSynchronize(lane->stream) != cudaSuccess) {
        (void)cudaGetLastError();
        outcome.status = LargeStatus::kFault;
        outcome.device_lost = true;
      }
    }
    if (outcome.device_lost) {
      (void)lane.release();  // nothing of a dead context is freed
    } else {
      keep_lane(std::move(lane));
    }
  } catch (const large::LargeStop& stop) {
    outcome.status = stop.status;
    outcome.detail = stop.detail;
    outcome.device_lost = stop.device_lost;
  } catch (const std::exception& e) {
    outcome.status = LargeStatus::kFault;
    outcome.detail = e.what();
  }
  return outcome;
}

void decompose_large(int32_t device, const LargePlan* plan, const LargeOperands* operands,
                     const SvdserveCudaLargeControl* control, SvdserveCudaLargeOutcome* outcome) {
  const OwnControl own(*control);
  const JobMemory job = job_of(*plan, control->device_room);
  const auto run = [&](LargeLane& lane, DeviceArena& arena) {
    return by_kind(lane, arena, *plan, job.panels, *operands, own);
  };
  put_outcome(run_on_lane(device, job, run), *outcome);
}

}  // namespace svdserve::cuda
