// Joins the answers to the groups of one request into one.
#ifndef SVDSERVE_SERVER_RESPOND_GROUP_JOIN_H_
#define SVDSERVE_SERVER_RESPOND_GROUP_JOIN_H_

#include <cstddef>
#include <functional>

#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/request.h"

namespace svdserve::server {

// Calls back once, when every group was answered. The first group that fails cancels the others, so that no device
// computes what nobody will see.
//
// Shared by the callbacks of the groups. Thread-safe; nothing is called under mu_.
class GroupJoin {
 public:
  // `cancel` ends a group, `elapsed` tells the time since the request's arrival; both outlive the last answer.
  GroupJoin(size_t groups, GroupsCallback done, std::function<void(const RequestHandle&)> cancel,
            std::function<absl::Duration()> elapsed);

  // The answer to group i; once for each.
  void on_answer(size_t i, Answer answer);
  // A group was submitted, and may have been answered since.
  void attach(const RequestHandle& group);
  // The handle of all groups attached so far.
  RequestHandle handle() const;

 private:
  const std::function<void(const RequestHandle&)> cancel_;
  const std::function<absl::Duration()> elapsed_;
  mutable Mutex mu_;
  GroupsCallback done_ ABSL_GUARDED_BY(mu_);  // moved from by the last answer
  GroupsAnswer answer_ ABSL_GUARDED_BY(mu_);
  RequestHandle handle_ ABSL_GUARDED_BY(mu_);
  size_t unanswered_ ABSL_GUARDED_BY(mu_);
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RESPOND_GROUP_JOIN_H_
