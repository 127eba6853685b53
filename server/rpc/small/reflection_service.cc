#include "server/rpc/small/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/calls/cut_off.h"
#include "server/rpc/calls/small_read.h"
#include "server/rpc/codec/wire_reader.h"
#include "server/rpc/connection_traffic.h"

namespace svdserve::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1alpha::ServerReflection;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

// Adds the file and all that it imports, each once.
void add_files(const FileDescriptor* file, std::set<const FileDescriptor*>* added, ServerReflectionResponse* reply) {
  if (!added->insert(file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  reply->mutable_file_descriptor_response()->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file->dependency_count(); ++i) add_files(file->dependency(i), added, reply);
}

const FileDescriptor* file_of_extension(const DescriptorPool& pool, const std::string& type, int number) {
  const Descriptor* const extended = pool.FindMessageTypeByName(type);
  const FieldDescriptor* const extension = extended == nullptr ? nullptr : pool.FindExtensionByNumber(extended, number);
  return extension == nullptr ? nullptr : extension->file();
}

void set_error(grpc::StatusCode code, const char* message, ServerReflectionResponse* reply) {
  reply->mutable_error_response()->set_error_code(code);
  reply->mutable_error_response()->set_error_message(message);
}

void answer_file(const FileDescriptor* file, ServerReflectionResponse* reply) {
  std::set<const FileDescriptor*> added;
  if (file != nullptr) {
    add_files(file, &added, reply);
  } else {
    set_error(grpc::StatusCode::NOT_FOUND, "the server knows no such file, symbol or extension", reply);
  }
}

void answer_numbers(const DescriptorPool& pool, const std::string& type, ServerReflectionResponse* reply) {
  const Descriptor* const extended = pool.FindMessageTypeByName(type);
  if (extended == nullptr) {
    set_error(grpc::StatusCode::NOT_FOUND, "the server knows no such message", reply);
    return;
  }
  std::vector<const FieldDescriptor*> extensions;
  pool.FindAllExtensions(extended, &extensions);
  auto* const numbers = reply->mutable_all_extension_numbers_response();
  numbers->set_base_type_name(type);
  for (const FieldDescriptor* const extension : extensions) numbers->add_extension_number(extension->number());
}

ServerReflectionResponse answer(const ServerReflectionRequest& request, const std::vector<std::string>& services) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  ServerReflectionResponse reply;
  reply.set_valid_host(request.host());
  *reply.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      answer_file(pool.FindFileByName(request.file_by_filename()), &reply);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      answer_file(pool.FindFileContainingSymbol(request.file_containing_symbol()), &reply);
      break;
    case ServerReflectionRequest::kFileContainingExtension:
      answer_file(file_of_extension(pool, request.file_containing_extension().containing_type(),
                                    request.file_containing_extension().extension_number()),
                  &reply);
      break;
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      answer_numbers(pool, request.all_extension_numbers_of_type(), &reply);
      break;
    case ServerReflectionRequest::kListServices:
      reply.mutable_list_services_response();  // also where there is none
      for (const std::string& name : services) reply.mutable_list_services_response()->add_service()->set_name(name);
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      set_error(grpc::StatusCode::INVALID_ARGUMENT, "the request asks for nothing", &reply);
      break;
  }
  return reply;
}

// False where the bytes are too many, or no request.
bool parse(grpc::ByteBuffer* bytes, ServerReflectionRequest* request) {
  if (std::cmp_greater(bytes->Length(), kMaxSmallBytes)) return false;
  grpc::ProtoBufferReader reader(bytes);
  return reader.status().ok() && request->ParseFromZeroCopyStream(&reader);
}

}  // namespace

// One call: read -> answer -> write -> read. Everything but OnDone() is under mu_, and nothing follows finish. A read
// waits for its turn, and one of a peer is read at a time.
class ReflectionService::Call final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                                      public OpenCall {
 public:
  Call(const ReflectionService* service, grpc::CallbackServerContext* call)
      : service_(service), call_(call), read_(service->context_->question_reads, service->context_->clock) {}

  void start() {
    const HandlerContext& context = *service_->context_;
    peer_ = context.peer(*call_);
    traffic_.begin(*context.traffic, call_->peer(), Messages::kMany, context.pipeline->options().max_message_bytes);
    const Error error = context.calls->add(CallKind::kReflection, peer_, this);
    {
      MutexLock lock(&mu_);
      registered_ = error.ok();
      heard_ = context.clock->now();
      if (!registered_) end(to_status(error));
    }
    if (error.ok()) wait_and_read();
  }

  void OnReadDone(bool ok) override {
    read_.end();
    if (ok) traffic_.read(request_.Length());
    ServerReflectionRequest request;
    const bool good = ok && parse(&request_, &request);
    request_.Clear();
    MutexLock lock(&mu_);
    heard_ = service_->context_->clock->now();
    if (!ok) {
      end(grpc::Status::OK);
    } else if (!good) {
      end({grpc::StatusCode::INVALID_ARGUMENT, "the message is not a ServerReflectionRequest of at most 64 KiB"});
    } else if (!finished_) {
      const grpc::Slice bytes(answer(request, service_->services_).SerializeAsString());
      reply_ = grpc::ByteBuffer(&bytes, 1);
      StartWrite(&reply_);
    }
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(&mu_);
      heard_ = service_->context_->clock->now();
      reply_.Clear();
      if (!ok) end(grpc::Status::CANCELLED);
    }
    if (ok) wait_and_read();
  }

  void OnCancel() override {
    traffic_.cancelled();
    MutexLock lock(&mu_);
    end(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    if (is_registered()) service_->context_->calls->remove(this);
    delete this;
  }

  void cut_off_if_stalled(absl::Time now, absl::Duration timeout) override {
    const SmallRead::Lateness lateness = read_.lateness(now);
    MutexLock lock(&mu_);
    if (lateness == SmallRead::Lateness::kWaits) end(to_status(no_turn_error()));
    // A client may think about its next question, but not while another one waits.
    const bool in_the_way = lateness == SmallRead::Lateness::kInTheWay;
    if (finished_ || (now - heard_ <= timeout && !in_the_way)) return;
    cut_off(call_, {absl::StatusCode::kDeadlineExceeded,
                    Reason::kClientStalled,
                    absl::StrCat("the client neither asked nor took a reply for ", absl::FormatDuration(timeout)),
                    "",
                    {}});
  }

  void close(const grpc::Status& status) override {
    MutexLock lock(&mu_);
    end(status);
  }

 private:
  void wait_and_read() {
    {
      MutexLock lock(&mu_);
      if (finished_) return;  // as it is where the server stops just now
      waits_ = true;
    }
    const Error error = read_.begin(peer_, [this] { on_turn(); });
    if (error.ok()) return;
    MutexLock lock(&mu_);
    waits_ = false;
    if (end_wanted_.ok()) end_wanted_ = to_status(error);
    end(end_wanted_);
  }
  void on_turn() {
    {
      MutexLock lock(&mu_);
      waits_ = false;
      if (end_wanted_.ok()) {
        StartRead(&request_);
        return;
      }
    }
    read_.end();
    MutexLock lock(&mu_);
    end(end_wanted_);
  }
  // One whose turn comes in a moment ends then.
  void end(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (waits_ && !read_.leave()) {
      end_wanted_ = status;
      return;
    }
    waits_ = false;
    if (!std::exchange(finished_, true)) Finish(status);
  }
  bool is_registered() {
    MutexLock lock(&mu_);
    return registered_;
  }

  const ReflectionService* const service_;
  grpc::CallbackServerContext* const call_;
  Peer peer_;
  CallTraffic traffic_;
  SmallRead read_;
  grpc::ByteBuffer request_;  // written by gRPC between StartRead() and OnReadDone()
  grpc::ByteBuffer reply_;    // read by gRPC between StartWrite() and OnWriteDone()
  Mutex mu_;
  absl::Time heard_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // when the client last did something
  bool registered_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool waits_ ABSL_GUARDED_BY(mu_) = false;  // for its turn, or was told of it and has not begun yet
  grpc::Status end_wanted_ ABSL_GUARDED_BY(mu_);
};

ReflectionService::ReflectionService(const HandlerContext* context, std::vector<std::string> services)
    : context_(context), services_(std::move(services)) {
  services_.emplace_back(ServerReflection::service_full_name());
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ReflectionService::ServerReflectionInfo(
    grpc::CallbackServerContext* call) {
  auto* const reactor = new Call(this, call);
  reactor->start();
  return reactor;
}

}  // namespace svdserve::server
