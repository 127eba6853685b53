// How fast a factor goes to a server and its results come back, in bytes of both directions a second of both.
//
//   svdserve_large_rate ADDRESS ROWS COLS          svdserve: upload, then download; what is between does not count
//   svdserve_large_rate --echo ADDRESS ROWS COLS   the echo: the same bytes, both ways at once, without checksums
//
// The matrix is f64, random, in chunks of 1 MiB. U, the values and V^H of svdserve are received and thrown away. As in the
// client library, chunks are filled and checked beside the stream. The allocator is set up as both servers'.
#include <grpcpp/grpcpp.h>
#include <malloc.h>
#include <svdserve/v1/svd_service.grpc.pb.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/calls/large/side_work.h"
#include "wire/crc32c.h"

namespace {

using namespace svdserve;

constexpr int64_t kChunk = 1 << 20;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "svdserve_large_rate: %s\n", why.c_str());
  std::exit(1);
}

// Uniform in (-1, 1), by a generator that is faster than the wire.
std::vector<double> random_matrix(int64_t elements) {
  std::vector<double> out(static_cast<size_t>(elements));
  uint64_t x = 88172645463325252;
  for (double& a : out) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    a = static_cast<double>(static_cast<int64_t>(x)) * 0x1p-63;
  }
  return out;
}

struct Call {
  explicit Call(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub = v1::SvdService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    stream = stub->DecomposeLarge(&context);
  }
  void Upload(const std::vector<double>& matrix, bool checksums) {
    const auto* bytes = reinterpret_cast<const char*>(matrix.data());
    const auto total = static_cast<int64_t>(matrix.size() * sizeof(double));
    v1::DecomposeLargeRequest sent, next;
    client::internal::SideWork beside(1);
    const auto fill = [&](int64_t at) {
      const auto size = static_cast<size_t>(std::min(kChunk, total - at));
      next.mutable_chunk()->set_offset(at);
      next.mutable_chunk()->set_data(bytes + at, size);
      if (checksums) next.mutable_chunk()->set_crc32c(crc32c(0, bytes + at, size));
    };
    fill(0);
    for (int64_t at = kChunk; at - kChunk < total; at += kChunk) {
      beside.wait();
      std::swap(sent, next);
      if (at < total) beside.run([&fill, at] { fill(at); });
      if (!stream->Write(sent)) fail(stream->Finish().error_message());
    }
  }

  grpc::ClientContext context;
  std::unique_ptr<v1::SvdService::Stub> stub;
  std::unique_ptr<grpc::ClientReaderWriter<v1::DecomposeLargeRequest, v1::DecomposeLargeResponse>> stream;
};

void report(double bytes, double up, double down) {
  std::printf("bytes %.0f\nupload_s %.4f\ndownload_s %.4f\nrate_gb_per_s %.4f\n", bytes, up, down,
              1e-9 * bytes / (up + down));
}

void measure_server(const std::string& address, int64_t rows, int64_t cols) {
  const std::vector<double> matrix = random_matrix(rows * cols);
  Call call(address);
  v1::DecomposeLargeRequest request;
  v1::LargeOpen& open = *request.mutable_open();
  open.set_data_type(v1::DATA_TYPE_F64);
  open.set_memory_order(v1::MEMORY_ORDER_COLUMN_MAJOR);
  open.set_rows(rows);
  open.set_cols(cols);
  v1::DecomposeLargeResponse response, taken;
  if (!call.stream->Write(request) || !call.stream->Read(&response)) fail(call.stream->Finish().error_message());
  const double began = now();
  call.Upload(matrix, true);
  request.mutable_commit();
  call.stream->Write(request);
  const double sent = now();
  double first = 0, results = 0;
  client::internal::SideWork beside(1);
  while (call.stream->Read(&response)) {
    if (!response.has_factor_chunk()) continue;
    if (first == 0) first = now();
    beside.wait();
    std::swap(response, taken);
    results += static_cast<double>(taken.factor_chunk().data().size());
    beside.run([&taken] {
      const v1::LargeFactorChunk& chunk = taken.factor_chunk();
      if (crc32c(0, chunk.data().data(), chunk.data().size()) != chunk.crc32c()) fail("a checksum is wrong");
    });
  }
  beside.wait();
  const double ended = now();
  const grpc::Status status = call.stream->Finish();
  if (!status.ok()) fail(status.error_message());
  // The upload includes the bytes that the server had not taken when the last chunk was written.
  const double up = std::max(sent - began, response.summary().timing().upload_seconds());
  report(static_cast<double>(matrix.size() * sizeof(double)) + results, up, ended - first);
}

void measure_echo(const std::string& address, int64_t rows, int64_t cols) {
  const std::vector<double> matrix = random_matrix(rows * cols);
  Call call(address);
  double results = 0;
  const double began = now();
  std::thread reader([&] {
    v1::DecomposeLargeResponse response;
    while (call.stream->Read(&response)) results += static_cast<double>(response.factor_chunk().data().size());
  });
  call.Upload(matrix, false);
  call.stream->WritesDone();
  reader.join();
  const double took = now() - began;
  const grpc::Status status = call.stream->Finish();
  if (!status.ok()) fail(status.error_message());
  report(static_cast<double>(matrix.size() * sizeof(double)) + results, took / 2, took / 2);
}

}  // namespace

int main(int argc, char** argv) {
  const bool echo = argc == 5 && std::strcmp(argv[1], "--echo") == 0;
  if (argc != 4 && !echo) fail("usage: svdserve_large_rate [--echo] ADDRESS ROWS COLS");
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 2);
  char** const words = argv + argc - 3;
  (echo ? measure_echo : measure_server)(words[0], std::atoll(words[1]), std::atoll(words[2]));
  return 0;
}
