// Requests, channels and errors of the wire, as tests of a real server need them.
#ifndef SVDSERVE_TESTS_SUPPORT_WIRE_H_
#define SVDSERVE_TESTS_SUPPORT_WIRE_H_

#include <google/rpc/status.pb.h>
#include <grpcpp/grpcpp.h>
#include <svdserve/v1/svd_service.grpc.pb.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace svdserve::testing {

// A channel of its own connection, without limits of its own.
std::shared_ptr<grpc::Channel> connect(const std::string& address,
                                       std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr);
// The same, but its transport takes no more than kFixedWindowBytes of a call's messages before they are read. Without
// that the window grows with what the connection is estimated to carry, and how much fits into it nobody knows.
inline constexpr int kFixedWindowBytes = 65535;
std::shared_ptr<grpc::Channel> connect_with_fixed_window(const std::string& address);

// `count` row-major f64 matrices of reproducible random numbers in (-1, 1).
v1::DecomposeRequest random_request(int64_t rows, int64_t cols, int64_t count, uint64_t seed = 1);
// A request that takes about `matrices` x 0.1 ms and more of one core: 32 x 32, JACOBI.
v1::DecomposeRequest slow_request(int64_t matrices);

std::vector<double> values_of(const v1::DecomposeResponse& response);

// Calls Decompose with a deadline of some minutes, or `limit`.
grpc::Status decompose(const std::shared_ptr<grpc::Channel>& channel, const v1::DecomposeRequest& request,
                       v1::DecomposeResponse* response, std::chrono::milliseconds limit = std::chrono::minutes(4));

// Threads with a connection each, which call Decompose again and again until `stop`.
class Callers {
 public:
  // done(status) is told of each call, on any of the threads.
  template <class Done>
  Callers(int threads, const std::string& address, const v1::DecomposeRequest& request, const std::atomic<bool>& stop,
          Done done) {
    for (int t = 0; t < threads; ++t) {
      threads_.emplace_back([=, &request, &stop] {
        const auto channel = connect(address);
        v1::DecomposeResponse response;
        while (!stop) done(decompose(channel, request, &response));
      });
    }
  }
  void join() { threads_.clear(); }

 private:
  std::vector<std::jthread> threads_;
};

// The content of a google.rpc.Status, taken apart.
struct ErrorDetails {
  int code = 0;
  std::string message;
  std::string field;   // of the first violation of BadRequest
  std::string reason;  // of ErrorInfo
  std::string domain;
  double retry_seconds = -1;  // of RetryInfo; -1: none
  std::string request_id;     // of RequestInfo
};
ErrorDetails details_of(const google::rpc::Status& status);
ErrorDetails details_of(const grpc::Status& status);

}  // namespace svdserve::testing
#endif  // SVDSERVE_TESTS_SUPPORT_WIRE_H_
