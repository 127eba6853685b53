// The output of a command at the end of a call: a summary, and the values.
#ifndef SVDSERVE_CLIENT_CLI_SUMMARY_H_
#define SVDSERVE_CLIENT_CLI_SUMMARY_H_

#include <span>

#include "client/cpp/types.h"

namespace svdserve::cli {

// One line on stderr, so that what goes to stdout can be piped; and one for the certificate, where there is one.
void print_summary(const client::Batch& batch, const client::Report& report, double seconds,
                   client::Problem problem = client::Problem::kSvd);

// The values of all matrices to stdout, one matrix a line, with digits enough to be read back exactly. Fails where
// stdout takes them not.
client::Status print_values(const client::Batch& batch, std::span<const std::byte> values);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_SUMMARY_H_
