#include "daemon/session/request_decoder.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::session {
namespace {

using proto::RequestEntry;
using proto::RequestHeader;
using proto::RequestItem;

constexpr uint32_t kMany = proto::kItemsPerRequestMax;

// Indexed by proto::Op; kNone stays empty.
constexpr std::array<OpShape, proto::kOpCount> kShapes = [] {
  using enum proto::Op;
  using namespace proto;
  std::array<OpShape, kOpCount> shapes{};
  const auto at = [&shapes](Op op) -> OpShape& { return shapes[static_cast<uint16_t>(op)]; };
  constexpr uint32_t kMayWait = kFlagShared | kFlagNoWaitOwn | kFlagNoWait;
  constexpr uint32_t kGrants = kMayWait | kFlagWrite | kFlagDiscard;
  at(kCreate) = {.name = "create",
                 .flags = kGrants | kFlagReplace | kFlagSharded | kFlagTransient,
                 .items_min = 1,
                 .items_max = kMany,
                 .range = true,
                 .value = true};
  at(kAcquire) = {.name = "acquire",
                  .flags = kGrants | kFlagContiguous,
                  .items_min = 1,
                  .items_max = kMany,
                  .range = true,
                  .value = true};
  at(kRelease) = {.name = "release",
                  .flags = kFlagAbandon | kFlagUntouched | kFlagMore | kFlagFreeAfter | kFlagEvictFirst | kFlagShared,
                  .items_min = 1,
                  .items_max = kMany,
                  .range = true,
                  .value = true};
  at(kFree) = {.name = "free", .flags = kMayWait, .items_min = 1, .items_max = kMany};
  at(kPrefetch) = {.name = "prefetch", .flags = kFlagShared, .items_min = 1, .items_max = kMany, .range = true};
  at(kStep) = {.name = "step", .argument = true};
  at(kPersist) = {.name = "persist", .flags = kFlagShared, .items_max = kMany};
  at(kFlush) = {.name = "flush", .flags = kFlagShared, .items_max = kMany};
  at(kAccept) = {.name = "accept", .flags = kFlagShared, .items_min = 1, .items_max = kMany};
  at(kIntern) = {.name = "intern", .flags = kFlagShared, .items_min = 1, .items_max = kKeyLengthMax, .text = true};
  at(kStat) = {.name = "stat", .flags = kFlagShared, .items_min = 1, .items_max = 1};
  at(kDrop) = {.name = "drop", .flags = kFlagShared, .items_max = kMany};
  at(kTear) = {.name = "tear", .flags = kFlagShared, .items_min = 1, .items_max = kMany, .range = true};
  return shapes;
}();

std::unexpected<Error> Violation(const RequestHeader& header, std::string what) {
  const OpShape* shape = ShapeOf(header.op);
  return Fail(Code::kRevoked,
              fmt::format("request {} ({}): {}", header.sequence, shape != nullptr ? shape->name : "?", what));
}

Status CheckHeader(const RequestHeader& header, uint64_t sequence, size_t entries_ready) {
  if (header.sequence != sequence) {
    return Fail(Code::kRevoked, fmt::format("request field `sequence` is {}, expected {}", header.sequence, sequence));
  }
  const OpShape* shape = ShapeOf(header.op);
  if (shape == nullptr) return Violation(header, fmt::format("field `op` is {}, which is no operation", header.op));
  if ((header.flags & ~shape->flags) != 0) {
    return Violation(header, fmt::format("field `flags` is {:#x}, only {:#x} are allowed", header.flags, shape->flags));
  }
  if (header.item_count < shape->items_min || header.item_count > shape->items_max) {
    return Violation(header, fmt::format("field `item_count` is {}, allowed are {} to {}", header.item_count,
                                         shape->items_min, shape->items_max));
  }
  const uint32_t entries =
      shape->text ? proto::EntriesForText(header.item_count) : proto::EntriesForRecords(header.item_count);
  if (header.entries != entries) {
    return Violation(header, fmt::format("field `entries` is {}, {} {} take {}", header.entries, header.item_count,
                                         shape->text ? "bytes" : "items", entries));
  }
  if (entries > entries_ready) {
    return Violation(header, fmt::format("takes {} entries, only {} were published", entries, entries_ready));
  }
  if (header.argument != 0 && !shape->argument) {
    return Violation(header, fmt::format("field `argument` is {}, must be 0", header.argument));
  }
  return {};
}

Status CheckItems(const RequestHeader& header, const OpShape& shape, std::span<const RequestItem> items) {
  for (size_t i = 0; i < items.size(); ++i) {
    const RequestItem& item = items[i];
    if (!shape.range && (item.offset != 0 || item.length != 0)) {
      return Violation(header, fmt::format("item {} has a range, must be 0", i));
    }
    if (!shape.value && item.value != 0) {
      return Violation(header, fmt::format("item {} field `value` is {}, must be 0", i, item.value));
    }
  }
  return {};
}

Status CheckText(const RequestHeader& header, const RequestItem& unused, std::string_view text) {
  constexpr RequestItem kZero{};
  if (std::memcmp(&unused, &kZero, sizeof(kZero)) != 0) {
    return Violation(header, "the first record is not zero; text starts in the second entry");
  }
  if (!IsPlainText(text)) return Violation(header, "the text is not UTF-8 without NUL");
  return {};
}

// Length of the well-formed UTF-8 sequence at the start of `text` (Unicode 15, table 3-7); 0 if there is none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [text](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto tail = [&](size_t i) { return byte(i) >= 0x80 && byte(i) <= 0xbf; };
  const uint8_t first = byte(0);
  if (first != 0 && first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return tail(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = first == 0xed && byte(1) > 0x9f;
    return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool overlong = first == 0xf0 && byte(1) < 0x90;
    const bool beyond = first == 0xf4 && byte(1) > 0x8f;
    return tail(1) && tail(2) && tail(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

}  // namespace

const OpShape* ShapeOf(uint16_t op) { return op != 0 && op < proto::kOpCount ? &kShapes[op] : nullptr; }

bool IsPlainText(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

Result<uint32_t> DecodeRequest(std::span<const RequestEntry> entries, uint64_t sequence, tiering::Request* request) {
  TIER_CHECK(!entries.empty() && request != nullptr, "entries {}", entries.size());
  const RequestHeader& header = entries.front().header;
  if (auto ok = CheckHeader(header, sequence, entries.size()); !ok) return std::unexpected(std::move(ok.error()));
  const OpShape& shape = *ShapeOf(header.op);
  *request = {.sequence = header.sequence,
              .op = static_cast<proto::Op>(header.op),
              .flags = header.flags,
              .timeout_ms = header.timeout_ms,
              .argument = header.argument,
              .items = {},
              .text = {}};
  if (shape.text) {
    request->text = {reinterpret_cast<const char*>(entries.data() + 1), header.item_count};
    if (auto ok = CheckText(header, entries.front().first, request->text); !ok)
      return std::unexpected(std::move(ok.error()));
    return header.entries;
  }
  TIER_CHECK(header.entries <= entries.size(), "entries {} of {}", header.entries, entries.size());
  // Records follow the header without a gap: the first entry's second half, then two in each further entry.
  request->items = {&entries.front().first, header.item_count};
  if (auto ok = CheckItems(header, shape, request->items); !ok) return std::unexpected(std::move(ok.error()));
  return header.entries;
}

}  // namespace tier::session
