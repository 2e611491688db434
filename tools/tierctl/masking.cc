#include "tools/tierctl/masking.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

constexpr size_t kTokenDigits = 64;
constexpr size_t kCredentialLeast = 8;   // Shorter words without a name are none.
constexpr size_t kUserInfoLeast = 16;    // Of a URL, without a password: a token and no name.
constexpr size_t kUserMax = 256;         // Before its ':'.
constexpr size_t kNumberDigitsMax = 12;  // Of a number of tokens.

// Parts of names, without the signs between their words.
constexpr std::array<std::string_view, 4> kPasswordNames = {"password", "passwd", "passphrase", "passcode"};
constexpr std::array<std::string_view, 10> kSecretNames = {"secret",     "credential",   "authorization", "basicauth",
                                                           "apikey",     "privatekey",   "accesskey",     "authkey",
                                                           "signingkey", "encryptionkey"};
// Behind "password" they go on with a sentence.
constexpr std::array<std::string_view, 16> kSentence = {"of",   "for", "must",  "and",  "or",   "in",    "to",   "from",
                                                        "with", "has", "needs", "file", "that", "which", "lies", "by"};

struct Prefix {
  std::string_view text;
  size_t least;           // Of the characters behind it.
  std::string_view also;  // These, beside letters and digits.
};
constexpr std::array<Prefix, 18> kPrefixes = {{{"ghp_", 16, ""},
                                               {"gho_", 16, ""},
                                               {"ghu_", 16, ""},
                                               {"ghs_", 16, ""},
                                               {"ghr_", 16, ""},
                                               {"github_pat_", 16, "_"},
                                               {"glpat-", 16, "_-."},
                                               {"xoxb-", 10, "-"},
                                               {"xoxp-", 10, "-"},
                                               {"xoxa-", 10, "-"},
                                               {"xoxs-", 10, "-"},
                                               {"hf_", 20, ""},
                                               {"AKIA", 16, ""},
                                               {"ASIA", 16, ""},
                                               {"sk-ant-", 16, "_-"},
                                               {"sk-proj-", 16, "_-"},
                                               {"AIza", 30, "_-"},
                                               {"npm_", 30, ""}}};
constexpr std::string_view kKeyBegin = "-----BEGIN ";
constexpr std::string_view kKeyName = "PRIVATE KEY";
constexpr std::string_view kKeyEnd = "-----END ";

bool IsLetterOrDigit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool IsQuote(char c) { return c == '"' || c == '\''; }
bool IsNameCharacter(char c) { return IsLetterOrDigit(c) || c == '_' || c == '-' || c == '.'; }
bool IsOneOf(char c, std::string_view characters) { return characters.find(c) != characters.npos; }
bool IsCredentialCharacter(char c) { return IsLetterOrDigit(c) || IsOneOf(c, "+/=_-.~"); }

size_t EndOf(std::string_view text, size_t at, bool (*is_part)(char)) {
  while (at < text.size() && is_part(text[at])) ++at;
  return at;
}

bool HasOneOf(std::string_view name, auto&& parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != name.npos; });
}

// What a name says of its value.
enum class NameKind : uint8_t { kOrdinary, kToken, kSecret, kPassword };

NameKind KindOf(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (IsLetterOrDigit(c)) letters += c;
  }
  const size_t last = name.find_last_of("_-.");
  const std::string_view last_word = last == name.npos ? name : name.substr(last + 1);
  if (HasOneOf(letters, kPasswordNames) || last_word == "pass" || (last_word == "pwd" && last != name.npos))
    return NameKind::kPassword;
  if (HasOneOf(letters, kSecretNames)) return NameKind::kSecret;
  // Of a model: a tokenizer and its vocabulary.
  const bool is_token = letters.find("token") != letters.npos && letters.find("tokeniz") == letters.npos;
  return is_token ? NameKind::kToken : NameKind::kOrdinary;
}

bool IsNumber(std::string_view value) {
  const size_t begin = EndOf(value, 0, [](char c) { return IsSpace(c) || IsQuote(c); });
  const size_t end = EndOf(value, begin, IsDigit);
  const bool ends = end == value.size() || !(IsLetterOrDigit(value[end]) || IsOneOf(value[end], "_-+/="));
  return end > begin && end - begin <= kNumberDigitsMax && ends;
}

// Letters with a digit, or with large ones in the middle: no word of a sentence.
bool LooksMadeUp(std::string_view word) {
  const bool has_letter = std::ranges::any_of(word, [](char c) { return IsLetterOrDigit(c) && !IsDigit(c); });
  const bool is_odd = std::ranges::any_of(word.substr(std::min<size_t>(1, word.size())),
                                          [](char c) { return IsDigit(c) || IsUpper(c) || c == '='; });
  return word.size() >= kCredentialLeast && has_letter && is_odd && word[0] != '/' && !word.starts_with("0x");
}

// What a '=' or ':' of the line, which is in small letters, gives a value to.
NameKind KindBefore(std::string_view line, size_t sign) {
  size_t end = sign;
  while (end > 0 && (IsSpace(line[end - 1]) || IsQuote(line[end - 1]) || line[end - 1] == ']')) --end;
  size_t begin = end;
  while (begin > 0 && IsNameCharacter(line[begin - 1])) --begin;
  if (begin == end) return NameKind::kOrdinary;
  const std::string_view before = line.substr(0, begin);
  // A file that cannot be read, or a job of a user.
  if (line[sign] == ':' && before.ends_with('/')) return NameKind::kOrdinary;
  // A job or tensor may be called so.
  if (before.ends_with("job '") || before.ends_with("tensor '")) return NameKind::kOrdinary;
  size_t word = begin;
  if (word > 0 && line[word - 1] == ' ') {
    --word;
    while (word > 0 && IsNameCharacter(line[word - 1])) --word;
  }
  const NameKind alone = KindOf(line.substr(begin, end - begin));
  if (alone != NameKind::kOrdinary) return alone;
  const std::string_view last = line.substr(begin, end - begin);  // "api key", and nothing that only follows "token".
  return last == "key" || last == "keys" || last == "auth" ? KindOf(line.substr(word, end - word)) : alone;
}

std::optional<size_t> BehindSign(std::string_view lower) {
  for (size_t sign = lower.find_first_of("=:"); sign != lower.npos; sign = lower.find_first_of("=:", sign + 1)) {
    const NameKind kind = KindBefore(lower, sign);
    if (kind == NameKind::kOrdinary) continue;
    if (kind == NameKind::kToken && IsNumber(lower.substr(sign + 1))) continue;
    return sign + 1;
  }
  return std::nullopt;
}

// Without a sign: "--token abc", "login bob password hunter2", "token 5f3c9a77".
bool IsSecretBehindSpace(std::string_view word, std::string_view lower_word, std::string_view value) {
  const NameKind kind = KindOf(lower_word);
  const std::string_view bare = value.substr(0, EndOf(value, 0, IsCredentialCharacter));
  if (kind == NameKind::kOrdinary || (kind == NameKind::kToken && IsNumber(value))) return false;
  if (word.starts_with("-")) return true;
  if (kind == NameKind::kPassword) return std::ranges::find(kSentence, Lower(bare)) == kSentence.end();
  return LooksMadeUp(bare);
}

std::optional<size_t> BehindSpace(std::string_view line, std::string_view lower) {
  for (size_t at = 0; at < line.size();) {
    at = EndOf(line, at, [](char c) { return !IsNameCharacter(c); });
    const size_t end = EndOf(line, at, IsNameCharacter);
    const size_t space = EndOf(line, end, IsSpace);
    const size_t value = EndOf(line, space, IsQuote);
    const bool is_path = at > 0 && line[at - 1] == '/';
    if (space > end && value < line.size() && !is_path && !IsOneOf(line[value], "=:") &&
        IsSecretBehindSpace(line.substr(at, end - at), lower.substr(at, end - at), line.substr(value)))
      return end;
    at = std::max(end, at + 1);
  }
  return std::nullopt;
}

// Where the value of a secret begins in the line; none: it names no secret.
std::optional<size_t> SecretIn(std::string_view line) {
  const std::string lower = Lower(line);
  const auto sign = BehindSign(lower);
  const auto space = BehindSpace(line, lower);
  return sign && space ? std::min(sign, space) : sign ? sign : space;
}

size_t IndentOf(std::string_view line) { return EndOf(line, 0, IsSpace); }

// What follows a line whose value is not at its end: lines that belong to it.
struct Rest {
  std::string_view end;               // In the last one. Empty: none are left but by indent.
  std::optional<size_t> deeper_than;  // Those that are indented more.
};

Rest RestOf(std::string_view line, std::string_view value) {
  value.remove_prefix(EndOf(value, 0, IsSpace));
  for (const std::string_view quotes : {"\"\"\"", "'''"}) {
    if (value.starts_with(quotes) && value.find(quotes, quotes.size()) == value.npos) return {quotes, {}};
  }
  if (value.starts_with('[') && value.find(']') == value.npos) return {"]", {}};
  if (value.empty() || value.starts_with('|') || value.starts_with('>')) return {{}, IndentOf(line)};
  return {};
}

// ---- What tells by its form that it is a secret: the length of it at `at`, or 0 ----

// A job token.
size_t DigitsAt(std::string_view text, size_t at) {
  const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  if (at > 0 && is_digit(text[at - 1])) return 0;
  const size_t end = EndOf(text, at, is_digit);
  return end - at >= kTokenDigits ? end - at : 0;
}

size_t ServiceTokenAt(std::string_view text, size_t at) {
  if (at > 0 && (IsLetterOrDigit(text[at - 1]) || text[at - 1] == '_')) return 0;
  for (const Prefix& prefix : kPrefixes) {
    if (!text.substr(at).starts_with(prefix.text)) continue;
    size_t end = at + prefix.text.size();
    const size_t begin = end;
    while (end < text.size() && (IsLetterOrDigit(text[end]) || IsOneOf(text[end], prefix.also))) ++end;
    if (end - begin >= prefix.least) return end - at;
  }
  return 0;
}

// Behind "Bearer " and "Basic ".
size_t HeaderValueAt(std::string_view text, size_t at) {
  if (at == 0 || text[at - 1] != ' ' || text[at] == ' ') return 0;
  const size_t begin = at - std::min(at, kCredentialLeast);
  const std::string before = Lower(text.substr(begin, at - begin));
  const size_t name = before.find_last_not_of(' ');
  const std::string_view word = std::string_view(before).substr(0, name == before.npos ? 0 : name + 1);
  if (!word.ends_with("bearer") && !word.ends_with("basic")) return 0;
  const size_t end = EndOf(text, at, IsCredentialCharacter);
  return LooksMadeUp(text.substr(at, end - at)) ? end - at : 0;
}

// Behind "://": the password and what else stands before '@'. It may have a '/' in it; what follows a port may have an
// '@'.
size_t UrlPasswordAt(std::string_view text, size_t at) {
  const auto is_part = [](char c) { return !IsSpace(c) && !IsOneOf(c, "\"'<>\\,\n"); };
  const bool has_user = at > 0 && text[at - 1] == ':';
  size_t begin = has_user ? at - 1 : at;
  const size_t least = begin - std::min(begin, kUserMax);
  while (has_user && begin > least && is_part(text[begin - 1]) && !IsOneOf(text[begin - 1], ":/")) --begin;
  if (!text.substr(0, begin).ends_with("://")) return 0;
  const size_t end = EndOf(text, at, is_part);
  const std::string_view rest = text.substr(at, end - at);
  const size_t slash = std::min(rest.find_first_of("/?#"), rest.size());
  const size_t in_host = rest.substr(0, slash).rfind('@');
  if (!has_user) return in_host != rest.npos && in_host >= kUserInfoLeast && rest.find(':') > in_host ? in_host : 0;
  if (in_host != rest.npos) return in_host;
  const bool is_port = EndOf(rest, 0, IsDigit) == slash;
  const size_t sign = rest.rfind('@');
  return is_port || sign == rest.npos ? 0 : sign;
}

// On one line, or with its line ends written as "\n".
size_t PrivateKeyAt(std::string_view text, size_t at) {
  if (!text.substr(at).starts_with(kKeyBegin)) return 0;
  const size_t line = std::min(text.find('\n', at), text.size());
  const size_t name = text.substr(0, line).find(kKeyName, at);
  if (name == text.npos) return 0;
  const size_t end = text.substr(0, line).find(kKeyEnd, name);
  const size_t name_of_end = end == text.npos ? text.npos : text.substr(0, line).find("-----", end + kKeyEnd.size());
  if (name_of_end != text.npos) return name_of_end + std::string_view("-----").size() - at;
  return std::min(text.find('"', name), line) - at;
}

}  // namespace

std::string WithoutTokens(std::string_view text) {
  std::string masked;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    for (const auto secret_at : {PrivateKeyAt, DigitsAt, ServiceTokenAt, HeaderValueAt, UrlPasswordAt}) {
      length = std::max(length, secret_at(text, at));
    }
    length == 0 ? masked += text[at] : masked += kMask;
    at += std::max<size_t>(length, 1);
  }
  return masked;
}

std::string Masked(std::string_view text) {
  std::string masked;
  Rest rest;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!rest.end.empty()) {
      if (line.find(rest.end) != line.npos) rest = {};
      continue;
    }
    if (rest.deeper_than && (IndentOf(line) > *rest.deeper_than || IndentOf(line) == line.size())) continue;
    const auto secret = SecretIn(line);
    masked += WithoutTokens(line.substr(0, secret.value_or(line.size())));
    if (secret) masked += std::string(" ") + kMask;
    rest = secret ? RestOf(line, line.substr(*secret)) : Rest{};
    const size_t key = line.find(kKeyBegin);
    if (key != line.npos && line.find(kKeyName, key) != line.npos && line.find(kKeyEnd, key) == line.npos)
      rest = {kKeyEnd, {}};
    if (end < text.size()) masked += '\n';
  }
  return masked;
}

}  // namespace tier::tierctl
