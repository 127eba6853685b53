// Numbers as people read them.
#ifndef SVDSERVE_CLIENT_CLI_REPORT_UNITS_H_
#define SVDSERVE_CLIENT_CLI_REPORT_UNITS_H_

#include <cstdint>
#include <string>

namespace svdserve::cli {

// "85 us", "0.85 ms", "1.3 s", "2 min 5 s", "3 h 2 min": three digits and the unit that suits them. 0 is "0 s".
std::string duration_text(double seconds);
// "64 MiB", "1.5 KiB", "17 bytes": three digits, powers of 1024.
std::string bytes_text(int64_t bytes);
// "1180", "118 thousand", "1.18 million", "2.5 billion": three digits, four of small numbers.
std::string amount_text(double amount);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_REPORT_UNITS_H_
