// Fuzz entry: page tokens, which any client of the control channel sends. An input is
//   byte 0  bit 0: a place in a list, else the text of a token
//   then    of a place: a byte that chooses the list, eight of its number, and its name; else the text
#include <cstdint>
#include <cstring>
#include <string>

#include "daemon/base/check.h"
#include "daemon/control/page_token.h"

namespace tier::control {
namespace {

using List = PagePlace::List;

constexpr uint64_t kEpoch = 0x19aca0ffee;  // Tokens of the corpus are of it.
constexpr List kLists[] = {List::kJobs, List::kReservations, List::kStoredManifests, List::kTensors};

void CheckRefused(uint64_t epoch, const std::string& token) {
  const auto refused = FromPageToken(epoch, token);
  TIER_CHECK(!refused && refused.error().code == Code::kInvalid && refused.error().message.contains("page_token"), "{}",
             token);
}

// Taken, it is the one text of its place, and of no other start of the daemon.
void CheckToken(const std::string& token) {
  const auto place = FromPageToken(kEpoch, token);
  if (!place) return CheckRefused(kEpoch, token);
  TIER_CHECK(ToPageToken(kEpoch, *place) == token, "{} is read as {}", token, ToPageToken(kEpoch, *place));
  CheckRefused(kEpoch + 1, token);
}

void CheckPlace(const uint8_t* data, size_t size) {
  PagePlace place;
  if (size < 1 + sizeof place.number) return;
  place.list = kLists[data[0] % 3];
  std::memcpy(&place.number, data + 1, sizeof place.number);
  place.name.assign(reinterpret_cast<const char*>(data + 1 + sizeof place.number), size - 1 - sizeof place.number);
  const std::string token = ToPageToken(kEpoch, place);
  const auto back = FromPageToken(kEpoch, token);
  TIER_CHECK(back && *back == place, "{} is another place", token);
  CheckToken(token);
}

}  // namespace
}  // namespace tier::control

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tier::control;
  if (size == 0) return 0;
  if ((data[0] & 1) != 0) {
    CheckPlace(data + 1, size - 1);
  } else {
    CheckToken({reinterpret_cast<const char*>(data + 1), size - 1});
  }
  return 0;
}
