// See transfer_engine.h for the path of a transfer.
#include "daemon/storage/transfer_engine.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include "daemon/base/check.h"
#include "daemon/base/fault_guard.h"
#include "daemon/storage/checksum.h"
#include "proto/urgency.h"

namespace tier::storage {
namespace {

// On the device or in RAM: it takes more than one command.
bool IsScattered(const Transfer& transfer) { return transfer.extent.scattered || !transfer.memory_runs.empty(); }

// Says nothing about the device: the kernel was short of something for the moment.
bool IsTransient(int error) {
  return error == EAGAIN || error == EINTR || error == EBUSY || error == ENOMEM || error == ECANCELED;
}

void Count(TransferOutcome outcome, DeviceTraffic* traffic) {
  switch (outcome) {
    case TransferOutcome::kDone: return;
    case TransferOutcome::kDeviceError:
    case TransferOutcome::kNoSpace: ++traffic->errors; return;
    case TransferOutcome::kCorrupt: ++traffic->corrupt; return;
    case TransferOutcome::kWindowFault: ++traffic->window_faults; return;
  }
}

}  // namespace

TransferEngine::TransferEngine(const TransferEngineOptions& options, DeviceIo& io, base::Workers& workers,
                               const CompletionSignal& signal)
    : options_(options),
      io_(io),
      workers_(workers),
      signal_(signal),
      windows_(options.windows_max),
      members_(options.inflight_max),
      requests_(options.inflight_max) {
  TIER_CHECK(options.io_depth != 0 && options.io_depth <= kIoDepthMax, "depth {}", options.io_depth);
  TIER_CHECK(options.inflight_max != 0 && options.inflight_max <= kTransfersInflightMax, "{} transfers",
             options.inflight_max);
  TIER_CHECK(options.merge_bytes_max >= kBlockSize && options.merge_bytes_max <= kMergeBytesMax, "merge up to {} bytes",
             options.merge_bytes_max);
  options_.read_bytes_beside_writes_max = std::min(options.read_bytes_beside_writes_max, options.read_bytes_max);
  TIER_CHECK((options.clock == nullptr) == (options.latency == nullptr),
             "device {}: a clock, or what is noted by it, alone", options.device);
  TIER_CHECK(io.inflight_max() > options.io_depth, "{} requests for a depth of {}", io.inflight_max(),
             options.io_depth);
  for (Member& member : members_) {
    member.next = free_members_;
    free_members_ = &member;
  }
  for (Request& request : requests_) free_requests_.PushBack(&request);
  probe_.page.reset(static_cast<std::byte*>(std::aligned_alloc(kPageSize, kPageSize)));
  TIER_CHECK(probe_.page != nullptr, "no page of {} bytes for the probe", kPageSize);
  io_completions_.reserve(io.inflight_max());
  results_.reserve(options.inflight_max);
  base::InstallFaultGuard();
}

TransferEngine::~TransferEngine() {
  TIER_CHECK(inflight_ == 0 && !probe_.under_way, "{} transfers in flight", inflight_);
  // A worker may be between handing over the last request and returning: some instructions, no I/O.
  while (checksums_running_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
}

void TransferEngine::AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin) {
  TIER_CHECK(Value(window) < windows_.size(), "window {} of {}", Value(window), windows_.size());
  Window& entry = windows_[Value(window)];
  TIER_CHECK(entry.address == nullptr && address != nullptr && size != 0, "window {} of {} bytes", Value(window), size);
  entry = {.address = address, .size = size};
  io_.AddWindow(window, address, size, pin);
}

void TransferEngine::RemoveWindow(WindowIndex window) {
  TIER_CHECK(Value(window) < windows_.size(), "window {} of {}", Value(window), windows_.size());
  Window& entry = windows_[Value(window)];
  TIER_CHECK(entry.address != nullptr && entry.inflight == 0, "window {}: {} transfers in flight", Value(window),
             entry.inflight);
  io_.RemoveWindow(window);
  entry = {};
}

void TransferEngine::CheckMemory(const Transfer& t, WindowIndex index, std::span<const std::byte> memory) const {
  TIER_CHECK(Value(index) < windows_.size(), "transfer {}: window {} of {}", t.cookie, Value(index), windows_.size());
  const Window& window = windows_[Value(index)];
  TIER_CHECK(window.address != nullptr && memory.data() >= window.address &&
                 memory.data() + memory.size() <= window.address + window.size &&
                 static_cast<uint64_t>(memory.data() - window.address) % kPageSize == 0,
             "memory at {} + {} of window {}", memory.data() - window.address, memory.size(), Value(index));
}

void TransferEngine::CheckTransfer(const Transfer& t) const {
  TIER_CHECK(inflight_ < options_.inflight_max, "{} transfers in flight", inflight_);
  TIER_CHECK(t.extent.device == options_.device, "device {} for {}", t.extent.device, options_.device);
  CheckExtent(t, options_.place.capacity_bytes);
  uint32_t length = 0;
  ForEachMemoryRun(t, IoBytes(t), [&](WindowIndex index, std::span<const std::byte> memory) {
    CheckMemory(t, index, memory);
    length += static_cast<uint32_t>(memory.size());
  });
  TIER_CHECK(length == IoBytes(t), "{} bytes in {} runs of memory of {}", length, t.memory_runs.size(), IoBytes(t));
}

// The offset is from the start of the device.
TransferPart TransferEngine::NextPart(const Request& request) const {
  const Transfer& first = request.first->transfer;
  if (IsScattered(first)) {  // It is not merged with others.
    TransferPart part = PartAt(first, request.done);
    part.offset += options_.place.data_offset;
    return part;
  }
  return {.offset = request.offset + request.done,
          .length = request.length - request.done,
          .window = request.window,
          .memory = request.memory + request.done};
}

bool TransferEngine::CanMerge(const Request& request, const Transfer& t) const {
  return !IsScattered(t) && !IsScattered(request.first->transfer) && request.direction == t.direction &&
         request.window == t.window && request.memory + request.length == t.memory &&
         request.offset + request.length == options_.place.data_offset + t.extent.run.offset_bytes() &&
         request.length + IoBytes(t) <= options_.merge_bytes_max;
}

TransferEngine::Request* TransferEngine::NewRequest(Member* member) {
  const Transfer& t = member->transfer;
  Request* request = free_requests_.PopFront();
  *request = {.first = member,
              .last = member,
              .direction = t.direction,
              .purpose = t.purpose,
              .window = t.window,
              .memory = t.memory,
              .offset = options_.place.data_offset + t.extent.run.offset_bytes(),
              .length = IoBytes(t),
              .unregistered = member->attempt == Attempt::kUnregistered};
  member->next = nullptr;
  return request;
}

void TransferEngine::FreeRequest(Request* request) {
  request->first = nullptr;
  free_requests_.PushBack(request);
}

void TransferEngine::Start(const Transfer& transfer) {
  CheckTransfer(transfer);
  Member* member = free_members_;
  TIER_CHECK(member != nullptr, "{} transfers in flight", inflight_);
  free_members_ = member->next;
  *member = {.transfer = transfer};
  ++inflight_;
  ForEachMemoryRun(transfer, IoBytes(transfer),
                   [this](WindowIndex window, std::span<const std::byte>) { ++windows_[Value(window)].inflight; });
  ++traffic_.inflight;
  Request* last = started_.back();
  if (last == nullptr || !CanMerge(*last, transfer)) {
    started_.PushBack(NewRequest(member));
    return;
  }
  last->last->next = member;
  last->last = member;
  last->length += IoBytes(transfer);
  last->purpose = std::min(last->purpose, transfer.purpose);
}

void TransferEngine::Submit() {
  Request* writes = nullptr;
  while (!started_.empty()) {
    Request* request = started_.PopFront();
    if (request->direction == Direction::kWrite) {
      request->checksummed_next = writes;
      writes = request;
    }
    Enqueue(request);
  }
  Dispatch();  // The device first: waking a worker takes a while.
  while (writes != nullptr) {
    Request* request = writes;
    writes = request->checksummed_next;
    StartChecksum(request);
  }
}

void TransferEngine::Poll(std::vector<TransferResult>* results) {
  io_completions_.clear();
  io_.Poll(&io_completions_);  // First: it may clear the signal that the workers ring.
  if (inflight_ == 0 && io_completions_.empty()) return;
  if (checksummed_.load(std::memory_order_relaxed) != nullptr) TakeChecksummed();
  for (const IoCompletion& completion : io_completions_) {
    if (completion.token == requests_.size()) {
      OnProbeCompletion(completion.result);
    } else {
      OnIoCompletion(completion);
    }
  }
  Dispatch();
  results->insert(results->end(), results_.begin(), results_.end());
  inflight_ -= static_cast<uint32_t>(results_.size());
  results_.clear();
}

// ---- checksums

void TransferEngine::StartChecksum(Request* request) {
  if (request->length > options_.inline_bytes_max) {
    checksums_running_.fetch_add(1, std::memory_order_relaxed);
    if (workers_.TryPost([this, request] {
          ComputeChecksums(request);
          PushChecksummed(request);
          proto::GiveWay();
        })) {
      return;
    }
    checksums_running_.fetch_sub(1, std::memory_order_relaxed);
  }
  ComputeChecksums(request);  // Too small for a worker's wake-up, or the workers have more than they can hold.
  OnChecksummed(request);
}

void TransferEngine::ComputeChecksums(Request* request) {
  for (Member* member = request->first; member != nullptr; member = member->next) {
    const Transfer& t = member->transfer;
    member->faulted = !base::RunGuarded([member, &t] {
      member->crc = 0;
      ForEachMemoryRun(t, t.length, [member](WindowIndex, std::span<const std::byte> bytes) {
        member->crc = Crc32c(bytes, member->crc);
      });
    });
  }
}

void TransferEngine::PushChecksummed(Request* request) {
  Request* head = checksummed_.load(std::memory_order_relaxed);
  do {
    request->checksummed_next = head;
  } while (!checksummed_.compare_exchange_weak(head, request, std::memory_order_release, std::memory_order_relaxed));
  if (head == nullptr) signal_.Signal();
  checksums_running_.fetch_sub(1, std::memory_order_release);  // The last touch: the engine may now be destroyed.
}

void TransferEngine::TakeChecksummed() {
  Request* newest = checksummed_.exchange(nullptr, std::memory_order_acquire);
  Request* oldest = nullptr;
  while (newest != nullptr) {  // Back into the order the workers finished in.
    Request* next = newest->checksummed_next;
    newest->checksummed_next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    Request* request = oldest;
    oldest = request->checksummed_next;
    OnChecksummed(request);
  }
}

void TransferEngine::OnChecksummed(Request* request) {
  request->checksummed = true;
  if (request->device_ended) Settle(request);
}

// Right at the first reading: done. Wrong through the mapping too: the extent is corrupt. Right only through the
// mapping: either the first reading went wrong on its way, or the registration is not the window's memory; a third
// reading through it, over memory that is wrong for certain, tells which.
void TransferEngine::VerifyRead(Member* member) {
  const Transfer& t = member->transfer;
  const bool right = member->crc == t.crc;
  if (member->attempt == Attempt::kFirst) {
    return right ? Finish(member, TransferOutcome::kDone, 0) : ReadAgain(member, Attempt::kUnregistered);
  }
  if (member->attempt == Attempt::kProof) {
    return right ? Finish(member, TransferOutcome::kDone, 0) : Finish(member, TransferOutcome::kWindowFault, EFAULT);
  }
  if (!right) return Finish(member, TransferOutcome::kCorrupt, 0);
  bool registered = false;
  ForEachMemoryRun(t, t.length, [&](WindowIndex window, std::span<const std::byte>) {
    registered = registered || io_.registered(window);
  });
  if (!registered) return Finish(member, TransferOutcome::kDone, 0);
  if (!Scrub(t)) return Finish(member, TransferOutcome::kWindowFault, EFAULT);
  ReadAgain(member, Attempt::kProof);
}

void TransferEngine::ReadAgain(Member* member, Attempt attempt) {
  TIER_CHECK(attempt > member->attempt, "attempt {} after {}", static_cast<int>(attempt),
             static_cast<int>(member->attempt));
  member->attempt = attempt;
  ++traffic_.retries;
  Enqueue(NewRequest(member));
}

// ---- the device

TransferEngine::Request* TransferEngine::TakeNext() {
  if (requests_inflight_ >= options_.io_depth) return nullptr;
  const bool writes = write_bytes_ != 0 || waiting_.any_write();
  const uint64_t reads_max = writes ? options_.read_bytes_beside_writes_max : options_.read_bytes_max;
  return waiting_.Pop(read_bytes_ < reads_max, write_bytes_ < options_.write_bytes_max);
}

void TransferEngine::Dispatch() {
  bool any = false;
  while (Request* const request = TakeNext()) {
    TIER_CHECK(request->done < request->length, "{} of {} bytes done", request->done, request->length);
    const TransferPart part = NextPart(*request);
    request->started_at = Now();
    io_.Start({.token = static_cast<uint64_t>(request - requests_.data()),
               .direction = request->direction,
               .window = part.window,
               .memory = part.memory,
               .offset = part.offset,
               .length = part.length,
               .unregistered = request->unregistered});
    ++requests_inflight_;
    InflightBytes(request->direction) += part.length;
    ++(request->direction == Direction::kRead ? traffic_.read_requests : traffic_.write_requests);
    any = true;
  }
  if (any) io_.Submit();
}

void TransferEngine::OnIoCompletion(const IoCompletion& completion) {
  TIER_CHECK(completion.token < requests_.size(), "token {} of {}", completion.token, requests_.size());
  Request* request = &requests_[completion.token];
  TIER_CHECK(requests_inflight_ != 0 && request->first != nullptr, "request {}: {} in flight", completion.token,
             requests_inflight_);
  --requests_inflight_;
  const uint32_t length = NextPart(*request).length;
  InflightBytes(request->direction) -= length;
  NoteLatency(*request, static_cast<uint32_t>(std::max(completion.result, 0)));
  if (completion.result < 0) {
    OnIoError(request, -completion.result);
    return;
  }
  const auto moved = static_cast<uint32_t>(completion.result);
  TIER_CHECK(moved <= length, "{} bytes moved of {}", moved, length);
  (request->direction == Direction::kRead ? traffic_.read_bytes : traffic_.written_bytes) += moved;
  if (moved == length) {
    request->done += moved;
    if (request->done == request->length) return EndDevicePart(request, 0);
    return waiting_.PushBegun(request);  // The next run.
  }
  // Direct I/O goes on at a page boundary; less than a page of progress is the end of a file cut short beneath us.
  const auto pages = static_cast<uint32_t>(moved / kPageSize * kPageSize);
  if (pages == 0) {
    EndDevicePart(request, EIO);
    return;
  }
  request->done += pages;
  ++traffic_.retries;
  waiting_.PushBegun(request);
}

void TransferEngine::NoteLatency(const Request& request, uint32_t moved) {
  if (options_.latency == nullptr) return;
  options_.latency->Note(request.direction, request.purpose, Now() - request.started_at, moved);
}

void TransferEngine::OnIoError(Request* request, int error) {
  if (!IsTransient(error) || request->tries_again >= kTriesAgainMax) {
    EndDevicePart(request, error);
    return;
  }
  ++request->tries_again;
  ++traffic_.retries;
  Enqueue(request);  // Behind the others, also when it was begun: what is short may be there by then.
}

void TransferEngine::EndDevicePart(Request* request, int error) {
  request->device_ended = true;
  request->error = error;
  if (request->direction == Direction::kRead && error == 0) {
    StartChecksum(request);
  } else if (request->direction == Direction::kRead || request->checksummed) {
    Settle(request);
  }
}

// ---- the probe. Its token is the one after the last request's.

void TransferEngine::Probe(uint16_t device) {
  TIER_CHECK(device == options_.device && !probe_.under_way && !probe_.result, "a probe of device {} on {}", device,
             options_.device);
  probe_.under_way = true;
  probe_.second_place = false;
  StartProbe();
}

void TransferEngine::StartProbe() {
  const uint64_t middle = options_.place.capacity_bytes / 2 / kPageSize * kPageSize;
  io_.Start({.token = requests_.size(),
             .direction = Direction::kRead,
             .window = kNoWindow,
             .memory = probe_.page.get(),
             .offset = probe_.second_place ? options_.place.data_offset + middle : 0,
             .length = static_cast<uint32_t>(kPageSize),
             .unregistered = true});
  io_.Submit();
}

void TransferEngine::OnProbeCompletion(int32_t result) {
  const bool transient = result < 0 && IsTransient(-result);
  if (result == static_cast<int32_t>(kPageSize) || probe_.second_place || transient) {
    const int error = transient ? EAGAIN : result < 0 ? -result : result < static_cast<int32_t>(kPageSize) ? EIO : 0;
    probe_.under_way = false;
    probe_.result = ProbeResult{.device = options_.device, .error_number = error};
    return;
  }
  probe_.second_place = true;  // The first may be a bad place.
  StartProbe();
}

void TransferEngine::TakeProbed(std::vector<ProbeResult>* results) {
  if (!probe_.result) return;
  results->push_back(*probe_.result);
  probe_.result.reset();
}

// ---- results

void TransferEngine::Settle(Request* request) {
  const Request ended = *request;
  FreeRequest(request);  // First: members that go on need requests of their own.
  for (Member* member = ended.first; member != nullptr;) {
    Member* next = member->next;
    SettleMember(ended, member);
    member = next;
  }
}

void TransferEngine::SettleMember(const Request& ended, Member* member) {
  if (member->faulted) {
    Finish(member, TransferOutcome::kWindowFault, EFAULT);
  } else if (ended.error != 0) {
    SettleFailed(ended, member);
  } else if (ended.direction == Direction::kRead) {
    VerifyRead(member);
  } else {
    Finish(member, TransferOutcome::kDone, 0);
  }
}

void TransferEngine::SettleFailed(const Request& ended, Member* member) {
  const bool alone = ended.first == ended.last;
  if (ended.error == ENOSPC || ended.error == EDQUOT) {
    Finish(member, TransferOutcome::kNoSpace, ended.error, alone ? ended.done : 0);
  } else if (ended.error == EFAULT && alone) {
    Finish(member, TransferOutcome::kWindowFault, ended.error);
  } else if (ended.retried) {
    Finish(member, TransferOutcome::kDeviceError, ended.error, ended.done);
  } else {
    Request* single = NewRequest(member);
    single->retried = true;
    single->checksummed = ended.checksummed;
    ++traffic_.retries;
    Enqueue(single);
  }
}

void TransferEngine::Finish(Member* member, TransferOutcome outcome, int error, uint32_t failed_at) {
  const Transfer& t = member->transfer;
  ForEachMemoryRun(t, IoBytes(t), [this](WindowIndex index, std::span<const std::byte>) {
    Window& window = windows_[Value(index)];
    TIER_CHECK(window.inflight != 0 && traffic_.inflight != 0, "window {}: {}, in all: {}", Value(index),
               window.inflight, traffic_.inflight);
    --window.inflight;
  });
  --traffic_.inflight;
  Count(outcome, &traffic_);
  results_.push_back({.cookie = t.cookie,
                      .outcome = outcome,
                      .crc = member->crc,
                      .error_number = error,
                      .device_offset = options_.place.data_offset + PartAt(t, failed_at).offset,
                      .failed_at = failed_at});
  member->next = free_members_;
  free_members_ = member;
}

DeviceTraffic TransferEngine::traffic(uint16_t device) const {
  TIER_CHECK(device == options_.device, "device {} for {}", device, options_.device);
  return traffic_;
}

LatencyByPurpose TransferEngine::latency(uint16_t device) const {
  TIER_CHECK(device == options_.device, "device {} for {}", device, options_.device);
  return options_.latency == nullptr ? LatencyByPurpose{} : options_.latency->Read();
}

}  // namespace tier::storage
