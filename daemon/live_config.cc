#include "daemon/live_config.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "daemon/config/option_values.h"
#include "daemon/config/options.h"
#include "daemon/host_check.h"
#include "daemon/log_setup.h"

namespace tier {
namespace {

constexpr auto kSetTimeout = std::chrono::seconds(10);
// What others than administrators are told: the file may name users, paths and what is promised to whom.
constexpr char kFailedForOthers[] = "the reload of the configuration failed; all settings stay as they are";
constexpr char kReloadedForOthers[] = "the configuration was read again";
constexpr char kChangedForOthers[] = "an administrator changed an option";

std::string NoSuchOption(const std::string& name) {
  if (name.starts_with("quota")) return fmt::format("'{}' is no option: quotas are set by tierctl quota set", name);
  return config::UnknownOptionText(name, "tierctl config get");
}

// One option by what is typed for it, and nothing else.
Result<config::Config> WithOption(config::Config config, const session::SettingChange& change,
                                  const std::string& file) {
  const config::Option* const option = config::FindOption(change.name);
  if (option == nullptr) return Fail(Code::kInvalid, NoSuchOption(change.name));
  if (option->change == config::Change::kAtRestart) {
    return Fail(Code::kInvalid, fmt::format("option {} changes only at a restart: write it into {} and restart tierd",
                                            change.name, file.empty() ? "a configuration file" : file));
  }
  if (Status set = config::ApplyOverride(change.name + "=" + change.value, &config); !set)
    return std::unexpected(std::move(set.error()));
  if (Status checked = config::CheckConfig(config); !checked) return std::unexpected(std::move(checked.error()));
  return config;
}

// "engine.deadline (\"60s\" to \"10s\"), log.level (…)".
std::string Changes(const config::Config& before, const config::Config& after) {
  std::vector<std::string> changes;
  for (const std::string_view key : config::ChangedOptions(before, after)) {
    const config::Option& option = *config::FindOption(key);
    changes.push_back(
        fmt::format("{} ({} to {})", key, config::ValueText(option, before), config::ValueText(option, after)));
  }
  return fmt::format("{}", fmt::join(changes, ", "));
}

// Without a file, the command line alone says what holds.
std::string NameOf(const std::string& file) { return file.empty() ? "the command line (there is no file)" : file; }

std::string WarningOf(std::string_view key, const config::Config& config) {
  return fmt::format("{}", fmt::join(CheckTogether(config, key), "; "));
}

bool IsIn(std::string_view key, const std::vector<std::string_view>& keys) {
  return std::ranges::find(keys, key) != keys.end();
}

// Sizes that fit only the arena of the next start wait for it, as its maximum does. Whether there are any.
bool LeaveArenaSizes(const config::Config& running, config::Config* read, std::vector<std::string_view>* waiting) {
  if (!IsIn("arena.maximum", *waiting) && !IsIn("arena.window_size", *waiting)) return false;
  const auto changed = config::ChangedOptions(running, *read);
  bool left = false;
  for (const std::string_view key : {"arena.minimum", "arena.host_reserve"}) {
    if (!IsIn(key, changed)) continue;
    waiting->push_back(key);
    left = true;
  }
  read->arena.minimum = running.arena.minimum;
  read->arena.host_reserve = running.arena.host_reserve;
  return left;
}

}  // namespace

config::Config LiveConfig::running() const {
  const MutexLock lock(mutex_);
  return running_;
}

std::optional<session::ReloadFailure> LiveConfig::reload_failure() const {
  const MutexLock lock(mutex_);
  return reload_failure_;
}

void LiveConfig::Commit(const config::Config& next) {
  const MutexLock lock(mutex_);
  running_ = next;
}

void LiveConfig::Reload() {
  const config::Config before = running();
  const auto file = source_.read();
  auto reading = Check(before, file);
  std::optional<Refusal> refusal;
  if (reading) {
    if (Status moved = hooks_.move_metrics(reading->next); !moved) {
      refusal = Refusal{.file = *file, .why = moved.error().message};
      reading = std::unexpected(std::move(moved.error()));
    }
  }
  {
    const MutexLock lock(mutex_);
    refusal_ = std::move(refusal);
  }
  if (!reading) return Refuse(reading.error());
  Commit(reading->next);
  {
    const MutexLock lock(mutex_);
    set_at_run_time_.clear();
    reload_failure_.reset();
  }
  hooks_.apply(reading->next, [] {});
  TellReloaded(before, *reading);
}

Result<LiveConfig::Reading> LiveConfig::Check(const config::Config& before, Result<config::Config> read) const {
  if (!read) return std::unexpected(std::move(read.error()));
  if (Status may = hooks_.check_restart(*read); !may) return std::unexpected(std::move(may.error()));
  Reading reading{.file = *std::move(read), .next = {}, .waiting = {}};
  reading.waiting = config::WaitingForRestart(before, reading.file);
  const auto check = [&] { return hooks_.check(config::WithRunTimeOptions(before, reading.file)); };
  Status may = check();
  if (!may && LeaveArenaSizes(before, &reading.file, &reading.waiting)) may = check();
  if (!may) return std::unexpected(std::move(may.error()));
  reading.next = config::WithRunTimeOptions(before, reading.file);
  return reading;
}

// What a reload would refuse is a mistake too. Whether an address can be had only a try tells: that of the last reload,
// where the file is still the same.
std::string LiveConfig::WhyRefused(const Result<config::Config>& file) const {
  if (const auto checked = Check(running(), file); !checked) return checked.error().message;
  const MutexLock lock(mutex_);
  return refusal_ && refusal_->file == *file ? refusal_->why : "";
}

void LiveConfig::Refuse(const Error& error) {
  const std::string why = error.message + "; all settings stay as they are";
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
  {
    const MutexLock lock(mutex_);
    reload_failure_ = {.unix_time_ms = now_ms, .why = why, .for_others = kFailedForOthers};
  }
  spdlog::error("reload: {}", why);
  hooks_.tell(kConfigReloadFailed, "the reload failed: " + why, kFailedForOthers);
}

void LiveConfig::TellReloaded(const config::Config& before, const Reading& reading) {
  const std::string changes = Changes(before, reading.next);
  const bool other_quotas = reading.next.quota != before.quota;
  const std::string what = changes + (!other_quotas ? "" : changes.empty() ? "quotas" : ", quotas");
  const auto at_restart = reading.waiting.empty() ? std::vector<std::string>() : hooks_.at_restart(reading.file);
  ChangeLog(reading.next.log, [&] {
    spdlog::info("reload: {} was read again; log.level is \"{}\"", NameOf(source_.file), reading.next.log.level);
    if (!changes.empty()) spdlog::info("reload: these options changed: {}", changes);
    for (const std::string& warning : CheckTogether(reading.next)) spdlog::warn("reload: {}", warning);
    if (other_quotas) spdlog::info("reload: the quotas of {} hold from now on", NameOf(source_.file));
    if (reading.waiting.empty()) return;
    spdlog::warn("reload: these options changed and take effect only after a restart: {}",
                 fmt::join(reading.waiting, ", "));
    for (const std::string& note : at_restart) spdlog::warn("reload: {}", note);
  });
  std::string message =
      fmt::format("{} was read again; {}", NameOf(source_.file), what.empty() ? "nothing changed" : "changed: " + what);
  if (!reading.waiting.empty()) message += fmt::format("; only a restart changes {}", fmt::join(reading.waiting, ", "));
  for (const std::string& note : at_restart) message += "; " + note;
  hooks_.tell(kConfigReloaded, message, kReloadedForOthers);
}

Status LiveConfig::Set(const session::SettingChange& change) {
  // Shared: the answer may come when the caller no longer waits for it.
  const auto answer = std::make_shared<std::promise<Status>>();
  auto future = answer->get_future();
  hooks_.post(
      [this, change, answer] { Change(change, [answer](const Status& status) { answer->set_value(status); }); });
  if (future.wait_for(kSetTimeout) != std::future_status::ready) {
    return Fail(Code::kTimeout, fmt::format("tierd did not answer within {} s; tierctl config get {} says what holds",
                                            kSetTimeout.count(), change.name));
  }
  return future.get();
}

void LiveConfig::Change(const session::SettingChange& change, const Done& done) {
  if (stopping_) return done(Fail(Code::kDisconnected, "tierd is being stopped"));
  const config::Config before = running();
  const auto next = WithOption(before, change, source_.file);
  if (!next) return done(std::unexpected(next.error()));
  if (const Status may = hooks_.check(*next); !may) return done(may);
  if (const Status moved = hooks_.move_metrics(*next); !moved) return done(moved);
  const config::Option& option = *config::FindOption(change.name);
  Commit(*next);
  {
    const MutexLock lock(mutex_);
    set_at_run_time_.insert(option.key);
  }
  ChangeLog(next->log, [&] {
    const std::string warning = WarningOf(option.key, *next);
    if (!warning.empty()) spdlog::warn("{}", warning);
  });
  hooks_.tell(kConfigChanged,
              fmt::format("uid {} set {} to {}, until the next reload or restart; it was {}", change.uid, option.key,
                          config::ValueText(option, *next), config::ValueText(option, before)),
              kChangedForOthers);
  hooks_.apply(*next, [done] { done({}); });  // Last: its end answers who asked.
}

session::SettingsReport LiveConfig::List(bool with_file) const {
  session::SettingsReport report{.file = source_.file, .file_error = {}, .options = {}};
  const auto in_file = with_file ? source_.read() : Fail(Code::kDenied, "");
  if (with_file) report.file_error = WhyRefused(in_file);
  const config::Config defaults = config::DefaultConfig();
  const MutexLock lock(mutex_);
  for (const config::Option& option : config::Options()) {
    session::OptionState state{.name = std::string(option.key),
                               .running = config::ValueText(option, running_),
                               .by_default = config::ValueText(option, defaults),
                               .in_file = std::nullopt,
                               .changes_at_run_time = option.change == config::Change::kAtRunTime,
                               .set_at_run_time = set_at_run_time_.contains(option.key),
                               .help = std::string(option.help),
                               .warning = WarningOf(option.key, running_)};
    if (in_file) state.in_file = config::ValueText(option, *in_file);
    report.options.push_back(std::move(state));
  }
  return report;
}

}  // namespace tier
