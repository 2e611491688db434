# Fails if a kernel object defines a symbol that the linker may merge with another translation unit's (weak, unique or
# vague linkage): such a function would carry this object's instruction set into code that runs on every processor.
execute_process(COMMAND ${NM} --defined-only ${OBJECTS} OUTPUT_VARIABLE symbols RESULT_VARIABLE rc)
if(NOT rc EQUAL 0)
  message(FATAL_ERROR "${NM} failed on ${OBJECTS}")
endif()
string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" shared "${symbols}")
list(FILTER shared EXCLUDE REGEX "DW\\.ref\\.|asan|ubsan|tsan|_ZZ?N3hwy[0-9]+N_")  # The last: Highway's own per target.
if(shared)
  message(FATAL_ERROR "kernel objects share code with the rest of the program: ${shared}")
endif()
string(REGEX MATCHALL "[^\n]* T [^\n]*Copy[^\n]*" kernels "${symbols}")
list(LENGTH kernels count)
message(STATUS "${count} kernel entry points, nothing shared")
