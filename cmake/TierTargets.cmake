# How every target of the project is declared: one warning set, one sanitizer switch, one way to register a test.
include_guard(GLOBAL)
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)  # A layer names its packages once; every folder above links them.
include(GoogleTest)
find_package(Threads REQUIRED)

add_library(tier_flags INTERFACE)
target_compile_options(tier_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-qual -Wno-missing-field-initializers -Werror)
# A value that may not fit its new type is converted by name. Signs are not asked about; in C they would come along.
target_compile_options(tier_flags INTERFACE -Wconversion -Wno-sign-conversion)
# Only fuzzers are built with clang: what it alone warns about is g++'s and libstdc++ 12's, not ours.
target_compile_options(tier_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-error>)
target_include_directories(tier_flags INTERFACE "${PROJECT_SOURCE_DIR}")
if(TIER_SANITIZE)
  target_compile_options(tier_flags INTERFACE
    -fsanitize=${TIER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(tier_flags INTERFACE -fsanitize=${TIER_SANITIZE})
  if(TIER_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # TSan does not follow fences. Ours only order a store before a load (who sleeps, who wakes); data is never
    # published by them, so nothing is missed and nothing false is reported.
    target_compile_options(tier_flags INTERFACE -Wno-tsan)
  endif()
endif()

# What users run is optimised across units: the daemon is cut into many small ones, and a request passes through dozens.
# Its libraries carry ordinary code as well (fat objects), so that tests link them as fast as ever.
set(TIER_LTO OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT TIER_SANITIZE)
  set(TIER_LTO ON)
  add_link_options($<IF:$<BOOL:$<TARGET_PROPERTY:TIER_WHOLE_PROGRAM>>,-flto=auto,-fno-lto>)
endif()
# tier_whole_program(NAME): this program is linked with that optimisation.
function(tier_whole_program name)
  set_target_properties(${name} PROPERTIES TIER_WHOLE_PROGRAM ON)
endfunction()

# tier_shipped(NAME): packages carry this program or library. Its functions are bound when it is loaded, and their table
# is read-only from then on. The linker's map beside it names every archive member that is in it, for deploy/licences.
function(tier_shipped name)
  target_link_options(${name} PRIVATE LINKER:-z,relro LINKER:-z,now
    "LINKER:-Map=${CMAKE_CURRENT_BINARY_DIR}/${name}.linkmap")
endfunction()
# tier_fortified_folder(): sources of this folder and those below are what users run: calls that write into memory of
# known size check it. A write into memory of unknown size, which tensors are, is compiled as before.
macro(tier_fortified_folder)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT TIER_SANITIZE)
    add_compile_definitions(_FORTIFY_SOURCE=2)
  endif()
endmacro()

# tier_library(NAME SOURCES ... DEPS ...): a static library of one layer. Private use of its own headers is by
# project-relative path ("daemon/base/check.h"), so the style test can read the layer off every #include.
function(tier_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE tier_flags)
    target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}")
    if(TIER_LTO AND CMAKE_CURRENT_SOURCE_DIR MATCHES "/(daemon|proto)(/|$)")
      target_compile_options(${name} PRIVATE -flto -ffat-lto-objects)
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
    target_include_directories(${name} INTERFACE "${PROJECT_SOURCE_DIR}")
  endif()
endfunction()

# GoogleTest, and what nearly every test includes beside it: half of the time that a test takes to compile. Precompiled
# once for all programs that name no headers of their own.
set(TIER_TEST_HEADERS <gmock/gmock.h> <gtest/gtest.h> <algorithm> <atomic> <chrono> <filesystem> <fstream> <functional>
    <map> <memory> <string> <thread> <vector>)

# tier_test(NAME SOURCES ... DEPS ... LABELS unit|property|sim|crash|... HEADERS ...): a GoogleTest binary registered
# with CTest, each case on its own so that a failure names it. HEADERS are precompiled for it, project-relative or <of
# a package>: those that most of many sources include. Sources still include what they use.
function(tier_test name)
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT" "SOURCES;DEPS;LABELS;HEADERS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(TIER_SANITIZE)  # The thread sanitizer takes some thirty times as long.
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4")
  endif()
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} tier_flags GTest::gmock GTest::gtest_main Threads::Threads)
  tier_precompiled_headers(${name} "${ARG_SOURCES}" "${ARG_HEADERS}")
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_SERIAL})
endfunction()

# Without -fpch-preprocess ccache keeps nothing that was compiled beside such headers. And of code that comes from them
# g++ 12 does not know any more that it is the standard library's: it warns of what it believes of its strings.
set(TIER_PRECOMPILED_FLAGS -fpch-preprocess -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
    -Wno-stringop-overread)
function(tier_precompiled_headers name sources headers)
  list(LENGTH sources count)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR count LESS 3)
    return()
  endif()
  target_compile_options(${name} PRIVATE ${TIER_PRECOMPILED_FLAGS})
  if(headers)
    list(TRANSFORM headers PREPEND "${PROJECT_SOURCE_DIR}/" REGEX "^[^<]")
    target_precompile_headers(${name} PRIVATE ${TIER_TEST_HEADERS} ${headers})
    return()
  endif()
  if(NOT TARGET tier_test_headers)  # A program, as those that use them: a library's code is of another kind.
    find_package(GTest REQUIRED)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/test_headers.cc" CONTENT "int main() {}\n")
    add_executable(tier_test_headers "${PROJECT_BINARY_DIR}/test_headers.cc")
    target_link_libraries(tier_test_headers PRIVATE tier_flags GTest::gmock)
    target_compile_options(tier_test_headers PRIVATE ${TIER_PRECOMPILED_FLAGS})
    target_precompile_headers(tier_test_headers PRIVATE ${TIER_TEST_HEADERS})
  endif()
  target_precompile_headers(${name} REUSE_FROM tier_test_headers)
endfunction()
