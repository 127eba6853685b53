// The yardstick of the wire: a server of generated stubs that reads the same request message and answers with as many
// bytes as svdserve would, without computing anything. What it costs, the transport costs.
//
//   svdserve_echo [--listen=127.0.0.1:0] [--ready-file=PATH]
//
// SIGTERM stops it. Its allocator is set up as svdserve's.
#include <grpcpp/grpcpp.h>
#include <malloc.h>
#include <pthread.h>
#include <svdserve/v1/svd_service.grpc.pb.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

namespace {

using namespace svdserve;

size_t reply_bytes(const v1::MatrixBatch& batch) {
  const bool single = batch.data_type() == v1::DATA_TYPE_F32 || batch.data_type() == v1::DATA_TYPE_C64;
  return static_cast<size_t>(batch.count() * std::min(batch.rows(), batch.cols())) * (single ? 4 : 8);
}

class Echo final : public v1::SvdService::CallbackService {
  grpc::ServerUnaryReactor* Decompose(grpc::CallbackServerContext* call, const v1::DecomposeRequest* request,
                                      v1::DecomposeResponse* reply) override {
    const v1::MatrixBatch& batch = request->matrices();
    reply->mutable_singular_values()->resize(std::min(reply_bytes(batch), batch.data().size()));
    reply->set_values_per_matrix(std::min(batch.rows(), batch.cols()));
    reply->set_count(batch.count());
    return finish(call);
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* call, const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* reply) override {
    reply->set_version("echo");
    reply->mutable_limits()->set_max_message_bytes(64 << 20);
    return finish(call);
  }

  static grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext* call) {
    grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// The value of "--name=value"; or the default.
std::string flag(int argc, char** argv, const std::string& name, const std::string& initial) {
  const std::string prefix = "--" + name + "=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], prefix.c_str(), prefix.size()) == 0) return argv[i] + prefix.size();
  }
  return initial;
}

}  // namespace

int main(int argc, char** argv) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 2);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const std::string listen = flag(argc, argv, "listen", "127.0.0.1:0");
  const std::string ready_file = flag(argc, argv, "ready-file", "");
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
