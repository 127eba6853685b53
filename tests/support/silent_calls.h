// Calls that say nothing after their beginning.
#ifndef SVDSERVE_TESTS_SUPPORT_SILENT_CALLS_H_
#define SVDSERVE_TESTS_SUPPORT_SILENT_CALLS_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <utility>

namespace svdserve::testing {

class SilentCalls {
 public:
  explicit SilentCalls(std::shared_ptr<grpc::Channel> channel) : channel_(std::move(channel)), stub_(channel_) {}
  ~SilentCalls() {
    cancel();
    // Every event is taken, those of the beginnings as well: a call whose event stays behind is never freed.
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }
  SilentCalls(const SilentCalls&) = delete;
  SilentCalls& operator=(const SilentCalls&) = delete;

  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    grpc::Status status;
  };

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // Nobody polls the queue while it connects. Whether it is connected.
  bool wait_until_connected() const {
    return channel_->WaitForConnected(std::chrono::system_clock::now() + std::chrono::minutes(1));
  }

  // Begins a call of `method`, whose context prepare(&context) has filled.
  template <class Prepare>
  void begin(const std::string& method, Prepare prepare) {
    Call& call = calls_.emplace_back();
    prepare(&call.context);
    call.stream = stub_.PrepareCall(&call.context, method, &queue_);
    call.stream->StartCall(nullptr);
    call.stream->Finish(&call.status, &call);
  }
  void cancel() {
    for (Call& call : calls_) call.context.TryCancel();
  }
  // The next call that ended. Null: there are no events.
  Call* next_ended() {
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
      if (tag != nullptr) return static_cast<Call*>(tag);
    }
    return nullptr;
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  std::list<Call> calls_;
};

}  // namespace svdserve::testing
#endif  // SVDSERVE_TESTS_SUPPORT_SILENT_CALLS_H_
