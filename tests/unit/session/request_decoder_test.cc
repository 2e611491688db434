// The shape of a message: what every op may look like, and that each wrong field is named.
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/session/request_decoder.h"

namespace tier::session {
namespace {

using proto::Op;
using proto::RequestEntry;
using ::testing::HasSubstr;

// A well-formed message of `count` items (or bytes of text) that a test then spoils.
std::vector<RequestEntry> Message(Op op, uint32_t count, uint64_t sequence = 1) {
  const bool text = op == Op::kIntern;
  std::vector<RequestEntry> entries(text ? proto::EntriesForText(count) : proto::EntriesForRecords(count));
  entries[0].header = {.sequence = sequence,
                       .op = static_cast<uint16_t>(op),
                       .entries = static_cast<uint16_t>(entries.size()),
                       .flags = 0,
                       .item_count = count,
                       .timeout_ms = 0,
                       .argument = 0};
  if (text) std::memset(static_cast<void*>(entries.data() + 1), 'k', count);
  return entries;
}

std::string Refusal(const std::vector<RequestEntry>& entries, uint64_t sequence = 1) {
  tiering::Request request;
  const auto decoded = DecodeRequest(entries, sequence, &request);
  if (decoded) return "accepted";
  EXPECT_EQ(decoded.error().code, Code::kRevoked);
  return decoded.error().message;
}

constexpr Op kAllOps[] = {Op::kCreate, Op::kAcquire, Op::kRelease, Op::kFree, Op::kPrefetch, Op::kStep, Op::kPersist,
                          Op::kFlush,  Op::kAccept,  Op::kIntern,  Op::kStat, Op::kDrop,     Op::kTear};

TEST(RequestDecoder, EveryOpIsAcceptedAtItsSmallestAndLargest) {
  for (const Op op : kAllOps) {
    const OpShape& shape = *ShapeOf(static_cast<uint16_t>(op));
    for (const uint32_t count : {shape.items_min, shape.items_max}) {
      EXPECT_EQ(Refusal(Message(op, count)), "accepted") << shape.name << " " << count;
    }
    EXPECT_NE(Refusal(Message(op, shape.items_max + 1)), "accepted") << shape.name;
    if (shape.items_min == 0) continue;
    EXPECT_NE(Refusal(Message(op, shape.items_min - 1)), "accepted") << shape.name;
  }
}

TEST(RequestDecoder, TellsHowManyEntriesAMessageTakes) {
  for (const uint32_t count : {1u, 2u, 3u, 4u, 255u, 256u, proto::kItemsPerRequestMax}) {
    auto entries = Message(Op::kAcquire, count);
    const auto expected = static_cast<uint32_t>(entries.size());
    entries.resize(entries.size() + 3);  // The next message.
    tiering::Request request;
    const auto decoded = DecodeRequest(entries, 1, &request);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(*decoded, expected);
    EXPECT_EQ(request.items.size(), count);
  }
}

TEST(RequestDecoder, ItemsComeOutInOrder) {
  auto entries = Message(Op::kAcquire, 5);
  auto* items = &entries[0].first;
  for (uint64_t i = 0; i < 5; ++i) items[i] = {.tensor = 100 + i, .offset = i, .length = 7, .value = 0};
  entries[0].header.flags = proto::kFlagWrite | proto::kFlagShared;
  entries[0].header.timeout_ms = 1234;
  tiering::Request request;
  ASSERT_TRUE(DecodeRequest(entries, 1, &request));
  EXPECT_EQ(request.op, Op::kAcquire);
  EXPECT_EQ(request.flags, proto::kFlagWrite | proto::kFlagShared);
  EXPECT_EQ(request.timeout_ms, 1234u);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(request.items[i].tensor, 100 + i);
}

TEST(RequestDecoder, TextStartsInTheSecondEntry) {
  auto entries = Message(Op::kIntern, 70);
  std::memcpy(static_cast<void*>(entries.data() + 1), "layer.0/", 8);
  tiering::Request request;
  ASSERT_TRUE(DecodeRequest(entries, 1, &request));
  EXPECT_EQ(request.text.size(), 70u);
  EXPECT_TRUE(request.text.starts_with("layer.0/kkk"));
  EXPECT_TRUE(request.items.empty());
}

TEST(RequestDecoder, SequenceMustBeTheNext) {
  for (const uint64_t sequence : {uint64_t{0}, uint64_t{1}, uint64_t{3}, UINT64_MAX}) {
    EXPECT_THAT(Refusal(Message(Op::kFree, 1, sequence), 2), HasSubstr("`sequence`"));
  }
  EXPECT_EQ(Refusal(Message(Op::kFree, 1, 2), 2), "accepted");
}

TEST(RequestDecoder, UnknownOpsAreNamed) {
  for (const uint16_t op : {uint16_t{0}, uint16_t{proto::kOpCount}, uint16_t{UINT16_MAX}}) {
    auto entries = Message(Op::kFree, 1);
    entries[0].header.op = op;
    EXPECT_THAT(Refusal(entries), HasSubstr("`op`"));
  }
}

TEST(RequestDecoder, EveryFlagThatAnOpDoesNotKnowIsRefused) {
  for (const Op op : kAllOps) {
    const OpShape& shape = *ShapeOf(static_cast<uint16_t>(op));
    for (uint32_t bit = 0; bit < 32; ++bit) {
      auto entries = Message(op, shape.items_min);
      entries[0].header.flags = 1u << bit;
      const bool allowed = (shape.flags & (1u << bit)) != 0;
      if (allowed) {
        EXPECT_EQ(Refusal(entries), "accepted") << shape.name << " bit " << bit;
      } else {
        EXPECT_THAT(Refusal(entries), HasSubstr("`flags`")) << shape.name << " bit " << bit;
      }
    }
    EXPECT_EQ(shape.flags & ~proto::kFlagsKnown, 0u) << shape.name;
  }
}

TEST(RequestDecoder, EntryCountMustFitTheItems) {
  for (const uint16_t entries_said : {uint16_t{0}, uint16_t{1}, uint16_t{4}, uint16_t{UINT16_MAX}}) {
    auto entries = Message(Op::kFree, 4);  // Takes 3.
    entries[0].header.entries = entries_said;
    EXPECT_THAT(Refusal(entries), HasSubstr("`entries`"));
  }
}

TEST(RequestDecoder, HalfPublishedMessageIsTorn) {
  auto entries = Message(Op::kAcquire, 9);
  entries.resize(entries.size() - 1);
  EXPECT_THAT(Refusal(entries), HasSubstr("only 4 were published"));
}

TEST(RequestDecoder, ReservedFieldsMustBeZero) {
  auto argument = Message(Op::kAcquire, 1);
  argument[0].header.argument = 1;
  EXPECT_THAT(Refusal(argument), HasSubstr("`argument`"));
  auto value = Message(Op::kFree, 2);
  (&value[0].first)[1].value = 5;
  EXPECT_THAT(Refusal(value), HasSubstr("item 1 field `value`"));
  auto range = Message(Op::kFree, 1);
  range[0].first.length = 5;
  EXPECT_THAT(Refusal(range), HasSubstr("item 0 has a range"));
  auto text = Message(Op::kIntern, 3);
  text[0].first.tensor = 1;
  EXPECT_THAT(Refusal(text), HasSubstr("first record"));
}

TEST(RequestDecoder, StepTakesAnArgumentAndReleaseCreateAndAcquireAValue) {
  auto step = Message(Op::kStep, 0);
  step[0].header.argument = UINT64_MAX;
  EXPECT_EQ(Refusal(step), "accepted");
  for (const Op op : {Op::kRelease, Op::kCreate, Op::kAcquire}) {
    auto entries = Message(op, 1);
    entries[0].first.value = 42;
    EXPECT_EQ(Refusal(entries), "accepted");
  }
}

TEST(RequestDecoder, KeysMustBePlainText) {
  for (const std::string_view bad : {std::string_view("a\0b", 3), std::string_view("\xff"), std::string_view("\xc3")}) {
    auto entries = Message(Op::kIntern, static_cast<uint32_t>(bad.size()));
    std::memcpy(static_cast<void*>(entries.data() + 1), bad.data(), bad.size());
    EXPECT_THAT(Refusal(entries), HasSubstr("UTF-8"));
  }
}

TEST(PlainText, AcceptsEveryWellFormedLength) {
  EXPECT_TRUE(IsPlainText(""));
  EXPECT_TRUE(IsPlainText("layer.0.weight"));
  EXPECT_TRUE(
      IsPlainText("\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf"));
}

TEST(PlainText, RefusesWhatUnicodeRefuses) {
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xf0\x9f\x98", "a\xff"}) {
    EXPECT_FALSE(IsPlainText(bad)) << bad;
  }
  EXPECT_FALSE(IsPlainText(std::string_view("\0", 1)));
}

}  // namespace
}  // namespace tier::session
