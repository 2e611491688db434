# How kernels in Highway are declared: one translation unit per instruction set, each with its own flags. Highway's
# headers only: no libhwy at run time. Include it in the folder above those of the kernels: it sets a variable.
find_path(HIGHWAY_INCLUDE hwy/highway.h REQUIRED)

# -O2 in every build type: intrinsics are functions without it, and an inline function that is not inlined would be
# shared with translation units of other processors. No contraction: results must not depend on who has FMA.
set(TIER_KERNEL_FLAGS -O2 -ffp-contract=off -Wno-psabi)

function(tier_vector_kernel library source prefix name function)
  add_library(${library}_${name} OBJECT ${source})
  target_compile_definitions(${library}_${name} PRIVATE ${prefix}_KERNEL=${function})
  target_compile_options(${library}_${name} PRIVATE ${TIER_KERNEL_FLAGS} -fno-tree-vectorize ${ARGN})
  target_include_directories(${library}_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(${library}_${name} SYSTEM PRIVATE ${HIGHWAY_INCLUDE})
  target_link_libraries(${library}_${name} PRIVATE tier_flags)
  target_sources(${library} PRIVATE $<TARGET_OBJECTS:${library}_${name}>)
endfunction()

# tier_vector_kernels(LIBRARY SOURCE PREFIX FUNCTION): SOURCE for each instruction set of this architecture. It defines
# FUNCTIONSse4 and so on by the name PREFIX_KERNEL; PREFIX_HAVE_... says which exist.
function(tier_vector_kernels library source prefix function)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(avx2 -mavx2 -mfma -mbmi -mbmi2 -mf16c)
    tier_vector_kernel(${library} ${source} ${prefix} sse4 ${function}Sse4 -msse4.2)
    tier_vector_kernel(${library} ${source} ${prefix} avx2 ${function}Avx2 ${avx2})
    tier_vector_kernel(${library} ${source} ${prefix} avx3 ${function}Avx3 ${avx2}
      -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl)
    target_compile_definitions(${library} PRIVATE ${prefix}_HAVE_X86)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    tier_vector_kernel(${library} ${source} ${prefix} native ${function}Native)
    target_compile_definitions(${library} PRIVATE ${prefix}_HAVE_NATIVE)
  endif()
endfunction()
