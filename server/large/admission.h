// The admit stage of a large matrix: from what a client opens to a matrix with memory, or an error.
#ifndef SVDSERVE_SERVER_LARGE_ADMISSION_H_
#define SVDSERVE_SERVER_LARGE_ADMISSION_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "engine/large_engine.h"
#include "server/admit/large_admission.h"
#include "server/device/large/large_runner.h"
#include "server/error.h"
#include "server/large/large_memory.h"
#include "server/large/large_request.h"
#include "server/large/large_stages.h"
#include "server/peer.h"
#include "server/reservation.h"
#include "server/validate/byte_ranges.h"

namespace svdserve::server {

// A matrix that is admitted.
struct AdmittedLarge {
  LargePlan plan;
  LargeDemand working;                  // a device that has failed it has no value any more
  std::string candidates;               // names of the devices that may take it, joined by commas
  absl::Duration predicted;             // LargeAccepted's
  LargeAdmission::Place place;          // until there are results
  Reservation request;                  // of no bytes; the others' are in what they are of
  std::shared_ptr<LargeMemory> memory;  // of the operand
  std::optional<ByteRanges> received;   // of the operand
};

// Validates what was opened, finds the devices that can compute it, and reserves and maps the operand's memory.
Error admit_large(const LargeStages& stages, const Peer& peer, const LargeOpen& open, AdmittedLarge* admitted);

// No device is left that may take the matrix.
Error no_device();

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_ADMISSION_H_
