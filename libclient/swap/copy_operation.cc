#include "libclient/swap/copy_operation.h"

#include <algorithm>
#include <utility>

#include "libclient/client/invariant.h"
#include "libclient/client/tensor_name.h"

namespace tier::swap {

using client::Lease;
using client::Pending;
using proto::Op;

namespace {

constexpr int kOpeningsMax = 16;

// Whether a range may have been refused because the tensor is no longer the one that a swap has found.
bool IsOther(Code code) { return code == Code::kInvalid || code == Code::kNotFound; }

}  // namespace

Result<Outcome> CopyOperation::outcome() const {
  if (error_) return std::unexpected(*error_);
  return outcome_;
}

void CopyOperation::Cancel() {
  if (stage_ == Stage::kDone || error_) return;
  if (stage_ == Stage::kConfirming) {
    goal_ = Goal::kOverwrite;  // Every byte is written: the caller only no longer waits until all sessions see it.
    return;
  }
  Abort({Code::kTimeout, "the swap of " + client::TensorName(request_.tensor) + " was cancelled"});
}

bool CopyOperation::Advance() {
  if (stage_ == Stage::kDone) return true;
  if (!error_ && session_.channel().ended()) Abort(session_.channel().end_reason());
  if (!error_ && stage_ == Stage::kOpening && !reading_again_) Open();
  if (!error_ && stage_ == Stage::kStreaming && !reading_again_) TakeAnswers();
  if (!error_ && reading_again_) {
    if (!ReadAgain()) return false;
    if (stage_ == Stage::kOpening) Open();
  }
  if (!error_ && stage_ == Stage::kStreaming) AskForChunks();
  if (!error_) {
    AddUpCopied();
    const bool streamed = stage_ == Stage::kStreaming && next_ == end() && chunks_.empty();
    if (streamed) stage_ = goal_ == Goal::kRepairTorn ? Stage::kConfirming : Stage::kDone;
    if (stage_ == Stage::kConfirming) Confirm();
  }
  if (error_) return Unwind();
  return stage_ == Stage::kDone;
}

void CopyOperation::Abort(Error error) {
  if (!error_) error_ = std::move(error);
}

// ---- Opening ----

void CopyOperation::Open() {
  const bool out = request_.direction == Direction::kOut;
  if (creates()) {
    const bool asked = !chunks_.empty() || AskForChunk();
    if (!asked || !chunks_.front().pending->done() || !TakeAnswer(chunks_.front())) return;
    undo_.left = Undo::Left::kCreated;
    stage_ = Stage::kStreaming;
    return;
  }
  next_ = request_.offset;
  if (request_.whole && out) {
    if (control_ == nullptr) control_ = Ask(Op::kStat);
    if (control_ != nullptr && control_->done()) TakeFirstStat();  // Null: no room, in a later turn.
    return;
  }
  goal_ = out ? Goal::kOverwrite : Goal::kRead;
  stage_ = Stage::kStreaming;
}

// What a whole swap-out finds.
void CopyOperation::TakeFirstStat() {
  const auto found = control_->Tensor();
  const uint64_t state = found ? control_->value() : 0;
  session_.channel().Finish(std::exchange(control_, nullptr));
  if (!found && found.error().code != Code::kNotFound) return Abort(found.error());
  const bool sealed = (state & proto::kTensorSealed) != 0;
  if (found && found->size == request_.tensor_bytes() && sealed) {
    goal_ = (state & proto::kTensorTorn) != 0 ? Goal::kRepairTorn : Goal::kOverwrite;
    stage_ = Stage::kStreaming;
    return;
  }
  goal_ = found ? Goal::kReplace : Goal::kCreate;
  // A tensor that is still being created is nothing to lose, or another session's.
  undo_.bytes_lost = found && sealed ? found->size : 0;
  Open();
}

// ---- One content, read in parts ----

void CopyOperation::CheckContent(uint64_t content) {
  if (!reads_one_content()) return;
  if (!content_) content_ = content;
  if (content == *content_ || MayReadAgain()) return;
  Abort({Code::kTimeout, client::TensorName(request_.tensor) +
                             " was written each time that this swap read it, until its timeout had passed: take turns "
                             "with its writers"});
}

// False when the time for that is over; else the swap begins again.
bool CopyOperation::MayReadAgain() {
  const auto now = client::Clock::now();
  if (!read_again_until_) read_again_until_ = session_.channel().DeadlineOf(request_.timeout_ms, now);
  reading_again_ = now < *read_again_until_;
  return reading_again_;
}

// Before anything of the tensor was granted: it has come, gone, or become one of another size since the stat.
bool CopyOperation::MayOpenAgain(Code code) {
  const bool may_be_other = IsOther(code) || code == Code::kAlreadyExists;
  const bool writes_whole = request_.whole && request_.direction == Direction::kOut;
  if (!writes_whole || granted_ || !may_be_other || openings_ == kOpeningsMax) return false;
  openings_++;
  reading_again_ = true;
  return true;
}

// Where there is room for less of the tensor at a time than was asked for. Only a read can begin again.
bool CopyOperation::MayReadInLess(const Chunk& refused, Code code) {
  const bool lacks_room = code == Code::kNoMemory || (code == Code::kWouldDeadlock && FailsOverOwn(refused));
  if (request_.direction == Direction::kOut || !lacks_room || refused.range.length <= kBlockSize) return false;
  range_bytes_ = std::max(kBlockSize, refused.range.length / 2 / kBlockSize * kBlockSize);
  return MayReadAgain();
}

// False while something of the last attempt is still to be answered or copied.
bool CopyOperation::ReadAgain() {
  for (Chunk& chunk : chunks_) {
    // Not left to the host: leases that are granted later would be in the way of the next attempt.
    if (chunk.state == Chunk::State::kAsked && chunk.pending->done()) {
      proto::RequestItem item;
      const auto submission = SubmissionFor(chunk, &item);
      if (!session_.Grant(*chunk.pending, submission, {&chunk.lease, 1})) chunk.lease = nullptr;
      session_.channel().Finish(std::exchange(chunk.pending, nullptr));
      chunk.state = Chunk::State::kGranted;
    }
  }
  if (!DropChunks(/*await_answers=*/true)) return false;
  chunks_.clear();
  granted_ = false;
  content_.reset();
  outcome_ = {};
  next_ = request_.offset;
  reading_again_ = false;
  if (request_.direction == Direction::kOut) {
    stage_ = Stage::kOpening;
    goal_.reset();
    undo_ = {};
  }
  return true;
}

// Null when there is no room, or the session has ended.
Pending* CopyOperation::Ask(Op op) {
  const proto::RequestItem item{.tensor = request_.tensor};
  auto pending = host_.TrySubmit(
      {.op = op, .flags = request_.flags & proto::kFlagShared, .timeout_ms = request_.timeout_ms, .items = {&item, 1}});
  if (pending) return *pending;
  Abort(pending.error());
  return nullptr;
}

// ---- Chunks ----

client::Submission CopyOperation::SubmissionFor(const Chunk& chunk, proto::RequestItem* item) const {
  const bool creating = stage_ == Stage::kOpening;
  // A whole swap reads and writes a tensor of its size, never a part of one by mistake.
  *item = {request_.tensor, chunk.range.offset, chunk.range.length,
           creating || request_.whole ? request_.tensor_bytes() : 0};
  uint32_t flags = request_.flags & (proto::kFlagShared | proto::kFlagNoWait);
  if (creating) flags |= request_.flags & (proto::kFlagSharded | proto::kFlagTransient);
  if (creating && goal_ == Goal::kReplace) flags |= proto::kFlagReplace;
  if (FailsOverOwn(chunk)) flags |= proto::kFlagNoWaitOwn;
  const bool writes = !creating && request_.direction == Direction::kOut;
  if (writes) flags |= proto::kFlagWrite | (chunk.range.discard ? proto::kFlagDiscard : 0);
  return {.op = creating ? Op::kCreate : Op::kAcquire,
          .flags = flags,
          .timeout_ms = request_.timeout_ms,
          .items = {item, 1}};
}

// Asks for the next range. False when there is no room for the request, or the session has ended.
bool CopyOperation::AskForChunk() {
  Chunk& chunk = chunks_.emplace_back();
  chunk.range = NextRange(request_, next_, range_bytes_);
  proto::RequestItem item;
  auto pending = host_.TrySubmit(SubmissionFor(chunk, &item));
  if (!pending || *pending == nullptr) {
    chunks_.pop_back();
    if (!pending) Abort(pending.error());
    return false;
  }
  chunk.pending = *pending;
  next_ += chunk.range.length;
  host_.Reserve(chunk.range.length);
  return true;
}

void CopyOperation::AskForChunks() {
  while (next_ < end()) {
    if (!host_.FitsBudget(NextRange(request_, next_, range_bytes_).length)) return;
    if (!AskForChunk()) return;
  }
}

void CopyOperation::TakeAnswers() {
  for (Chunk& chunk : chunks_) {
    if (chunk.state != Chunk::State::kAsked || !chunk.pending->done()) continue;
    if (!TakeAnswer(chunk)) return;
  }
}

bool CopyOperation::TakeAnswer(Chunk& chunk) {
  proto::RequestItem item;
  const auto submission = SubmissionFor(chunk, &item);
  const Status granted = session_.Grant(*chunk.pending, submission, {&chunk.lease, 1});
  const uint64_t content = chunk.pending->value();
  session_.channel().Finish(std::exchange(chunk.pending, nullptr));
  chunk.state = Chunk::State::kGranted;
  granted_ |= granted.has_value();
  if (granted) CheckContent(content);
  if (granted) return !error_ && !reading_again_;
  chunk.lease = nullptr;
  if (MayOpenAgain(granted.error().code)) return false;
  if (granted_ && goal_ == Goal::kOverwrite && request_.whole && IsOther(granted.error().code)) {
    undo_.left = Undo::Left::kNothing;  // It is gone, with what was written of it.
    Abort(
        {Code::kStale, client::TensorName(request_.tensor) +
                           " was replaced or freed while this swap wrote it, and what it has written is lost with it"});
    return false;
  }
  if (MayReadInLess(chunk, granted.error().code)) return false;
  // Without a lease of this swap in the way, the daemon would refuse the next attempt too. One may have been granted
  // whose answer is still to be taken.
  const auto holds = [](const Chunk& each) {
    return each.state == Chunk::State::kAsked && each.pending->done() && each.pending->code() == Code::kOk;
  };
  const bool granted_one = granted_ || std::ranges::any_of(chunks_, holds);
  const bool in_the_way = granted_one && reads_in_parts() && granted.error().code == Code::kWouldDeadlock;
  if (!in_the_way || !MayReadAgain()) Abort(granted.error());
  return false;
}

CopyOperation::Chunk* CopyOperation::Claim() {
  if (error_ || reading_again_ || stage_ != Stage::kStreaming) return nullptr;
  // Its one buffer and its position in the caller's stream are not to be shared.
  if (std::ranges::any_of(chunks_, [](const Chunk& chunk) { return chunk.in_port; })) return nullptr;
  for (Chunk& chunk : chunks_) {
    if (chunk.state != Chunk::State::kGranted) continue;
    chunk.state = Chunk::State::kCopying;
    chunk.touched = true;
    chunk.in_port = device_ != nullptr;
    return &chunk;
  }
  return nullptr;
}

CopyOperation::Chunk* CopyOperation::ClaimOnDevice() {
  for (Chunk& chunk : chunks_) {
    if (chunk.state != Chunk::State::kOnDevice) continue;
    chunk.state = Chunk::State::kCopying;
    return &chunk;
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

Status CopyOperation::Copy(Chunk& chunk) {
  if (chunk.event) return DevicePort::Await(chunk.event);
  const auto plan = request_.plan();  // CheckRequest has passed it.
  const auto number = [](copy::ElementType type) { return std::to_string(static_cast<int>(type)); };
  if (!TIER_INVARIANT(session_.channel(), copy::IsSupported(plan),
                      "a copy from type " + number(plan.source_type) + " to type " + number(plan.target_type))) {
    return std::unexpected(session_.channel().end_reason());
  }
  auto segments = SegmentsOf(*chunk.lease);
  if (!segments) return std::unexpected(segments.error());
  if (device_ != nullptr) return CopyThrough(chunk, *segments);
  chunk.outcome = CopyRange(request_, chunk.range.offset, request_.MemoryAt(chunk.range.offset), *segments);
  return {};
}

// Through the device port: straight between device memory and the lease where bytes stay as they are.
Status CopyOperation::CopyThrough(Chunk& chunk, std::span<const Segment> segments) {
  const bool plain = request_.memory_type == request_.tensor_type && !request_.check_finite && !request_.sum_squares;
  if (plain) {
    auto event = device_->Start(session_, request_, *chunk.lease, segments);
    if (!event) return std::unexpected(event.error());
    chunk.event = std::move(*event);
    return {};
  }
  auto outcome = device_->CopyThroughHost(request_, chunk.range.offset, segments);
  if (!outcome) return std::unexpected(outcome.error());
  chunk.outcome = *outcome;
  return {};
}

void CopyOperation::Copied(Chunk& chunk, const Status& status, bool started_on_device) {
  chunk.in_port = false;
  if (!status) Abort(status.error());
  if (started_on_device && status) {
    chunk.state = Chunk::State::kOnDevice;
  } else if (error_ || reading_again_) {
    chunk.state = Chunk::State::kGranted;  // Unwind or ReadAgain gives it back.
  } else {
    GiveBack(chunk);
  }
}

// All others are copied.
bool CopyOperation::IsLast(const Chunk& chunk) const {
  return next_ == end() && std::ranges::all_of(chunks_, [&](const Chunk& other) {
           return &other == &chunk || other.state == Chunk::State::kCopied;
         });
}

// Written ranges are sealed; the last range read takes the tensor with it if asked.
void CopyOperation::GiveBack(Chunk& chunk) {
  const bool out = request_.direction == Direction::kOut;
  chunk.state = Chunk::State::kCopied;
  host_.Unreserve(chunk.range.length);
  const bool last = IsLast(chunk);
  // What a swap writes of an existing tensor only makes sense together: the daemon is told of all of it with each
  // range, also where there is one. A range that is sealed without that is a change by hand, unfinished until the
  // session's next step.
  const bool overwrites = out && undo_.left != Undo::Left::kCreated;
  uint32_t flags = !out && last ? request_.flags & proto::kFlagFreeAfter : 0;
  if (overwrites && !last) flags |= proto::kFlagMore;
  if (overwrites) undo_.left = Undo::Left::kPartlyWritten;
  Lease* const lease = std::exchange(chunk.lease, nullptr);
  const auto released = session_.Release({&lease, 1}, flags, overwrites ? whole_range() : client::RewrittenRange{});
  if (!released) return Abort(released.error());
  const uint64_t bytes =
      chunk.range.length / copy::ElementSize(request_.tensor_type) * copy::ElementSize(request_.memory_type);
  auto& counters = session_.counters();
  (out ? counters.copied_to_tensors_bytes : counters.copied_from_tensors_bytes)
      .fetch_add(bytes, std::memory_order_relaxed);
  outcome_.bytes += bytes;
}

// In tensor order, cell by cell, whatever order the copies ended in: sums are the same in every run.
void CopyOperation::AddUpCopied() {
  while (!chunks_.empty() && chunks_.front().state == Chunk::State::kCopied) {
    const RangeOutcome& range = chunks_.front().outcome;
    outcome_.non_finite_count += range.non_finite_count;
    for (const double sum : range.cell_sums()) outcome_.sum_of_squares += sum;
    chunks_.pop_front();
  }
}

uint64_t CopyOperation::reserved_bytes() const {
  uint64_t bytes = 0;
  for (const Chunk& chunk : chunks_) bytes += chunk.state == Chunk::State::kCopied ? 0 : chunk.range.length;
  return bytes;
}

// ---- Confirming ----

// Releases are not waited for: a session that hears of this swap's end by another way than the daemon would still meet
// TORN. A stat is answered behind the last release, when the tensor is valid.
void CopyOperation::Confirm() {
  const bool wanted = goal_ == Goal::kRepairTorn;
  if (wanted && control_ == nullptr) control_ = Ask(Op::kStat);
  if (control_ == nullptr && (wanted || error_)) return;
  if (control_ != nullptr && control_->done()) {
    session_.channel().Finish(std::exchange(control_, nullptr));
  } else if (wanted) {
    return;
  } else if (control_ != nullptr) {
    host_.Abandon(std::exchange(control_, nullptr), {.op = Op::kStat});
  }
  stage_ = Stage::kDone;
}

// ---- Undoing ----

bool CopyOperation::Unwind() {
  if (stage_ == Stage::kUndoing) return TakeUndo();
  if (!DropChunks(/*await_answers=*/false)) return false;
  if (control_ != nullptr) host_.Abandon(std::exchange(control_, nullptr), {.op = Op::kStat});
  chunks_.clear();
  stage_ = Stage::kDone;
  StartUndo();
  return stage_ == Stage::kDone;
}

// False while copies go on, because the caller's memory stays in use until they have ended; and, if asked, while the
// daemon owes answers.
bool CopyOperation::DropChunks(bool await_answers) {
  bool busy = false;
  for (Chunk& chunk : chunks_) {
    const bool copies = chunk.state == Chunk::State::kCopying || chunk.state == Chunk::State::kOnDevice;
    if (copies || (await_answers && chunk.pending != nullptr)) {
      busy = true;
    } else if (chunk.state != Chunk::State::kCopied) {
      DropChunk(chunk);
    }
  }
  return !busy;
}

void CopyOperation::DropChunk(Chunk& chunk) {
  proto::RequestItem item;
  const bool undecided = chunk.pending != nullptr && stage_ == Stage::kOpening && undo_.bytes_lost != 0;
  if (undecided) undo_.left = Undo::Left::kUndecided;
  if (chunk.pending != nullptr) host_.Abandon(chunk.pending, SubmissionFor(chunk, &item));
  const uint32_t unsealed = chunk.touched ? proto::kFlagAbandon : proto::kFlagUntouched;
  const uint32_t flags = request_.direction == Direction::kOut ? unsealed : 0;
  // The session may have ended: then everything is given back anyway.
  if (chunk.lease != nullptr) (void)session_.Release({&chunk.lease, 1}, flags);
  chunk.pending = nullptr;
  chunk.lease = nullptr;
  chunk.state = Chunk::State::kCopied;
  host_.Unreserve(chunk.range.length);
}

std::string CopyOperation::Loss() const {
  return "; the tensor of " + std::to_string(undo_.bytes_lost) + " bytes that it was to replace is gone";
}

// A tensor that is not whole is freed. One that was overwritten in part must not pass for whole: it is marked TORN,
// which needs no room. A refused replacement may have been refused after the old tensor was removed: the caller is
// told.
void CopyOperation::StartUndo() {
  using Left = Undo::Left;
  if (request_.direction == Direction::kIn || session_.channel().ended()) return;
  if (undo_.left == Left::kNothing && undo_.bytes_lost == 0) return;
  if (undo_.left == Left::kUndecided) {
    error_->message += "; until the daemon answers, its replacement may still take the place of the tensor of " +
                       std::to_string(undo_.bytes_lost) + " bytes, and is then freed with it";
    return;
  }
  if (undo_.left == Left::kCreated && undo_.bytes_lost != 0) error_->message += Loss();
  stage_ = Stage::kUndoing;
  SendUndo();
}

void CopyOperation::SendUndo() {
  const bool created = undo_.left == Undo::Left::kCreated;
  const bool tears = undo_.left == Undo::Left::kPartlyWritten;
  const client::RewrittenRange range = tears ? whole_range() : client::RewrittenRange{};
  const proto::RequestItem item{.tensor = request_.tensor, .offset = range.offset, .length = range.length};
  const client::Submission submission{.op = created ? Op::kFree
                                            : tears ? Op::kTear
                                                    : Op::kStat,
                                      .flags = request_.flags & proto::kFlagShared,
                                      .items = {&item, 1}};
  auto pending = host_.TrySubmit(submission);
  if (pending && *pending == nullptr) return;  // No room: in a later turn.
  if (!pending || created) stage_ = Stage::kDone;
  if (!pending) return;
  if (created) return host_.Abandon(*pending, submission);
  control_ = *pending;
}

// The swap ends when it is certain what it leaves: a caller that learns of its failure never reads a mixture as whole.
bool CopyOperation::TakeUndo() {
  if (control_ == nullptr) SendUndo();
  if (control_ == nullptr) return stage_ == Stage::kDone;
  if (!control_->done() && !session_.channel().ended()) return false;
  stage_ = Stage::kDone;
  if (!control_->done()) return true;
  const Status answer = control_->ToStatus();
  const bool sealed = answer && (control_->value() & proto::kTensorSealed) != 0;
  session_.channel().Finish(std::exchange(control_, nullptr));
  if (undo_.left != Undo::Left::kPartlyWritten) {
    if (!sealed) error_->message += Loss();
    return true;
  }
  if (answer || answer.error().code == Code::kNotFound) return true;  // Freed meanwhile: no session reads it.
  error_->message +=
      "; its tensor holds new bytes beside old ones, and could not be marked TORN: " + answer.error().message;
  return true;
}

}  // namespace tier::swap
