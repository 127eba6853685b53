# Chooses the instruction sets that the host's vector kernels are compiled for. The scalar lane, the same bits at less
# speed, is part of every build and serves every other processor. Sets
#   SVDSERVE_SIMD_TARGETS   Highway's names: AVX2, AVX3 (AVX-512), NEON
#   SVDSERVE_SIMD_NAMES     the names of --simd, for svdserve --version
set(SVDSERVE_SIMD "all" CACHE STRING
  "Instruction sets of the kernels: all, for what is shipped and tested; native, the best of this machine alone")
set_property(CACHE SVDSERVE_SIMD PROPERTY STRINGS all native)

set(SVDSERVE_SIMD_TARGETS)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(SVDSERVE_SIMD_TARGETS AVX2 AVX3)  # the best last
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm)")
  set(SVDSERVE_SIMD_TARGETS NEON)
endif()

if(SVDSERVE_SANITIZE STREQUAL "thread")
  set(SVDSERVE_SIMD_TARGETS)  # kernels share nothing
elseif(SVDSERVE_SANITIZE AND SVDSERVE_SIMD_TARGETS)
  list(GET SVDSERVE_SIMD_TARGETS 0 SVDSERVE_SIMD_TARGETS)  # one stands for all
elseif(SVDSERVE_SIMD STREQUAL "native")
  # Highway itself is asked, as the engine does at run time: it knows what the operating system lets programs use.
  if(NOT DEFINED SVDSERVE_SIMD_NATIVE AND NOT CMAKE_CROSSCOMPILING)
    find_package(hwy CONFIG REQUIRED)
    set(probe ${CMAKE_BINARY_DIR}/CMakeFiles/simd_native.cc)
    file(WRITE ${probe} "#include <cstdio>\n#include <hwy/targets.h>\nint main() {\n  const auto has = hwy::SupportedTargets();\n"
      "  std::puts(has & HWY_AVX3 ? \"AVX3\" : has & HWY_AVX2 ? \"AVX2\" : has & HWY_NEON ? \"NEON\" : \"none\");\n}\n")
    try_run(status compiled ${CMAKE_BINARY_DIR}/CMakeFiles/simd_native ${probe} LINK_LIBRARIES hwy::hwy
      RUN_OUTPUT_VARIABLE native)
    if(compiled AND status EQUAL 0)
      string(STRIP "${native}" native)
      set(SVDSERVE_SIMD_NATIVE ${native} CACHE INTERNAL "The best instruction set of this machine, or none")
    endif()
  endif()
  if(SVDSERVE_SIMD_NATIVE)
    list(FILTER SVDSERVE_SIMD_TARGETS INCLUDE REGEX "^${SVDSERVE_SIMD_NATIVE}$")
  else()
    message(WARNING "SVDSERVE_SIMD=native: Highway could not be asked what this machine has; all are built")
  endif()
elseif(NOT SVDSERVE_SIMD STREQUAL "all")
  message(FATAL_ERROR "SVDSERVE_SIMD is all or native, not '${SVDSERVE_SIMD}'")
endif()

list(TRANSFORM SVDSERVE_SIMD_TARGETS REPLACE AVX3 AVX512 OUTPUT_VARIABLE SVDSERVE_SIMD_NAMES)
list(PREPEND SVDSERVE_SIMD_NAMES scalar)
string(TOLOWER "${SVDSERVE_SIMD_NAMES}" SVDSERVE_SIMD_NAMES)
string(REPLACE ";" " " SVDSERVE_SIMD_NAMES "${SVDSERVE_SIMD_NAMES}")
message(STATUS "Instruction sets of the kernels: ${SVDSERVE_SIMD_NAMES}")
