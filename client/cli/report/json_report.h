// The results of a command as JSON. docs/svdctl.schema.json describes the objects.
#ifndef SVDSERVE_CLIENT_CLI_REPORT_JSON_REPORT_H_
#define SVDSERVE_CLIENT_CLI_REPORT_JSON_REPORT_H_

#include <string>

#include "client/cli/report/json.h"
#include "client/cli/report/summary.h"

namespace svdserve::cli {

// An object of "files". with_values: it has all values.
Json::Object json_of(const StackReport& report, bool with_values);
// Its part that capacities have, too: the input, the statuses, how and how long. The spectrum is not in it.
Json::Object json_of_call(const StackReport& report);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_REPORT_JSON_REPORT_H_
