// Packets of the data socket: what is accepted, and that every wrong byte is refused and named.
#include <cstring>
#include <initializer_list>
#include <random>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/handshake_codec.h"
#include "proto/ring.h"

namespace tier::session {
namespace {

using proto::Hello;
using proto::PacketKind;
using ::testing::HasSubstr;

Hello GoodHello() {
  Hello hello{};
  hello.header = {.magic = proto::kHandshakeMagic,
                  .kind = static_cast<uint16_t>(PacketKind::kHello),
                  .version = proto::kProtocolVersion,
                  .size = sizeof(Hello)};
  hello.version_min = proto::kProtocolVersionMin;
  hello.rank = -1;
  hello.pid = 42;
  std::strcpy(hello.job, "train");
  std::strcpy(hello.client, "test 1.0");
  return hello;
}

template <typename Packet>
std::span<const std::byte> Bytes(const Packet& packet) {
  return std::as_bytes(std::span(&packet, 1));
}

Error Refusal(const Hello& hello) {
  const auto parsed = ParseHello(Bytes(hello));
  return parsed ? Error{Code::kOk, "accepted"} : parsed.error();
}

TEST(ParseHello, TakesEveryFieldOver) {
  Hello hello = GoodHello();
  hello.mode = static_cast<uint16_t>(proto::OpenMode::kCreate);
  hello.named = 1;
  hello.rank = 2;
  hello.world_size = 8;
  hello.guarantee_bytes = 5;
  hello.limit_bytes = 9 * kMiB;
  hello.numa_node = 3;
  std::memset(hello.token, 'a', 64);
  const auto parsed = ParseHello(Bytes(hello));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->open.name, "train");
  EXPECT_EQ(parsed->open.token, std::string(64, 'a'));
  EXPECT_EQ(parsed->open.mode, proto::OpenMode::kCreate);
  EXPECT_TRUE(parsed->open.named);
  EXPECT_EQ(parsed->open.rank, 2);
  EXPECT_EQ(parsed->numa_node, 2);
  EXPECT_EQ(parsed->open.world_size, 8);
  EXPECT_EQ(parsed->open.guarantee_bytes, 5u);
  EXPECT_EQ(parsed->open.limit_bytes, 9 * kMiB);
  EXPECT_EQ(parsed->pid, 42);
  EXPECT_EQ(parsed->client, "test 1.0");
}

TEST(ParseHello, TakesTheLaunchOver) {
  Hello hello = GoodHello();
  std::strcpy(hello.launch, "torchrun\nrun\nnode1\n29500\n0");
  const auto parsed = ParseHello(Bytes(hello));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->open.launch, "torchrun\nrun\nnode1\n29500\n0");
}

TEST(ParseHello, DisplayTextIsMadePrintable) {
  Hello hello = GoodHello();
  std::strcpy(hello.client, "a\nb\x1b[31m");
  EXPECT_EQ(ParseHello(Bytes(hello))->client, "a?b?[31m");
}

struct BadHello {
  const char* what;
  void (*spoil)(Hello&);
  Code code;
  const char* message;
};

TEST(ParseHello, EachWrongFieldIsNamed) {
  const BadHello cases[] = {
      {"magic", [](Hello& h) { h.header.magic ^= 1; }, Code::kInvalid, "magic"},
      {"kind", [](Hello& h) { h.header.kind = 7; }, Code::kInvalid, "kind 7"},
      {"size", [](Hello& h) { h.header.size -= 1; }, Code::kInvalid, "size"},
      {"newer version",
       [](Hello& h) {
         h.header.version = 60'000;
         h.version_min = 60'000;
       },
       Code::kVersion, "versions 60000 to 60000"},
      {"older version",
       [](Hello& h) {
         h.header.version = 0;
         h.version_min = 0;
       },
       Code::kVersion, "versions 0 to 0"},
      {"versions upside down", [](Hello& h) { h.version_min = 60'000; }, Code::kVersion, "versions 60000 to "},
      {"mode", [](Hello& h) { h.mode = 5; }, Code::kInvalid, "mode is 5"},
      {"named", [](Hello& h) { h.named = 2; }, Code::kInvalid, "named"},
      {"node", [](Hello& h) { h.numa_node = 1025; }, Code::kInvalid, "`numa_node` is 1025, at most 1024"},
      {"reserved1", [](Hello& h) { h.reserved1 = 1; }, Code::kInvalid, "reserved"},
      {"job without NUL", [](Hello& h) { std::memset(h.job, 'j', sizeof(h.job)); }, Code::kInvalid, "`job` has no NUL"},
      {"bytes behind job", [](Hello& h) { h.job[100] = 'x'; }, Code::kInvalid, "`job` holds bytes behind"},
      {"token without NUL", [](Hello& h) { std::memset(h.token, 'a', sizeof(h.token)); }, Code::kInvalid,
       "`token` has no NUL"},
      {"short token", [](Hello& h) { h.token[0] = 'a'; }, Code::kInvalid, "64 hexadecimal"},
      {"client without NUL", [](Hello& h) { std::memset(h.client, 'c', sizeof(h.client)); }, Code::kInvalid,
       "`client`"},
      {"launch without NUL", [](Hello& h) { std::memset(h.launch, 'l', sizeof(h.launch)); }, Code::kInvalid,
       "`launch` has no NUL"},
      {"token and launch",
       [](Hello& h) {
         std::memset(h.token, 'a', 64);
         h.launch[0] = 'l';
       },
       Code::kInvalid, "give one of them"},
      {"job name", [](Hello& h) { std::strcpy(h.job, "a b c"); }, Code::kInvalid, "job name"},
      {"rank", [](Hello& h) { h.rank = 3; }, Code::kInvalid, "rank is 3"},
  };
  for (const BadHello& c : cases) {
    Hello hello = GoodHello();
    c.spoil(hello);
    const Error error = Refusal(hello);
    EXPECT_EQ(error.code, c.code) << c.what << ": " << error.message;
    EXPECT_THAT(error.message, HasSubstr(c.message)) << c.what;
  }
}

TEST(ParseHello, AClientNeedNotSayWhereItIs) { EXPECT_EQ(ParseHello(Bytes(GoodHello()))->numa_node, memory::kAnyNode); }

TEST(ParseHello, ClientOfANewerVersionThatStillSpeaksOursIsWelcome) {
  Hello hello = GoodHello();
  hello.header.version = proto::kProtocolVersion + 1;
  hello.version_min = 1;
  EXPECT_EQ(Refusal(hello).code, Code::kOk);
}

TEST(ParseHello, LongerHelloOfANewerVersionGetsVersionNotInvalid) {
  std::vector<std::byte> packet(sizeof(Hello) + 64);
  Hello hello = GoodHello();
  hello.header.version = proto::kProtocolVersion + 1;
  hello.version_min = proto::kProtocolVersion + 1;
  hello.header.size = static_cast<uint32_t>(packet.size());
  std::memcpy(packet.data(), &hello, sizeof(hello));
  EXPECT_EQ(ParseHello(packet).error().code, Code::kVersion);
}

TEST(ParseHello, EveryTruncationIsRefused) {
  const Hello hello = GoodHello();
  for (size_t size = 0; size < sizeof(hello); ++size) {
    EXPECT_FALSE(ParseHello(Bytes(hello).first(size))) << size;
  }
}

TEST(ParseHello, RandomBytesBehindARightHeaderNeverCrash) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20'000; ++round) {
    Hello hello = GoodHello();
    auto* bytes = reinterpret_cast<unsigned char*>(&hello);
    for (uint64_t i = 0, n = random() % 8; i < n; ++i)
      bytes[16 + random() % (sizeof(hello) - 16)] = static_cast<uint8_t>(random());
    const auto parsed = ParseHello(Bytes(hello));
    EXPECT_TRUE(!parsed || ValidateOpenJob(parsed->open));
  }
}

TEST(ParseClientPacket, KnowsGoodbyeAndWindowReturned) {
  proto::Goodbye goodbye{};
  goodbye.header = {.magic = proto::kHandshakeMagic,
                    .kind = static_cast<uint16_t>(PacketKind::kGoodbye),
                    .version = 1,
                    .size = sizeof(goodbye)};
  const auto parsed = ParseClientPacket(Bytes(goodbye));
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(std::holds_alternative<GoodbyePacket>(*parsed));
  const auto returned = MakeWindowReturnPacket(PacketKind::kWindowReturned, WindowIndex{12});
  EXPECT_EQ(std::get<WindowReturnedPacket>(ParseClientPacket(Bytes(returned)).value()).window, WindowIndex{12});
}

TEST(ParseClientPacket, KnowsTheAnswerToAChallenge) {
  auto proof = MakeProcessChallenge(0x1234);
  EXPECT_FALSE(ParseClientPacket(Bytes(proof))) << "the daemon's own packet";
  proof.header.kind = static_cast<uint16_t>(PacketKind::kProcessProof);
  EXPECT_EQ(std::get<ProcessProofPacket>(ParseClientPacket(Bytes(proof)).value()).nonce, 0x1234u);
  EXPECT_FALSE(ParseClientPacket(Bytes(proof).first(16)));
}

TEST(ParseClientPacket, RefusesWhatAClientDoesNotSend) {
  for (const uint16_t kind : std::initializer_list<uint16_t>{0, 1, 2, 3, 4, 6, 8, 65535}) {
    auto packet = MakeWindowReturnPacket(PacketKind::kWindowReturned, WindowIndex{1});
    packet.header.kind = kind;
    EXPECT_FALSE(ParseClientPacket(Bytes(packet))) << kind;
  }
  const auto returned = MakeWindowReturnPacket(PacketKind::kWindowReturned, WindowIndex{kWindowsMax});
  EXPECT_THAT(ParseClientPacket(Bytes(returned)).error().message, HasSubstr("window"));
  auto reserved = MakeWindowReturnPacket(PacketKind::kWindowReturned, WindowIndex{1});
  reserved.reserved0 = 1;
  EXPECT_THAT(ParseClientPacket(Bytes(reserved)).error().message, HasSubstr("reserved"));
  EXPECT_FALSE(ParseClientPacket({}));
}

TEST(MakeWelcome, FillsInEverythingAndTerminatesItsTexts) {
  const auto welcome = MakeWelcome({.epoch = 1,
                                    .session = 2,
                                    .job = 3,
                                    .window_size = 4,
                                    .address_space_size = 8,
                                    .windows_max = 5,
                                    .reconnect_timeout_ms = 6,
                                    .request_timeout_ms = 7,
                                    .resumed = true,
                                    .job_name = std::string(500, 'j'),
                                    .token = std::string(64, 't'),
                                    .daemon = "tierd 0.1.0"});
  EXPECT_EQ(welcome.header.kind, static_cast<uint16_t>(PacketKind::kWelcome));
  EXPECT_EQ(welcome.header.size, sizeof(welcome));
  EXPECT_EQ(welcome.code, 0);
  EXPECT_EQ(welcome.window_size, 4u);
  EXPECT_EQ(welcome.address_space_size, 8u);
  EXPECT_EQ(welcome.windows_max, 5u);
  EXPECT_EQ(welcome.reconnect_timeout_ms, 6u);
  EXPECT_EQ(welcome.request_timeout_ms, 7u);
  EXPECT_EQ(welcome.resumed, 1u);
  EXPECT_EQ(welcome.session_region_size, proto::kSessionRegionSize);
  EXPECT_EQ(std::strlen(welcome.job_name), proto::kJobNameSize - 1);
  EXPECT_EQ(std::strlen(welcome.token), 64u);
  EXPECT_STREQ(welcome.daemon, "tierd 0.1.0");
}

TEST(MakeWindowPacket, SaysWhatAndWhereAWindowIs) {
  const auto packet = MakeWindowPacket(
      {.index = WindowIndex{7}, .kind = WindowKind::kSlot, .page_size = 4096, .size = 8 * kMiB, .place = 24 * kMiB});
  EXPECT_EQ(packet.header.kind, static_cast<uint16_t>(PacketKind::kWindow));
  EXPECT_EQ(packet.header.size, sizeof(packet));
  EXPECT_EQ(packet.window, 7u);
  EXPECT_EQ(packet.kind, 1u);
  EXPECT_EQ(packet.page_size, 4096u);
  EXPECT_EQ(packet.size, 8 * kMiB);
  EXPECT_EQ(packet.place, 24 * kMiB);
  EXPECT_EQ(packet.reserved0 + packet.reserved1, 0u);
}

TEST(MakeRefusal, KeepsOnlyCodeAndSentence) {
  const auto refusal = MakeRefusal({Code::kDenied, std::string(5000, 'x')});
  EXPECT_EQ(refusal.code, static_cast<uint16_t>(Code::kDenied));
  EXPECT_EQ(std::strlen(refusal.message), proto::kMessageSize - 1);
  EXPECT_EQ(refusal.session, 0u);
  EXPECT_EQ(refusal.token[0], 0);
}

TEST(MakeRefusal, NeverCutsAUtf8SequenceInTwo) {
  std::string text(proto::kMessageSize - 2, 'x');
  text += "\xc3\xa4\xc3\xa4";
  const auto refusal = MakeRefusal({Code::kDenied, text});
  EXPECT_EQ(std::string(refusal.message), std::string(proto::kMessageSize - 2, 'x'));
}

}  // namespace
}  // namespace tier::session
