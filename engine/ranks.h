// Members of a ring that are processes. A loss of one is not the loss of the program.
#ifndef SVDSERVE_ENGINE_RANKS_H_
#define SVDSERVE_ENGINE_RANKS_H_

#include <optional>

namespace svdserve {

// The first statement of main() in a program whose rings have ranks, since these are this program again. In a process that
// is a rank: serves its leader until this one is gone, and returns the exit status. Else nothing, and the process may
// start ranks from now on.
std::optional<int> run_as_rank(int argc, char** argv);

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_RANKS_H_
