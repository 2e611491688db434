# tier_fuzz_target(NAME SOURCES ... DEPS ...): one fuzz entry point (LLVMFuzzerTestOneInput), built as NAME_test, which
# runs it over its corpus in tests/fuzz/corpus/NAME and over the same mutations of that in every build; as NAME_slice,
# on request, for fresh ones; and, with clang and TIER_BUILD_FUZZERS, as the libFuzzer program NAME.
include_guard(GLOBAL)

function(tier_fuzz_target name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  set(fuzz "${PROJECT_SOURCE_DIR}/tests/fuzz")
  tier_test(${name}_test SOURCES ${ARG_SOURCES} "${fuzz}/corpus_test.cc" DEPS ${ARG_DEPS} LABELS fuzz)
  target_compile_definitions(${name}_test PRIVATE TIER_FUZZ_CORPUS="${fuzz}/corpus/${name}")
  add_executable(${name}_slice EXCLUDE_FROM_ALL ${ARG_SOURCES} "${fuzz}/slice.cc")
  target_link_libraries(${name}_slice PRIVATE ${ARG_DEPS} tier_flags)
  target_compile_definitions(${name}_slice PRIVATE TIER_FUZZ_CORPUS="${fuzz}/corpus/${name}")
  if(TIER_BUILD_FUZZERS)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_DEPS} tier_flags)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  endif()
endfunction()
