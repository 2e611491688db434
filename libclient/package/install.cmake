# Installs headers, libtier.so, the CMake package and tier.pc. Included by libclient/CMakeLists.txt.
include(CMakePackageConfigHelpers)

install(TARGETS tier EXPORT tierTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tierd
  NAMELINK_COMPONENT tierd)
install(FILES "${CMAKE_CURRENT_SOURCE_DIR}/include/tier/tier.h" "${CMAKE_CURRENT_SOURCE_DIR}/include/tier/tier.hpp"
  "${CMAKE_CURRENT_SOURCE_DIR}/include/tier/control.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tier COMPONENT tierd)

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/tier)
install(EXPORT tierTargets NAMESPACE tier:: DESTINATION ${package_directory} COMPONENT tierd)
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/tierConfig.cmake.in" "${CMAKE_CURRENT_BINARY_DIR}/tierConfig.cmake"
  INSTALL_DESTINATION ${package_directory})
# 0.x: every minor version may change the interface.
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/tierConfigVersion.cmake"
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tierConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/tierConfigVersion.cmake"
  DESTINATION ${package_directory} COMPONENT tierd)

# <libdir>/pkgconfig/tier.pc finds its prefix from where it lies: one level more for each level of a multiarch libdir.
string(REGEX REPLACE "[^/]+" ".." up "${CMAKE_INSTALL_LIBDIR}")
set(TIER_PC_UP "../${up}")
set(TIER_PC_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
set(TIER_PC_INCLUDEDIR "${CMAKE_INSTALL_INCLUDEDIR}")
configure_file("${CMAKE_CURRENT_LIST_DIR}/tier.pc.in" "${CMAKE_CURRENT_BINARY_DIR}/tier.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tier.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT tierd)
