// Replies that a server must not send, refusals before a request was read, and what a request announces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <set>

#include "client/cpp/client.h"
#include "svdserve/v1/svd_service.pb.h"
#include "tests/client/fake_service.h"

namespace svdserve::client::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kResourceExhausted = 8, kUnavailable = 14;
constexpr char kInvalidReply[] = "the server's reply is invalid: ";
// The status of three 2x2 matrices, asked for by each way of asking.
std::vector<Status> each_way(const ClientOptions& options, const ComputeOptions& compute = {}) {
  Client client(options);
  const std::vector<double> data(12, 1);
  const Batch batch{.data = data.data(), .rows = 2, .cols = 2, .count = 3};
  std::vector<std::vector<std::byte>> memory(kPlanes);
  Outputs out;
  for (size_t p = 0; p < memory.size(); ++p) {
    memory[p].resize(static_cast<size_t>(plane_bytes(batch, compute, static_cast<Plane>(p), 3)));
    out.planes[p] = memory[p];
  }
  const Status blocking = client.decompose(batch, out, compute, kCall).status();
  std::promise<Status> later;
  client.decompose_async(batch, out, compute, kCall, [&](const Result<Report>& r) { later.set_value(r.status()); });
  const Status async = later.get_future().get();
  Stream stream = client.open_stream({.problem = compute.problem, .call = kCall});
  const auto id = stream.submit(batch, compute);
  if (!id.ok()) return {blocking, async, id.status()};
  stream.finish();
  return {blocking, async, stream.next()->status};
}

using Tamper = std::function<void(v1::DecomposeResponse*)>;

void expect_invalid(const Tamper& tamper, const std::string& words, const ComputeOptions& compute = {}) {
  FakeService service([&](const Seen&) { return Answer{.tamper = tamper}; });
  for (const Status& s : each_way(options_for(service), compute)) {
    EXPECT_EQ(s.code, Code::kInternal) << words;
    EXPECT_THAT(s.message, StartsWith(kInvalidReply));
    EXPECT_THAT(s.message, HasSubstr(words));
  }
  EXPECT_EQ(service.requests(), 3);  // none is sent again
}

Tamper exceptions(std::vector<int64_t> indices, std::vector<int> statuses) {
  return [=](v1::DecomposeResponse* r) {
    r->mutable_exception_indices()->Assign(indices.begin(), indices.end());
    r->mutable_exception_statuses()->Assign(statuses.begin(), statuses.end());
  };
}

// --- small matrices -----------------------------------------------------------------------------

TEST(Replies, ExceptionsAreOfTheRequestsMatrices) {
  expect_invalid(exceptions({3}, {1}), "of matrix 3 of 3");
  expect_invalid(exceptions({int64_t{1} << 40}, {1}), "of matrix 1099511627776 of 3");
  expect_invalid(exceptions({-1}, {1}), "of matrix -1 of 3");
  expect_invalid(exceptions({1, 1}, {1, 1}), "of matrix 1 of 3");
  expect_invalid(exceptions({2, 0}, {1, 1}), "of matrix 0 of 3");
  expect_invalid(exceptions(std::vector<int64_t>(1000000, 0), std::vector<int>(1000000, 1)), "of matrix 0 of 3");
  expect_invalid(exceptions({0, 1}, {1}), "2 indices and 1 statuses");
  expect_invalid(exceptions({}, {1}), "0 indices and 1 statuses");
  expect_invalid(exceptions({0}, {0}), "exception 0 has no status");
}

TEST(Replies, AStatusOfALaterContractIsUnknown) {
  for (const int number : {6, 77, 256, 257, INT32_MAX, -1}) {
    FakeService service([&](const Seen&) { return Answer{.tamper = exceptions({0, 2}, {number, 2})}; });
    Client client(options_for(service));
    const auto s =
        client.singular_values<double>(std::vector<double>(12, 1), 2, 2, 3, MemoryOrder::kRowMajor, {}, kCall);
    ASSERT_TRUE(s.ok()) << s.status().to_string();
    ASSERT_EQ(s->report.exceptions.size(), 2u);
    EXPECT_EQ(s->report.exceptions[0].status, MatrixStatus::kUnknown);
    EXPECT_EQ(s->report.exceptions[1].status, MatrixStatus::kNotConverged);
  }
}

TEST(Replies, CountsAreThoseOfTheRequest) {
  expect_invalid([](auto* r) { r->set_count(2); }, "it holds 2 x 2 values");
  expect_invalid([](auto* r) { r->set_count(-3); }, "it holds -3 x 2 values");
  expect_invalid([](auto* r) { r->set_values_per_matrix(INT64_MAX); }, "it holds 3 x 9223372036854775807 values");
  expect_invalid([](auto* r) { r->set_left_columns(2); }, "2 and 0 columns, 0 and 0 were asked for");
  expect_invalid([](auto* r) { r->set_right_columns(-1); }, "0 and -1 columns");
  expect_invalid([](auto* r) { r->add_groups(); }, "it holds groups");
}

TEST(Replies, PlanesAreThoseThatWereAskedFor) {
  const std::string bytes(16, '\0');
  expect_invalid([](auto* r) { r->mutable_singular_values()->pop_back(); }, "it holds 47 bytes of a result, 48");
  expect_invalid([](auto* r) { r->mutable_singular_values()->append(1 << 20, 'x'); }, "it holds 1048624 bytes");
  expect_invalid([&](auto* r) { r->set_left_vectors(bytes); }, "of a kind that was not asked for");
  expect_invalid([&](auto* r) { r->set_precoders(bytes); }, "it holds 16 bytes of a result, 0 were asked for");
  expect_invalid([&](auto* r) { r->mutable_mimo()->set_capacity(bytes); }, "it holds 16 bytes of a result, 0");
  expect_invalid([&](auto* r) { r->mutable_certificate()->set_each_matrix(bytes); }, "it holds 16 bytes of a result");
  expect_invalid([&](auto* r) { r->mutable_certificate(); }, "it has a certificate, none was asked for");
}

// Makes of the fake's answer a right one to a question about vectors.
void add_vectors(v1::DecomposeResponse* r) {
  r->set_left_vectors(std::string(96, 'u'));
  r->set_right_vectors_adjoint(std::string(96, 'v'));
  r->set_left_columns(2);
  r->set_right_columns(2);
  r->mutable_certificate()->set_residual(1e-16);
}

TEST(Replies, VectorsAreOfTheKindThatWasAskedFor) {
  const ComputeOptions compute{.vectors = Vectors::kThin, .certificate = CertificateScope::kBatch};
  FakeService service([](const Seen&) { return Answer{.tamper = add_vectors}; });
  for (const Status& s : each_way(options_for(service), compute)) EXPECT_TRUE(s.ok()) << s.to_string();
  const auto expect = [&](const Tamper& tamper, const std::string& words) {
    expect_invalid(
        [&](auto* r) {
          add_vectors(r);
          tamper(r);
        },
        words, compute);
  };
  expect([](auto* r) { r->set_combiners(r->left_vectors()); }, "of a kind that was not asked for");
  expect([](auto* r) { r->set_allocated_combiners(r->release_left_vectors()); }, "it holds 0 bytes of a result, 96");
  expect([](auto* r) { r->set_left_columns(1); }, "1 and 2 columns, 2 and 2 were asked for");
  expect([](auto* r) { r->clear_certificate(); }, "it has no certificate");
}

TEST(Replies, GeneralEigenproblemsHaveComplexResults) {
  const ComputeOptions both{.problem = Problem::kGeneral, .vectors = Vectors::kFull};
  FakeService service;
  for (const Status& s : each_way(options_for(service), both)) EXPECT_TRUE(s.ok()) << s.to_string();
  expect_invalid([](auto* r) { r->mutable_singular_values()->resize(48); }, "it holds 48 bytes of a result, 96", both);
  expect_invalid([](auto* r) { r->mutable_left_vectors()->resize(96); }, "it holds 96 bytes of a result, 192", both);
  expect_invalid([](auto* r) { r->clear_right_vectors_adjoint(); }, "it holds 0 bytes of a result, 192", both);
  expect_invalid([](auto* r) { r->clear_right_columns(); }, "2 and 0 columns, 2 and 2 were asked for", both);
  const ComputeOptions right{.problem = Problem::kGeneral, .vectors = Vectors::kThin};
  expect_invalid([](auto* r) { r->set_right_columns(2); }, "2 and 2 columns, 2 and 0 were asked for", right);
  expect_invalid([](auto* r) { r->set_right_vectors_adjoint(std::string(192, 'w')); }, "192 bytes of a result", right);
}

TEST(Replies, ConditionsOfEigenvaluesAreThoseThatWereAskedFor) {
  const ComputeOptions with{.problem = Problem::kGeneral, .condition = true}, without{.problem = Problem::kGeneral};
  FakeService service([](const Seen&) { return Answer{.exceptions = {{1, v1::MATRIX_STATUS_NEAR_DEFECTIVE}}}; });
  for (const Status& s : each_way(options_for(service), with)) EXPECT_TRUE(s.ok()) << s.to_string();
  const auto conditions = [](size_t bytes) {
    return [bytes](v1::DecomposeResponse* r) {  // beside those that the fake gives
      const int field = v1::EigendecomposeResponse::kEigenvalueConditionsFieldNumber;
      r->GetReflection()->MutableUnknownFields(r)->AddLengthDelimited(field, std::string(bytes, 'c'));
    };
  };
  expect_invalid(conditions(48), "it holds 48 bytes of a result, 0 were asked for", without);
  expect_invalid(conditions(48), "it holds 48 bytes of a result, 0 were asked for");
}

TEST(Replies, APlaneThatComesTwiceIsItsLast) {
  // As protobuf has it. The memory of the result is never written beyond its end.
  FakeService service([](const Seen&) {
    return Answer{.tamper = [](v1::DecomposeResponse* r) {
      const std::string longer(1 << 16, 'x');
      r->GetReflection()->MutableUnknownFields(r)->AddLengthDelimited(1, longer);
    }};
  });
  for (const Status& s : each_way(options_for(service))) EXPECT_THAT(s.message, HasSubstr("it holds 65536 bytes"));
}

// --- streams ------------------------------------------------------------------------------------

TEST(Replies, AStreamEndsWhereAnAnswerBelongsToNoRequest) {
  for (const uint64_t id : {uint64_t{0}, uint64_t{2}, UINT64_MAX}) {
    FakeService service([&](const Seen&) { return Answer{.id = id}; });
    Client client(options_for(service));
    Stream stream = client.open_stream({.call = kCall});
    const std::vector<double> data(4);
    const Batch batch{.data = data.data(), .rows = 2, .cols = 2, .count = 1};
    ASSERT_TRUE(stream.submit(batch).ok());
    const auto reply = stream.next();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status.code, Code::kInternal);
    EXPECT_EQ(reply->status.message,
              kInvalidReply + ("it is for request " + std::to_string(id)) + ", which does not wait for a reply");
    EXPECT_FALSE(stream.next());
    EXPECT_EQ(stream.submit(batch).status().code, Code::kInternal);
  }
}

TEST(Replies, ARequestThatWaitsForAnotherAttemptHasNoAnswer) {
  FakeService service([](const Seen& s) {
    Answer a;
    if (s.number == 0) {
      a.code = kResourceExhausted;
      a.retry_delay = seconds(50);
    } else {
      a.id = 1;
    }
    return a;
  });
  Client client(options_for(service));
  Stream stream = client.open_stream({.call = kCall});
  const std::vector<double> data(4);
  const Batch batch{.data = data.data(), .rows = 2, .cols = 2, .count = 1};
  ASSERT_TRUE(stream.submit(batch).ok());
  ASSERT_TRUE(stream.submit(batch).ok());
  for (int i = 0; i < 2; ++i) EXPECT_THAT(stream.next()->status.message, HasSubstr("it is for request 1,"));
}

// --- the server's limits ------------------------------------------------------------------------

TEST(Replies, LimitsThatNoServerHasAreNotTheCallersFault) {
  using Limits = FakeService::Limits;
  const std::pair<const char*, int64_t Limits::*> all[] = {{"max_values", &Limits::max_values},
                                                           {"max_dimension", &Limits::max_dimension},
                                                           {"max_matrices", &Limits::max_matrices},
                                                           {"max_message_bytes", &Limits::max_message_bytes},
                                                           {"max_large_bytes", &Limits::max_large_bytes},
                                                           {"max_general_order", &Limits::max_general_order},
                                                           {"max_hermitian_order", &Limits::max_hermitian_order}};
  for (const auto& [name, limit] : all) {
    for (const int64_t value : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
      const bool may_be_none = limit == &Limits::max_large_bytes || limit == &Limits::max_general_order ||
                               limit == &Limits::max_hermitian_order;
      if (may_be_none && value == 0) continue;  // it takes no such matrices
      Limits limits;
      limits.*limit = value;
      FakeService service([](const Seen&) { return Answer(); }, limits);
      const std::string words = "its limits." + std::string(name) + " is " + std::to_string(value);
      for (const Status& s : each_way(options_for(service))) {
        EXPECT_EQ(s.code, Code::kInternal) << s.to_string();
        EXPECT_THAT(s.message, HasSubstr(words));
      }
      EXPECT_THAT(Client(options_for(service)).server_info(kCall).status().message, HasSubstr(words));
      EXPECT_EQ(service.requests(), 0);
    }
  }
}

TEST(Replies, AnOlderServerDoesNotSayTheLargestHermitianOrder) {
  for (const int64_t said : {0, 40}) {
    FakeService service([](const Seen&) { return Answer(); }, {.max_values = 90, .max_hermitian_order = said});
    const auto info = Client(options_for(service)).server_info(kCall);
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->limits.max_hermitian_order, said == 0 ? 90 : 40);
  }
}

// --- what is accepted, and what is announced ----------------------------------------------------

TEST(Replies, BeyondTheLimitTheyAreRefused) {
  FakeService service(
      [](const Seen&) { return Answer{.tamper = [](auto* r) { r->set_device(std::string(100000, 'x')); }}; });
  ClientOptions o = options_for(service);
  for (const Status& s : each_way(o)) EXPECT_TRUE(s.ok()) << s.to_string();
  o.max_message_bytes = 50000;
  const int before = service.requests();
  for (const Status& s : each_way(o)) {
    EXPECT_EQ(s.code, Code::kResourceExhausted);
    EXPECT_THAT(s.message, HasSubstr("max_message_bytes bounds replies"));
  }
  EXPECT_EQ(service.requests() - before, 3);  // none is sent again
}

TEST(Announcement, IsTheSizeOfEachRequest) {
  std::mutex mutex;
  std::vector<std::pair<std::string, size_t>> seen;
  FakeService service(
      [&](const Seen& s) {
        std::lock_guard lock(mutex);
        seen.emplace_back(s.announced, s.request_bytes);
        Answer a;
        if (s.number % 3 == 0) a = {.code = kResourceExhausted, .retry_delay = milliseconds(1)};
        return a;
      },
      {.max_message_bytes = 16 << 10});
  ClientOptions o = options_for(service);
  o.retry.max_attempts = 100;
  Client client(o);
  const auto ask = [&](int64_t count, const ComputeOptions& compute = {}) {
    const std::vector<double> data(static_cast<size_t>(4 * count), 1);
    const auto s = client.singular_values<double>(data, 2, 2, count, MemoryOrder::kRowMajor, compute, kCall);
    EXPECT_TRUE(s.ok()) << s.status().to_string();
    const auto later =
        client.singular_values_async<double>(data, 2, 2, count, MemoryOrder::kRowMajor, compute, kCall).get();
    EXPECT_TRUE(later.ok()) << later.status().to_string();
  };
  ask(0);
  ask(1);
  ask(1, {.method = Method::kBisection, .tolerance = 1e-3});
  ask(1000);
  EXPECT_GE(seen.size(), 12u);
  for (const auto& [announced, bytes] : seen) EXPECT_EQ(announced, std::to_string(bytes));
}

// --- refusals before the request was read -------------------------------------------------------

// The status of a request that is longer than any window, so that it is still being written when the server ends it.
std::vector<Status> early_statuses(const EarlyService& service) {
  constexpr int64_t kCount = 200000;
  const std::vector<double> data(16 * kCount);
  ClientOptions o = options_for(service);
  o.piece_bytes = o.max_message_bytes;
  Client whole(o);
  return {whole.singular_values<double>(data, 4, 4, kCount, MemoryOrder::kRowMajor, {}, kCall).status(),
          whole.singular_values_async<double>(data, 4, 4, kCount, MemoryOrder::kRowMajor, {}, kCall).get().status()};
}

TEST(EarlyRefusal, ArrivesWithItsDetails) {
  EarlyService service([](int, const std::string&) {
    return Answer{.code = 3, .message = "too much", .reason = "INVALID_FIELD", .field = "matrices.count"};
  });
  for (const Status& s : early_statuses(service)) {
    EXPECT_EQ(s.code, Code::kInvalidArgument) << s.to_string();
    EXPECT_EQ(s.reason, "INVALID_FIELD");
    EXPECT_EQ(s.field, "matrices.count");
    EXPECT_EQ(s.message, "too much");
  }
  EXPECT_EQ(service.requests(), 2);
}

TEST(EarlyRefusal, IsRetriedAsAnyOther) {
  std::mutex mutex;
  std::set<std::string> sizes;
  for (const int code : {kResourceExhausted, kUnavailable}) {
    EarlyService service([&](int, const std::string& announced) {
      std::lock_guard lock(mutex);
      sizes.insert(announced);
      return Answer{.code = code, .message = "later", .reason = "OVERLOADED_BYTES", .retry_delay = milliseconds(1)};
    });
    for (const Status& s : early_statuses(service)) {
      EXPECT_EQ(static_cast<int>(s.code), code) << s.to_string();
      EXPECT_EQ(s.reason, "OVERLOADED_BYTES");
      EXPECT_EQ(s.message, "later");
      EXPECT_EQ(s.retry_delay, milliseconds(1));
    }
    EXPECT_EQ(service.requests(), 8);
  }
  ASSERT_EQ(sizes.size(), 1u);
  EXPECT_GT(std::stoll(*sizes.begin()), 200000 * 16 * 8);
}

TEST(EarlyRefusal, CannotMakeAClientWaitForEver) {
  EarlyService service([](int, const std::string&) {
    return Answer{.code = kResourceExhausted, .retry_delay = std::chrono::hours(24 * 365 * 200)};
  });
  for (const Status& s : early_statuses(service)) {
    EXPECT_EQ(s.code, Code::kResourceExhausted);
    EXPECT_GE(s.retry_delay, std::chrono::hours(24 * 365));
  }
  EXPECT_EQ(service.requests(), 2);
}

// --- large matrices -----------------------------------------------------------------------------

using LargeTamper = std::function<int(v1::DecomposeLargeResponse*)>;

void expect_invalid_large(const std::function<void(Large*)>& script, const std::string& words) {
  FakeService service;
  script(&service.large());
  Client client(options_for(service));
  const std::vector<double> a(300 * 40, 1);
  const Status s = client.svd_large<double>(a, 300, 40, MemoryOrder::kRowMajor, {}, kCall).status();
  EXPECT_EQ(s.code, Code::kInternal) << words;
  EXPECT_THAT(s.message, StartsWith(kInvalidReply));
  EXPECT_THAT(s.message, HasSubstr(words));
  EXPECT_EQ(service.large().opens.size(), 1u);
}

void expect_invalid_large(const LargeTamper& tamper, const std::string& words) {
  expect_invalid_large([&](Large* script) { script->tamper = tamper; }, words);
}

LargeTamper of_accepted(std::function<void(v1::LargeAccepted*)> change) {
  return [=](v1::DecomposeLargeResponse* r) {
    if (r->has_accepted()) change(r->mutable_accepted());
    return 1;
  };
}

LargeTamper of_chunks(std::function<void(v1::LargeFactorChunk*)> change) {
  return [=](v1::DecomposeLargeResponse* r) {
    if (r->has_factor_chunk()) change(r->mutable_factor_chunk());
    return 1;
  };
}

LargeTamper of_summary(std::function<void(v1::LargeSummary*)> change) {
  return [=](v1::DecomposeLargeResponse* r) {
    if (r->has_summary()) change(r->mutable_summary());
    return 1;
  };
}

TEST(LargeReplies, AcceptWhatWasOpened) {
  expect_invalid_large(of_accepted([](auto* a) { a->set_operand_bytes(1); }), "it accepts 1 bytes with results of");
  expect_invalid_large(of_accepted([](auto* a) { a->set_operand_bytes(-1); }), "it accepts -1 bytes");
  expect_invalid_large(of_accepted([](auto* a) { a->set_result_bytes(int64_t{1} << 60); }),
                       "results of 11529215046068");
  expect_invalid_large(of_accepted([](auto* a) { a->set_chunk_bytes(0); }), "it allows chunks of 0 bytes");
  expect_invalid_large(of_accepted([](auto* a) { a->set_chunk_bytes(-5); }), "it allows chunks of -5 bytes");
}

TEST(LargeReplies, ChunksComeOnceAndInOrder) {
  expect_invalid_large(of_chunks([](auto* c) { c->set_offset(-1); }), "at byte -1 of a result of 320 bytes");
  expect_invalid_large(of_chunks([](auto* c) { c->set_offset(INT64_MAX); }), "at byte 9223372036854775807");
  expect_invalid_large(of_chunks([](auto* c) { c->mutable_data()->append(1 << 20, 'x'); }),
                       "bytes at byte 0 of a result");
  expect_invalid_large(of_chunks([](auto* c) { c->clear_data(); }), "it has an empty chunk");
  expect_invalid_large(of_chunks([](auto* c) { c->clear_factor(); }), "it has a result of an unknown kind");
  expect_invalid_large([](v1::DecomposeLargeResponse* r) { return r->has_factor_chunk() ? 2 : 1; }, "of which 320 had");
  expect_invalid_large([](v1::DecomposeLargeResponse* r) { return r->has_accepted() ? 2 : 1; },
                       "accepts the matrix twice");
  expect_invalid_large([](v1::DecomposeLargeResponse* r) { return r->has_summary() ? 2 : 1; }, "after the summary");
  expect_invalid_large(
      [](v1::DecomposeLargeResponse* r) {
        if (r->has_accepted()) r->mutable_progress();
        return 1;
      },
      "it does not begin with accepted");
}

TEST(LargeReplies, ResultsFollowTheOperand) {
  // 40 columns of f64 beyond any window: the upload has not ended.
  FakeService service;
  service.large().skips_the_upload = true;
  Client client(options_for(service));
  const std::vector<double> a(40000 * 40, 1);
  const Status s =
      client.svd_large<double>(a, 40000, 40, MemoryOrder::kRowMajor, {.vectors = Vectors::kNone}, kCall).status();
  EXPECT_EQ(s.code, Code::kInternal);
  EXPECT_THAT(s.message, HasSubstr("results of an operand that was not sent completely"));
}

TEST(LargeReplies, TheSummaryIsOfTheResults) {
  expect_invalid_large(of_summary([](auto* s) { s->set_values(int64_t{1} << 60); }), "1152921504606846976 values");
  expect_invalid_large(of_summary([](auto* s) { s->set_left_columns(300); }), "300 columns of U");
  expect_invalid_large(of_summary([](auto* s) { s->set_right_rows(-1); }), "-1 rows of V^H");
  expect_invalid_large(of_summary([](auto* s) { s->set_sweeps(-1); }), "-1 sweeps");
  expect_invalid_large(of_summary([](auto* s) { s->set_members(-1); }), "-1 devices");
  expect_invalid_large(of_summary([](auto* s) { s->set_rotations(-1); }), "-1 rotations");
  expect_invalid_large(of_summary([](auto* s) { s->set_proper_rotations(901); }), "901 of them proper");
  expect_invalid_large(of_summary([](auto* s) { s->set_status(v1::MATRIX_STATUS_NON_FINITE); }), "of a small matrix");
  expect_invalid_large(of_summary([](auto* s) { s->set_status(v1::MATRIX_STATUS_BY_QR); }), "of a small matrix");
  expect_invalid_large(of_summary([](auto* s) { s->set_status(v1::MATRIX_STATUS_NEAR_DEFECTIVE); }),
                       "of a small matrix");
  expect_invalid_large(of_summary([](auto* s) { s->mutable_certificate(); }), "none was asked for");
}

TEST(LargeReplies, AStatusOfALaterContractIsUnknown) {
  for (const int number : {6, 99, 256, -1}) {
    FakeService service;
    service.large().status = number;
    Client client(options_for(service));
    const auto d = client.svd_large<double>(std::vector<double>(16, 1), 4, 4, MemoryOrder::kRowMajor, {}, kCall);
    ASSERT_TRUE(d.ok()) << d.status().to_string();
    EXPECT_EQ(d->report.status, MatrixStatus::kUnknown);
  }
}

TEST(LargeReplies, ProgressStaysBetween0And1) {
  for (const double fraction : {std::nan(""), -1.0, 2.0, HUGE_VAL, -HUGE_VAL}) {
    FakeService service;
    service.large().tamper = [&](v1::DecomposeLargeResponse* r) {
      if (r->has_progress()) r->mutable_progress()->set_fraction(fraction);
      return 1;
    };
    Client client(options_for(service));
    const auto d = client.svd_large<double>(std::vector<double>(16, 1), 4, 4, MemoryOrder::kRowMajor,
                                            {.progress =
                                                 [](const LargeProgress& p) {
                                                   EXPECT_GE(p.fraction, 0);
                                                   EXPECT_LE(p.fraction, 1);
                                                 }},
                                            kCall);
    EXPECT_TRUE(d.ok()) << d.status().to_string();
  }
}

}  // namespace
}  // namespace svdserve::client::testing
