#include "daemon/control/page_token.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "daemon/base/check.h"

namespace tier::control {
namespace {

constexpr char kSeparator = '/';

std::string Hexadecimal(uint64_t number) {
  char digits[16];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number, 16);
  TIER_CHECK(error == std::errc(), "sixteen digits hold any number of 64 bits");
  return {digits, end};
}

// Takes a number, as Hexadecimal writes it, and the separator behind it off the front of `text`.
bool TakeNumber(std::string_view* text, uint64_t* number) {
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, *number, 16);
  if (error != std::errc() || rest == end || *rest != kSeparator) return false;
  text->remove_prefix(static_cast<size_t>(rest - text->data()) + 1);
  return true;
}

std::unexpected<Error> Refused(const char* why) {
  return Fail(Code::kInvalid, std::string("page_token ") + why + ": begin the list again, without one");
}

}  // namespace

std::string ToPageToken(uint64_t epoch, const PagePlace& place) {
  std::string token = Hexadecimal(epoch) + kSeparator + static_cast<char>(place.list) + kSeparator;
  return token + Hexadecimal(place.number) + kSeparator + place.name;
}

Result<PagePlace> FromPageToken(uint64_t epoch, const std::string& token) {
  std::string_view left = token;
  PagePlace place;
  uint64_t of = 0;
  if (!TakeNumber(&left, &of) || left.size() < 2) return Refused("is none that tierd gave");
  place.list = static_cast<PagePlace::List>(left.front());
  left.remove_prefix(2);
  if (!TakeNumber(&left, &place.number)) return Refused("is none that tierd gave");
  place.name = left;
  // Also what differs in a separator, a leading zero or a letter's case, or names no list.
  using List = PagePlace::List;
  constexpr List kLists[] = {List::kJobs, List::kReservations, List::kStoredManifests, List::kTensors};
  const bool known = std::ranges::find(kLists, place.list) != std::end(kLists);
  if (!known || ToPageToken(of, place) != token) return Refused("is none that tierd gave");
  if (of != epoch) return Refused("is from before tierd was started");
  return place;
}

Result<size_t> PageSizeOf(int32_t asked, size_t usual, size_t max) {
  if (asked < 0) return Fail(Code::kInvalid, "page_size is " + std::to_string(asked) + ": it must not be negative");
  return asked == 0 ? usual : std::min(static_cast<size_t>(asked), max);
}

}  // namespace tier::control
