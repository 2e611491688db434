// Tensor: an id in a namespace of a job, a size, and the list of its pieces. Engine thread only.
//
// A one-piece tensor costs a Tensor, a Piece and a table entry, nothing else. Pieces are made when a range that holds
// them is first leased, so that a tensor of terabytes is created at once. A tensor that was freed while it has leases
// or transfers is *detached*: its id may be used again, its pieces are freed when the last lease or transfer ends.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/tiering/tables/piece.h"
#include "daemon/tiering/tables/sparse_arrays.h"
#include "proto/units.h"

namespace tier::tiering {

enum class JobIndex : uint32_t {};
inline constexpr JobIndex kNoJob{UINT32_MAX};
constexpr uint32_t Value(JobIndex index) { return static_cast<uint32_t>(index); }

// Tensor::flags.
inline constexpr uint16_t kVisible = 1u << 0;   // Every byte was sealed once.
inline constexpr uint16_t kDetached = 1u << 1;  // Freed; no longer in the table.
inline constexpr uint16_t kUnnamed = 1u << 2;   // Waits to take another's place (replace.h); in no table, no namespace.
inline constexpr uint16_t kSwapping = 1u << 3;  // A session has an unfinished swap_out over it (update_table.h).
inline constexpr uint16_t kAwaitedTensor = 1u << 4;  // A request waits or waited at it or a piece of it (WaitTable).
inline constexpr uint16_t kPartlySealed = 1u << 5;   // Not visible, and some ranges were sealed (TensorSlab).
inline constexpr uint16_t kSharded = 1u << 6;  // Created as sharded: sessions divide it, step by step (update_table.h).
inline constexpr uint16_t kKeepsRoom = 1u << 7;  // Detached, and counted among its job's tensors until leases end.
inline constexpr uint16_t kTransient = 1u << 8;  // A persist that names no tensors leaves it out.

enum class UpdateListIndex : uint32_t {};
inline constexpr UpdateListIndex kNoUpdateList{UINT32_MAX};

struct Tensor {
  JobIndex job = kNoJob;
  uint64_t space = 0;  // 0: the job's shared namespace, else the session it belongs to.
  uint64_t id = 0;
  uint64_t size = 0;       // Bytes, > 0.
  uint64_t creator = 0;    // Session, until it is visible.
  uint64_t content = 0;    // Of which number its bytes are (proto/message.h). Only the TensorSlab changes it.
  SparseArray pieces;      // PieceId + 1 of each made piece. Only the TensorSlab reads and changes it.
  uint32_t ram_pages = 0;  // In RAM, of all its pieces.
  uint32_t ssd_pages = 0;  // Of their extents. Only pieces/residency changes the two counts.
  uint32_t piece_count = 0;
  uint32_t generation = 0;
  uint32_t salt = 0;  // Rises when the tensor is detached, so that each TensorRef to it is stale.
  uint32_t lease_count = 0;
  uint32_t transfer_count = 0;   // Pieces on their way to or from a device.
  uint32_t torn_count = 0;       // Torn pieces, and one for a broken update; if not 0 it answers TORN.
  TensorIndex next = kNoTensor;  // In its namespace.
  TensorIndex previous = kNoTensor;
  UpdateListIndex updates = kNoUpdateList;  // Only the UpdateTable changes it.
  uint16_t flags = 0;

  bool has(uint16_t flag) const { return (flags & flag) != 0; }
  void set(uint16_t flag) { flags = static_cast<uint16_t>(flags | flag); }
  void clear(uint16_t flag) { flags = static_cast<uint16_t>(flags & ~flag); }
  bool torn() const { return torn_count != 0; }
  uint32_t piece_length(uint32_t number) const {
    return static_cast<uint32_t>(std::min<uint64_t>(kBlockSize, size - uint64_t{number} * kBlockSize));
  }
};

// The most separate ranges, sealed or under leases, in which a tensor may be created. A range that touches a sealed one
// is always granted.
inline constexpr uint64_t kCreationRangesMax = uint64_t{1} << 16;

// Names a tensor from queues that do not keep it alive.
struct TensorRef {
  TensorIndex index = kNoTensor;
  uint32_t salt = 0;

  bool operator==(const TensorRef&) const = default;
};

// Bounds the piece list of one tensor: 4 Mi pieces are 8 TiB.
inline constexpr uint64_t kPiecesPerTensorMax = uint64_t{1} << 22;

constexpr uint64_t PieceCountOf(uint64_t size) { return (size + kBlockSize - 1) / kBlockSize; }
// Pages that all its pieces take in RAM, or on a device.
constexpr uint64_t PagesOf(uint64_t size) { return PagesFor(size); }

}  // namespace tier::tiering
