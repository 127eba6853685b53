// The yardstick of the wire: a server of generated stubs that reads the same request message. It replies with as many bytes
// as svdserve would, of values and of vectors, and computes nothing. Its cost is the transport's cost. DecomposeLarge: each
// chunk's bytes come back as a factor chunk, while the next is received.
//
//   svdserve_echo [--listen ADDR:PORT] [--ready-file PATH]
//
// A flag takes its value after a space or "=". SIGTERM stops it. Its allocator is set up as svdserve's.
#include <grpcpp/grpcpp.h>
#include <malloc.h>
#include <pthread.h>
#include <svdserve/v1/svd_service.grpc.pb.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>

namespace {

using namespace svdserve;

constexpr int kMostMessageBytes = 64 << 20;

// Makes room for values, and for vectors where they are wanted. False: a message has no room for them, or the shape is none.
bool make_room(const v1::DecomposeRequest& request, v1::DecomposeResponse* reply) {
  const v1::MatrixBatch& batch = request.matrices();
  const int64_t m = batch.rows(), n = batch.cols(), k = std::min(m, n);
  const v1::DataType type = batch.data_type();
  const bool is_complex = type == v1::DATA_TYPE_C64 || type == v1::DATA_TYPE_C128 || type == v1::DATA_TYPE_C32 ||
                          type == v1::DATA_TYPE_CI16;
  const int64_t number = type == v1::DATA_TYPE_F64 || type == v1::DATA_TYPE_C128 ? 8 : 4;
  const bool full = request.options().vectors() == v1::VECTORS_FULL;
  const bool none = !full && request.options().vectors() != v1::VECTORS_THIN;
  const int64_t left = none ? 0 : full ? m : k, right = none ? 0 : full ? n : k;
  const auto bytes = [&](int64_t rows, int64_t columns, int64_t element) {
    return static_cast<double>(batch.count()) * static_cast<double>(rows) * static_cast<double>(columns) *
           static_cast<double>(element);
  };
  const int64_t element = is_complex ? 2 * number : number;
  const double values = bytes(k, 1, number), of_left = bytes(m, left, element), of_right = bytes(right, n, element);
  if (m < 0 || n < 0 || batch.count() < 0 || !(values + of_left + of_right <= kMostMessageBytes)) return false;
  reply->mutable_singular_values()->resize(static_cast<size_t>(values));
  reply->mutable_left_vectors()->resize(static_cast<size_t>(of_left));
  reply->mutable_right_vectors_adjoint()->resize(static_cast<size_t>(of_right));
  reply->set_values_per_matrix(k);
  reply->set_left_columns(left);
  reply->set_right_columns(right);
  reply->set_count(batch.count());
  return true;
}

// One read and one write at a time, each of which may be the faster.
class ChunkEcho final : public grpc::ServerBidiReactor<v1::DecomposeLargeRequest, v1::DecomposeLargeResponse> {
 public:
  ChunkEcho() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    const std::lock_guard lock(mu_);
    reading_ = false;
    closed_ = !ok;
    Go();
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mu_);
    writing_ = false;
    closed_ = closed_ || !ok;
    Go();
  }
  void OnDone() override { delete this; }

 private:
  void Go() {
    if (writing_ || reading_) return;
    if (closed_) {
      Finish(grpc::Status::OK);
      return;
    }
    reply_.mutable_factor_chunk()->set_offset(request_.chunk().offset());
    reply_.mutable_factor_chunk()->mutable_data()->swap(*request_.mutable_chunk()->mutable_data());
    reading_ = writing_ = true;
    StartWrite(&reply_);
    StartRead(&request_);
  }

  std::mutex mu_;
  bool reading_ = true, writing_ = false, closed_ = false;
  v1::DecomposeLargeRequest request_;
  v1::DecomposeLargeResponse reply_;
};

class Echo final : public v1::SvdService::CallbackService {
  grpc::ServerUnaryReactor* Decompose(grpc::CallbackServerContext* call, const v1::DecomposeRequest* request,
                                      v1::DecomposeResponse* reply) override {
    if (make_room(*request, reply)) return finish(call);
    return finish(call, {grpc::StatusCode::INVALID_ARGUMENT, "matrices: the reply would exceed 64 MiB"});
  }

  grpc::ServerBidiReactor<v1::DecomposeLargeRequest, v1::DecomposeLargeResponse>* DecomposeLarge(
      grpc::CallbackServerContext*) override {
    return new ChunkEcho;
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* call, const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* reply) override {
    reply->set_version("echo");
    v1::Limits& limits = *reply->mutable_limits();
    limits.set_max_values(512);
    limits.set_max_dimension(16384);
    limits.set_max_matrices(int64_t{1} << 40);
    limits.set_max_message_bytes(kMostMessageBytes);
    return finish(call);
  }

  static grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext* call,
                                          const grpc::Status& status = grpc::Status::OK) {
    grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }
};

constexpr char kHelp[] =
    "svdserve_echo: answers as many bytes as svdserve would, and computes nothing\n\n"
    "Usage: svdserve_echo [--flag=value ...]\n\n"
    "  --listen=ADDR:PORT  [127.0.0.1:0] port 0: any free one\n"
    "  --ready-file=PATH   written when it answers: the line grpc=ADDR:PORT\n"
    "  --help\n";

struct Flags {
  std::string listen = "127.0.0.1:0";
  std::string ready_file;
};

// False, with what to print in `text` and the status to exit with in `exit_code`, where nothing is to be served.
bool read_flags(int argc, char** argv, Flags* flags, std::string* text, int* exit_code) {
  *exit_code = 2;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      *exit_code = 0;
      *text = kHelp;
      return false;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    std::string* const value = name == "--listen"       ? &flags->listen
                               : name == "--ready-file" ? &flags->ready_file
                                                        : nullptr;
    if (value == nullptr) {
      *text = "svdserve_echo: unknown argument " + word + "\n\n" + kHelp;
      return false;
    }
    if (equals == std::string::npos && ++i == argc) {
      *text = "svdserve_echo: " + name + " needs a value\n\n" + kHelp;
      return false;
    }
    *value = equals == std::string::npos ? argv[i] : word.substr(equals + 1);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  std::string text;
  int exit_code = 0;
  if (!read_flags(argc, argv, &flags, &text, &exit_code)) {
    std::fputs(text.c_str(), exit_code == 0 ? stdout : stderr);
    return exit_code;
  }
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 2);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const std::string& listen = flags.listen;
  const std::string& ready_file = flags.ready_file;
  Echo echo;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
  builder.SetMaxSendMessageSize(kMostMessageBytes);
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&echo);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "svdserve_echo: cannot listen on %s\n", listen.c_str());
    return 1;
  }
  const std::string address = listen.substr(0, listen.rfind(':')) + ":" + std::to_string(port);
  std::printf("grpc=%s\n", address.c_str());
  std::fflush(stdout);
  if (!ready_file.empty()) {
    std::ofstream(ready_file + ".tmp") << "grpc=" << address << "\n";
    if (std::rename((ready_file + ".tmp").c_str(), ready_file.c_str()) != 0) return 1;
  }
  int signal = 0;
  sigwait(&signals, &signal);
  server->Shutdown();
  server->Wait();
  return 0;
}
