#include "client/cli/load/load.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"

namespace svdserve::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kExponent = -12;  // of integers: a normal number has about four bits before the point

template <class Real>
void fill_normal(std::vector<std::byte>& bytes, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<Real> normal;
  auto* values = reinterpret_cast<Real*>(bytes.data());
  for (size_t i = 0; i < bytes.size() / sizeof(Real); ++i) values[i] = normal(generator);
}

// A normal number as 16 bits of a narrow type, of which the last ones are cut off.
uint16_t narrowed(float x, client::DataType type) {
  if (type == client::DataType::kI16 || type == client::DataType::kCI16) {
    return static_cast<uint16_t>(static_cast<int16_t>(std::ldexp(x, -kExponent)));
  }
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if (type == client::DataType::kBF16) return static_cast<uint16_t>(bits >> 16);
  const uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 0xff;
  if (exponent <= 127 - 15) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | (exponent - (127 - 15)) << 10 | (bits >> 13 & 0x3ff));
}

void fill_narrow(std::vector<std::byte>& bytes, uint64_t seed, client::DataType type) {
  std::vector<std::byte> wide(2 * bytes.size());
  fill_normal<float>(wide, seed);
  for (size_t i = 0; i < bytes.size() / sizeof(uint16_t); ++i) {
    float x;
    std::memcpy(&x, wide.data() + i * sizeof(x), sizeof(x));
    const uint16_t number = narrowed(x, type);
    std::memcpy(bytes.data() + i * sizeof(number), &number, sizeof(number));
  }
}

void count(LoadTally* tally, const Workload& w, const client::Status& status, int64_t exceptions,
           Clock::duration latency) {
  if (status.ok()) {
    ++tally->ok;
    tally->latency.add(latency);
    tally->matrices += w.batch.count;
    tally->exceptions += exceptions;
    tally->request_bytes += w.request_bytes;
    tally->reply_bytes += w.reply_bytes;
    return;
  }
  const bool is_refused = status.code == client::Code::kResourceExhausted || status.reason == "DRAINING";
  ++(is_refused ? tally->refused : status.code == client::Code::kDeadlineExceeded ? tally->expired : tally->failed);
  const std::string error = absl::StrCat(name(status.code), status.reason.empty() ? "" : " ", status.reason);
  ++tally->errors[error];
  tally->messages.try_emplace(error, status.message);
}

}  // namespace

Workload make_workload(int64_t rows, int64_t cols, int64_t count, client::DataType type, double weight, uint64_t seed,
                       const client::ComputeOptions& compute) {
  Workload w;
  w.weight = weight;
  w.request_bytes = rows * cols * count * static_cast<int64_t>(client::element_bytes(type));
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(w.request_bytes));
  if (type != result_type(type)) {
    fill_narrow(*bytes, seed, type);
  } else {
    client::value_bytes(type) == 4 ? fill_normal<float>(*bytes, seed) : fill_normal<double>(*bytes, seed);
  }
  w.batch = {.data = bytes->data(), .rows = rows, .cols = cols, .count = count, .data_type = type, .owner = bytes};
  if (type == client::DataType::kI16 || type == client::DataType::kCI16) w.batch.exponent = kExponent;
  for (size_t i = 0; i < client::kPlanes; ++i) {
    w.reply_bytes += plane_bytes(w.batch, compute, static_cast<client::Plane>(i), count);
  }
  return w;
}

void LoadTally::add(const LoadTally& other) {
  latency.add(other.latency);
  ok += other.ok;
  refused += other.refused;
  expired += other.expired;
  failed += other.failed;
  dropped += other.dropped;
  matrices += other.matrices;
  exceptions += other.exceptions;
  request_bytes += other.request_bytes;
  reply_bytes += other.reply_bytes;
  for (const auto& [error, n] : other.errors) errors[error] += n;
  messages.insert(other.messages.begin(), other.messages.end());
}

// --- what all runners share ---------------------------------------------------------------------

struct Load::Shared {
  client::Client& client;
  const std::vector<Workload> mix;
  const LoadOptions options;
  std::atomic<bool> measuring{false}, counted{false}, stopping{false};
  std::stop_source give_up = {};
  std::vector<double> weights = {};
  size_t largest_reply = 0;

  // Runs the client out of a server that is not there: a short pause instead of a busy loop.
  static void pause_if_unreachable(const client::Status& status) {
    if (status.code == client::Code::kUnavailable) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  // Whether a request that has just ended counts.
  bool counts() {
    if (!measuring) return false;
    counted = true;
    return true;
  }
  // Where the results of a request go: one plane behind the other, in largest_reply bytes at least.
  client::Outputs outputs(const Workload& w, std::span<std::byte> memory) const {
    client::Outputs to;
    for (size_t i = 0; i < client::kPlanes; ++i) {
      const auto plane = static_cast<client::Plane>(i);
      const auto bytes = static_cast<size_t>(plane_bytes(w.batch, options.compute, plane, w.batch.count));
      to[plane] = memory.first(bytes);
      memory = memory.subspan(bytes);
    }
    return to;
  }
  client::CallOptions call() const { return {.timeout = options.timeout, .stop = give_up.get_token()}; }
};

// One thread of load with a tally of its own.
class Load::Runner {
 public:
  Runner(Shared& shared, uint64_t seed)
      : shared_(shared), generator_(seed), choose_(shared.weights.begin(), shared.weights.end()) {}
  virtual ~Runner() = default;
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  const LoadTally& join() {
    thread_.join();
    return tally_;
  }

 protected:
  virtual void run() = 0;
  const Workload& pick() { return shared_.mix[choose_(generator_)]; }

  Shared& shared_;
  std::mt19937_64 generator_;
  LoadTally tally_;

 private:
  std::discrete_distribution<size_t> choose_;
  std::thread thread_;
};

// A caller that waits for each answer before it asks again.
class Load::Closed : public Runner {
 public:
  using Runner::Runner;

 private:
  void run() override {
    std::vector<std::byte> results(shared_.largest_reply);
    while (!shared_.stopping) {
      const Workload& w = pick();
      const auto begin = Clock::now();
      const auto report =
          shared_.client.decompose(w.batch, shared_.outputs(w, results), shared_.options.compute, shared_.call());
      const auto took = Clock::now() - begin;
      const client::Status status = report.status();
      if (shared_.counts()) {
        count(&tally_, w, status, report.ok() ? report->count_wrong() : 0, took);
      }
      Shared::pause_if_unreachable(status);
    }
  }
};

// The same with calls that carry nothing: what the wire and the client take by themselves.
class Load::Empty : public Runner {
 public:
  using Runner::Runner;

 private:
  void run() override {
    const Workload nothing;
    while (!shared_.stopping) {
      const auto took = shared_.client.ping(shared_.call());
      if (shared_.counts()) count(&tally_, nothing, took.status(), 0, took.ok() ? *took : Clock::duration{});
      Shared::pause_if_unreachable(took.status());
    }
  }
};

// A stream that is kept full; one that breaks is opened anew.
class Load::Streaming : public Runner {
 public:
  using Runner::Runner;

 private:
  struct Sent {
    const Workload* workload;
    Clock::time_point begin;
  };

  void run() override {
    while (!shared_.stopping) {
      client::Stream stream = shared_.client.open_stream({.max_in_flight = static_cast<int>(shared_.options.window),
                                                          .problem = shared_.options.compute.problem,
                                                          .ordered = false,
                                                          .call = {.stop = shared_.give_up.get_token()}});
      std::map<uint64_t, Sent> sent;
      while (keep_full(stream, sent) && take_one(stream, sent)) {
      }
      stream.finish();
      while (take_one(stream, sent)) {
      }
      if (!shared_.stopping) Shared::pause_if_unreachable(stream.status());
    }
  }

  // False: nothing more is to be sent on this stream.
  bool keep_full(client::Stream& stream, std::map<uint64_t, Sent>& sent) {
    while (!shared_.stopping) {
      const Workload& w = pick();
      const auto begin = Clock::now();
      const auto id = stream.try_submit(w.batch, shared_.options.compute, shared_.options.timeout);
      if (!id.ok()) {
        if (shared_.counts()) count(&tally_, w, id.status(), 0, {});
        return false;
      }
      if (!*id) return true;
      sent[**id] = {&w, begin};
    }
    return false;
  }

  bool take_one(client::Stream& stream, std::map<uint64_t, Sent>& sent) {
    const auto reply = stream.next();
    if (!reply) return false;
    const Sent s = sent[reply->id];
    sent.erase(reply->id);
    if (shared_.counts()) {
      count(&tally_, *s.workload, reply->status, reply->report.count_wrong(), Clock::now() - s.begin);
    }
    return true;
  }
};

// Requests at random times that do not depend on the answers. Latency counts from the time a request was due, so that a
// late sender does not flatter the server.
class Load::Open : public Runner {
 public:
  using Runner::Runner;

 private:
  void run() override {
    std::exponential_distribution<double> gap(*shared_.options.rate);
    auto due = Clock::now();
    while (!shared_.stopping) {
      due += std::chrono::nanoseconds(static_cast<int64_t>(gap(generator_) * 1e9));
      for (auto now = Clock::now(); now < due && !shared_.stopping; now = Clock::now()) {
        // In steps, so that the end is seen in a long gap, too.
        std::this_thread::sleep_until(std::min(due, now + std::chrono::milliseconds(100)));
      }
      if (shared_.stopping) break;
      send(due);
    }
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return outstanding_ == 0; });
  }

  void send(Clock::time_point due) {
    const Workload& w = pick();
    std::vector<std::byte> results;
    {
      std::lock_guard lock(mutex_);
      if (outstanding_ >= shared_.options.max_outstanding) {
        if (shared_.measuring) ++tally_.dropped;
        return;
      }
      ++outstanding_;
      if (!free_.empty()) {
        results = std::move(free_.back());
        free_.pop_back();
      }
    }
    results.resize(shared_.largest_reply);
    const auto memory = std::make_shared<std::vector<std::byte>>(std::move(results));
    shared_.client.decompose_async(w.batch, shared_.outputs(w, *memory), shared_.options.compute, shared_.call(),
                                   [this, &w, due, memory](auto report) { done(w, due, *memory, report); });
  }

  void done(const Workload& w, Clock::time_point due, std::vector<std::byte>& memory,
            const client::Result<client::Report>& report) {
    const auto took = Clock::now() - due;
    std::lock_guard lock(mutex_);
    if (shared_.counts()) {
      count(&tally_, w, report.status(), report.ok() ? report->count_wrong() : 0, took);
    }
    free_.push_back(std::move(memory));
    if (--outstanding_ == 0) idle_.notify_all();
  }

  std::mutex mutex_;  // guards what follows, and tally_
  std::condition_variable idle_;
  int64_t outstanding_ = 0;
  std::vector<std::vector<std::byte>> free_;  // memory for results
};

// --- the whole ----------------------------------------------------------------------------------

Load::Load(client::Client& client, std::vector<Workload> mix, LoadOptions options)
    : shared_(new Shared{client, std::move(mix), options}) {
  for (const Workload& w : shared_->mix) {
    shared_->weights.push_back(w.weight);
    shared_->largest_reply = std::max(shared_->largest_reply, static_cast<size_t>(w.reply_bytes));
  }
  if (options.rate) {
    runners_.push_back(std::make_unique<Open>(*shared_, options.seed));
    return;
  }
  for (int64_t i = 0; i < options.concurrency; ++i) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(i);
    if (options.stream) {
      runners_.push_back(std::make_unique<Streaming>(*shared_, seed));
    } else if (options.empty) {
      runners_.push_back(std::make_unique<Empty>(*shared_, seed));
    } else {
      runners_.push_back(std::make_unique<Closed>(*shared_, seed));
    }
  }
}

Load::~Load() = default;

void Load::start() {
  for (auto& r : runners_) r->start();
}

void Load::measure() { shared_->measuring = true; }

void Load::wait_for_one(std::chrono::nanoseconds longest) {
  const auto give_up = Clock::now() + longest;
  while (!shared_->counted && Clock::now() < give_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

LoadTally Load::stop() {
  shared_->measuring = false;
  shared_->stopping = true;
  std::mutex mutex;
  std::condition_variable joined;
  bool all_joined = false;
  std::thread impatient([&] {
    std::unique_lock lock(mutex);
    if (!joined.wait_for(lock, std::chrono::seconds(10), [&] { return all_joined; })) shared_->give_up.request_stop();
  });
  LoadTally total;
  for (auto& r : runners_) total.add(r->join());
  {
    std::lock_guard lock(mutex);
    all_joined = true;
  }
  joined.notify_all();
  impatient.join();
  return total;
}

}  // namespace svdserve::cli
