#include "daemon/config/missing_quotes.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "daemon/config/quantity.h"

namespace tier::config {
namespace {

constexpr size_t kValueMax = 100;  // Longer ones are no words.
// Of other languages, and misspelled: quotes make them no better.
constexpr auto kTruths = std::to_array<std::string_view>({"true", "false", "yes", "no", "on", "off"});

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

std::string_view LineOf(std::string_view text, size_t line) {
  for (; line > 1; --line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

bool IsWord(std::string_view value) {
  const auto is_part = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '/' || c == '.';
  };
  if (!std::ranges::all_of(value, is_part)) return false;
  std::string lower(value);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::find(kTruths, lower) == kTruths.end() && std::isdigit(static_cast<unsigned char>(value[0])) == 0;
}

// The plural of what it is. Empty: nothing that quotes make right.
std::string_view KindOf(std::string_view value) {
  if (value.ends_with('%')) return ParseShare(value) ? "shares" : "";
  if (ParseSize(value)) return "sizes";
  if (ParseDuration(value)) return "times";
  return IsWord(value) ? "texts" : "";
}

}  // namespace

std::string QuotesHint(std::string_view text, size_t line) {
  const std::string_view whole = LineOf(text, line);
  const std::string_view statement = whole.substr(0, whole.find('#'));
  const size_t equals = statement.find('=');
  if (equals == std::string_view::npos) return {};
  const std::string_view key = Trimmed(statement.substr(0, equals));
  const std::string_view value = Trimmed(statement.substr(equals + 1));
  if (key.empty() || value.empty() || value.size() > kValueMax) return {};
  const std::string_view kind = KindOf(value);
  return kind.empty() ? "" : fmt::format("; write {} in quotes: {} = \"{}\"", kind, key, value);
}

}  // namespace tier::config
