// Fuzzes the daemon's end of a session's rings: the input is a program for a hostile client that writes entries and
// cursors as it likes while the daemon reads, answers and publishes. Whatever comes, the daemon must neither crash nor
// pass on a request that is not well-formed, nor take more than its limits.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/session/request_decoder.h"
#include "daemon/session/ring_port.h"
#include "tests/support/session/fake_engine.h"

namespace tier::session {
namespace {

constexpr auto kSession = tiering::SessionId{1};
constexpr size_t kStepsMax = 400;

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  template <typename T>
  T Take() {
    T value{};
    const size_t count = std::min(sizeof(T), size_);
    if (count > 0) std::memcpy(static_cast<void*>(&value), data_, count);
    data_ += count;
    size_ -= count;
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

class World final : public tiering::ReplySink {
 public:
  World()
      : region_(MakeSessionRegion(1, kSession).value()),
        base_(region_.mapping.data()),
        port_(kSession, std::move(region_.mapping)) {
    engine_.Connect(*this);
    TIER_CHECK(engine_.OpenJob(tiering::JobId{1}, {}) && engine_.OpenSession(kSession, tiering::JobId{1}), "fake");
    engine_.answer = [this](const testing::SubmittedRequest& request) { return Answer(request); };
  }

  // One step of the program. False: the daemon has ended the session.
  bool Step(Bytes& input) {
    const auto op = input.Take<uint8_t>();
    switch (op % 9) {
      case 0: return WriteSlot(input.Take<proto::RequestEntry>());
      case 1: return WriteMessage(input);
      case 2: requests().control->tail.store(input.Take<uint64_t>()); return true;
      case 3: completions().control->head.store(input.Take<uint64_t>()); return true;
      case 4: return Receive(input.Take<uint8_t>());
      case 5: engine_.Turn({}); return port_.Flush().has_value();
      case 6: completions().control->head.store(completions().control->tail.load()); return true;
      case 7: engine_.hold = !engine_.hold; return true;
      default: requests().control->tail.store(requests().control->tail.load() + input.Take<uint8_t>()); return true;
    }
  }

  void OnReply(tiering::SessionId, const tiering::Reply& reply) override { port_.Send(reply, scratch_); }
  void OnWindow(tiering::SessionId, const memory::WindowShape&) override {}
  void OnWindowReturn(tiering::SessionId, WindowIndex) override {}
  void OnSessionEnded(tiering::SessionId, Code, const std::string&) override {}

 private:
  proto::RingView requests() { return proto::RequestRing(base_); }
  proto::RingView completions() { return proto::CompletionRing(base_); }

  bool WriteSlot(const proto::RequestEntry& entry) {
    const uint64_t tail = requests().control->tail.load();
    std::memcpy(requests().Entry(tail), &entry, sizeof(entry));
    requests().control->tail.store(tail + 1);
    return true;
  }

  // A valid message, except for what the input changes.
  bool WriteMessage(Bytes& input) {
    proto::RequestEntry entry{};
    entry.header.sequence = next_sequence_++;
    entry.header.op = static_cast<uint16_t>(input.Take<uint8_t>() % (proto::kOpCount + 1));
    entry.header.item_count = input.Take<uint16_t>() % 1100;
    const OpShape* shape = ShapeOf(entry.header.op);
    const bool text = shape != nullptr && shape->text;
    entry.header.entries = static_cast<uint16_t>(text ? proto::EntriesForText(entry.header.item_count)
                                                      : proto::EntriesForRecords(entry.header.item_count));
    entry.header.flags = input.Take<uint8_t>();
    entry.header.argument = input.Take<uint8_t>() == 255 ? 1 : 0;
    const uint16_t entries = entry.header.entries;
    (void)WriteSlot(entry);
    for (uint16_t i = 1; i < entries; ++i) {
      proto::RequestEntry more{};
      if (!input.empty() && i < 8) more = input.Take<proto::RequestEntry>();
      (void)WriteSlot(more);
    }
    return true;
  }

  bool Receive(uint8_t max) {
    engine_.submitted.clear();
    const auto received = port_.Receive(engine_, scratch_, max);
    for (const testing::SubmittedRequest& request : engine_.submitted) CheckWellFormed(request);
    TIER_CHECK(port_.outstanding() <= proto::kRequestsOutstandingMax, "outstanding {}", port_.outstanding());
    TIER_CHECK(!received || *received <= max, "received {}", received.value_or(0));
    return received.has_value();
  }

  void CheckWellFormed(const testing::SubmittedRequest& request) {
    TIER_CHECK(request.sequence == ++last_sequence_, "sequence {}", request.sequence);
    const OpShape* shape = ShapeOf(static_cast<uint16_t>(request.op));
    TIER_CHECK(shape != nullptr, "op {}", static_cast<int>(request.op));
    TIER_CHECK((request.flags & ~shape->flags) == 0, "flags {}", request.flags);
    TIER_CHECK(request.items.size() <= proto::kItemsPerRequestMax, "items {}", request.items.size());
    TIER_CHECK(IsPlainText(request.text) && request.text.size() <= proto::kKeyLengthMax, "text");
  }

  testing::ScriptedReply Answer(const testing::SubmittedRequest& request) {
    if (request.items.size() % 3 == 1)
      return {.code = Code::kNoMemory, .detail = std::string(request.items.size() * 7, 'x')};
    return {.value = request.sequence, .spans = std::vector<proto::SpanRecord>(request.items.size() * 5)};
  }

  SessionRegion region_;
  std::byte* base_;
  RingPort port_;
  RingScratch scratch_;
  testing::FakeEngine engine_;
  uint64_t next_sequence_ = 1;
  uint64_t last_sequence_ = 0;
};

}  // namespace
}  // namespace tier::session

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tier::session::World world;
  tier::session::Bytes input(data, size);
  for (size_t i = 0; i < tier::session::kStepsMax && !input.empty(); ++i) {
    if (!world.Step(input)) break;
  }
  return 0;
}
