# gRPC for executables: Debian's static archives by pkg-config's static list (its CMake package only offers shared
# ones), so that a binary runs on machines without gRPC. For shared objects the archives do not do (libprotobuf.a,
# libabsl_*.a are not position-independent): they link tier_grpc_shared.
include_guard(GLOBAL)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_program(TIER_PROTOC protoc REQUIRED)
find_program(TIER_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
pkg_check_modules(TIER_GRPC REQUIRED grpc++ protobuf)

set(archives "")
foreach(library IN LISTS TIER_GRPC_STATIC_LIBRARIES)
  if(NOT library MATCHES "^(dl|pthread|m|rt|atomic)$|^-")
    list(APPEND archives "-l:lib${library}.a")
  endif()
endforeach()
list(REMOVE_DUPLICATES archives)

add_library(tier_grpc INTERFACE)
target_link_libraries(tier_grpc INTERFACE
  -Wl,--start-group -l:libgrpc++_reflection.a -l:libprotobuf.a ${archives} -Wl,--end-group
  Threads::Threads ${CMAKE_DL_LIBS} m)

add_library(tier_grpc_shared INTERFACE)
target_link_libraries(tier_grpc_shared INTERFACE grpc++ grpc gpr protobuf absl_synchronization Threads::Threads)
