// CopyOperation: one swap under way, as a state machine: opening (does the tensor exist, how large is it), streaming
// (several ranges asked for ahead, so that I/O and copying overlap), settling, done.
//
// Threads: everything but Copy() runs under the crew's lock; Copy() works on one claimed range without it.
// Invariants: ranges_ is in tensor order; bytes of ranges not yet finished are counted in the crew's budget;
//   after a failure no lease of the operation is sealed any more: what was copied into is abandoned.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "libclient/client/session.h"
#include "libclient/swap/copy_request.h"
#include "libclient/swap/device_copy.h"
#include "libclient/swap/operation.h"
#include "libclient/swap/range_copy.h"

namespace tier::swap {

class CopyCrew;

class CopyOperation final : public Operation, public std::enable_shared_from_this<CopyOperation> {
 public:
  CopyOperation(std::shared_ptr<CopyCrew> crew, const CopyRequest& request, std::unique_ptr<DevicePort> device);

  bool done() override;
  bool Wait(std::chrono::steady_clock::time_point deadline) override;
  Result<Outcome> Take() override;
  void Cancel() override;

  // ---- For the crew, under its lock ----
  struct Piece {  // One range and what has become of it.
    enum class State { kAsked, kGranted, kCopying, kOnDevice, kCopied };
    Range range;
    State state = State::kAsked;
    client::Pending* pending = nullptr;
    client::Lease* lease = nullptr;
    bool in_port = false;  // A thread is in the device port for it.
    bool touched = false;  // Its copy was begun.
    RangeOutcome outcome;
    cuda::Event event;
  };
  const CopyRequest& request() const { return request_; }
  bool ended() const { return stage_ == Stage::kDone; }
  // Takes in what was answered, asks for more. True when the operation has ended.
  bool Advance();
  // A range to copy, now the caller's; null when there is none, or a thread is in the device port already.
  Piece* Claim();
  // Moves the bytes of a claimed range. Without the lock.
  Status Copy(Piece& piece);
  void Copied(Piece& piece, const Status& status, bool started_on_device);
  // The oldest copy that a device is at, now the caller's to wait for with Copy(); null when there is none.
  Piece* ClaimOnDevice();

 private:
  enum class Stage { kQueued, kLooking, kCreating, kStreaming, kSettling, kUndoing, kDone };

  void Begin();
  client::Pending* Ask(proto::Op op);
  void TakeOpening();
  void TakeLook();
  void Create();
  void TakeCreate();
  void TakeSizeCheck();
  void AskForRanges();
  void TakeRanges();
  bool TakeRange(Piece& piece);
  void Finish(Piece& piece);
  void Retire();
  void Settle();
  void Abort(Error error);
  bool Unwind();
  void Undo();
  void SendUndo();
  bool TakeUndo();
  std::string Loss() const;
  client::RewrittenRange whole_range() const { return {request_.offset, request_.tensor_bytes()}; }
  void DropPiece(Piece& piece);
  Result<std::vector<Segment>> SegmentsOf(const client::Lease& lease) const;
  client::Submission SubmissionFor(const Piece& piece, proto::RequestItem* item) const;

  std::shared_ptr<CopyCrew> crew_;
  client::Session& session_;
  const CopyRequest request_;
  std::unique_ptr<DevicePort> device_;
  Stage stage_ = Stage::kQueued;
  client::Pending* opening_ = nullptr;   // Stat before a swap-out.
  client::Pending* check_ = nullptr;     // Stat of a swap-in, in parallel to its first ranges.
  client::Pending* settling_ = nullptr;  // Stat behind the ranges of one that mends a torn tensor.
  client::Pending* undo_ = nullptr;      // Tear of what it leaves, or stat of what it was to replace.
  std::deque<Piece> ranges_;
  uint64_t next_ = 0;       // First byte of the tensor that is not asked for yet.
  bool mends_ = false;      // The tensor that it overwrites whole is TORN.
  bool replaces_ = false;   // There is a tensor of that name that cannot be overwritten.
  uint64_t loses_ = 0;      // The bytes of that one, if it was whole.
  bool undecided_ = false;  // Given up while the daemon had not answered whether that one is replaced.
  bool created_ = false;
  bool sealed_some_ = false;  // A range has been given back as final.
  bool cancelled_ = false;
  std::optional<Error> error_;
  Outcome outcome_;
};

}  // namespace tier::swap
