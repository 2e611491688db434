# Run by CPack over its staging folder: the configuration goes to /etc, which `cmake --install` must not touch.
# COPY, not INSTALL: INSTALL would put CPack's DESTDIR before the path once more.
file(COPY "${CMAKE_CURRENT_LIST_DIR}/tierd.toml" DESTINATION "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/etc/tierd"
     FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
