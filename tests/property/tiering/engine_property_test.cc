// Random request programs of one patient client against a model that knows every byte. Each request is awaited, so the
// model says exactly what must come back: bytes or code. Devices are slow and out of order; memory is far too small.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

struct Command {
  uint8_t kind = 0;
  uint8_t tensor = 0;
  uint16_t size = 0;
  uint16_t offset = 0;
  uint16_t length = 0;
};

}  // namespace
}  // namespace tier::tiering::testing

namespace rc {
template <>
struct Arbitrary<tier::tiering::testing::Command> {
  static Gen<tier::tiering::testing::Command> arbitrary() {
    using tier::tiering::testing::Command;
    return gen::build<Command>(gen::set(&Command::kind, gen::inRange<uint8_t>(0, 10)),
                               gen::set(&Command::tensor, gen::inRange<uint8_t>(0, 6)), gen::set(&Command::size),
                               gen::set(&Command::offset), gen::set(&Command::length));
  }
};
}  // namespace rc

namespace tier::tiering::testing {
namespace {

// What a tensor holds, to the byte: runs of one seed.
class ContentModel {
 public:
  explicit ContentModel(uint64_t size = 0) : seeds_{{size, 1}} {}
  uint64_t size() const { return seeds_.empty() ? 0 : seeds_.rbegin()->first; }
  void Write(uint64_t begin, uint64_t end, uint64_t seed) {
    const uint64_t after = SeedAt(end - 1);
    if (begin != 0) Split(begin);
    if (end != size()) seeds_[end] = after;
    seeds_.erase(seeds_.upper_bound(begin), seeds_.lower_bound(end));
    seeds_[end] = seed;
  }
  uint64_t SeedAt(uint64_t offset) const { return seeds_.upper_bound(offset)->second; }
  uint64_t RunEnd(uint64_t offset) const { return seeds_.upper_bound(offset)->first; }

 private:
  void Split(uint64_t at) { seeds_[at] = SeedAt(at - 1); }
  std::map<uint64_t, uint64_t> seeds_;  // End of run → seed.
};

class PatientClient {
 public:
  explicit PatientClient(WorldOptions options) : world_(options), session_(world_.Open()) {}

  void Run(const Command& command) {
    const uint64_t id = command.tensor;
    switch (command.kind) {
      case 0:
      case 1: return Create(id, command);
      case 2:
      case 3:
      case 4: return Read(id, command);
      case 5:
      case 6: return Write(id, command);
      case 7: return Expect(id, world_.Free(session_, id).code, [&] { tensors_.erase(id); });
      case 8: return Expect(id, world_.Flush(session_, id).code, [] {});
      default: return Expect(id, world_.Drop(session_, id).code, [] {});
    }
  }
  void Finish() {
    for (const auto& [id, content] : tensors_) Verify(id, 0, content.size());
    RC_ASSERT(world_.transfers.memory_changes() == 0u);
    world_.EndSession(session_, "done");
    world_.Turns(20);
    RC_ASSERT(world_.extents.total().live == 0u);
    RC_ASSERT(world_.windows.window_count() == 0u);
  }

 private:
  template <typename Then>
  void Expect(uint64_t id, Code code, Then then) {
    RC_ASSERT(code == (tensors_.contains(id) ? Code::kOk : Code::kNotFound));
    if (code == Code::kOk) then();
  }
  // Mostly small, sometimes several pieces with a tail.
  static uint64_t SizeOf(const Command& command) {
    const uint64_t size = command.size % 4 == 0 ? uint64_t{command.size} * 40 : command.size;
    return size + 1;
  }
  void Create(uint64_t id, const Command& command) {
    const uint64_t size = SizeOf(command);
    const Answer created = world_.Create(session_, id, size);
    RC_ASSERT(created.code == (tensors_.contains(id) ? Code::kAlreadyExists : Code::kOk));
    if (created.code != Code::kOk) return;
    world_.Fill(created.spans, id, 1);
    RC_ASSERT(world_.Release(session_, World::LeaseOf(created)).code == Code::kOk);
    tensors_[id] = ContentModel(size);
  }
  std::pair<uint64_t, uint64_t> RangeOf(const Command& command, uint64_t size) const {
    const uint64_t begin = uint64_t{command.offset} * 67 % size;
    return {begin, begin + 1 + uint64_t{command.length} * 67 % (size - begin)};
  }
  void Read(uint64_t id, const Command& command) {
    const auto found = tensors_.find(id);
    if (found == tensors_.end()) {
      RC_ASSERT(world_.Acquire(session_, id).code == Code::kNotFound);
      return;
    }
    const auto [begin, end] = RangeOf(command, found->second.size());
    Verify(id, begin, end);
  }
  void Write(uint64_t id, const Command& command) {
    const auto found = tensors_.find(id);
    if (found == tensors_.end()) return;
    const auto [begin, end] = RangeOf(command, found->second.size());
    const Answer granted = world_.Acquire(session_, id, proto::kFlagWrite, begin, end - begin);
    RC_ASSERT(granted.code == Code::kOk);
    const uint64_t seed = ++next_seed_;
    world_.Fill(granted.spans, id, seed, begin);
    const bool abandon = command.size % 8 == 0;
    RC_ASSERT(world_.Release(session_, World::LeaseOf(granted), abandon ? proto::kFlagAbandon : 0).code == Code::kOk);
    if (!abandon) {
      found->second.Write(begin, end, seed);
      return;
    }
    // Either it has the old bytes, or it says that it has not.
    const Answer again = world_.Acquire(session_, id);
    if (again.code == Code::kOk) {
      RC_ASSERT(world_.Release(session_, World::LeaseOf(again)).code == Code::kOk);
      return;
    }
    RC_ASSERT(again.code == Code::kTorn);
    RC_ASSERT(world_.Free(session_, id).code == Code::kOk);
    tensors_.erase(found);
  }
  void Verify(uint64_t id, uint64_t begin, uint64_t end) {
    const Answer granted = world_.Acquire(session_, id, 0, begin, end - begin);
    RC_ASSERT(granted.code == Code::kOk);
    const ContentModel& content = tensors_.at(id);
    uint64_t offset = begin;
    for (const proto::SpanRecord& span : granted.spans) {
      const std::byte* memory = world_.AddressOf(span) - offset;
      for (const uint64_t span_end = offset + span.length; offset != span_end;) {
        const uint64_t run_end = std::min(span_end, content.RunEnd(offset));
        const uint64_t seed = content.SeedAt(offset);
        while (offset != run_end && memory[offset] == PatternByte(id, seed, offset)) ++offset;
        if (offset == run_end) continue;
        RC_LOG() << "tensor " << id << " byte " << offset << " is not of seed " << seed << "\n";
        RC_FAIL("wrong byte");
      }
    }
    RC_ASSERT(offset == end);
    RC_ASSERT(world_.Release(session_, World::LeaseOf(granted)).code == Code::kOk);
  }

  World world_;
  SessionId session_;
  std::map<uint64_t, ContentModel> tensors_;
  uint64_t next_seed_ = 1;
};

RC_GTEST_PROP(EngineProperty, APatientClientAlwaysGetsItsBytes, (const std::vector<Command>& program, uint16_t seed)) {
  // Six tensors of up to 2.5 MiB over an arena of 8 MiB, with windows of one size or two, block windows in either
  // pages.
  PatientClient client({.windows = {.window_size = 4 * kMiB,
                                    .slot_window_size = (seed / 8 % 2 + 1) * 2 * kMiB,
                                    .arena_max_bytes = 8 * kMiB,
                                    .delay_turns = seed % 3u,
                                    .page_size = static_cast<uint32_t>(seed / 16 % 2 == 0 ? kPageSize : kBlockSize)},
                        .transfers = {.seed = seed, .inflight_max = 2u + seed % 7, .delay_turns_max = seed % 5u},
                        .device_blocks = 64});
  for (const Command& command : program) client.Run(command);
  client.Finish();
}

}  // namespace
}  // namespace tier::tiering::testing
