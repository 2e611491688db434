// Core: the tables that every part of the engine works on, in one place. No behaviour of its own beyond finding things.
//
// Sessions, jobs, leases, updates, entitlements, requests that wait, transfers, manifests and reports have owners with
// private members; pieces, tensors and the state of hand-over, of draining and of a turn's work still lie open here.
// The parts are groups of functions over a Core, each in its own header. Engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/storage/extent_store.h"
#include "daemon/tiering/api/options.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/flight_table.h"
#include "daemon/tiering/tables/job_state.h"
#include "daemon/tiering/tables/job_table.h"
#include "daemon/tiering/tables/lease_table.h"
#include "daemon/tiering/tables/ledger.h"
#include "daemon/tiering/tables/manifest_table.h"
#include "daemon/tiering/tables/metadata_budget.h"
#include "daemon/tiering/tables/outcome.h"
#include "daemon/tiering/tables/reply_buffer.h"
#include "daemon/tiering/tables/reports.h"
#include "daemon/tiering/tables/request_figures.h"
#include "daemon/tiering/tables/session_table.h"
#include "daemon/tiering/tables/tensor_table.h"
#include "daemon/tiering/tables/update_table.h"
#include "daemon/tiering/tables/wait_table.h"
#include "daemon/tiering/tables/window_ledger.h"
#include "daemon/tiering/tables/work_budget.h"

namespace tier::tiering {

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
        windows(engine_ports.windows),
        ledger(engine_ports.windows.arena_limit_bytes(),
               {.block = windows.window_size(WindowKind::kBlock), .slot = windows.window_size(WindowKind::kSlot)}),
        metadata(engine_options.metadata_bytes_per_uid_max),
        table(tensors, engine_options.hash_seed),
        updates(tensors),
        waits(pieces, tensors),
        work(engine_options.work) {}

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
  MetadataBudget metadata;
  TensorTable table;
  UpdateTable updates;
  LeaseTable leases;
  ReplyBuffer replies;

  SessionTable sessions;
  JobTable jobs;
  ManifestTable manifests;
  FlightTable flights;
  RequestFigures figures;
  Reports reports;
  uint32_t port_rivals = 0;  // Jobs that wanted the port when transfers last ended: each has its part of its writes.

  WaitTable waits;
  WorkBudget work;

  std::vector<ManifestHolds::Dropped> dropped_scratch;

  uint64_t arena_max_bytes = 0;  // As the window source said in the last turn.
  uint64_t dirty_pages = 0;      // Of all jobs.
  std::deque<AskedBack> asked_back;
  base::TimePoint next_hand_over;
  Emptying emptying;
  Serving serving;

  uint64_t draining_devices = 0;  // Bit per device.
  uint32_t drain_cursor = 0;      // The piece looked at last.
  bool draining = false;
  std::string drain_reason;

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
  std::vector<JobState*> maintained_jobs;
  std::vector<JobState*> short_jobs;  // That wait for room, at the end of the last turn.
  std::vector<JobState*> freeing_jobs;
  std::vector<JobState*> port_jobs;

  SessionState& AskerOf(const Waiter& waiter) const {
    if (waiter.session_slot == kNoSessionSlot) return waiter.job->internal_session;
    SessionState& session = sessions.At(waiter.session_slot);
    TIER_CHECK(session.id == waiter.session, "waiter {} of a session that is gone", waiter.number);
    return session;
  }
  // The turn has no more work left for the waiter: it goes on in the next.
  Outcome WaitForNextTurn(const Waiter& waiter) {
    waits.ContinueNextTurn(waiter.number);
    made_progress = true;
    return Waits();
  }
  bool Alive(TensorRef ref) const { return ref.slot != kNoTensor && tensors[ref.slot].salt == ref.salt; }
  TensorRef RefOf(TensorSlot slot) const { return {slot, tensors[slot].salt}; }
  // Likewise of a piece that is still to be made.
  const Piece& PieceOf(const Tensor& tensor, uint32_t number) const {
    const PieceId id = tensor.piece(number);
    return id == kNoPiece ? kPieceToCome : pieces[id];
  }
  JobState& JobOf(const Piece& piece) { return *tensors[piece.tensor].job; }
};

}  // namespace tier::tiering
