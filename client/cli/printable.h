// Text of servers and files, made safe for a terminal.
#ifndef SVDSERVE_CLIENT_CLI_PRINTABLE_H_
#define SVDSERVE_CLIENT_CLI_PRINTABLE_H_

#include <string>
#include <string_view>

namespace svdserve::cli {

// The text with everything escaped that a terminal would obey instead of show. That is control characters (a newline
// becomes \n, ESC \x1b), Unicode's controls of direction and of lines (\u202e), and bytes that are not UTF-8. Other
// text stays as it is, so a backslash of the text's own cannot be told from an escape.
std::string printable(std::string_view text);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_PRINTABLE_H_
