// See option_values.h.
#include "daemon/config/option_values.h"

#include <array>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/config/config.h"
#include "daemon/config/quantity.h"
#include "proto/units.h"

namespace tier::config {
namespace {

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

// In the largest unit that leaves nothing over.
std::string SizeText(uint64_t bytes) {
  constexpr auto kUnits = std::to_array<std::pair<std::string_view, uint64_t>>(
      {{"TiB", 1024 * kGiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", 1024}});
  if (bytes == 0) return "0";
  for (const auto& [name, factor] : kUnits) {
    if (bytes % factor == 0) return Quoted(fmt::format("{}{}", bytes / factor, name));
  }
  return std::to_string(bytes);
}

std::string ShareText(double share) {
  std::string percent = fmt::format("{:.10f}", share * 100);
  percent.erase(percent.find_last_not_of('0') + 1);
  if (percent.ends_with('.')) percent.pop_back();
  return Quoted(percent + "%");
}

struct Printer {
  Kind kind;

  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const uint64_t* value) const {
    return kind == Kind::kSize ? SizeText(*value) : std::to_string(*value);
  }
  std::string operator()(const int64_t* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const {
    return kind == Kind::kNumber ? fmt::format("{}", *value) : ShareText(*value);
  }
  std::string operator()(const base::Duration* value) const { return Quoted(FormatDuration(*value)); }
  std::string operator()(const std::string* value) const { return Quoted(*value); }
  std::string operator()(const SizeOrShare* value) const {
    return value->share == 0 ? SizeText(value->bytes) : ShareText(value->share);
  }
  std::string operator()(const std::vector<std::string>* value) const {
    std::vector<std::string> quoted;
    for (const std::string& path : *value) quoted.push_back(Quoted(path));
    return fmt::format("[{}]", fmt::join(quoted, ", "));
  }
};

}  // namespace

std::string ValueText(const Option& option, const Config& config) {
  Config readable = config;  // Fields are reached through a Config that may be written.
  return std::visit(Printer{option.kind}, option.field(readable));
}

Config WithRunTimeOptions(const Config& running, const Config& wanted) {
  Config next = running;
  Config from = wanted;
  for (const Option& option : Options()) {
    if (option.change != Change::kAtRunTime) continue;
    std::visit([&](auto* value) { *value = *std::get<decltype(value)>(option.field(from)); }, option.field(next));
  }
  next.quota = wanted.quota;
  return next;
}

std::vector<std::string_view> WaitingForRestart(const Config& running, const Config& wanted) {
  std::vector<std::string_view> waiting = ChangedOptions(running, wanted);
  std::erase_if(waiting, [](std::string_view key) { return FindOption(key)->change == Change::kAtRunTime; });
  return waiting;
}

}  // namespace tier::config
