# svdserve_library, svdserve_program, svdserve_test_program and svdserve_test make every target of the project. So
# warnings, sanitizers and include paths are the same everywhere.

add_library(svdserve_build_flags INTERFACE)
target_compile_options(svdserve_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Werror -Wno-psabi
  # Clang checks the annotations of locks. Its other warnings differ from version to version, and stop nothing; GCC's do.
  # Some of those that are off below are GCC's alone.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-error;-Werror=thread-safety;-Wno-unknown-warning-option>
  # The bits of a result belong to the matrix: a fused multiply-add happens where the source says so and nowhere else.
  -ffp-contract=off>)
target_include_directories(svdserve_build_flags INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
if(SVDSERVE_SANITIZE)
  # GCC's -Wmaybe-uninitialized sees through less of an instrumented program, and warns of what the others know is set.
  # The check of vptr reads memory through a pipe, so a process without free descriptors fails it; a test has one. The next
  # three cost up to half of the compile time, and AddressSanitizer sees the accesses that they are about.
  target_compile_options(svdserve_build_flags INTERFACE
    -fsanitize=${SVDSERVE_SANITIZE} -fno-sanitize=vptr,null,object-size,pointer-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer
    -Wno-maybe-uninitialized)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # GCC defines these names itself, by which tests know what they run under.
    string(REGEX MATCH "^[a-z]+" sanitizer ${SVDSERVE_SANITIZE})
    string(TOUPPER __SANITIZE_${sanitizer}__ sanitizer)
    target_compile_definitions(svdserve_build_flags INTERFACE ${sanitizer})
  endif()
  target_link_options(svdserve_build_flags INTERFACE -fsanitize=${SVDSERVE_SANITIZE})
  # A hundred programs with the run-time library in each: LLVM's linker takes less than half of the usual one's time.
  find_program(SVDSERVE_LLD ld.lld)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND SVDSERVE_LLD)
    target_link_options(svdserve_build_flags INTERFACE -fuse-ld=lld)
  endif()
endif()

# Sources of a target compiled together cost half: most of a unit's time goes into the headers that all of them include.
# An edit costs more then, and an include may be missing unseen: for builds that are made once, beside one without.
option(SVDSERVE_UNITY "Compile the sources of a target several at a time" OFF)

# No unit takes a minute or 2 GB.
function(svdserve_compile_together target)
  if(SVDSERVE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
    # GCC takes the sources of a unit for headers, where a member of a type of an unnamed namespace is a mistake.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# svdserve_library(name SOURCES ... PUBLIC lib ... PRIVATE lib ... [APART] [COMPUTES]). APART: its sources use the same
# name for different things, and are never compiled together. A source with options of its own is not either. Sanitizers'
# builds optimize what COMPUTES alone: the others take twice as long to compile with it, and no less to be tested.
function(svdserve_library name)
  cmake_parse_arguments(arg "APART;COMPUTES" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:svdserve_build_flags>)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  if(SVDSERVE_SANITIZE AND NOT arg_COMPUTES)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(NOT arg_APART)
    svdserve_compile_together(${name})
  endif()
endfunction()

# svdserve_program(name SOURCES ... LIBS lib ...): lands in build/<preset>/bin
function(svdserve_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} svdserve_build_flags)
endfunction()

# svdserve_test_program(name SOURCES ... LIBS lib ... [COMPUTES] [APART]): a GoogleTest program with main from GMock. Its own
# sources take longer to compile than to run, so they are not optimized, but for those that compute much themselves: these
# say COMPUTES.
function(svdserve_test_program name)
  cmake_parse_arguments(arg "COMPUTES;APART" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  if(NOT arg_APART)
    svdserve_compile_together(${name})
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest_main svdserve_build_flags)
  if(arg_COMPUTES)
    # At -O1 GCC sees less of what is set before it is used.
    target_compile_options(${name} PRIVATE -O1 -Wno-maybe-uninitialized)
  else()
    target_compile_options(${name} PRIVATE -O0)
  endif()
endfunction()

# svdserve_test(name SOURCES ... LIBS lib ... [COMPUTES] [APART] [TIMEOUT seconds] [COST seconds] [LABELS l ...]): the program and
# the test that runs it. CTest starts the tests of the highest COST first, so that the longest does not run alone at the end.
function(svdserve_test name)
  cmake_parse_arguments(arg "COMPUTES;APART" "TIMEOUT;COST" "SOURCES;LIBS;LABELS" ${ARGN})
  set(options)
  foreach(option COMPUTES APART)
    if(arg_${option})
      list(APPEND options ${option})
    endif()
  endforeach()
  svdserve_test_program(${name} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS} ${options})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_COST)
    set(arg_COST 5)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_COST} LABELS "${arg_LABELS}")
endfunction()
