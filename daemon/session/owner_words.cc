// See owner_words.h.
#include "daemon/session/owner_words.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "daemon/base/check.h"

namespace tier::session {
namespace {

constexpr std::string_view kDigits = "0123456789";

// What stands for the owner in place of text[begin, end), which is its number: that, and the word before it. Nothing
// where the number is no user's by what stands around it.
struct Place {
  size_t begin = 0;
  std::string_view word;
};
std::optional<Place> PlaceOf(std::string_view text, size_t begin, size_t end) {
  const std::string_view before = text.substr(0, begin);
  for (const std::string_view word : {std::string_view("user "), std::string_view("uid ")}) {
    if (!before.ends_with(word)) continue;
    return Place{.begin = begin - word.size(), .word = "owner "};
  }
  const bool begins_a_name = begin == 0 || before.back() == ' ' || before.back() == '\'' || before.back() == '(';
  if (!begins_a_name || end == text.size() || text[end] != '/') return std::nullopt;
  return Place{.begin = begin, .word = ""};
}

}  // namespace

std::string NameOwners(std::string text, const OwnerTable* owners, std::optional<uint32_t> reader) {
  if (owners == nullptr || (reader && !IsOwnerUid(*reader))) return text;
  for (size_t begin = text.find_first_of(kDigits); begin != std::string::npos;) {
    const size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    uint32_t uid = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, uid);
    const bool told = error == std::errc() && IsOwnerUid(uid) && (!reader || *reader == uid);
    const auto place = told ? PlaceOf(text, begin, end) : std::nullopt;
    const std::string name = place ? owners->NameOf(uid) : "";
    size_t next = end;
    if (!name.empty()) {
      TIER_CHECK(place->begin <= begin && rest == text.data() + end, "'{}' at {} and {}", text, place->begin, begin);
      const std::string words = std::string(place->word) + name;
      text.replace(place->begin, end - place->begin, words);
      next = place->begin + words.size();
    }
    begin = text.find_first_of(kDigits, next);
  }
  return text;
}

}  // namespace tier::session
