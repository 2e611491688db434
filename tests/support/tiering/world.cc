// See world.h.
#include "tests/support/tiering/world.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "daemon/base/check.h"

namespace tier::tiering::testing {
namespace {

constexpr uint32_t kTurnsMax = 20000;
constexpr uint32_t kQuickTurns = 2000;

// Eight bytes of the pattern, at a multiple of eight.
uint64_t PatternWord(uint64_t tensor, uint64_t seed, uint64_t word) {
  uint64_t value = tensor * 0x9e3779b97f4a7c15 + seed * 0xc2b2ae3d27d4eb4f + word * 0x165667b19e3779f9;
  value ^= value >> 29;
  return value * 0xbf58476d1ce4e5b9;
}

// visit(at, bytes, word): the pattern from `offset` on is the first bytes of that word there, eight wherever it can be.
// Tests fill and compare gigabytes with instrumented code. False: a visit answered so.
template <typename Visit>
bool ForEachPatternWord(uint64_t tensor, uint64_t seed, uint64_t offset, uint64_t length, Visit visit) {
  static_assert(std::endian::native == std::endian::little);
  for (uint64_t at = 0; at < length;) {
    const uint64_t skipped = (offset + at) % 8;
    const uint64_t word = PatternWord(tensor, seed, (offset + at) / 8) >> (skipped * 8);
    const uint64_t bytes = std::min(8 - skipped, length - at);
    if (!visit(at, bytes, word)) return false;
    at += bytes;
  }
  return true;
}

}  // namespace

std::byte PatternByte(uint64_t tensor, uint64_t seed, uint64_t offset) {
  return static_cast<std::byte>(PatternWord(tensor, seed, offset / 8) >> (offset % 8 * 8));
}

void RecordingSink::OnReply(SessionId session, const Reply& reply) {
  Answer answer{.code = reply.code, .value = reply.value};
  answer.spans.assign(reply.spans.begin(), reply.spans.end());
  if (reply.error != nullptr) answer.error = *reply.error;
  if (reply.tensor != nullptr) answer.tensor = *reply.tensor;
  answer.detail = reply.detail;
  const auto& known = windows[static_cast<uint64_t>(session)];
  for (const proto::SpanRecord& span : reply.spans) {
    TIER_CHECK(known.contains(span.window), "session {} was not told of window {}", static_cast<uint64_t>(session),
               span.window);
  }
  const bool fresh =
      answers.emplace(std::pair(static_cast<uint64_t>(session), reply.sequence), std::move(answer)).second;
  TIER_CHECK(fresh, "session {} request {} answered twice", static_cast<uint64_t>(session), reply.sequence);
}

void RecordingSink::OnWindow(SessionId session, const memory::WindowShape& window) {
  windows[static_cast<uint64_t>(session)].insert(Value(window.index));
  shapes[Value(window.index)] = window;
}

void RecordingSink::OnWindowReturn(SessionId session, WindowIndex window) {
  returns.emplace_back(static_cast<uint64_t>(session), Value(window));
}

void RecordingSink::OnSessionEnded(SessionId session, Code code, const std::string& reason) {
  ended[static_cast<uint64_t>(session)] = {code, reason};
}

void RecordingSink::OnJobOpened(JobId job, const Status& status) {
  const bool first = opened.emplace(static_cast<uint64_t>(job), status).second;
  TIER_CHECK(first, "job {} was opened twice", static_cast<uint64_t>(job));
}

World::World(WorldOptions world_options)
    : options(std::move(world_options)),
      windows(options.windows),
      transfers(options.transfers, options.disk),
      copier(options.copies),
      manifests(options.persisted, options.extent_lists, options.quarantines) {
  for (uint16_t device = 0; device < options.transfers.device_count; ++device) extents.AddDevice(options.device_blocks);
  manifests.SetDevices(options.numbers, options.missing);
  const uint64_t move_bytes = options.move_blocks * kBlockSize;
  move_memory_ = std::make_unique_for_overwrite<std::byte[]>(move_bytes);
  engine = std::make_unique<Engine>(options.engine,
                                    EnginePorts{.windows = windows,
                                                .extents = extents,
                                                .transfers = transfers,
                                                .manifests = options.manifests ? &manifests : nullptr,
                                                .replies = sink,
                                                .move_memory = {.address = move_memory_.get(),
                                                                .size = move_bytes,
                                                                .window = WindowIndex{windows.windows_max()}},
                                                .copier = &copier});
  transfers.WatchSubmits([this] {
    if (transfers.inflight() == 0) return;  // Most turns: there is nothing to compare.
    const auto overwrite = transfer_check_.AtSubmit(engine->NamedPlaces(), transfers, manifests);
    TIER_CHECK(!overwrite, "{}", *overwrite);
  });
}

World::~World() = default;

JobId World::OpenJob(JobOptions job_options) {
  const JobId job{next_id_++};
  if (job_options.key.empty()) job_options.key = "0/job-" + std::to_string(static_cast<uint64_t>(job));
  const Status opened = engine->OpenJob(job, job_options);
  TIER_CHECK(opened.has_value(), "{}", opened.error().message);
  if (job_options.named || job_options.resume) named_jobs_.insert(static_cast<uint64_t>(job));
  if (!job_options.resume) return job;
  const Status resumed = WaitUntilOpened(job);
  TIER_CHECK(resumed.has_value(), "{}", resumed.error().message);
  return job;
}

Status World::WaitUntilOpened(JobId job) {
  const auto& opened = sink.opened;
  for (uint32_t turn = 0; turn < kTurnsMax && !opened.contains(static_cast<uint64_t>(job)); ++turn) Turn();
  return opened.at(static_cast<uint64_t>(job));
}

SessionId World::OpenSession(JobId job) {
  const SessionId session{next_id_++};
  const Status opened = engine->OpenSession(session, job);
  TIER_CHECK(opened.has_value(), "{}", opened.error().message);
  job_of_session_[static_cast<uint64_t>(session)] = static_cast<uint64_t>(job);
  return session;
}

void World::EndSession(SessionId session, const std::string& reason, Code code) {
  const auto job = job_of_session_.find(static_cast<uint64_t>(session));
  TIER_CHECK(job != job_of_session_.end(), "session {}", static_cast<uint64_t>(session));
  const uint64_t id = job->second;
  job_of_session_.erase(job);
  const bool last = std::ranges::none_of(job_of_session_, [id](const auto& entry) { return entry.second == id; });
  const bool ends_job = last && !named_jobs_.contains(id);
  engine->EndSession(session, code, reason, ends_job ? std::optional(JobId{id}) : std::nullopt);
}

uint64_t World::Send(SessionId session, proto::Op op, std::vector<proto::RequestItem> items, uint32_t flags) {
  const uint64_t sequence = ++sequences_[static_cast<uint64_t>(session)];
  engine->Submit(session, {.sequence = sequence, .op = op, .flags = flags, .items = items, .text = {}});
  engine->CheckInvariants();
  return sequence;
}

uint64_t World::SendText(SessionId session, const std::string& text) {
  const uint64_t sequence = ++sequences_[static_cast<uint64_t>(session)];
  engine->Submit(session, {.sequence = sequence, .op = proto::Op::kIntern, .items = {}, .text = text});
  return sequence;
}

uint64_t World::SendArgument(SessionId session, proto::Op op, uint64_t argument) {
  const uint64_t sequence = ++sequences_[static_cast<uint64_t>(session)];
  engine->Submit(session, {.sequence = sequence, .op = op, .argument = argument, .items = {}, .text = {}});
  return sequence;
}

std::optional<Answer> World::Answered(SessionId session, uint64_t sequence) const {
  const auto found = sink.answers.find({static_cast<uint64_t>(session), sequence});
  return found == sink.answers.end() ? std::nullopt : std::optional(found->second);
}

Answer World::Wait(SessionId session, uint64_t sequence) {
  for (uint32_t turn = 0; turn < kTurnsMax; ++turn) {
    if (const auto answer = Answered(session, sequence)) return *answer;
    if (turn > kQuickTurns) Advance(std::chrono::milliseconds(100));  // Nothing moves any more: on to the deadline.
    Turn();
  }
  TIER_CHECK(false, "session {} request {} was not answered in {} turns", static_cast<uint64_t>(session), sequence,
             kTurnsMax);
}

Answer World::Create(SessionId session, uint64_t tensor, uint64_t size, uint32_t flags) {
  return Ask(session, proto::Op::kCreate, {{tensor, 0, 0, size}}, flags);
}

Answer World::CreateRange(SessionId session, uint64_t tensor, uint64_t size, uint64_t offset, uint64_t length) {
  return Ask(session, proto::Op::kCreate, {{tensor, offset, length, size}});
}

Answer World::Acquire(SessionId session, uint64_t tensor, uint32_t flags, uint64_t offset, uint64_t length) {
  return Ask(session, proto::Op::kAcquire, {{tensor, offset, length, 0}}, flags);
}

Answer World::Release(SessionId session, uint64_t lease, uint32_t flags) {
  return Ask(session, proto::Op::kRelease, {{0, 0, 0, lease}}, flags);
}

Answer World::Free(SessionId session, uint64_t tensor, uint32_t flags) {
  return Ask(session, proto::Op::kFree, {{tensor, 0, 0, 0}}, flags);
}

Answer World::Flush(SessionId session, uint64_t tensor, uint32_t flags) {
  return Ask(session, proto::Op::kFlush, {{tensor, 0, 0, 0}}, flags);
}

Answer World::Drop(SessionId session, uint64_t tensor, uint32_t flags) {
  return Ask(session, proto::Op::kDrop, {{tensor, 0, 0, 0}}, flags);
}

void World::Put(SessionId session, uint64_t tensor, uint64_t size, uint64_t seed, uint32_t flags) {
  const Answer created = Create(session, tensor, size, flags);
  TIER_CHECK(created.code == Code::kOk, "{}", created.detail);
  Fill(created.spans, tensor, seed);
  const Answer sealed = Release(session, LeaseOf(created));
  TIER_CHECK(sealed.code == Code::kOk, "{}", sealed.detail);
}

void World::PutEach(SessionId session, uint64_t first, uint64_t last, uint64_t size, uint32_t flags) {
  for (uint64_t tensor = first; tensor <= last; ++tensor) Put(session, tensor, size, tensor, flags);
}

void World::PutOnSsd(SessionId session, uint64_t tensor, uint64_t size, uint64_t seed, uint32_t flags) {
  Put(session, tensor, size, seed, flags);
  const Answer flushed = Flush(session, tensor, flags);
  TIER_CHECK(flushed.code == Code::kOk, "{}", flushed.detail);
  const Answer dropped = Drop(session, tensor, flags);
  TIER_CHECK(dropped.code == Code::kOk && dropped.value == size, "{} of {}", dropped.value, size);
}

uint64_t World::EraseFree() {
  std::vector<storage::Extent> free;
  while (extents.total().free >= kBlockSize) {
    const Result<storage::Extent> extent = extents.Allocate(kPagesPerBlock);
    TIER_CHECK(extent.has_value(), "{}", extent.error().message);
    transfers.disk().Erase(*extent);
    free.push_back(*extent);
  }
  for (const storage::Extent& extent : free) extents.Free(extent);
  return free.size();
}

Answer World::Rewrite(SessionId session, uint64_t tensor, uint64_t seed, uint32_t flags) {
  const Answer acquired = Acquire(session, tensor, flags | proto::kFlagWrite);
  if (acquired.code != Code::kOk) return acquired;
  Fill(acquired.spans, tensor, seed);
  return Release(session, LeaseOf(acquired));
}

Code World::Check(SessionId session, uint64_t tensor, uint64_t seed, uint32_t flags) {
  const Answer acquired = Acquire(session, tensor, flags);
  if (acquired.code != Code::kOk) return acquired.code;
  TIER_CHECK(Matches(acquired.spans, tensor, seed), "tensor {} does not hold pattern {}", tensor, seed);
  const Answer released = Release(session, LeaseOf(acquired));
  TIER_CHECK(released.code == Code::kOk, "{}", released.detail);
  return Code::kOk;
}

Code World::CheckEach(SessionId session, uint64_t first, uint64_t last) {
  for (uint64_t tensor = first; tensor <= last; ++tensor) {
    if (const Code code = Check(session, tensor, tensor); code != Code::kOk) return code;
  }
  return Code::kOk;
}

std::byte* World::AddressOf(const proto::SpanRecord& span) const {
  TIER_CHECK(span.offset + span.length <= options.windows.window_size, "span {} + {}", span.offset, span.length);
  return windows.address(WindowIndex{span.window}) + span.offset;
}

void World::Fill(const std::vector<proto::SpanRecord>& spans, uint64_t tensor, uint64_t seed, uint64_t offset) {
  for (const proto::SpanRecord& span : spans) {
    std::byte* at = AddressOf(span);
    ForEachPatternWord(tensor, seed, offset, span.length, [at](uint64_t i, uint64_t bytes, uint64_t word) {
      if (bytes == sizeof(word)) [[likely]] {
        std::memcpy(at + i, &word, sizeof(word));
      } else {
        std::memcpy(at + i, &word, bytes);
      }
      return true;
    });
    offset += span.length;
  }
}

bool World::Matches(const std::vector<proto::SpanRecord>& spans, uint64_t tensor, uint64_t seed,
                    uint64_t offset) const {
  for (const proto::SpanRecord& span : spans) {
    const std::byte* at = AddressOf(span);
    const bool same =
        ForEachPatternWord(tensor, seed, offset, span.length, [at](uint64_t i, uint64_t bytes, uint64_t word) {
          if (bytes != sizeof(word)) [[unlikely]]
            return std::memcmp(at + i, &word, bytes) == 0;
          uint64_t there = 0;
          std::memcpy(&there, at + i, sizeof(there));
          return there == word;
        });
    if (!same) return false;
    offset += span.length;
  }
  return true;
}

uint64_t World::LeaseOf(const Answer& answer, uint32_t item) {
  for (const proto::SpanRecord& span : answer.spans) {
    if (span.item == item) return span.lease;
  }
  TIER_CHECK(false, "no lease for item {}: {}", item, answer.detail);
}

bool World::Turn() {
  const bool made_progress = engine->Turn(now);
  engine->CheckInvariants();
  const auto overwrite = transfer_check_.AfterTurn(engine->NamedPlaces(), transfers, manifests);
  TIER_CHECK(!overwrite, "{}", *overwrite);
  now = now + std::chrono::microseconds(10);
  if (options.returns_windows) ReturnWindows();
  return made_progress;
}

void World::Turns(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) Turn();
}

void World::ReturnWindows() {
  if (sink.returns.empty()) return;
  for (const auto& [session, window] : std::exchange(sink.returns, {})) {
    engine->WindowReturned(SessionId{session}, WindowIndex{window});
  }
  engine->CheckInvariants();
}

void World::TurnsReturning(SessionId session, uint64_t sequence, uint32_t most, base::Duration pace) {
  for (uint32_t turn = 0; turn < most && !Answered(session, sequence); ++turn) {
    Turn();
    Advance(pace);
    ReturnWindows();
  }
}

JobCounters World::Job(JobId job) const {
  for (const JobView& view : engine->Snapshot().jobs) {
    if (view.id == job) return view.counters;
  }
  TIER_CHECK(false, "no job {}", static_cast<uint64_t>(job));
}

}  // namespace tier::tiering::testing
