// CopyOperation: one swap under way, as a state machine. Opening: does the tensor exist, and how large is it?
// Streaming: several ranges are requested ahead, so that I/O and copying overlap. Then confirming or undoing, where
// there is something to confirm or undo.
//
// A swap-in of a whole tensor in several ranges delivers one content of it: each grant tells the number of the content
// (proto/message.h). If they differ, the swap gives everything back and begins again, until its timeout has passed.
// So does every swap-in that the daemon refuses a range because a writer waits for ranges that this swap leases, and
// one that RAM has no room for a range of: with ranges of half the length then, down to a block.
//
// A swap-out of a whole tensor that finds another tensor at its first range than it was told of begins again too:
// others may create, free and replace it.
//
// It has no thread and no lock: the CopyScheduler advances it. Thread: one at a time, under the scheduler's lock,
// except in Copy(), which works on one claimed chunk without it.
// Invariants: chunks_ is in tensor order; reserved_bytes() is the sum of the chunks that are not copied yet, and what
//   the host has reserved for it; after a failure no lease of the operation is sealed any more: what was copied into is
//   abandoned.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libclient/client/session.h"
#include "libclient/swap/copy_request.h"
#include "libclient/swap/device_copy.h"
#include "libclient/swap/operation.h"
#include "libclient/swap/range_copy.h"

namespace tier::swap {

// What a swap needs from the scheduler that runs it.
class CopyHost {
 public:
  virtual client::Session& session() = 0;
  virtual uint64_t range_bytes() const = 0;
  // Null when there is no room now: the swap tries again in a later turn.
  virtual Result<client::Pending*> TrySubmit(const client::Submission& submission) = 0;
  // Whether the byte budget of all swaps has room for a range of so many bytes.
  virtual bool FitsBudget(uint64_t bytes) const = 0;
  virtual void Reserve(uint64_t bytes) = 0;
  virtual void Unreserve(uint64_t bytes) = 0;
  // Takes over a request whose answer the swap does not wait for.
  virtual void Abandon(client::Pending* pending, const client::Submission& submission) = 0;

 protected:
  ~CopyHost() = default;
};

class CopyOperation {
 public:
  // `device`: null when the request's memory is host memory. The host outlives the operation.
  CopyOperation(CopyHost& host, const CopyRequest& request, std::unique_ptr<DevicePort> device)
      : host_(host),
        session_(host.session()),
        request_(request),
        device_(std::move(device)),
        range_bytes_(host.range_bytes()) {}
  CopyOperation(const CopyOperation&) = delete;
  CopyOperation& operator=(const CopyOperation&) = delete;

  struct Chunk {  // One range and its state.
    enum class State { kAsked, kGranted, kCopying, kOnDevice, kCopied };
    Range range;
    State state = State::kAsked;
    client::Pending* pending = nullptr;
    client::Lease* lease = nullptr;
    bool in_port = false;  // A thread is in the device port for it.
    bool touched = false;  // Its copy has begun.
    RangeOutcome outcome;
    cuda::Event event;
  };

  const CopyRequest& request() const { return request_; }
  bool ended() const { return stage_ == Stage::kDone; }
  // REQUIRES: ended().
  Result<Outcome> outcome() const;
  // Asks that the swap end early. Nothing is undone if every byte was sealed already.
  void Cancel();
  // Takes the answers that have come, and sends further requests. True when the operation has ended.
  bool Advance();
  // A chunk for the caller to copy; null when there is none, or a thread is in the device port already.
  Chunk* Claim();
  // The oldest chunk that a device is copying, for the caller to await by Copy(); null when there is none.
  Chunk* ClaimOnDevice();
  // Moves the bytes of a claimed chunk. Without the lock.
  Status Copy(Chunk& chunk);
  // To be called after Copy(). `started_on_device`: the device is still copying.
  void Copied(Chunk& chunk, const Status& status, bool started_on_device);
  uint64_t reserved_bytes() const;

 private:
  enum class Stage { kOpening, kStreaming, kConfirming, kUndoing, kDone };
  // What a swap does with the tensor: known from the start, or once the daemon has said which tensor there is.
  enum class Goal {
    kRead,
    kCreate,
    kOverwrite,   // In place, whole or in part.
    kRepairTorn,  // Overwrites the whole of a TORN tensor; ends when every session sees it valid.
    kReplace,     // Creates a tensor in the place of one that cannot be overwritten.
  };
  // The state that a failure would leave at the daemon, and the bytes that are lost with it.
  struct Undo {
    enum class Left {
      kNothing,        // No trace of this swap, unless a refused replacement removed the old tensor.
      kCreated,        // A tensor that is not whole: freed.
      kPartlyWritten,  // New bytes beside old ones: marked TORN.
      kUndecided,      // The replacement was cancelled before the daemon answered: it may still take place.
    };
    Left left = Left::kNothing;
    uint64_t bytes_lost = 0;  // Size of the valid tensor that a replacement removes.
  };

  bool creates() const { return goal_ == Goal::kCreate || goal_ == Goal::kReplace; }
  uint64_t end() const { return request_.offset + request_.tensor_bytes(); }
  // A swap-in of several ranges, between which others may write.
  bool reads_in_parts() const {
    return request_.direction == Direction::kIn &&
           NextRange(request_, request_.offset, range_bytes_).length < request_.tensor_bytes();
  }
  // Not for a part of a tensor: others may write the rest of it all the time.
  bool reads_one_content() const { return request_.whole && reads_in_parts(); }
  // Whether the daemon is to refuse the range at once where leases of this client are in its way: of the first, when
  // none of them is the swap's own.
  bool FailsOverOwn(const Chunk& chunk) const {
    return (request_.flags & proto::kFlagNoWaitOwn) != 0 && chunk.range.offset == request_.offset;
  }
  client::RewrittenRange whole_range() const { return {request_.offset, request_.tensor_bytes()}; }

  void Open();
  void TakeFirstStat();
  void CheckContent(uint64_t content);
  bool MayReadAgain();
  bool MayOpenAgain(Code code);
  bool MayReadInLess(const Chunk& refused, Code code);
  bool ReadAgain();
  client::Pending* Ask(proto::Op op);
  client::Submission SubmissionFor(const Chunk& chunk, proto::RequestItem* item) const;
  bool AskForChunk();
  void AskForChunks();
  void TakeAnswers();
  bool TakeAnswer(Chunk& chunk);
  Status CopyThrough(Chunk& chunk, std::span<const Segment> segments);
  Result<std::vector<Segment>> SegmentsOf(const client::Lease& lease) const;
  bool IsLast(const Chunk& chunk) const;
  void GiveBack(Chunk& chunk);
  void AddUpCopied();
  void Confirm();
  void Abort(Error error);
  bool Unwind();
  bool DropChunks(bool await_answers);
  void DropChunk(Chunk& chunk);
  void StartUndo();
  void SendUndo();
  bool TakeUndo();
  std::string Loss() const;

  CopyHost& host_;
  client::Session& session_;
  const CopyRequest request_;
  const std::unique_ptr<DevicePort> device_;
  uint64_t range_bytes_;
  Stage stage_ = Stage::kOpening;
  std::optional<Goal> goal_;
  Undo undo_;
  // The request, other than those of chunks, whose answer the stage waits for: a stat (opening, confirming), or one
  // that undoes.
  client::Pending* control_ = nullptr;
  bool granted_ = false;             // A range was granted in this attempt.
  std::optional<uint64_t> content_;  // Of its first grant. Only where one content is read.
  bool reading_again_ = false;       // The leases of the last attempt are being released.
  int openings_ = 1;
  std::optional<client::Clock::time_point> read_again_until_;  // Since the first attempt failed.
  std::deque<Chunk> chunks_;
  uint64_t next_ = 0;  // First byte of the tensor that is not requested yet.
  std::optional<Error> error_;
  Outcome outcome_;
};

}  // namespace tier::swap
