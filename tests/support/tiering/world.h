// World: an engine over fakes with a scripted clock, and clients that speak to it in whole sentences. For unit tests.
// Single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/tiering/engine.h"
#include "tests/support/storage/fake_manifest_store.h"
#include "tests/support/storage/fake_transfer.h"
#include "tests/support/tiering/fake_copier.h"
#include "tests/support/tiering/fake_windows.h"
#include "tests/support/tiering/transfer_check.h"

namespace tier::tiering::testing {

struct Answer {
  Code code = Code::kOk;
  uint64_t value = 0;
  std::vector<proto::SpanRecord> spans;
  proto::ErrorRecord error{};
  std::string detail;
  proto::TensorRecord tensor{};
};

// Keeps what was said to whom.
class RecordingSink final : public ReplySink {
 public:
  void OnReply(SessionId session, const Reply& reply) override;
  void OnWindow(SessionId session, const memory::WindowShape& window) override;
  void OnWindowReturn(SessionId session, WindowIndex window) override;
  void OnWindowTaken(SessionId session, WindowIndex window) override {
    taken.emplace(static_cast<uint64_t>(session), Value(window));
  }
  void OnSessionEnded(SessionId session, Code code, const std::string& reason) override;
  void OnJobOpened(JobId job, const Status& status) override;
  void OnForcedReturn(JobId, const std::string& what) override { forced.push_back(what); }
  void OnProcessEnd(SessionId session, const std::string&) override {
    killed.push_back(static_cast<uint64_t>(session));
  }

  std::map<std::pair<uint64_t, uint64_t>, Answer> answers;  // By session, sequence.
  std::map<uint64_t, std::set<uint32_t>> windows;           // Announced, by session.
  std::map<uint32_t, memory::WindowShape> shapes;           // Of windows, as announced last.
  std::vector<std::pair<uint64_t, uint32_t>> returns;       // Asked back: session, window.
  std::multiset<std::pair<uint64_t, uint32_t>> taken;       // Without an answer: session, window.
  std::map<uint64_t, std::pair<Code, std::string>> ended;
  std::vector<std::string> forced;    // OnForcedReturn.
  std::vector<uint64_t> killed;       // OnProcessEnd.
  std::map<uint64_t, Status> opened;  // Resumed jobs.
};

struct WorldOptions {
  memory::testing::FakeWindowOptions windows;
  storage::testing::FakeTransferOptions transfers;
  memory::testing::FakeCopierOptions copies;
  EngineOptions engine;
  uint32_t device_blocks = 64;  // Of each device.
  uint32_t move_blocks = 4;     // EnginePorts::move_memory.
  bool manifests = false;
  bool returns_windows = false;  // After each turn: ReturnWindows.
  // What the daemon before this one left; null: there was none.
  std::shared_ptr<storage::testing::MemoryDisk> disk{};
  std::shared_ptr<storage::testing::FakeManifestStore::Contents> persisted{};
  std::shared_ptr<storage::testing::FakeManifestStore::Contents> extent_lists{};
  std::shared_ptr<storage::testing::FakeManifestStore::Quarantines> quarantines{};
  storage::DeviceNumbers numbers{};               // As the stored manifests have the devices of this run …
  std::vector<storage::MissingDevice> missing{};  // … and those that are missing.
};

inline WorldOptions WithArena(uint64_t arena = 8 * kMiB, uint64_t window = 8 * kMiB) {
  return {.windows = {.window_size = window, .arena_max_bytes = arena}};
}

class World {
 public:
  explicit World(WorldOptions world_options = {});
  ~World();

  // A resumed job has been opened when it returns.
  JobId OpenJob(JobOptions job_options = {});
  // Takes turns until the job is resumed, or could not be.
  Status WaitUntilOpened(JobId job);
  SessionId OpenSession(JobId job);
  // As the session layer does it: an ephemeral job ends with its last session.
  void EndSession(SessionId session, const std::string& reason = "gone", Code code = Code::kDisconnected);
  SessionId Open(JobOptions job_options = {}) { return OpenSession(OpenJob(std::move(job_options))); }

  // Submits and returns the sequence number.
  uint64_t Send(SessionId session, proto::Op op, std::vector<proto::RequestItem> items, uint32_t flags = 0);
  uint64_t SendText(SessionId session, const std::string& text);
  uint64_t SendArgument(SessionId session, proto::Op op, uint64_t argument);
  // The answer, if it has come.
  std::optional<Answer> Answered(SessionId session, uint64_t sequence) const;
  // Takes turns until it comes, moving the clock on when nothing else happens.
  Answer Wait(SessionId session, uint64_t sequence);
  Answer Ask(SessionId session, proto::Op op, std::vector<proto::RequestItem> items, uint32_t flags = 0) {
    return Wait(session, Send(session, op, std::move(items), flags));
  }

  // In whole sentences.
  Answer Create(SessionId session, uint64_t tensor, uint64_t size, uint32_t flags = 0);  // All of it.
  Answer CreateRange(SessionId session, uint64_t tensor, uint64_t size, uint64_t offset, uint64_t length);
  Answer Acquire(SessionId session, uint64_t tensor, uint32_t flags = 0, uint64_t offset = 0, uint64_t length = 0);
  Answer Release(SessionId session, uint64_t lease, uint32_t flags = 0);
  Answer Free(SessionId session, uint64_t tensor, uint32_t flags = 0);
  Answer Flush(SessionId session, uint64_t tensor, uint32_t flags = 0);
  Answer Drop(SessionId session, uint64_t tensor, uint32_t flags = 0);
  // Creates, fills with the pattern of (tensor, seed), seals.
  void Put(SessionId session, uint64_t tensor, uint64_t size, uint64_t seed = 1, uint32_t flags = 0);
  // Put of tensors first to last, each of its own pattern: (id, id).
  void PutEach(SessionId session, uint64_t first, uint64_t last, uint64_t size, uint32_t flags = 0);
  // Put, on SSD only.
  void PutOnSsd(SessionId session, uint64_t tensor, uint64_t size, uint64_t seed = 1, uint32_t flags = 0);
  // What the devices say is free holds nothing any more, as if others had written there. The number of blocks.
  uint64_t EraseFree();
  // Acquires for writing, fills, seals.
  Answer Rewrite(SessionId session, uint64_t tensor, uint64_t seed, uint32_t flags = 0);
  // Acquires, compares with the pattern, releases. The code of the acquire.
  Code Check(SessionId session, uint64_t tensor, uint64_t seed = 1, uint32_t flags = 0);
  // Check of what PutEach put. OK, or the first other code.
  Code CheckEach(SessionId session, uint64_t first, uint64_t last);

  void Fill(const std::vector<proto::SpanRecord>& spans, uint64_t tensor, uint64_t seed, uint64_t offset = 0);
  bool Matches(const std::vector<proto::SpanRecord>& spans, uint64_t tensor, uint64_t seed, uint64_t offset = 0) const;
  static uint64_t LeaseOf(const Answer& answer, uint32_t item = 0);
  std::byte* AddressOf(const proto::SpanRecord& span) const;

  // One turn at the present time; then CheckInvariants, and that no transfer overwrites another piece (TransferCheck).
  bool Turn();
  void Turns(uint32_t count);
  // Clients unmap at once what is asked back.
  void ReturnWindows();
  // Turns at that pace with windows returned after each, until the request is answered or there were so many.
  void TurnsReturning(SessionId session, uint64_t sequence, uint32_t most, base::Duration pace);
  void Advance(base::Duration duration) { now = now + duration; }
  JobCounters Job(JobId job) const;

  WorldOptions options;
  memory::testing::FakeWindowSource windows;
  storage::ExtentStore extents;
  storage::testing::FakeTransferPort transfers;
  memory::testing::FakeCopier copier;
  storage::testing::FakeManifestStore manifests;
  RecordingSink sink;
  base::TimePoint now{std::chrono::seconds(1)};
  std::unique_ptr<Engine> engine;

 private:
  std::unique_ptr<std::byte[]> move_memory_;
  TransferCheck transfer_check_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, uint64_t> sequences_;
  std::set<uint64_t> named_jobs_;
  std::map<uint64_t, uint64_t> job_of_session_;
};

// Byte `offset` of the pattern (tensor, seed).
std::byte PatternByte(uint64_t tensor, uint64_t seed, uint64_t offset);

}  // namespace tier::tiering::testing
