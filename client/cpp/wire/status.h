// Makes the client's Status from what gRPC and the server say.
#ifndef SVDSERVE_CLIENT_CPP_WIRE_STATUS_H_
#define SVDSERVE_CLIENT_CPP_WIRE_STATUS_H_

#include <cstddef>
#include <string>

#include "client/cpp/client.h"
#include "client/cpp/types.h"

namespace grpc {
class Status;
}
namespace google::rpc {
class Status;
}

namespace svdserve::client::internal {

// With the details in its trailer, if any. options: the client's, which the text of a server out of reach names.
Status from_grpc(const grpc::Status& status, const ClientOptions& options);
Status from_rpc(const google::rpc::Status& status);  // of one request of a stream

// A refusal by the client itself, in the words that the server would use.
Status invalid(std::string field, std::string message);
Status failure(Code code, std::string reason, std::string message);
// INTERNAL, for a reply that a server must not send. why: a sentence, such as "it holds 3 matrices, 4 were sent".
Status invalid_reply(const std::string& why);
Status cancelled();
Status deadline_exceeded();

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_STATUS_H_
