// The output of a command at the end of a call: a summary, and the values.
#ifndef SVDSERVE_CLIENT_CLI_SUMMARY_H_
#define SVDSERVE_CLIENT_CLI_SUMMARY_H_

#include <map>
#include <span>
#include <string>

#include "client/cpp/types.h"

namespace svdserve::cli {

// "40x30 f64", and "3 matrices of 40x30 f64".
std::string shape_text(const client::Batch& batch);
std::string matrices_text(int64_t count, const client::Batch& batch);
// "7 ok, 1 not converged", from the number of matrices of each status.
std::string statuses_text(const std::map<client::MatrixStatus, int64_t>& tally);

// One line on stderr, so that what goes to stdout can be piped; and one for the certificate, where there is one.
void print_summary(const client::Batch& batch, const client::Report& report, double seconds,
                   client::Problem problem = client::Problem::kSvd);

// A line on stderr: the largest condition number of an eigenvalue, and of the eigenvectors of a matrix. Matrices that
// are not finite do not count. conditions: the plane of the batch.
void print_conditions(const client::Batch& batch, std::span<const std::byte> conditions);

// The values of all matrices to stdout, one matrix a line, with digits enough to be read back exactly. Fails where
// stdout takes them not. is_complex: the values are complex numbers.
client::Status print_values(const client::Batch& batch, std::span<const std::byte> values, bool is_complex = false);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_SUMMARY_H_
