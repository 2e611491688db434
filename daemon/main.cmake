# The daemon itself: everything below put together.
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)

tier_library(tier_daemon
  SOURCES activity_report.cc composition.cc config_changes.cc daemon_paths.cc engine_side.cc
          host_check.cc host_limits.cc live_config.cc log_setup.cc metrics_server.cc owner_socket_calls.cc
          process_limits.cc reservations.cc service_status.cc smart_watch.cc ssd_devices.cc ssd_words.cc
          uncaught_exception.cc user_quotas.cc
  DEPS tier_config tier_metrics tier_control tier_session tier_tiering tier_storage tier_memory tier_base tier_proto
       Boost::headers spdlog::spdlog fmt::fmt Threads::Threads)
target_compile_definitions(tier_daemon PUBLIC TIER_VERSION="${PROJECT_VERSION}")
add_executable(tierd main.cc)
target_link_libraries(tierd PRIVATE tier_daemon CLI11::CLI11 tier_flags)
tier_whole_program(tierd)
tier_shipped(tierd)
install(TARGETS tierd RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
