// Fuzzes the parsers of the data socket's packets. The first byte chooses the parser and whether the rest is the packet
// or is laid over a right one, so that every field is reached. What is accepted must keep its promises.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/session/handshake_codec.h"
#include "daemon/session/job_registry.h"

namespace tier::session {
namespace {

proto::Hello RightHello() {
  proto::Hello hello{};
  hello.header = {.magic = proto::kHandshakeMagic,
                  .kind = static_cast<uint16_t>(proto::PacketKind::kHello),
                  .version = proto::kProtocolVersion,
                  .size = sizeof(hello)};
  hello.version_min = proto::kProtocolVersionMin;
  hello.rank = -1;
  std::strcpy(hello.job, "train");
  return hello;
}

// Lays the input over a right packet, behind the header: pairs of (place, byte).
template <typename Packet>
std::vector<std::byte> Patched(Packet packet, const uint8_t* data, size_t size) {
  std::vector<std::byte> bytes(sizeof(packet));
  std::memcpy(bytes.data(), &packet, sizeof(packet));
  for (size_t i = 0; i + 2 < size; i += 3) {
    const size_t at = (data[i] | size_t{data[i + 1]} << 8) % bytes.size();
    bytes[at] = static_cast<std::byte>(data[i + 2]);
  }
  return bytes;
}

void TryHello(std::span<const std::byte> packet) {
  const auto parsed = ParseHello(packet);
  if (!parsed) {
    TIER_CHECK(!parsed.error().message.empty(), "a refusal without a word");
    (void)MakeRefusal(parsed.error());
    return;
  }
  TIER_CHECK(ValidateOpenJob(parsed->open).has_value(), "accepted what may not be opened");
  for (const char c : parsed->client) TIER_CHECK(c >= 0x20 && c <= 0x7e, "unprintable {}", static_cast<int>(c));
  class Tokens final : public TokenSource {
   public:
    uint64_t Random() override { return ++last_; }

   private:
    uint64_t last_ = 0;
  } tokens;
  JobRegistry registry({}, tokens);
  const auto admission = registry.Admit(1000, parsed->open, {});
  if (!admission) return;
  const Job job = registry.Commit(*admission, parsed->open, tiering::SessionId{1}, {});
  const auto welcome = MakeWelcome({.job_name = job.name, .token = job.token});
  TIER_CHECK(std::string(welcome.job_name) == job.name && IsToken(welcome.token), "welcome {}", job.name);
}

}  // namespace
}  // namespace tier::session

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tier::session;
  if (size == 0) return 0;
  const uint8_t choice = *data++;
  --size;
  const auto raw = std::as_bytes(std::span(data, size));
  switch (choice & 3) {
    case 0: TryHello(raw); break;
    case 1: TryHello(Patched(RightHello(), data, size)); break;
    case 2: (void)ParseClientPacket(raw); break;
    default: {
      const auto right = MakeWindowReturnPacket(tier::proto::PacketKind::kWindowReturned, tier::WindowIndex{1});
      const auto parsed = ParseClientPacket(Patched(right, data, size));
      if (!parsed) break;
      if (const auto* returned = std::get_if<WindowReturnedPacket>(&*parsed)) {
        TIER_CHECK(tier::Value(returned->window) < tier::kWindowsMax, "window {}", tier::Value(returned->window));
      }
      break;
    }
  }
  return 0;
}
