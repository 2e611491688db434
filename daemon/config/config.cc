#include "daemon/config/config.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>
#include <ranges>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

// toml++ 3.3 asserts on some malformed keys, which are the file's fault and no bug; with NDEBUG it even assumes that
// there are none. Make that an error like any other, in every build.
[[noreturn]] static void RejectToml() { throw std::logic_error("malformed"); }
[[maybe_unused]] static constexpr void CheckToml(bool condition) {
  if (!condition) RejectToml();
}
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) CheckToml(static_cast<bool>(condition))
#include <toml++/impl/forward_declarations.h>
// Its tests for white space and the like take most characters of some ranges, é among them, for ones that cannot come.
#pragma push_macro("TOML_UNREACHABLE")
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE \
  return {}
#include <toml++/impl/unicode.h>
#pragma pop_macro("TOML_UNREACHABLE")
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/config/config_file.h"
#include "daemon/config/missing_quotes.h"
#include "daemon/config/options.h"
#include "daemon/config/quantity.h"
#include "daemon/config/quota_section.h"
#include "proto/units.h"

namespace tier::config {
namespace {

constexpr std::string_view kQuotaHelp =
    "# Quotas: what all jobs of one user may have together; see /usr/share/doc/tierd/configuration.md.\n"
    "# SIGHUP takes over a change.\n"
    "# [quota.default]\n"
    "# ram = \"64GiB\"\n"
    "# [quota.user.\"alice\"]\n"
    "# jobs = 4\n"
    "# [quota.group.\"students\"]\n"
    "# guarantee = 0\n";
constexpr size_t kQuotaDepthMax = 3;  // Parts of the longest name: user, NAME, ram.

std::unexpected<Error> Wrong(const Option& option, std::string_view what) {
  return Fail(Code::kInvalid, fmt::format("option {}: {}", option.key, what));
}

Result<std::string> TextOf(const Option& option, const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  return Wrong(option, "must be a text in quotes");
}

Status SetBool(const Option& option, const toml::node& node, bool* field) {
  const auto value = node.value_exact<bool>();
  if (!value) return Wrong(option, "must be true or false");
  *field = *value;
  return {};
}

Status SetInteger(const Option& option, const toml::node& node, const Field& field) {
  const auto value = node.value_exact<int64_t>();
  if (!value) return Wrong(option, "must be a number without a unit");
  const bool is_signed = option.kind == Kind::kInteger;
  const auto low = static_cast<int64_t>(option.min);
  const auto high = static_cast<int64_t>(std::min<uint64_t>(option.max, INT64_MAX));
  if (*value < low || *value > high)
    return Wrong(option, fmt::format("{} is out of range, allowed are {} to {}", *value, low, high));
  if (is_signed) {
    *std::get<int64_t*>(field) = *value;
  } else {
    *std::get<uint64_t*>(field) = static_cast<uint64_t>(*value);
  }
  return {};
}

// "64GiB", or a number of bytes; 0 is outside of every range and means "derived".
Result<uint64_t> SizeOf(const Option& option, const toml::node& node) {
  const auto number = node.value_exact<int64_t>();
  const auto text = node.value_exact<std::string>();
  if ((!number && !text) || (number && *number < 0) || (text && text->empty()))
    return Wrong(option, "must be a size like \"64GiB\", or a number of bytes");
  const auto size = number ? Result<uint64_t>(static_cast<uint64_t>(*number)) : ParseSize(*text);
  if (!size) return Wrong(option, size.error().message);
  if (*size == 0 || (*size >= option.min && *size <= option.max)) return *size;
  return Wrong(option, fmt::format("{} bytes are out of range, allowed are {} to {}; write it like \"64GiB\"", *size,
                                   base::FormatBytes(option.min), base::FormatBytes(option.max)));
}

Status SetSizeOrShare(const Option& option, const toml::node& node, SizeOrShare* field) {
  const auto text = node.value_exact<std::string>();
  if (text && text->ends_with('%')) {
    const auto share = ParseShare(*text);
    if (!share) return Wrong(option, share.error().message);
    *field = {.bytes = 0, .share = *share};
    return {};
  }
  const auto size = SizeOf(option, node);
  if (!size) return std::unexpected(size.error());
  *field = {.bytes = *size, .share = 0};
  return {};
}

Status SetShare(const Option& option, const toml::node& node, double* field) {
  const auto text = node.value_exact<std::string>();
  const auto share = text && !text->empty() ? ParseShare(*text) : Fail(Code::kInvalid, "must be a share like \"50%\"");
  if (!share) return Wrong(option, share.error().message);
  *field = *share;
  return {};
}

Status SetNumber(const Option& option, const toml::node& node, double* field) {
  const auto whole = node.value_exact<int64_t>();
  const auto value = whole ? std::optional(static_cast<double>(*whole)) : node.value_exact<double>();
  if (!value) return Wrong(option, "must be a number like 0.5, without quotes");
  const double low = std::max(static_cast<double>(option.min), option.least);
  // Written so that it refuses what is no number (nan) too.
  const bool is_zero = *value == 0 && option.min == 0;
  if (!is_zero && !(*value >= low && *value <= static_cast<double>(option.max))) {
    return Wrong(option, fmt::format("{} is out of range, allowed are {}{} to {}", *value,
                                     option.least > 0 ? "0, and " : "", low, option.max));
  }
  *field = is_zero ? 0 : *value;  // And not -0, which would be shown so.
  return {};
}

Status SetDuration(const Option& option, const toml::node& node, base::Duration* field) {
  const auto text = node.value_exact<std::string>();
  const auto duration =
      text && !text->empty() ? ParseDuration(*text) : Fail(Code::kInvalid, "must be a time like \"250ms\"");
  if (!duration) return Wrong(option, duration.error().message);
  const base::Duration low(static_cast<int64_t>(option.min));
  const base::Duration high(static_cast<int64_t>(std::min<uint64_t>(option.max, INT64_MAX)));
  if (*duration < low || *duration > high) {
    return Wrong(option, fmt::format("{} is out of range, allowed are {} to {}", FormatDuration(*duration),
                                     FormatDuration(low), FormatDuration(high)));
  }
  *field = *duration;
  return {};
}

Status SetText(const Option& option, const toml::node& node, std::string* field) {
  auto text = TextOf(option, node);
  if (!text) return std::unexpected(std::move(text.error()));
  if (text->find('\0') != std::string::npos) return Wrong(option, "holds a NUL character");
  *field = std::move(*text);
  return {};
}

bool IsHost(const std::string& host) {
  in6_addr address{};
  if (host.starts_with('[') && host.ends_with(']'))
    return ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address) == 1;
  if (host.find_first_not_of("0123456789.") == std::string::npos)
    return ::inet_pton(AF_INET, host.c_str(), &address) == 1;
  const auto in_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '-'; };
  return std::all_of(host.begin(), host.end(), in_name) && std::isalnum(static_cast<unsigned char>(host.front())) != 0;
}

bool IsPort(std::string_view text) {
  uint16_t port = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && rest == text.data() + text.size();
}

// What the HTTP server would take for less, such as a port alone, it serves on every interface.
Status SetAddress(const Option& option, const toml::node& node, std::string* field) {
  auto text = TextOf(option, node);
  if (!text) return std::unexpected(std::move(text.error()));
  const size_t colon = text->rfind(':');
  const bool whole =
      colon != std::string::npos && IsHost(text->substr(0, colon)) && IsPort(std::string_view(*text).substr(colon + 1));
  if (!whole && !text->empty() && *text != "auto") {
    return Wrong(option, fmt::format("\"{}\" is not ADDRESS:PORT; write it like \"127.0.0.1:9464\" or \"[::1]:9464\" "
                                     "with a port of 0 to 65535, \"auto\", or \"\" for none",
                                     *text));
  }
  *field = std::move(*text);
  return {};
}

// "\"auto\", \"never\"".
std::string ChoicesText(const Option& option) {
  std::string text;
  for (const auto choice : std::views::split(option.choices, '|'))
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", std::string_view(choice));
  return text;
}

Status SetChoice(const Option& option, const toml::node& node, std::string* field) {
  auto text = TextOf(option, node);
  if (!text) return std::unexpected(std::move(text.error()));
  for (const auto choice : std::views::split(option.choices, '|')) {
    if (std::string_view(choice) != *text) continue;
    *field = *std::move(text);
    return {};
  }
  return Wrong(option, fmt::format("\"{}\" is not one of {}", *text, ChoicesText(option)));
}

Status SetPaths(const Option& option, const toml::node& node, std::vector<std::string>* field) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return Wrong(option, "must be a list like [\"/dev/nvme0n1\"]");
  std::vector<std::string> paths;
  for (const toml::node& element : *array) {
    auto path = TextOf(option, element);
    if (!path) return std::unexpected(std::move(path.error()));
    if (path->empty() || path->find('\0') != std::string::npos) return Wrong(option, "holds an empty path");
    // A relative one would be another file for each directory that tierd is started in.
    if (path->front() != '/' && *path != "none") return Wrong(option, "\"" + *path + "\" is not an absolute path");
    paths.push_back(std::move(*path));
  }
  *field = std::move(paths);
  return {};
}

Status Set(const Option& option, const toml::node& node, Config* config) {
  const Field field = option.field(*config);
  switch (option.kind) {
    case Kind::kBool: return SetBool(option, node, std::get<bool*>(field));
    case Kind::kCount:
    case Kind::kInteger: return SetInteger(option, node, field);
    case Kind::kSize: {
      const auto size = SizeOf(option, node);
      if (!size) return std::unexpected(size.error());
      *std::get<uint64_t*>(field) = *size;
      return {};
    }
    case Kind::kSizeOrShare: return SetSizeOrShare(option, node, std::get<SizeOrShare*>(field));
    case Kind::kShare: return SetShare(option, node, std::get<double*>(field));
    case Kind::kNumber: return SetNumber(option, node, std::get<double*>(field));
    case Kind::kDuration: return SetDuration(option, node, std::get<base::Duration*>(field));
    case Kind::kText: return SetText(option, node, std::get<std::string*>(field));
    case Kind::kAddress: return SetAddress(option, node, std::get<std::string*>(field));
    case Kind::kChoice: return SetChoice(option, node, std::get<std::string*>(field));
    case Kind::kPaths: return SetPaths(option, node, std::get<std::vector<std::string>*>(field));
  }
  return {};
}

bool IsSection(std::string_view key) {
  const auto options = Options();
  return std::any_of(options.begin(), options.end(), [key](const Option& o) {
    return o.key.size() > key.size() && o.key.starts_with(key) && o.key[key.size()] == '.';
  });
}

std::unexpected<Error> Unknown(const std::string& key) {
  return Fail(Code::kInvalid, UnknownOptionText(key, "tierd --print-default-config"));
}

std::unexpected<Error> UnknownSection(const std::string& name) {
  return Fail(Code::kInvalid, fmt::format("unknown section '{}'; the nearest is '{}'", name, NearestSection(name)));
}

std::unexpected<Error> At(const std::string& source, toml::source_index line, const Error& error) {
  return Fail(error.code, fmt::format("{}:{}: {}", source, line, error.message));
}

QuotaSetting SettingOf(const std::vector<std::string>& path, const toml::node& node) {
  QuotaSetting setting{.path = path, .value = {}, .is_section = node.is_table()};
  if (const auto number = node.value_exact<int64_t>()) setting.value = *number;
  if (auto text = node.value_exact<std::string>()) setting.value = std::move(*text);
  return setting;
}

// [quota], whose sections are named by the administrator.
Status ApplyQuotas(const toml::node& node, std::vector<std::string>* path, const std::string& source, Config* config) {
  const toml::table* const section = node.as_table();
  if (section == nullptr || section->empty() || path->size() > kQuotaDepthMax) {
    const Status applied = ApplyQuota(SettingOf(*path, node), &config->quota);
    return applied ? applied : At(source, node.source().begin.line, applied.error());
  }
  for (const auto& [name, inner] : *section) {
    path->emplace_back(name.str());
    if (Status applied = ApplyQuotas(inner, path, source, config); !applied) return applied;
    path->pop_back();
  }
  return {};
}

Status ApplyTable(const toml::table& table, const std::string& prefix, const std::string& source, Config* config) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (key == "quota") {
      std::vector<std::string> path;
      if (auto applied = ApplyQuotas(node, &path, source, config); !applied) return applied;
      continue;
    }
    const auto at = [&, line = node.source().begin.line](const Error& error) { return At(source, line, error); };
    if (const toml::table* section = node.as_table(); section != nullptr && IsSection(key)) {
      if (auto applied = ApplyTable(*section, key + ".", source, config); !applied) return applied;
      continue;
    }
    const Option* option = FindOption(key);
    if (option == nullptr) return at((node.is_table() ? UnknownSection(key) : Unknown(key)).error());
    if (auto set = Set(*option, node, config); !set) return at(set.error());
  }
  return {};
}

// What two options, or one by itself where its range cannot tell, must not say. The first is named.
struct Contradiction {
  std::vector<std::string_view> options;
  std::string what;

  Error error() const { return {Code::kInvalid, fmt::format("option {}: {}", options.front(), what)}; }
};

std::optional<Contradiction> ContradictionIn(const Config& config) {
  const ArenaConfig& arena = config.arena;
  if (arena.window_size != 0 && !std::has_single_bit(arena.window_size))
    return Contradiction{{"arena.window_size"}, fmt::format("{} bytes are not a power of two", arena.window_size)};
  if (arena.maximum.derived()) return Contradiction{{"arena.maximum"}, "must not be 0"};
  if (arena.maximum.share == 0 && arena.maximum.bytes < arena.window_size) {
    return Contradiction{
        {"arena.maximum", "arena.window_size"},
        fmt::format("{} bytes are less than one window of {}", arena.maximum.bytes, arena.window_size)};
  }
  if (config.engine.write_behind > config.engine.evict) {
    return Contradiction{{"engine.write_behind", "engine.evict"},
                         "must not be above engine.evict, or nothing clean is left to evict"};
  }
  if (!config.ssd.smart_file.empty() && config.ssd.smart_file.front() != '/')
    return Contradiction{{"ssd.smart_file"}, fmt::format("\"{}\" is not an absolute path", config.ssd.smart_file)};
  const std::vector<std::string>& devices = config.ssd.devices;
  if (devices.size() > 1 && std::ranges::find(devices, "none") != devices.end())
    return Contradiction{{"ssd.devices"}, "\"none\" stands alone"};
  for (auto device = devices.begin(); device != devices.end(); ++device) {
    if (std::find(devices.begin(), device, *device) == device) continue;
    return Contradiction{{"ssd.devices"}, fmt::format("{} is named twice: name it once", *device)};
  }
  return std::nullopt;
}

// Of the first of its options that the file sets; as the defaults agree with each other, it sets one.
toml::source_index LineOf(const Contradiction& contradiction, const toml::table& table) {
  for (const std::string_view option : contradiction.options) {
    if (const auto node = table.at_path(option)) return node.node()->source().begin.line;
  }
  return 1;
}

bool IsMalformed(std::string_view text) {
  try {
    (void)toml::parse(text);
  } catch (const toml::parse_error&) {
    return false;  // That says where.
  } catch (const std::logic_error&) {
    return true;
  }
  return false;
}

// The first line that toml++ gives up on without saying where. It reads in order, so whatever begins with the lines up
// to that one is malformed, and nothing shorter is.
ptrdiff_t LineOfMalformed(std::string_view text) {
  std::vector<size_t> ends;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', end + 1)) ends.push_back(end);
  const auto found =
      std::ranges::partition_point(ends, [text](size_t end) { return !IsMalformed(text.substr(0, end)); });
  return found - ends.begin() + 1;
}

Result<toml::table> ParseToml(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    const toml::source_index line = error.source().begin.line;
    return Fail(Code::kInvalid, fmt::format("{}:{}: {}{}", source, line, error.description(), QuotesHint(text, line)));
  } catch (const std::logic_error&) {
    return Fail(Code::kInvalid, fmt::format("{}:{}: this is not TOML", source, LineOfMalformed(text)));
  }
}

}  // namespace

Config DefaultConfig() {
  Config config;
  for (const Option& option : Options()) {
    const toml::table table = toml::parse(fmt::format("value = {}", option.default_toml));
    const auto set = Set(option, *table.get("value"), &config);
    TIER_CHECK(set.has_value(), "{}", set.error().message);
  }
  return config;
}

Result<Config> ParseConfig(std::string_view text, const std::string& source) {
  const auto table = ParseToml(text, source);
  if (!table) return std::unexpected(table.error());
  Config config = DefaultConfig();
  if (auto applied = ApplyTable(*table, "", source, &config); !applied)
    return std::unexpected(std::move(applied.error()));
  if (const auto contradiction = ContradictionIn(config))
    return At(source, LineOf(*contradiction, *table), contradiction->error());
  return config;
}

Result<Config> LoadConfig(const std::string& path) {
  const auto text = ReadConfigFile(path);
  if (!text) return std::unexpected(text.error());
  return ParseConfig(*text, path);
}

Status ApplyOverride(const std::string& assignment, Config* config) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos) {
    return Fail(Code::kInvalid, fmt::format("'{}' is not OPTION=VALUE, such as arena.maximum=64GiB", assignment));
  }
  const std::string key = assignment.substr(0, equals);
  const std::string value = assignment.substr(equals + 1);
  if (key == "quota" || key.starts_with("quota.")) {
    return Fail(Code::kInvalid, fmt::format("'{}' is not an option of the command line: quotas stand in the file, or "
                                            "are set at run time (tierctl quota set)",
                                            key));
  }
  const Option* option = FindOption(key);
  if (option == nullptr) return Unknown(key);
  // Texts need no quotes here: what is no TOML value by itself is one.
  const bool quoted = option->kind != Kind::kText && option->kind != Kind::kAddress && option->kind != Kind::kChoice;
  const auto parsed = quoted ? ParseToml("value = " + value, key) : Fail(Code::kInvalid, "");
  if (parsed && parsed->size() == 1) return Set(*option, *parsed->get("value"), config);
  return Set(*option, toml::value<std::string>(value), config);
}

Status CheckConfig(const Config& config) {
  const auto contradiction = ContradictionIn(config);
  return contradiction ? Status(std::unexpected(contradiction->error())) : Status();
}

std::vector<std::string_view> ChangedOptions(const Config& before, const Config& after) {
  Config old = before;  // Fields are reached through a Config that may be written.
  Config now = after;
  std::vector<std::string_view> changed;
  for (const Option& option : Options()) {
    const Field field = option.field(now);
    const bool same =
        std::visit([&](auto* value) { return *value == *std::get<decltype(value)>(option.field(old)); }, field);
    if (!same) changed.push_back(option.key);
  }
  return changed;
}

std::string PrintDefaultConfig() {
  std::string text =
      "# Configuration of tierd: every option, at its default.\n"
      "# Sizes are written like \"64GiB\" or \"1.5TB\"; a number without a unit is bytes.\n";
  std::string section;
  for (const Option& option : Options()) {
    const size_t dot = option.key.find('.');
    const std::string of(dot == std::string_view::npos ? "" : option.key.substr(0, dot));
    if (of != section) text += fmt::format("\n[{}]\n", of);
    section = of;
    text += '\n';
    std::istringstream help{std::string(option.help)};
    for (std::string line; std::getline(help, line);) text += fmt::format("# {}\n", line);
    if (option.kind == Kind::kChoice) text += fmt::format("# One of {}.\n", ChoicesText(option));
    text += option.change == Change::kAtRestart ? "# A change needs a restart.\n"
                                                : "# A change takes effect at a reload.\n";
    text +=
        fmt::format("{} = {}\n", option.key.substr(dot == std::string_view::npos ? 0 : dot + 1), option.default_toml);
  }
  return text.append("\n").append(kQuotaHelp);
}

}  // namespace tier::config
