// Core: the tables that every part of the engine works on. No behaviour of its own beyond finding things.
//
// The parts are groups of functions over a Core, each in its own header: residency (what lies where), catalog (tensors
// come and go), grants (who may touch what), transfers (what moves), room (whence the memory comes), waiting (who is
// next), requests (what was asked), death (what remains). Engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/storage/extent_store.h"
#include "daemon/tiering/api/options.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/job_state.h"
#include "daemon/tiering/tables/lease_table.h"
#include "daemon/tiering/tables/ledger.h"
#include "daemon/tiering/tables/outcome.h"
#include "daemon/tiering/tables/reply_buffer.h"
#include "daemon/tiering/tables/tensor_table.h"
#include "daemon/tiering/tables/update_table.h"
#include "daemon/tiering/tables/wait_table.h"
#include "daemon/tiering/tables/window_ledger.h"

namespace tier::tiering {

enum class FlightSlot : uint32_t {};

// A transfer that was decided on: queued here until the port takes it, then in flight until its result.
struct Flight {
  PieceId piece = kNoPiece;
  storage::Extent extent;
  storage::Direction direction = storage::Direction::kWrite;
  bool started = false;  // The port has it.
  bool prefetch = false;
};

// A change of a job's manifest that was handed to the store.
struct ManifestCommit {
  std::string key;             // Of the job.
  uint64_t holds = 0;          // ManifestHolds::id of what it is about.
  uint64_t waiter = 0;         // That it answers, if it still waits.
  bool erase = false;          // The job's manifest goes, and nothing comes in its place.
  bool own = false;            // It names tensors of sessions, which go with these …
  bool sessions_gone = false;  // … and the last of these went before the store had answered.
  std::vector<TensorRef> tensors;
};

// The store has answered a manifest: what the request that committed it is to hear.
struct CommittedManifest {
  uint64_t waiter = 0;
  Outcome outcome;
};

// A read ended without the piece's bytes: what the requests that wait for them are to hear.
struct FailedRead {
  std::vector<uint64_t> waiters;
  TensorRef tensor;
  uint32_t piece = 0;  // Of the tensor.
  Refusal refusal;
};

// The memory of a window of this job could not be touched: its sessions are to end.
struct WindowFault {
  JobState* job = nullptr;
  std::string reason;
};

// Pieces that are looked at for waiting requests in one turn: all jobs together, each at least kWorkPerJobMin.
inline constexpr uint32_t kWorkPerTurn = 16384;
inline constexpr uint32_t kWorkPerJobMin = 512;

// The windows that are being emptied for somebody else, and what was found in them so far.
struct Emptying {
  std::vector<WindowIndex> windows;
  std::vector<PieceId> pieces;
  uint32_t cursor = 0;  // Pieces of the slab below it were looked at.
};

// A window that clients were asked to return; oldest first. Settled when the window says otherwise.
struct AskedBack {
  WindowIndex window{};
  base::TimePoint at;
};

// The request that is served beyond its job's promise (memory/stalled).
struct Serving {
  JobId job{};          // None: no request is served so.
  uint64_t waiter = 0;  // Its number; of the last one, while none is.
  base::TimePoint until;
  base::TimePoint owed_since;  // Somebody has been owed memory within its promise since then.
};

struct Core {
  Core(const EngineOptions& engine_options, const EnginePorts& engine_ports)
      : options(engine_options),
        ports(engine_ports),
        windows(engine_ports.windows.window_size(), engine_ports.windows.windows_max()),
        ledger(engine_ports.windows.arena_limit_bytes(), engine_ports.windows.window_size()),
        table(tensors, engine_options.hash_seed),
        updates(tensors),
        waits(pieces, tensors),
        free_budget(engine_options.frees_per_turn) {}

  EngineOptions options;
  EnginePorts ports;
  base::TimePoint now;
  uint64_t turns = 0;
  uint32_t publications = 0;   // Turns whose replies were told.
  bool made_progress = false;  // This turn did something.

  PieceSlab pieces;
  TensorSlab tensors;
  WindowLedger windows;
  Ledger ledger;
  TensorTable table;
  UpdateTable updates;
  LeaseTable leases;
  ReplyBuffer replies;

  std::vector<std::unique_ptr<SessionState>> sessions;  // By slot, the departing too; null: free.
  std::unordered_map<SessionId, SessionState*> session_by_id;
  SessionState* last_session = nullptr;  // The last one found.
  std::unordered_map<JobId, std::unique_ptr<JobState>> jobs;
  std::vector<std::unique_ptr<JobState>> closing_jobs;
  std::vector<SessionState*> teardowns;  // Sessions that are gone but for their leases.
  uint32_t next_owner = 1;

  Slab<Flight, FlightSlot> flights;
  std::vector<FlightSlot> read_queue;  // Decided on, waiting for the port; oldest first from read_queue_head.
  size_t read_queue_head = 0;
  bool started_transfers = false;  // Submit is owed.
  uint32_t writes_inflight = 0;
  std::vector<FailedRead> failed_reads;    // Since they were last reported.
  std::vector<WindowFault> window_faults;  // Likewise.
  bool port_wanted = false;                // Some job wants_port.
  uint32_t port_rivals = 0;  // Jobs that did when transfers last ended: each has its part of the port's writes.

  WaitTable waits;
  uint32_t work_left = kWorkPerTurn;  // Of this job in this turn, or of what is submitted until the next.

  std::unordered_map<std::string, ManifestHolds> inactive_manifests;  // Of jobs that are not open, by key.
  std::unordered_map<std::string, Error> broken_manifests;            // Found at start, and not to be believed.
  std::unordered_map<uint64_t, ManifestCommit> commits;               // By cookie.
  std::vector<CommittedManifest> committed;                           // Answered by the store, not yet by us.
  uint64_t next_cookie = 1;
  uint64_t next_holds = 1;
  std::vector<ManifestHolds::Dropped> dropped_scratch;

  uint64_t arena_max_bytes = 0;  // As the window source said in the last turn.
  uint64_t dirty_pages = 0;      // Of all jobs.
  std::deque<AskedBack> asked_back;
  base::TimePoint next_hand_over;
  Emptying emptying;
  Serving serving;
  bool short_of_room = false;  // Some job waits for memory.

  uint64_t draining_devices = 0;  // Bit per device.
  uint32_t drain_cursor = 0;      // The piece looked at last.
  bool draining = false;
  std::string drain_reason;

  std::array<std::array<uint64_t, kCodeCount>, proto::kOpCount> request_counts{};
  std::array<uint64_t, kWaitBucketsSeconds.size() + 1> wait_histogram{};
  uint64_t wait_sum_ns = 0;
  JobCounters closed_totals;  // Counters of jobs that are gone.
  uint64_t torn_tensors = 0;
  uint64_t live_tensors = 0;
  uint32_t free_budget = 0;          // In this turn.
  uint64_t pending_free_pieces = 0;  // Pieces in JobState::freed_tensors of all jobs.

  // Scratch, so that the steady state allocates nothing.
  std::vector<WaitItem> items;
  std::vector<base::PageRun> runs;
  std::vector<PieceId> given;
  std::vector<storage::TransferResult> results;
  std::vector<memory::WindowEvent> events;
  std::vector<storage::ManifestResult> manifest_results;
  std::vector<uint32_t> order;
  std::vector<JobId> holders;
  std::vector<JobState*> ready_jobs;

  SessionState* FindSession(SessionId id) {
    if (last_session != nullptr && last_session->id == id) return last_session;
    const auto found = session_by_id.find(id);
    if (found == session_by_id.end()) return nullptr;
    last_session = found->second;
    return last_session;
  }
  SessionState& AskerOf(const Waiter& waiter) const {
    if (waiter.session_slot == kNoSessionSlot) return waiter.job->internal_session;
    SessionState* session = sessions[waiter.session_slot].get();
    TIER_CHECK(session != nullptr && session->id == waiter.session, "waiter {} of a session that is gone",
               waiter.number);
    return *session;
  }
  JobState* FindJob(JobId id) const {
    const auto found = jobs.find(id);
    return found == jobs.end() ? nullptr : found->second.get();
  }
  bool Alive(TensorRef ref) const { return ref.slot != kNoTensor && tensors[ref.slot].salt == ref.salt; }
  TensorRef RefOf(TensorSlot slot) const { return {slot, tensors[slot].salt}; }
  Piece& PieceOf(const Tensor& tensor, uint32_t number) { return pieces[tensor.piece(number)]; }
  const Piece& PieceOf(const Tensor& tensor, uint32_t number) const { return pieces[tensor.piece(number)]; }
  JobState& JobOf(const Piece& piece) { return *tensors[piece.tensor].job; }
};

}  // namespace tier::tiering
