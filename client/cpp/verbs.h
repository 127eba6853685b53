// The verbs of svdserve's client, such as svd(). Client has them with results, Client::async() with futures.
#ifndef SVDSERVE_CLIENT_CPP_VERBS_H_
#define SVDSERVE_CLIENT_CPP_VERBS_H_

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/cpp/caller.h"
#include "client/cpp/options.h"
#include "client/cpp/prepared.h"
#include "client/cpp/types.h"

namespace svdserve::client {

// kLater: a verb returns at once, and its future gets the result; else it waits for the reply. A dropped future does not
// cancel its call; options.stop does. The client's destructor does, and waits.
//
// Each verb of batches comes in three forms:
//   svd(data, shape, options)     data: any contiguous range of elements; its size says how many matrices there are
//   svd(matrices, options)        an Operand, which knows its shape: a Stack; with <svdserve/eigen.h> matrices of Eigen
//   svd_groups(group, options)    several Operands, whose shapes may differ: few messages, a result for each in order
// The elements are read until the call has ended. So a range that is named must live until then; a temporary one is
// moved into the call. A result is of the operand's kind: R for a range or a Stack of R's elements, Eigen's for Eigen's.
//
// Mistakes and failures are a status, which says what to do: Result::ok() and status(), or value(), which throws Error.
// A matrix that has no result, such as one with a NaN, does not fail the others: report.status(i) says so.
template <bool kLater>
class Verbs : public Caller {
 public:
  template <class A>
  using Reply = std::conditional_t<kLater, std::future<Result<A>>, Result<A>>;
  template <class O, class A>
  using ReplyTo = Reply<InKindOf<O, A>>;
  template <class G, class A>
  using RepliesTo = Reply<std::vector<InKindOf<MemberOf<G>, A>>>;
  template <class O>
  using ValuesOf = SingularValues<RealOf<ElementOf<O>>>;

  // Singular values: s(i), descending.
  template <Elements D>
  Reply<ValuesOf<D>> singular_values(D&& data, const Shape& shape, const ValuesOptions& options = {}) {
    return singular_values(stack_of(std::forward<D>(data), shape), options);
  }
  template <Operand O>
  ReplyTo<O, ValuesOf<O>> singular_values(O&& matrices, const ValuesOptions& options = {}) {
    return one(std::forward<O>(matrices), options, internal::values_by(options));
  }
  template <Operands G>
  RepliesTo<G, ValuesOf<MemberOf<G>>> singular_values_groups(G&& group, const ValuesOptions& options = {}) {
    return several(std::forward<G>(group), options, internal::values_by(options));
  }

  // A = U S V^H: u(i), s(i) and vh(i).
  template <Elements D>
  Reply<Decomposition<ElementOf<D>>> svd(D&& data, const Shape& shape, const SvdOptions& options = {}) {
    return svd(stack_of(std::forward<D>(data), shape), options);
  }
  template <Operand O>
  ReplyTo<O, Decomposition<ElementOf<O>>> svd(O&& matrices, const SvdOptions& options = {}) {
    return one(std::forward<O>(matrices), options, internal::svd_by(options));
  }
  template <Operands G>
  RepliesTo<G, Decomposition<ElementOf<MemberOf<G>>>> svd_groups(G&& group, const SvdOptions& options = {}) {
    return several(std::forward<G>(group), options, internal::svd_by(options));
  }

  // A = U L U^H, A Hermitian, n <= the server's limits.max_hermitian_order (512): eigenvalues w(i), ascending, and u(i).
  // Errors are relative to the largest eigenvalue of a matrix.
  template <Elements D>
  Reply<HermitianEigen<ElementOf<D>>> eigh(D&& data, const Shape& shape, const EighOptions& options = {}) {
    return eigh(stack_of(std::forward<D>(data), shape), options);
  }
  template <Operand O>
  ReplyTo<O, HermitianEigen<ElementOf<O>>> eigh(O&& matrices, const EighOptions& options = {}) {
    return one(std::forward<O>(matrices), options, internal::eigh_by(options));
  }
  template <Operands G>
  RepliesTo<G, HermitianEigen<ElementOf<MemberOf<G>>>> eigh_groups(G&& group, const EighOptions& options = {}) {
    return several(std::forward<G>(group), options, internal::eigh_by(options));
  }

  // A V = V L and W^H A = L W^H, n <= the server's limits.max_general_order (32): eigenvalues w(i), complex and in no
  // order, v(i), and wh(i) with Vectors::kFull. Groups have no starting vectors.
  template <Elements D>
  Reply<GeneralEigen<ElementOf<D>>> eig(D&& data, const Shape& shape, const EigOptions& options = {}) {
    return eig(stack_of(std::forward<D>(data), shape), options);
  }
  template <Operand O>
  ReplyTo<O, GeneralEigen<ElementOf<O>>> eig(O&& matrices, const EigOptions& options = {}) {
    return one(std::forward<O>(matrices), options, internal::eig_by(options));
  }
  template <Operands G>
  RepliesTo<G, GeneralEigen<ElementOf<MemberOf<G>>>> eig_groups(G&& group, const EigOptions& options = {}) {
    return several(std::forward<G>(group), options, internal::eig_groups_by(options));
  }

  // Capacity of MIMO channels H, rows x cols, in bit/s/Hz: result[i] has group i's, one for each SNR of snr_db.
  template <Elements D>
  Reply<Capacities<ElementOf<D>>> capacity(D&& data, const Shape& shape, std::vector<double> snr_db,
                                           const CapacityOptions& options = {}) {
    return capacity(stack_of(std::forward<D>(data), shape), std::move(snr_db), options);
  }
  template <Operand O>
  ReplyTo<O, Capacities<ElementOf<O>>> capacity(O&& channels, std::vector<double> snr_db,
                                                const CapacityOptions& options = {}) {
    return one(std::forward<O>(channels), options, internal::capacity_by(std::move(snr_db), options));
  }
  template <Operands G>
  RepliesTo<G, Capacities<ElementOf<MemberOf<G>>>> capacity_groups(G&& group, std::vector<double> snr_db,
                                                                   const CapacityOptions& options = {}) {
    return several(std::forward<G>(group), options, internal::capacity_by(std::move(snr_db), options));
  }

  // The `columns` leading right singular vectors of each channel: v(i), cols x columns.
  template <Elements D>
  Reply<Precoders<ElementOf<D>>> precoders(D&& data, const Shape& shape, int64_t columns,
                                           const CallOptions& options = {}) {
    return precoders(stack_of(std::forward<D>(data), shape), columns, options);
  }
  template <Operand O>
  ReplyTo<O, Precoders<ElementOf<O>>> precoders(O&& channels, int64_t columns, const CallOptions& options = {}) {
    return one(std::forward<O>(channels), options, internal::precoders_by(columns));
  }
  template <Operands G>
  RepliesTo<G, Precoders<ElementOf<MemberOf<G>>>> precoders_groups(G&& group, int64_t columns,
                                                                   const CallOptions& options = {}) {
    return several(std::forward<G>(group), options, internal::precoders_by(columns));
  }

  // Any of the MIMO numbers in one call, as `wanted` says.
  template <Elements D>
  Reply<Mimo<ElementOf<D>>> mimo(D&& data, const Shape& shape, const MimoOptions& wanted,
                                 const CallOptions& options = {}) {
    return mimo(stack_of(std::forward<D>(data), shape), wanted, options);
  }
  template <Operand O>
  ReplyTo<O, Mimo<ElementOf<O>>> mimo(O&& channels, const MimoOptions& wanted, const CallOptions& options = {}) {
    return one(std::forward<O>(channels), options, internal::mimo_by(wanted));
  }
  template <Operands G>
  RepliesTo<G, Mimo<ElementOf<MemberOf<G>>>> mimo_groups(G&& group, const MimoOptions& wanted,
                                                         const CallOptions& options = {}) {
    return several(std::forward<G>(group), options, internal::mimo_by(wanted));
  }

  // One large matrix, of any size: A = U S V^H by u(), s() and vh().
  template <Elements D>
  Reply<LargeDecomposition<ElementOf<D>>> svd_large(D&& data, const Shape& shape, const LargeSvdOptions& options = {}) {
    return svd_large(stack_of(std::forward<D>(data), shape), options);
  }
  template <Operand O>
  ReplyTo<O, LargeDecomposition<ElementOf<O>>> svd_large(O&& matrix, const LargeSvdOptions& options = {}) {
    return large(std::forward<O>(matrix), std::nullopt, options, internal::large_svd_by(options));
  }

  // G = U S V^H with V^H J V = J. signature: the diagonal of J, cols numbers +1 or -1; rows >= cols.
  template <Elements D>
  Reply<LargeDecomposition<ElementOf<D>>> hsvd(D&& data, const Shape& shape, std::vector<int8_t> signature,
                                               const LargeSvdOptions& options = {}) {
    return hsvd(stack_of(std::forward<D>(data), shape), std::move(signature), options);
  }
  template <Operand O>
  ReplyTo<O, LargeDecomposition<ElementOf<O>>> hsvd(O&& matrix, std::vector<int8_t> signature,
                                                    const LargeSvdOptions& options = {}) {
    return large(std::forward<O>(matrix), std::move(signature), options, internal::large_svd_by(options));
  }

  // A = U L U^H, one Hermitian matrix of any size: w() and u(). With Method::kFactored small eigenvalues keep their
  // digits where the entries determine them.
  template <Elements D>
  Reply<LargeEigen<ElementOf<D>>> eigh_large(D&& data, const Shape& shape, const LargeEighOptions& options = {}) {
    return eigh_large(stack_of(std::forward<D>(data), shape), options);
  }
  template <Operand O>
  ReplyTo<O, LargeEigen<ElementOf<O>>> eigh_large(O&& matrix, const LargeEighOptions& options = {}) {
    return large(std::forward<O>(matrix), std::nullopt, options,
                 internal::large_eigh_by(options, LargeProblem::kHermitian));
  }

  // G J G^H = U L U^H, for G as of hsvd(). The product is never formed.
  template <Elements D>
  Reply<LargeEigen<ElementOf<D>>> eigh_factored(D&& data, const Shape& shape, std::vector<int8_t> signature,
                                                const LargeEighOptions& options = {}) {
    return eigh_factored(stack_of(std::forward<D>(data), shape), std::move(signature), options);
  }
  template <Operand O>
  ReplyTo<O, LargeEigen<ElementOf<O>>> eigh_factored(O&& matrix, std::vector<int8_t> signature,
                                                     const LargeEighOptions& options = {}) {
    return large(std::forward<O>(matrix), std::move(signature), options,
                 internal::large_eigh_by(options, LargeProblem::kHermitianFactor));
  }

  // A V = V L, one general matrix of any size: w(), v(), and wh() with Vectors::kFull.
  template <Elements D>
  Reply<LargeGeneralEigen<ElementOf<D>>> eig_large(D&& data, const Shape& shape, const LargeEigOptions& options = {}) {
    return eig_large(stack_of(std::forward<D>(data), shape), options);
  }
  template <Operand O>
  ReplyTo<O, LargeGeneralEigen<ElementOf<O>>> eig_large(O&& matrix, const LargeEigOptions& options = {}) {
    return large(std::forward<O>(matrix), std::nullopt, options, internal::large_eig_by(options));
  }

 protected:
  friend class Client;
  explicit Verbs(std::shared_ptr<internal::Core> core) : Caller(std::move(core)) {}

  // Send what was made ready of an operand O, of several, or of a large matrix.
  template <class O, class A>
  ReplyTo<O, A> send(Result<internal::Prepared<A>> prepared, const CallOptions& call) {
    return replied<InKindOf<O, A>>(std::move(prepared), [&](auto& p, auto done) {
      if constexpr (kLater) {
        decompose_async(p.batch, p.out, p.compute, call, std::move(done));
      } else {
        return done(decompose(p.batch, p.out, p.compute, call));
      }
    });
  }
  template <class G, class A>
  RepliesTo<G, A> send_groups(Result<std::vector<internal::Prepared<A>>> prepared, const CallOptions& call) {
    return replied<std::vector<InKindOf<MemberOf<G>, A>>>(std::move(prepared), [&](auto& all, auto done) {
      std::vector<Group> groups;
      for (const internal::Prepared<A>& p : all) groups.push_back({p.batch, p.out});
      const ComputeOptions compute = all.empty() ? ComputeOptions{} : all.front().compute;
      if constexpr (kLater) {
        decompose_groups_async(groups, compute, call, std::move(done));
      } else {
        return done(decompose_groups(groups, compute, call));
      }
    });
  }
  template <class O, class A>
  ReplyTo<O, A> send_large(Result<internal::PreparedLarge<A>> prepared, const CallOptions& call) {
    return replied<InKindOf<O, A>>(std::move(prepared), [&](auto& p, auto done) {
      if (p.signature) p.matrix.signature = *p.signature;
      if constexpr (kLater) {
        decompose_large_async(p.matrix, p.out, p.options, call, std::move(done));
      } else {
        return done(decompose_large(p.matrix, p.out, p.options, call));
      }
    });
  }

 private:
  // Send what `prepare` makes of one operand, of several, or of a large matrix.
  template <class O, class Options, class Prepare>
  auto one(O&& matrices, const Options& options, const Prepare& prepare) {
    return send<O>(internal::ready(std::forward<O>(matrices), prepare), internal::call_of(options));
  }
  template <class G, class Options, class Prepare>
  auto several(G&& group, const Options& options, const Prepare& prepare) {
    return send_groups<G>(internal::ready_groups(std::forward<G>(group), prepare), internal::call_of(options));
  }
  template <class O, class Options, class Prepare>
  auto large(O&& matrix, std::optional<std::vector<int8_t>> signature, const Options& options, const Prepare& prepare) {
    return send_large<O>(internal::ready_large(std::forward<O>(matrix), std::move(signature), prepare),
                         internal::call_of(options));
  }

  // Calls `start` with what was prepared and with a function that takes the report; its result is the reply.
  template <class Answer, class P, class Start>
  Reply<Answer> replied(Result<P> prepared, const Start& start) {
    if constexpr (kLater) {
      struct State {
        std::promise<Result<Answer>> promise;
        Result<P> prepared;
      };
      const auto state = std::make_shared<State>(State{{}, std::move(prepared)});
      std::future<Result<Answer>> future = state->promise.get_future();
      if (!state->prepared.ok()) {
        state->promise.set_value(internal::explained(state->prepared.status()));
      } else {
        start(*state->prepared, [state](auto report) {
          state->promise.set_value(internal::answer_of<Answer>(*std::move(state->prepared), std::move(report)));
        });
      }
      return future;
    } else {
      if (!prepared.ok()) return internal::explained(prepared.status());
      return start(*prepared, [&prepared](auto report) {
        return internal::answer_of<Answer>(*std::move(prepared), std::move(report));
      });
    }
  }
};

}  // namespace svdserve::client
#endif  // SVDSERVE_CLIENT_CPP_VERBS_H_
