// A request that passed validation and admission: what the batch stage takes.
#ifndef SVDSERVE_SERVER_ADMITTED_REQUEST_H_
#define SVDSERVE_SERVER_ADMITTED_REQUEST_H_

#include "absl/time/time.h"
#include "engine/planner.h"
#include "server/request.h"

namespace svdserve::server {

struct AdmittedRequest {
  Plan plan;
  Request request;       // count > 0; operand_bytes() is exactly what the plan needs; arrival is set
  PlanePointers planes;  // [out] of the plan's outputs, in request.memory
  absl::Time admitted;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_ADMITTED_REQUEST_H_
