// The yardstick of the wire: a server of generated stubs that reads the same request message and replies with as many
// bytes as svdserve would. It computes nothing. Its cost is the transport's cost. DecomposeLarge: each chunk's bytes
// come back as a factor chunk, while the next is received.
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

size_t reply_bytes(const v1::MatrixBatch& batch) {
  const bool single = batch.data_type() == v1::DATA_TYPE_F32 || batch.data_type() == v1::DATA_TYPE_C64;
  return static_cast<size_t>(batch.count() * std::min(batch.rows(), batch.cols())) * (single ? 4 : 8);
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
    const v1::MatrixBatch& batch = request->matrices();
    reply->mutable_singular_values()->resize(std::min(reply_bytes(batch), batch.data().size()));
    reply->set_values_per_matrix(std::min(batch.rows(), batch.cols()));
    reply->set_count(batch.count());
    return finish(call);
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
    limits.set_max_message_bytes(64 << 20);
    return finish(call);
  }

  static grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext* call) {
    grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
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
  builder.SetMaxReceiveMessageSize(64 << 20);
  builder.SetMaxSendMessageSize(64 << 20);
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
