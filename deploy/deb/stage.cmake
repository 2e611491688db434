# Run by CPack over its staging folder. The copyright file is written from what is linked: no package is made where that
# differs from deploy/licences/components.toml.
execute_process(
  COMMAND python3 "${CMAKE_CURRENT_LIST_DIR}/../licences/licences.py" copyright --build "${CPACK_TIERD_BUILD}"
          --out "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/doc/tierd/copyright"
  RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "the copyright file of the package could not be written")
endif()

# CPack's own strip leaves the names of compilers behind.
set(usr "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr")
file(GLOB binaries "${usr}/bin/*" "${usr}/sbin/*" "${usr}/lib/*.so.*")
foreach(binary IN LISTS binaries)
  if(NOT IS_SYMLINK "${binary}")
    execute_process(COMMAND strip --remove-section=.comment "${binary}" COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()

# Configuration goes to /etc, which `cmake --install` must not touch.
# COPY, not INSTALL: INSTALL would put CPack's DESTDIR before the path once more.
set(etc "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/etc")
set(permissions FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
file(COPY "${CMAKE_CURRENT_LIST_DIR}/tierd.toml" DESTINATION "${etc}/tierd" ${permissions})
file(COPY "${CMAKE_CURRENT_LIST_DIR}/needrestart.conf" DESTINATION "${etc}/needrestart/conf.d" ${permissions})
file(RENAME "${etc}/needrestart/conf.d/needrestart.conf" "${etc}/needrestart/conf.d/tierd.conf")
