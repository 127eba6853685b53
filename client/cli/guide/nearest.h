// "Did you mean ...?"
#ifndef SVDSERVE_CLIENT_CLI_GUIDE_NEAREST_H_
#define SVDSERVE_CLIENT_CLI_GUIDE_NEAREST_H_

#include <optional>
#include <string>
#include <vector>

namespace svdserve::cli {

// The known word that was probably meant: one that begins so, or the one with the least number of wrong letters. These
// differ, are missing, are too many, or change places with a neighbour. Nothing where more than one in three is wrong.
std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_GUIDE_NEAREST_H_
