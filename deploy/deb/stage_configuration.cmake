# Run by CPack over its staging folder: configuration goes to /etc, which `cmake --install` must not touch.
# COPY, not INSTALL: INSTALL would put CPack's DESTDIR before the path once more.
set(etc "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/etc")
set(permissions FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
file(COPY "${CMAKE_CURRENT_LIST_DIR}/tierd.toml" DESTINATION "${etc}/tierd" ${permissions})
file(COPY "${CMAKE_CURRENT_LIST_DIR}/needrestart.conf" DESTINATION "${etc}/needrestart/conf.d" ${permissions})
file(RENAME "${etc}/needrestart/conf.d/needrestart.conf" "${etc}/needrestart/conf.d/tierd.conf")
