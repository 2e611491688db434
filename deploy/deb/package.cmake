# CPack's .deb: everything that is installed, under /usr, with dependencies read off the binaries.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tierd)
set(CPACK_PACKAGE_VENDOR "tierd")
set(CPACK_PACKAGE_CONTACT "The tierd authors <tierd@users.noreply.github.com>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "memory tiering daemon for machines that train models")
set(CPACK_PACKAGE_DESCRIPTION
"tierd owns the pinned host memory and the SSD extents of a training node and
lends them to training processes. A process hands it a tensor and gets it back
when it needs it; between the two, the tensor lies in RAM, on SSD, or in both.
.
This package holds the daemon, tierctl, tierd-smart, the C libraries with their
headers, pkg-config and CMake files, and systemd units.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS systemd)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    "${CMAKE_CURRENT_LIST_DIR}/postinst;${CMAKE_CURRENT_LIST_DIR}/prerm;${CMAKE_CURRENT_LIST_DIR}/postrm"
    "${CMAKE_CURRENT_LIST_DIR}/conffiles;${CMAKE_CURRENT_LIST_DIR}/symbols;${CMAKE_CURRENT_LIST_DIR}/triggers")
set(CPACK_TIERD_BUILD "${PROJECT_BINARY_DIR}")
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/stage.cmake")
install(FILES "${CMAKE_CURRENT_LIST_DIR}/lintian-overrides" DESTINATION share/lintian/overrides RENAME tierd)
include(CPack)
