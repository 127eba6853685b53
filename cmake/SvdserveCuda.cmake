# Finds CUDA's compiler. Without it everything but the plugin and the programs for the GPU is built: SVDSERVE_CUDA is
# then OFF. Sanitizer builds leave it out, because they do not reach into kernels.
set(SVDSERVE_CUDA_ARCHITECTURES "90" CACHE STRING
  "Architectures of the CUDA plugin: 90 is machine code for sm_90 and PTX; a release has 80-real;90-real;100")
find_program(SVDSERVE_NVCC nvcc HINTS /usr/local/cuda/bin)
if(SVDSERVE_NVCC AND NOT SVDSERVE_SANITIZE)
  option(SVDSERVE_CUDA "Build the CUDA back end" ON)
else()
  set(SVDSERVE_CUDA OFF)
endif()
set(SVDSERVE_CUDA_FLAGS
  # As -ffp-contract=off on the host: the bits of CPU and GPU are the same.
  --fmad=false --expt-relaxed-constexpr -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas,-ffp-contract=off)
if(NOT SVDSERVE_CUDA)
  message(STATUS "CUDA back end: not built")
  return()
endif()

set(CMAKE_CUDA_COMPILER ${SVDSERVE_NVCC})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
set(CMAKE_CUDA_ARCHITECTURES ${SVDSERVE_CUDA_ARCHITECTURES})
if(SVDSERVE_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${SVDSERVE_COMPILER_CACHE})
endif()
enable_language(CUDA)
# CMake 3.25 does not know how nvcc is told.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)

add_library(svdserve_cuda_flags INTERFACE)
target_compile_options(svdserve_cuda_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${SVDSERVE_CUDA_FLAGS}>")
target_include_directories(svdserve_cuda_flags INTERFACE ${CMAKE_SOURCE_DIR})

# svdserve_cuda_plugin(name SOURCES ...): lib<name>.so in build/<preset>/bin, with the CUDA runtime inside and one symbol
# outside. Beside each object lies OBJECT.resources, what the compiler says about registers and stack.
function(svdserve_cuda_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
  add_library(${name} MODULE ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE svdserve_cuda_flags)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--resource-usage>)
  # It has all that it needs: nothing of the engine that opens it.
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
  set(launcher ${CMAKE_SOURCE_DIR}/cmake/keep_resource_report.sh ${CMAKE_CUDA_COMPILER_LAUNCHER})
  set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden CUDA_COMPILER_LAUNCHER "${launcher}" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
    BUILD_RPATH "$ORIGIN:/usr/local/cuda/lib64" INSTALL_RPATH "$ORIGIN:/usr/local/cuda/lib64")
endfunction()
