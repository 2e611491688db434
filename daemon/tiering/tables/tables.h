// Tables: the tables that every part of the engine works on, in one place. No behaviour of its own beyond finding
// things.
//
// Each table owns its records: private members, a contract in its header, one way to change a record. The units of the
// engine are groups of functions over a Tables, each in its own header. Engine thread only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>

#include "daemon/storage/extent_store.h"
#include "daemon/tiering/api/options.h"
#include "daemon/tiering/tables/ahead_queue.h"
#include "daemon/tiering/tables/corrupt_reads.h"
#include "daemon/tiering/tables/device_table.h"
#include "daemon/tiering/tables/drain_state.h"
#include "daemon/tiering/tables/flight_table.h"
#include "daemon/tiering/tables/forced_return_state.h"
#include "daemon/tiering/tables/hand_over_state.h"
#include "daemon/tiering/tables/job_state.h"
#include "daemon/tiering/tables/job_table.h"
#include "daemon/tiering/tables/lease_table.h"
#include "daemon/tiering/tables/ledger.h"
#include "daemon/tiering/tables/manifest_table.h"
#include "daemon/tiering/tables/merge_state.h"
#include "daemon/tiering/tables/metadata_budget.h"
#include "daemon/tiering/tables/move_state.h"
#include "daemon/tiering/tables/outcome.h"
#include "daemon/tiering/tables/ram_move_table.h"
#include "daemon/tiering/tables/reply_buffer.h"
#include "daemon/tiering/tables/reports.h"
#include "daemon/tiering/tables/request_figures.h"
#include "daemon/tiering/tables/resident_index.h"
#include "daemon/tiering/tables/scattered_ram.h"
#include "daemon/tiering/tables/scratch.h"
#include "daemon/tiering/tables/serving.h"
#include "daemon/tiering/tables/session_table.h"
#include "daemon/tiering/tables/ssd_compaction_state.h"
#include "daemon/tiering/tables/storage_ledger.h"
#include "daemon/tiering/tables/tensor_table.h"
#include "daemon/tiering/tables/turn.h"
#include "daemon/tiering/tables/update_table.h"
#include "daemon/tiering/tables/wait_table.h"
#include "daemon/tiering/tables/window_ledger.h"
#include "daemon/tiering/tables/work_budget.h"
#include "daemon/tiering/tables/write_budget.h"

namespace tier::tiering {

inline constexpr base::Duration kShrinkInterval = std::chrono::milliseconds(10);

struct Tables {
  Tables(const EngineOptions& engine_options, const EnginePorts& engine_ports)
      : options(engine_options),
        ports(engine_ports),
        work(engine_options.work),
        write_budget(engine_options.write_budget_per_day),
        residents(pieces),
        windows(engine_ports.windows),
        ledger(engine_ports.windows.arena_limit_bytes(),
               {.block = windows.sizes(WindowKind::kBlock).least, .slot = windows.grain()}),
        metadata(engine_options.metadata_bytes_per_uid_max),
        names(tensors, engine_options.hash_seed),
        devices(engine_ports.extents.device_count()),
        updates(tensors, jobs, engine_options.hash_seed),
        waits(pieces, tensors, engine_options.work.wake) {}

  EngineOptions options;  // Changed by jobs/options_change alone.
  EnginePorts ports;
  Turn turn;
  WorkBudget work;
  WriteBudget write_budget;

  PieceSlab pieces;
  TensorSlab tensors;
  ResidentIndex residents;  // Of those that lie in one run.
  ScatteredRam scattered;   // Of the others.
  WindowLedger windows;
  Ledger ledger;
  StorageLedger storage;
  MetadataBudget metadata;
  TensorTable names;
  DeviceTable devices;
  UpdateTable updates;
  LeaseTable leases;
  ReplyBuffer replies;

  SessionTable sessions;
  JobTable jobs;
  ManifestTable manifests;
  FlightTable flights;
  RamMoveTable ram_moves;
  RequestFigures figures;
  CorruptReads corrupt_reads;
  Reports reports;

  WaitTable waits;
  AheadQueue ahead;
  HandOverState hand_over;
  MergeState merge;
  ForcedReturnState forced_returns;
  Serving serving;
  DrainState drain;
  MoveState move;
  SsdCompactionState ssd_compaction;
  Scratch scratch;
  base::TimePoint shrink_at;  // Memory is given back from then on.

  // What the tables of records take, in use or not.
  uint64_t bytes() const {
    return tensors.bytes() + pieces.bytes() + residents.bytes() + scattered.bytes() + names.bytes() + leases.bytes() +
           updates.bytes() + flights.bytes() + windows.order().bytes();
  }
  // Some of what a table holds is not needed.
  bool can_shrink() const {
    return tensors.can_shrink() || pieces.can_shrink() || residents.can_shrink() || names.can_shrink() ||
           leases.can_shrink() || updates.can_shrink() || flights.can_shrink();
  }
  // Not more than a chunk of records in kShrinkInterval: a job that frees and creates the same in each of its steps has
  // the engine spend some 1 % of its time, at most, on memory that goes and comes again.
  void ShrinkDue() {
    if (turn.now() < shrink_at || !can_shrink()) return;
    shrink_at = turn.now() + kShrinkInterval;
    work.Enter(work.units().shrink);
    work.Charge(work.units().shrink);
    ShrinkSome();
  }
  // Gives a part of that of one table back to the system: a chunk of records, or as much work.
  void ShrinkSome() {
    // A step of the index looks at half as many places as one of the others costs.
    const auto shrink_index = [&] {
      const bool any = residents.ShrinkSome();
      if (any) (void)residents.ShrinkSome();
      return any;
    };
    (void)(tensors.ShrinkOne() || pieces.ShrinkOne() || shrink_index() || names.ShrinkSome() || leases.ShrinkOne() ||
           updates.ShrinkSome() || flights.ShrinkOne());
  }

  SessionState& AskerOf(const Waiter& waiter) const {
    if (waiter.session_index == kNoSessionIndex) return waiter.job->internal_session;
    SessionState& session = sessions.At(waiter.session_index);
    TIER_CHECK(session.id == waiter.session, "waiter {} of a session that is gone", waiter.number);
    return session;
  }
  // The turn has no work left for the waiter, which continues in the next turn.
  Outcome WaitForNextTurn(const Waiter& waiter) {
    waits.ContinueNextTurn(waiter.number);
    turn.NoteProgress();
    return Waits();
  }
  // The waiter has had its part of the turn.
  Outcome PutOff(const Waiter& waiter) {
    waits.PutOff(waiter.number);
    turn.NoteProgress();
    return Waits();
  }
  // Pieces of freed tensors, or what an ended session held, are given back turn by turn.
  bool FreesUnderWay() const { return jobs.any_freeing() || !sessions.teardowns().empty(); }
  bool Alive(TensorRef ref) const { return ref.index != kNoTensor && tensors[ref.index].salt == ref.salt; }
  TensorRef RefOf(TensorIndex index) const { return {index, tensors[index].salt}; }
  // Piece `number` of the tensor; kPieceToCome if it is still to be made.
  const Piece& PieceOf(const Tensor& tensor, uint32_t number) const {
    const PieceId id = tensors.PieceOf(tensor, number);
    return id == kNoPiece ? kPieceToCome : pieces[id];
  }
  // Where the piece lies in RAM, in the order of its bytes.
  std::span<const base::PageRun> RunsOf(const Piece& piece) const {
    if (piece.ram_scattered) [[unlikely]]
      return scattered.RunsOf(piece.ram);
    return {&piece.ram, piece.ram ? 1U : 0U};
  }
  // The piece to which a run belongs. kNoPiece: none.
  PieceId PieceAt(base::PageRun run) const {
    const PieceId id = residents.At(run);
    return id != kNoPiece ? id : scattered.At(run);
  }
  // A copy to another place reads some of it, be its move cancelled or not.
  bool BeingCopied(const Piece& piece) const {
    return std::ranges::any_of(RunsOf(piece), [this](base::PageRun run) { return ram_moves.Reads(run); });
  }
  JobState& JobOf(const Tensor& tensor) const { return jobs.At(tensor.job); }
  JobState& JobOf(const Piece& piece) const { return JobOf(tensors[piece.tensor]); }
};

}  // namespace tier::tiering
