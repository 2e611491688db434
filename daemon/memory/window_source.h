// WindowSource: where the engine gets windows from. The real one (memory::Arena) makes memfds, prefaults and binds them
// on worker threads; the simulator's gives plain buffers at scripted times.
//
// Engine thread only. A window belongs to one owner from StartCreate to Retire and is zeroed memory when it arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/time.h"
#include "proto/mapping.h"
#include "proto/result.h"
#include "proto/units.h"
#include "proto/window_kind.h"

namespace tier::memory {

enum class OwnerId : uint32_t {};

inline constexpr int kAnyNode = -1;  // Else the number of a NUMA node.

// What a client must know of a window to map it.
struct WindowShape {
  WindowIndex index{};
  WindowKind kind = WindowKind::kBlock;
  uint32_t page_size = 0;  // 4096, or 2 MiB (whole blocks only).
  int node = kAnyNode;     // Of its first page, where the host has several.
  uint64_t size = 0;       // Bytes, a power of two.
  uint64_t place = 0;      // Byte offset in the clients' address space, a multiple of the size.
};

struct WindowSizes {  // Bytes: powers of two, multiples of kBlockSize.
  uint64_t least = 0;
  uint64_t most = 0;
};

// Of what a job holds the sizes of its windows are a part.
struct WindowHolder {
  uint64_t kind_bytes = 0;  // In windows of the kind in question, with what it needs now.
  uint64_t all_bytes = 0;   // In windows of all kinds, with that.
};

struct WindowWishes {  // Bytes: powers of two.
  uint64_t next = 0;   // Of the next window. Where a job may not have so much, it starts a smaller one.
  // Windows of a quarter of this or less should be merged into one of this size. 0: none need be.
  uint64_t merged = 0;
};

struct StartedWindow {
  WindowIndex index{};
  uint64_t size = 0;  // Bytes.
};

struct WindowEvent {
  WindowShape window;  // With code != kOk only its index, kind and size are set.
  OwnerId owner{};
  Code code = Code::kOk;         // Not kOk: the window could not be made and its index is free again.
  std::string message;           // With code != kOk.
  std::byte* address = nullptr;  // In the daemon.
};

// A window that was retired while another process could still use it, and which one still has open or mapped.
struct KeptWindow {
  OwnerId owner{};
  std::vector<uint64_t> sessions;  // NoteUnreturned.
  std::vector<uint64_t> asked;     // NoteAsked.
  uint64_t number = 0;             // NumberOf.
  bool owed = false;               // NoteOwed.
  base::TimePoint since;           // When it was retired.
  uint64_t bytes = 0;              // Of the window. Of these the process may have some pinned: nothing tells.
  uint64_t refilled_bytes = 0;     // Found in it again in the last look, and punched out.
  uint32_t refills = 0;            // Looks that found some.
};

class WindowSource {
 public:
  virtual ~WindowSource() = default;
  // Bytes of windows of this kind: constant for the daemon's life. The smallest slot window is not larger than the
  // smallest block window, and the largest one not than the largest.
  virtual WindowSizes window_sizes(WindowKind kind) const = 0;
  // The sizes that windows of such a job should have now, as there are only so many indices.
  virtual WindowWishes wishes(const WindowHolder& job) const = 0;
  bool wants_merges() const { return wishes({UINT64_MAX, UINT64_MAX}).merged != 0; }  // Of any job.
  virtual uint32_t windows_max() const = 0;                                           // Indices are below this.
  virtual uint32_t free_indices() const = 0;       // So many windows can be had before one is retired.
  virtual uint64_t arena_limit_bytes() const = 0;  // What all windows together may ever reach; constant.
  // Places are below this; constant for the daemon's life.
  virtual uint64_t address_space_bytes() const = 0;
  virtual uint64_t arena_max_bytes() const = 0;  // What all windows together may reach now (falls under host pressure).
  virtual uint64_t arena_bytes() const = 0;      // Of windows made or being made.
  virtual uint64_t stock_bytes() const { return 0; }  // The same of those that are made ahead of need: no job has them.
  // Whether slots may lie in block windows that are started now, because these will have small pages. An expectation:
  // the window's page size says what came.
  virtual bool block_windows_take_slots() const = 0;
  // Huge pages are on their way back: a block window that is refused now may be had when they have come
  // (TakeRoomFreed).
  virtual bool block_windows_come() const { return false; }
  // Starts making a window of so many bytes; the event comes by Poll. It may be smaller, where one is ready or there is
  // no place for a larger one. It comes from this NUMA node where that has memory left, else from another. NO_MEMORY
  // with figures at the arena's maximum or host reserve. REQUIRES: a power of two within window_sizes.
  virtual Result<StartedWindow> StartCreate(OwnerId owner, WindowKind kind, uint64_t size_bytes, int node) = 0;
  // Closes a window; its place may be given to another at once. REQUIRES: ready, no I/O in flight on it, unregistered
  // from every device, mapped by no session but those of NoteUnreturned.
  virtual void Retire(WindowIndex window) = 0;
  // A session has not returned this window, which is going to be retired all the same. REQUIRES: ready.
  virtual void NoteUnreturned(WindowIndex, uint64_t) {}
  // The number of this window, which no other one has, before or after it: indices are used again. REQUIRES: ready.
  virtual uint64_t NumberOf(WindowIndex) { return 0; }
  // A session has returned the window of that index and number after all, retired or not.
  virtual void StrikeUnreturned(WindowIndex, uint64_t /*number*/, uint64_t /*session*/) {}
  // It was asked back for a job that is owed memory within its promise. REQUIRES: ready.
  virtual void NoteOwed(WindowIndex) {}
  // A session that maps it was asked for it. REQUIRES: ready.
  virtual void NoteAsked(WindowIndex, uint64_t) {}
  // Others map the window now: who does not return it is not known any more. REQUIRES: ready.
  virtual void ClearUnreturned(WindowIndex) {}
  // All retired windows that other processes still have, by a look that ended since the last call. False: none did. A
  // source whose windows no client maps has none.
  virtual bool TakeKept(std::vector<KeptWindow>*) { return false; }
  // Appends what has finished since the last call; never blocks.
  virtual void Poll(std::vector<WindowEvent>* events) = 0;
  // True once: StartCreate was refused for want of an index or of huge pages that were on their way back, or while
  // windows were made ahead of need, and Poll has freed or brought some since.
  virtual bool TakeRoomFreed() { return false; }
  // The memfd to hand to clients: shared with the packets that carry it, so that handing it over needs no further
  // descriptor and cannot fail. Null in simulations.
  virtual std::shared_ptr<const proto::FileDescriptor> Descriptor(WindowIndex window) const = 0;
};

}  // namespace tier::memory
