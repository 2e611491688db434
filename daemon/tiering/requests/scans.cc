// See scans.h.
#include "daemon/tiering/requests/scans.h"

#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/answers.h"
#include "daemon/tiering/requests/enumeration.h"

namespace tier::tiering {
namespace {

using proto::Op;

// Clean and idle: its RAM copy goes.
void DropPiece(Tables& tables, PieceId id, uint32_t length, Scan* scan) {
  const Piece& piece = tables.pieces[id];
  CancelMove(tables, id);
  const bool idle =
      piece.copies == Copies::kRamSsd && piece.activity == Activity::kNone && piece.read_leases == 0 && piece.pins == 0;
  if (idle && Evict(tables, id)) scan->ram_bytes += length;
}

void AcceptPiece(Tables& tables, PieceId id) {
  const Piece& piece = tables.pieces[id];
  // One that is being rewritten stops being torn when it is sealed.
  if (piece.copies != Copies::kTorn || piece.activity == Activity::kLeasedWrite) return;
  CancelMove(tables, id);
  SetState(tables, id, {Copies::kRam, Activity::kNone});
  RemoveTear(tables, piece.tensor);
}

void CountPiece(const Piece& piece, uint32_t length, Scan* scan) {
  const bool in_ram = piece.ram && !piece.has(kReserved) && piece.activity != Activity::kReadingIn;
  if (in_ram) scan->ram_bytes += length;
  if (piece.on_ssd()) scan->ssd_bytes += length;
}

void ScanPiece(Tables& tables, Op op, PieceId id, Scan* scan) {
  const Piece& piece = tables.pieces[id];
  const uint32_t length = tables.tensors[piece.tensor].piece_length(piece.number);
  switch (op) {
    case Op::kDrop: return DropPiece(tables, id, length, scan);
    case Op::kStat: return CountPiece(piece, length, scan);
    case Op::kAccept: return AcceptPiece(tables, id);
    default: TIER_CHECK(false, "operation {} is no scan", static_cast<uint16_t>(op));
  }
}

// True: to the end. An accept goes over the torn pieces alone.
bool Go(Tables& tables, Op op, std::span<const WaitItem> items, Scan* scan) {
  for (; scan->item < items.size(); ++scan->item, scan->piece = 0) {
    const WaitItem& item = items[scan->item];
    if (!tables.Alive(item.tensor)) continue;
    const Tensor& tensor = tables.tensors[item.tensor.index];
    TIER_CHECK(item.first_piece + item.piece_count <= tensor.piece_count, "pieces {} + {} of {}", item.first_piece,
               item.piece_count, tensor.piece_count);
    if (op == Op::kAccept) EndUpdates(tables, item.tensor.index);
    if (op == Op::kStat && !BreakEnding(tables, item.tensor.index)) return false;
    for (; scan->piece < item.piece_count && (op != Op::kAccept || tensor.torn()); ++scan->piece) {
      if (!tables.work.TrySpend()) return false;
      const PieceId id = tables.tensors.PieceOf(tensor, item.first_piece + scan->piece);
      if (id != kNoPiece) ScanPiece(tables, op, id, scan);
    }
  }
  return true;
}

void AnswerScan(Tables& tables, const Ask& ask, const Scan& scan) {
  SessionState& session = *ask.session;
  for (const WaitItem& item : ask.items) {
    if (ask.op == Op::kAccept && tables.Alive(item.tensor)) EndUpdates(tables, item.tensor.index);
  }
  if (ask.op == Op::kDrop) return AnswerValue(tables, session, ask.sequence, ask.op, scan.ram_bytes);
  const WaitItem& first = ask.items.front();
  if (!tables.Alive(first.tensor)) {
    return AnswerRefusal(tables, session, {ask.sequence, ask.op, 0},
                         RefusalOf(tables, ask, {.outcome = ConflictOutcome::kRefused}));
  }
  const Tensor& tensor = tables.tensors[first.tensor.index];
  if (ask.op == Op::kAccept) {
    return AnswerValue(tables, session, ask.sequence, ask.op, tensor.generation);
  }
  proto::TensorRecord record{.size = tensor.size, .generation = tensor.generation};
  record.ram_bytes = scan.ram_bytes;
  record.ssd_bytes = scan.ssd_bytes;
  const uint64_t flags = (tensor.has(kVisible) ? proto::kTensorSealed : 0) | (tensor.torn() ? proto::kTensorTorn : 0);
  session.requests.End();
  tables.figures.CountAnswer(ask.op, Code::kOk);
  tables.replies.Stat({session.id, ask.sequence}, record, flags);
}

}  // namespace

bool RunScan(Tables& tables, const Ask& ask, Scan* scan) {
  if (!Go(tables, ask.op, ask.items, scan)) return false;
  AnswerScan(tables, ask, *scan);
  return true;
}

Outcome AdvanceScan(Tables& tables, Waiter& waiter) {
  ScanWait* const wait = &std::get<ScanWait>(waiter.kind);
  TIER_CHECK(IsScan(waiter.op), "operation {}", static_cast<uint16_t>(waiter.op));
  do {
    if (Outcome listed = Enumerate(tables, waiter, &wait->listing); listed.progress != Progress::kReady) return listed;
    if (!Go(tables, waiter.op, waiter.items, &wait->scan)) return tables.WaitForNextTurn(waiter);
  } while (EnumerateNextPart(waiter, wait));
  AnswerScan(tables, AskOf(tables, waiter), wait->scan);
  return AnsweredAlready();
}

}  // namespace tier::tiering
