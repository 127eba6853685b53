#include "server/respond/group_join.h"

#include <utility>

namespace svdserve::server {

GroupJoin::GroupJoin(size_t groups, GroupsCallback done, std::function<void(const RequestHandle&)> cancel,
                     std::function<absl::Duration()> elapsed)
    : cancel_(std::move(cancel)), elapsed_(std::move(elapsed)), done_(std::move(done)), unanswered_(groups) {
  answer_.groups.resize(groups);
}

void GroupJoin::on_answer(size_t i, Answer answer) {
  RequestHandle rest;
  GroupsCallback done;
  GroupsAnswer whole;
  {
    MutexLock lock(&mu_);
    if (answer_.error.ok() && !answer.error.ok()) {
      answer_.error = answer.error;
      rest = handle_;
    }
    answer_.groups[i] = std::move(answer);
    if (--unanswered_ == 0) {
      answer_.total = elapsed_();
      done = std::move(done_);
      whole = std::move(answer_);
    }
  }
  cancel_(rest);
  if (done) done(std::move(whole));
}

void GroupJoin::attach(const RequestHandle& group) {
  {
    MutexLock lock(&mu_);
    handle_.jobs.insert(handle_.jobs.end(), group.jobs.begin(), group.jobs.end());
    if (unanswered_ == 0 || answer_.error.ok()) return;
  }
  cancel_(group);
}

RequestHandle GroupJoin::handle() const {
  MutexLock lock(&mu_);
  return handle_;
}

}  // namespace svdserve::server
