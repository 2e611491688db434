#include "daemon/log_setup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace tier {
namespace {

// %* in the pattern: the priority of sd-daemon(3).
class PriorityFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& text) override {
    const char* prefix = "<6>";
    switch (message.level) {
      case spdlog::level::trace:
      case spdlog::level::debug: prefix = "<7>"; break;
      case spdlog::level::warn: prefix = "<4>"; break;
      case spdlog::level::err: prefix = "<3>"; break;
      case spdlog::level::critical: prefix = "<2>"; break;
      default: break;
    }
    text.append(prefix, prefix + 3);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<PriorityFlag>(); }
};

std::unique_ptr<spdlog::formatter> FormatterOf(const config::LogConfig& config) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PriorityFlag>('*').set_pattern(LogsForJournal(config) ? "%*%v" : "%Y-%m-%d %H:%M:%S.%e %l %v");
  return formatter;
}

}  // namespace

bool StandardErrorIsJournal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat about{};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &about) != 0) return false;
  char* end = nullptr;
  const unsigned long long device = std::strtoull(stream, &end, 10);
  return *end == ':' && device == about.st_dev && std::strtoull(end + 1, nullptr, 10) == about.st_ino;
}

const char* RefusalPrefix(bool journal) { return journal ? "<3>" : ""; }

bool LogsForJournal(const config::LogConfig& config) {
  return config.format == "journal" || (config.format == "auto" && StandardErrorIsJournal());
}

void SetUpLog(const config::LogConfig& config) {
  auto logger = std::make_shared<spdlog::logger>("tierd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_formatter(FormatterOf(config));
  logger->set_level(spdlog::level::from_str(config.level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

void ChangeLog(const config::LogConfig& config, const std::function<void()>& say) {
  // The sink has a lock of its own for that; only the logger's list of sinks must not change.
  spdlog::default_logger_raw()->set_formatter(FormatterOf(config));
  const spdlog::level::level_enum wanted = spdlog::level::from_str(config.level);
  spdlog::set_level(std::min(spdlog::get_level(), wanted));
  say();
  spdlog::set_level(wanted);
}

}  // namespace tier
