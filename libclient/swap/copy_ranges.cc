// The ranges of a swap: asked for, copied, given back; and what is undone when it fails.
#include <algorithm>

#include "libclient/client/tensor_name.h"
#include "libclient/swap/copy_crew.h"
#include "libclient/swap/copy_operation.h"

namespace tier::swap {

using client::Lease;
using proto::Op;

client::Submission CopyOperation::SubmissionFor(const Piece& piece, proto::RequestItem* item) const {
  const bool out = request_.direction == Direction::kOut;
  const bool creating = stage_ == Stage::kCreating;
  *item = {request_.tensor, piece.range.offset, piece.range.length, creating ? request_.tensor_bytes() : 0};
  uint32_t flags = request_.flags & (proto::kFlagShared | proto::kFlagNoWait);
  if (creating && replaces_) flags |= proto::kFlagReplace;
  if (out && !creating) flags |= proto::kFlagWrite | (piece.range.discard ? proto::kFlagDiscard : 0);
  return {.op = creating ? Op::kCreate : Op::kAcquire,
          .flags = flags,
          .timeout_ms = request_.timeout_ms,
          .items = {item, 1}};
}

void CopyOperation::AskForRanges() {
  const uint64_t last = request_.offset + request_.tensor_bytes();
  while (next_ < last) {
    const Range range = NextRange(request_, next_, crew_->range_bytes_);
    const bool fits = crew_->inflight_bytes_ + range.length <= crew_->budget_bytes_;
    if (!fits && crew_->inflight_bytes_ > 0) return;
    Piece& piece = ranges_.emplace_back();
    piece.range = range;
    proto::RequestItem item;
    auto pending = crew_->TrySubmit(SubmissionFor(piece, &item));
    if (!pending || *pending == nullptr) {
      ranges_.pop_back();
      if (!pending) Abort(pending.error());
      return;
    }
    piece.pending = *pending;
    next_ += range.length;
    crew_->inflight_bytes_ += range.length;
  }
}

void CopyOperation::TakeRanges() {
  for (Piece& piece : ranges_) {
    if (piece.state != Piece::State::kAsked || !piece.pending->done()) continue;
    if (!TakeRange(piece)) return;
  }
}

bool CopyOperation::TakeRange(Piece& piece) {
  proto::RequestItem item;
  const auto submission = SubmissionFor(piece, &item);
  const Status granted = session_.Grant(*piece.pending, submission, {&piece.lease, 1});
  session_.channel().Finish(std::exchange(piece.pending, nullptr));
  if (!granted) {
    piece.lease = nullptr;
    Abort(granted.error());
    return false;
  }
  piece.state = Piece::State::kGranted;
  return true;
}

CopyOperation::Piece* CopyOperation::Claim() {
  if (error_ || check_ != nullptr || stage_ != Stage::kStreaming) return nullptr;
  // Its one buffer and its place in the caller's stream are not to be shared.
  if (std::ranges::any_of(ranges_, [](const Piece& piece) { return piece.in_port; })) return nullptr;
  for (Piece& piece : ranges_) {
    if (piece.state != Piece::State::kGranted) continue;
    piece.state = Piece::State::kCopying;
    piece.touched = true;
    piece.in_port = device_ != nullptr;
    return &piece;
  }
  return nullptr;
}

CopyOperation::Piece* CopyOperation::ClaimOnDevice() {
  for (Piece& piece : ranges_) {
    if (piece.state != Piece::State::kOnDevice) continue;
    piece.state = Piece::State::kCopying;
    return &piece;
  }
  return nullptr;
}

Result<std::vector<Segment>> CopyOperation::SegmentsOf(const Lease& lease) const {
  std::vector<Segment> segments;
  const uint64_t element = copy::ElementSize(request_.tensor_type);
  for (const client::Run& run : lease.runs) {
    if (run.length % element != 0) {
      return Fail(Code::kInvalid, "the daemon split " + client::TensorName(request_.tensor) + " inside an element");
    }
    segments.push_back({session_.windows().AddressOf(run.window, run.offset), run.length});
  }
  return segments;
}

Status CopyOperation::Copy(Piece& piece) {
  if (piece.event) return DevicePort::Await(piece.event);
  auto segments = SegmentsOf(*piece.lease);
  if (!segments) return std::unexpected(segments.error());
  const bool plain = request_.memory_type == request_.tensor_type && !request_.check_finite && !request_.sum_squares;
  if (device_ != nullptr && plain) {
    auto event = device_->Start(session_, request_, *piece.lease, *segments);
    if (!event) return std::unexpected(event.error());
    piece.event = std::move(*event);
    return {};
  }
  if (device_ != nullptr) {
    auto outcome = device_->CopyThroughHost(request_, piece.range.offset, *segments);
    if (!outcome) return std::unexpected(outcome.error());
    piece.outcome = *outcome;
    return {};
  }
  piece.outcome = CopyRange(request_, piece.range.offset, request_.MemoryAt(piece.range.offset), *segments);
  return {};
}

void CopyOperation::Copied(Piece& piece, const Status& status, bool started_on_device) {
  piece.in_port = false;
  if (!status) Abort(status.error());
  if (started_on_device && status) {
    piece.state = Piece::State::kOnDevice;
  } else if (error_) {
    piece.state = Piece::State::kGranted;  // Unwind abandons it.
  } else {
    Finish(piece);
  }
}

// Gives a copied range back: written ones are sealed; the last one read takes the tensor with it if asked.
void CopyOperation::Finish(Piece& piece) {
  const bool out = request_.direction == Direction::kOut;
  piece.state = Piece::State::kCopied;
  crew_->inflight_bytes_ -= piece.range.length;
  bool last = next_ == request_.offset + request_.tensor_bytes();
  for (const Piece& other : ranges_) last = last && other.state == Piece::State::kCopied;
  const uint32_t flags = !out && last ? request_.flags & proto::kFlagFreeAfter : 0;
  const bool in_parts = out && !created_ && (sealed_some_ || !last);
  const client::RewrittenRange rewrite = in_parts ? whole_range() : client::RewrittenRange{};
  sealed_some_ = sealed_some_ || out;
  Lease* const lease = std::exchange(piece.lease, nullptr);
  const auto released = session_.Release({&lease, 1}, flags | (in_parts && !last ? proto::kFlagMore : 0), rewrite);
  if (!released) return Abort(released.error());
  const uint64_t bytes =
      piece.range.length / copy::ElementSize(request_.tensor_type) * copy::ElementSize(request_.memory_type);
  auto& counters = session_.counters();
  (out ? counters.swap_out_bytes : counters.swap_in_bytes).fetch_add(bytes, std::memory_order_relaxed);
  outcome_.bytes += bytes;
}

// Adds up in tensor order, cell by cell, whatever order the copies ended in: sums are the same in every run.
void CopyOperation::Retire() {
  while (!ranges_.empty() && ranges_.front().state == Piece::State::kCopied) {
    const RangeOutcome& range = ranges_.front().outcome;
    outcome_.non_finite_count += range.non_finite_count;
    for (const double sum : range.cell_sums()) outcome_.sum_of_squares += sum;
    ranges_.pop_front();
  }
}

bool CopyOperation::Unwind() {
  if (stage_ == Stage::kUndoing) return TakeUndo();
  bool busy = false;
  for (Piece& piece : ranges_) {
    // The caller's memory stays in use until its copies have ended.
    if (piece.state == Piece::State::kCopying || piece.state == Piece::State::kOnDevice) {
      busy = true;
    } else if (piece.state != Piece::State::kCopied) {
      DropPiece(piece);
    }
  }
  if (busy) return false;
  for (client::Pending** waiting : {&opening_, &check_, &settling_}) {
    client::Pending* const pending = std::exchange(*waiting, nullptr);
    if (pending != nullptr) crew_->AdoptLocked(pending, {.op = Op::kStat});
  }
  ranges_.clear();
  stage_ = Stage::kDone;
  Undo();
  return stage_ == Stage::kDone;
}

void CopyOperation::DropPiece(Piece& piece) {
  proto::RequestItem item;
  if (piece.pending != nullptr) crew_->AdoptLocked(piece.pending, SubmissionFor(piece, &item));
  undecided_ = undecided_ || (piece.pending != nullptr && stage_ == Stage::kCreating && loses_ != 0);
  const uint32_t given_up = piece.touched ? proto::kFlagAbandon : proto::kFlagUntouched;
  const uint32_t flags = request_.direction == Direction::kOut ? given_up : 0;
  // The session may have ended: then everything is given back anyway.
  if (piece.lease != nullptr) (void)session_.Release({&piece.lease, 1}, flags);
  piece.pending = nullptr;
  piece.lease = nullptr;
  piece.state = Piece::State::kCopied;
  crew_->inflight_bytes_ -= piece.range.length;
}

std::string CopyOperation::Loss() const {
  return "; the tensor of " + std::to_string(loses_) + " bytes that it was to replace is gone";
}

// A half-made tensor is freed. One that was half replaced must not pass for whole: it is torn, which needs no room. A
// replacement that was refused may have been so after the old tensor went: then the caller is told. Likewise that one
// which nobody waits for any more may still be granted, and takes the old tensor with it.
void CopyOperation::Undo() {
  if (request_.direction == Direction::kIn || session_.channel().ended()) return;
  if (!created_ && !sealed_some_ && loses_ == 0) return;
  if (undecided_) {
    error_->message += "; until the daemon answers, its replacement may still take the place of the tensor of " +
                       std::to_string(loses_) + " bytes, and is then freed with it";
    return;
  }
  if (created_ && loses_ != 0) error_->message += Loss();
  stage_ = Stage::kUndoing;
  SendUndo();
}

void CopyOperation::SendUndo() {
  const bool tears = sealed_some_ && !created_;
  const client::RewrittenRange range = tears ? whole_range() : client::RewrittenRange{};
  const proto::RequestItem item{.tensor = request_.tensor, .offset = range.offset, .length = range.length};
  const client::Submission submission{.op = created_ ? Op::kFree
                                            : tears  ? Op::kTear
                                                     : Op::kStat,
                                      .flags = request_.flags & proto::kFlagShared,
                                      .items = {&item, 1}};
  auto pending = crew_->TrySubmit(submission);
  if (pending && *pending == nullptr) return;  // No room: in a later turn.
  if (!pending || created_) stage_ = Stage::kDone;
  if (!pending) return;
  if (created_) return crew_->AdoptLocked(*pending, submission);
  undo_ = *pending;
}

// The swap ends when it is certain what it leaves: whoever learns of its failure never reads a mixture as whole.
bool CopyOperation::TakeUndo() {
  if (undo_ == nullptr) SendUndo();
  if (undo_ == nullptr) return stage_ == Stage::kDone;
  if (!undo_->done() && !session_.channel().ended()) return false;
  stage_ = Stage::kDone;
  if (!undo_->done()) return true;
  const Status answer = undo_->ToStatus();
  const bool sealed = answer && (undo_->value() & proto::kTensorSealed) != 0;
  session_.channel().Finish(std::exchange(undo_, nullptr));
  if (!sealed_some_) {
    if (!sealed) error_->message += Loss();
    return true;
  }
  if (answer || answer.error().code == Code::kNotFound) return true;  // Freed meanwhile: nobody reads it.
  error_->message +=
      "; its tensor holds new bytes beside old ones, and could not be marked TORN: " + answer.error().message;
  return true;
}

}  // namespace tier::swap
