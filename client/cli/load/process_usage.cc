#include "client/cli/load/process_usage.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace svdserve::cli {

std::optional<ProcessUsage> process_usage(pid_t pid) {
  const std::string proc = "/proc/" + std::to_string(pid);
  std::ifstream stat_file(proc + "/stat");
  std::string stat;
  if (!std::getline(stat_file, stat)) return std::nullopt;
  // The name, in parentheses, may hold anything: fields are counted from behind its end, where the third one begins.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(stat.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  constexpr size_t kUserTime = 14 - 3, kSystemTime = 15 - 3, kResidentPages = 24 - 3;
  if (fields.size() <= kResidentPages) return std::nullopt;
  const double ticks = std::stod(fields[kUserTime]) + std::stod(fields[kSystemTime]);
  return ProcessUsage{ticks / static_cast<double>(sysconf(_SC_CLK_TCK)),
                      std::stoll(fields[kResidentPages]) * sysconf(_SC_PAGESIZE)};
}

}  // namespace svdserve::cli
