#include "server/admit/large_admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace svdserve::server {

Error LargeAdmission::Admit(int64_t operand, int64_t most, Place* place, Reservation* reservation) {
  Reservation admitted;
  if (Error error = ledger_.Admit(operand, &admitted); !error.ok()) return error;
  MutexLock lock(&mu_);
  waiting_.push_front({operand, most});
  if (!EachCanBeComputed()) {
    waiting_.pop_front();
    return {absl::StatusCode::kResourceExhausted, Reason::kOverloadedBytes,
            absl::StrCat("the matrix needs ", most, " bytes while it is computed; the memory limit of ", limit_,
                         " has no room for that beside the matrices that wait"),
            "", absl::Seconds(1)};
  }
  *place = Place(this, waiting_.begin());
  *reservation = std::move(admitted);
  return {};
}

bool LargeAdmission::Keep(int64_t bytes, Place* place, Reservation* reservation) {
  MutexLock lock(&mu_);
  place->amounts_->kept += bytes;
  if (EachCanBeComputed() && ledger_.Extend(bytes, reservation)) return true;
  place->amounts_->kept -= bytes;
  return false;
}

void LargeAdmission::Leave(std::list<Amounts>::iterator amounts) {
  MutexLock lock(&mu_);
  waiting_.erase(amounts);
}

bool LargeAdmission::EachCanBeComputed() const {
  int64_t free = limit_, need = 0;
  for (const Amounts& amounts : waiting_) {
    free -= amounts.kept;
    need = std::max(need, amounts.most - amounts.kept);
    if (free < 0) return false;
  }
  return need <= free;
}

}  // namespace svdserve::server
