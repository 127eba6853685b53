# svdserve_library, svdserve_program, svdserve_test: every target of the project is made by one of these, so that
# warnings, sanitizers and include paths are the same everywhere.

add_library(svdserve_build_flags INTERFACE)
target_compile_options(svdserve_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Werror -Wno-psabi
  # The bits of a result belong to the matrix: a fused multiply-add happens where the source says so and nowhere else.
  -ffp-contract=off>)
target_include_directories(svdserve_build_flags INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
if(SVDSERVE_SANITIZE)
  # GCC's -Wmaybe-uninitialized sees through less of an instrumented program, and warns of what the others know is set.
  # The check of vptr reads memory through a pipe, so a process without free descriptors fails it; a test has one.
  target_compile_options(svdserve_build_flags INTERFACE
    -fsanitize=${SVDSERVE_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer
    -Wno-maybe-uninitialized)
  target_link_options(svdserve_build_flags INTERFACE -fsanitize=${SVDSERVE_SANITIZE})
endif()

# svdserve_library(name SOURCES ... PUBLIC lib ... PRIVATE lib ...)
function(svdserve_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:svdserve_build_flags>)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
endfunction()

# svdserve_program(name SOURCES ... LIBS lib ...): lands in build/<preset>/bin
function(svdserve_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} svdserve_build_flags)
endfunction()

# svdserve_test(name SOURCES ... LIBS lib ... [TIMEOUT seconds] [LABELS l ...]): a GoogleTest program with main from GMock
function(svdserve_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest_main svdserve_build_flags)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
