// See quota_file.h.
#include "daemon/session/quota_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/storage/checksum.h"
#include "proto/mapping.h"

namespace tier::session {
namespace {

constexpr std::string_view kFirstLine = "tierd-quotas 1";
constexpr std::string_view kProgram = "tierd-quotas ";
constexpr mode_t kFileMode = 0600;

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

template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::string_view> SplitWords(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return words;
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

uint32_t ChecksumOf(std::string_view text) { return storage::Crc32c(std::as_bytes(std::span(text))); }

std::unexpected<Error> Failure(const std::string& path, const char* what, int error) {
  TIER_CHECK(error != 0, "nothing failed with {}", path);
  const Code code = error == EACCES || error == EPERM || error == EROFS ? Code::kDenied
                    : error == ENOSPC || error == EDQUOT                ? Code::kNoSpace
                                                                        : Code::kIoError;
  return Fail(code, fmt::format("cannot {} {}: {}", what, path, std::strerror(error)));
}

Result<std::string> ReadAll(int fd, const std::string& path) {
  std::string text(kQuotaFileBytesMax + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(fd, text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failure(path, "read", errno);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  text.resize(size);
  return text;
}

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failure(path, "write", errno);
    text.remove_prefix(static_cast<size_t>(count));
  }
  return ::fsync(fd) == 0 ? Status() : Status(Failure(path, "write", errno));
}

// The new name is durable once the directory is.
Status SyncDirectoryOf(const std::string& path) {
  const std::string directory = path.substr(0, std::max<size_t>(path.rfind('/'), 1));
  const proto::FileDescriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return Failure(directory, "sync", errno);
  return {};
}

}  // namespace

std::string FormatQuotas(const QuotaOverrides& quotas) {
  std::string text = fmt::format("{}\n", kFirstLine);
  if (quotas.by_default.any()) text += "default" + FormatFields(quotas.by_default);
  for (const auto& [id, fields] : quotas.users) text += fmt::format("user {}", id) + FormatFields(fields);
  for (const auto& [id, fields] : quotas.groups) text += fmt::format("group {}", id) + FormatFields(fields);
  text += fmt::format("crc32c {:08x}\n", ChecksumOf(text));
  TIER_CHECK(text.size() <= kQuotaFileBytesMax, "quotas take {} bytes", text.size());
  return text;
}

Result<QuotaOverrides> ParseQuotas(std::string_view text) {
  if (!text.starts_with(kFirstLine) || !text.substr(kFirstLine.size()).starts_with('\n')) {
    if (text.starts_with(kProgram)) return Fail(Code::kVersion, "line 1: the format is that of another tierd");
    return Fail(Code::kCorrupt, fmt::format("line 1 is not \"{}\"", kFirstLine));
  }
  QuotaOverrides quotas;
  size_t at = kFirstLine.size() + 1;
  for (size_t number = 2; at < text.size(); ++number) {
    const size_t end = text.find('\n', at);
    const std::string_view line = text.substr(at, end - at);
    if (end == std::string_view::npos) return Fail(Code::kCorrupt, fmt::format("line {} has no end", number));
    if (line.starts_with("crc32c ")) {
      if (line.substr(7) != fmt::format("{:08x}", ChecksumOf(text.substr(0, at))))
        return Fail(Code::kCorrupt, fmt::format("line {}: the checksum is not that of the lines before it", number));
      if (end + 1 == text.size()) return quotas;
      return Fail(Code::kCorrupt, fmt::format("line {} is behind the end", number + 1));
    }
    if (!ParseLine(line, &quotas)) return Fail(Code::kCorrupt, fmt::format("line {} is no quota", number));
    at = end + 1;
  }
  return Fail(Code::kCorrupt, "it was cut short: the line with the checksum is missing");
}

Result<QuotaOverrides> LoadQuotas(const std::string& path) {
  const proto::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return QuotaOverrides{};
  if (!fd) return Failure(path, "read", errno);
  const auto text = ReadAll(fd.get(), path);
  if (!text) return std::unexpected(text.error());
  auto quotas = text->size() > kQuotaFileBytesMax
                    ? Fail(Code::kCorrupt, fmt::format("it has more than {} bytes", kQuotaFileBytesMax))
                    : ParseQuotas(*text);
  if (quotas) return quotas;
  return Fail(quotas.error().code,
              fmt::format("the quotas that were set at run time cannot be read from {}: {}; restore the file, or move "
                          "it away and set them again (tierctl quota set)",
                          path, quotas.error().message));
}

Status SaveQuotas(const std::string& path, const QuotaOverrides& quotas) {
  TIER_CHECK(path.starts_with('/'), "the file of quotas is '{}'", path);
  const std::string next = path + ".new";
  const proto::FileDescriptor fd(
      ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!fd) return Failure(next, "write", errno);
  if (Status written = WriteAll(fd.get(), FormatQuotas(quotas), next); !written) {
    (void)::unlink(next.c_str());  // Best effort: the next write replaces it.
    return written;
  }
  if (::rename(next.c_str(), path.c_str()) != 0) return Failure(path, "replace", errno);
  return SyncDirectoryOf(path);
}

}  // namespace tier::session
