// The stages of a swap. Ranges and undoing: copy_ranges.cc.
#include "libclient/swap/copy_operation.h"

#include "libclient/client/tensor_name.h"
#include "libclient/swap/copy_crew.h"

namespace tier::swap {

using proto::Op;

CopyOperation::CopyOperation(std::shared_ptr<CopyCrew> crew, const CopyRequest& request,
                             std::unique_ptr<DevicePort> device)
    : crew_(std::move(crew)), session_(crew_->session()), request_(request), device_(std::move(device)) {}

bool CopyOperation::done() {
  std::lock_guard lock(crew_->mutex_);
  return stage_ == Stage::kDone;
}

bool CopyOperation::Wait(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(crew_->mutex_);
  const auto ended = [this] { return stage_ == Stage::kDone; };
  const auto an_hour = std::chrono::hours(1);  // time_point::max overflows in some clocks.
  while (!ended() && client::Clock::now() < deadline) {
    crew_->finished_.wait_until(lock, std::min(deadline, client::Clock::now() + an_hour), ended);
  }
  return ended();
}

Result<Outcome> CopyOperation::Take() {
  std::lock_guard lock(crew_->mutex_);
  if (error_) return std::unexpected(*error_);
  return outcome_;
}

void CopyOperation::Cancel() {
  {
    std::lock_guard lock(crew_->mutex_);
    cancelled_ = true;
    crew_->EndIfQueued(*this);
  }
  crew_->WakeThreads();
}

bool CopyOperation::Advance() {
  if (stage_ == Stage::kDone) return true;
  if (!error_ && session_.channel().ended()) Abort(session_.channel().end_reason());
  if (!error_ && cancelled_ && stage_ != Stage::kSettling)
    Abort({Code::kTimeout, "the swap of " + client::TensorName(request_.tensor) + " was cancelled"});
  if (!error_ && stage_ == Stage::kQueued) Begin();
  if (!error_) TakeOpening();
  if (!error_) TakeSizeCheck();
  if (!error_ && stage_ == Stage::kStreaming) TakeRanges();
  if (!error_ && stage_ == Stage::kStreaming) AskForRanges();
  if (error_) return Unwind();
  Retire();
  const bool asked_all = next_ == request_.offset + request_.tensor_bytes();
  const bool streamed = stage_ == Stage::kStreaming && asked_all && ranges_.empty() && check_ == nullptr;
  if (streamed) stage_ = mends_ ? Stage::kSettling : Stage::kDone;
  if (stage_ == Stage::kSettling) Settle();
  if (error_) return Unwind();
  return stage_ == Stage::kDone;
}

void CopyOperation::Begin() {
  client::Pending* const looking = request_.whole ? Ask(Op::kStat) : nullptr;
  if (request_.whole && looking == nullptr) return;  // No room: in a later turn.
  next_ = request_.offset;
  const bool first = request_.whole && request_.direction == Direction::kOut;
  stage_ = first ? Stage::kLooking : Stage::kStreaming;
  (first ? opening_ : check_) = looking;
}

// Null when there is no room, or the session has ended.
client::Pending* CopyOperation::Ask(Op op) {
  const proto::RequestItem item{.tensor = request_.tensor};
  auto pending = crew_->TrySubmit(
      {.op = op, .flags = request_.flags & proto::kFlagShared, .timeout_ms = request_.timeout_ms, .items = {&item, 1}});
  if (pending) return *pending;
  Abort(pending.error());
  return nullptr;
}

void CopyOperation::TakeOpening() {
  if (stage_ == Stage::kCreating && ranges_.empty()) return Create();  // There was no room.
  if (stage_ == Stage::kCreating && ranges_.front().pending->done()) return TakeCreate();
  if (opening_ == nullptr || !opening_->done()) return;
  TakeLook();
}

void CopyOperation::TakeLook() {
  const Status looked = opening_->ToStatus();
  const proto::TensorRecord found = opening_->tensor();
  const bool sealed = (opening_->value() & proto::kTensorSealed) != 0;
  const bool torn = (opening_->value() & proto::kTensorTorn) != 0;
  session_.channel().Finish(std::exchange(opening_, nullptr));
  if (!looked && looked.error().code == Code::kNotFound) return Create();
  if (!looked) return Abort(looked.error());
  if (found.size == request_.tensor_bytes() && sealed) {
    stage_ = Stage::kStreaming;
    mends_ = torn;
    return;
  }
  replaces_ = true;
  loses_ = sealed ? found.size : 0;  // What is still being created is nothing to lose, or another session's.
  Create();
}

void CopyOperation::Create() {
  stage_ = Stage::kCreating;
  Piece& piece = ranges_.emplace_back();
  piece.range = NextRange(request_, next_, crew_->range_bytes_);
  proto::RequestItem item;
  auto pending = crew_->TrySubmit(SubmissionFor(piece, &item));
  if (!pending || *pending == nullptr) {
    ranges_.pop_back();
    if (!pending) Abort(pending.error());
    return;
  }
  piece.pending = *pending;
  next_ += piece.range.length;
  crew_->inflight_bytes_ += piece.range.length;
}

void CopyOperation::TakeCreate() {
  if (!TakeRange(ranges_.front())) return;
  created_ = true;
  stage_ = Stage::kStreaming;
}

// A swap-in fills exactly the tensor, never a part of it by mistake.
void CopyOperation::TakeSizeCheck() {
  if (check_ == nullptr || !check_->done()) return;
  const Status looked = check_->ToStatus();
  const uint64_t size = check_->tensor().size;
  session_.channel().Finish(std::exchange(check_, nullptr));
  if (!looked) return Abort(looked.error());
  if (size == request_.tensor_bytes()) return;
  Abort({Code::kInvalid, client::TensorName(request_.tensor) + " has " + std::to_string(size) +
                             " bytes, the swap asks for " + std::to_string(request_.tensor_bytes()) +
                             ": give the right size, or whole = 0 for a part"});
}

// Releases are not waited for: who hears of this swap's end by another way than the daemon would still meet TORN. What
// is answered behind the last one is answered when the tensor is whole. A cancel has nothing left to undo here.
void CopyOperation::Settle() {
  if (settling_ == nullptr && !cancelled_) settling_ = Ask(Op::kStat);
  const bool answered = settling_ != nullptr && settling_->done();
  if (!answered && !cancelled_) return;
  stage_ = Stage::kDone;
  if (answered) return session_.channel().Finish(std::exchange(settling_, nullptr));
  if (settling_ != nullptr) crew_->AdoptLocked(std::exchange(settling_, nullptr), {.op = Op::kStat});
}

void CopyOperation::Abort(Error error) {
  if (!error_) error_ = std::move(error);
}

}  // namespace tier::swap
