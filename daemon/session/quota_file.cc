// See quota_file.h.
#include "daemon/session/quota_file.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/line_file.h"

namespace tier::session {
namespace {

constexpr LineFormat kFormat{.first_line = "tierd-quotas 1", .noun = "quota", .bytes_max = kQuotaFileBytesMax};

std::string FormatFields(const QuotaFields& fields) {
  std::string text;
  for (const NamedQuotaField& field : kQuotaFields) {
    const std::optional<uint64_t>& value = fields.*field.value;
    if (!value) continue;
    text += *value == tiering::kUnlimited ? fmt::format(" {}={}", field.name, kUnlimitedText)
                                          : fmt::format(" {}={}", field.name, *value);
  }
  return text + "\n";
}

// "ram=1024", of a user that has none yet.
bool ParseField(std::string_view word, QuotaFields* fields) {
  const size_t equals = std::min(word.find('='), word.size());
  const auto field = std::ranges::find(kQuotaFields, word.substr(0, equals), &NamedQuotaField::name);
  if (equals == word.size() || field == kQuotaFields.end() || fields->*field->value) return false;
  const std::string_view text = word.substr(equals + 1);
  const auto value = text == kUnlimitedText ? std::optional(tiering::kUnlimited) : NumberOf<uint64_t>(text);
  fields->*field->value = value;
  return value.has_value();
}

// What the line is about: the first words of it are used up. Null: it is wrong, or stands twice.
QuotaFields* FieldsOf(std::vector<std::string_view>* words, QuotaOverrides* quotas) {
  const std::string_view kind = words->front();
  words->erase(words->begin());
  if (kind == "default") return quotas->by_default.any() ? nullptr : &quotas->by_default;
  if ((kind != "user" && kind != "group") || words->empty()) return nullptr;
  const auto id = NumberOf<uint32_t>(words->front());
  if (!id || *id == std::numeric_limits<uint32_t>::max()) return nullptr;
  words->erase(words->begin());
  auto& all = kind == "user" ? quotas->users : quotas->groups;
  if (quotas->users.size() + quotas->groups.size() >= kQuotasMax || all.contains(*id)) return nullptr;
  return &all[*id];
}

bool ParseLine(std::string_view line, QuotaOverrides* quotas) {
  std::vector<std::string_view> words = SplitWords(line);
  QuotaFields* const fields = FieldsOf(&words, quotas);
  if (fields == nullptr || words.empty()) return false;
  return std::ranges::all_of(words, [fields](std::string_view word) { return ParseField(word, fields); });
}

}  // namespace

std::string FormatQuotas(const QuotaOverrides& quotas) {
  TIER_CHECK(quotas.users.size() + quotas.groups.size() <= kQuotasMax, "{} users and {} groups have quotas",
             quotas.users.size(), quotas.groups.size());
  std::string lines;
  if (quotas.by_default.any()) lines += "default" + FormatFields(quotas.by_default);
  for (const auto& [id, fields] : quotas.users) lines += fmt::format("user {}", id) + FormatFields(fields);
  for (const auto& [id, fields] : quotas.groups) lines += fmt::format("group {}", id) + FormatFields(fields);
  return FormatLines(kFormat, lines);
}

Result<QuotaOverrides> ParseQuotas(std::string_view text) {
  QuotaOverrides quotas;
  const Status parsed = ParseLines(kFormat, text, [&](std::string_view line) { return ParseLine(line, &quotas); });
  if (!parsed) return std::unexpected(parsed.error());
  return quotas;
}

Result<QuotaOverrides> LoadQuotas(const std::string& path) {
  const auto text = ReadLineFile(kFormat, path);
  if (!text) return std::unexpected(text.error());
  if (!*text) return QuotaOverrides{};
  auto quotas = ParseQuotas(**text);
  if (quotas) return quotas;
  return Fail(quotas.error().code,
              fmt::format("the quotas that were set at run time cannot be read from {}: {}; restore the file, or move "
                          "it away and set them again (tierctl quota set)",
                          path, quotas.error().message));
}

Status SaveQuotas(const std::string& path, const QuotaOverrides& quotas) {
  return ReplaceLineFile(path, FormatQuotas(quotas));
}

}  // namespace tier::session
