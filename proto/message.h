// The messages on a session's two rings: what a client asks (Request…) and what the daemon answers (Completion…).
//
// Rings are arrays of 64-byte entries (proto/ring.h). A message takes one entry, or several consecutive ones: the first
// holds a 32-byte header and the first 32-byte record; each further entry holds two more records. Text (string keys,
// error details) is stored as bytes in place of records. The reader copies a message out of shared memory *before* it
// looks at any field, and trusts none of them. All integers are little-endian; reserved fields are zero and checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/codes.h"

namespace tier::proto {

inline constexpr uint32_t kEntrySize = 64;
inline constexpr uint32_t kRequestEntries = 1024;                  // 64 KiB per session.
inline constexpr uint32_t kCompletionEntries = 8192;               // 512 KiB per session.
inline constexpr uint32_t kRequestEntriesPerMessageMax = 512;      // 1,023 items.
inline constexpr uint32_t kCompletionEntriesPerMessageMax = 4096;  // 8,191 spans: 16 GiB even if no two blocks touch.
inline constexpr uint32_t kRequestsOutstandingMax = 1024;          // Per session; beyond it the daemon stops reading.
inline constexpr uint32_t kItemsPerRequestMax = 2 * (kRequestEntriesPerMessageMax - 1) + 1;
inline constexpr uint32_t kSpansPerCompletionMax = 2 * (kCompletionEntriesPerMessageMax - 1) + 1;
inline constexpr uint32_t kKeyLengthMax = 1024;              // Bytes of a string key (UTF-8, no NUL).
inline constexpr uint32_t kDetailLengthMax = 2048;           // Bytes of an error's sentence.
inline constexpr uint32_t kTimeoutDefault = 0;               // timeout_ms: the daemon's default (60 s).
inline constexpr uint32_t kTimeoutMaxMs = 24 * 3600 * 1000;  // timeout_ms: longer ones are taken as a day.

enum class Op : uint16_t {
  kNone = 0,      // Never sent; a zeroed entry is refused.
  kCreate = 1,    // items: tensor, [offset,length) of the first range, value = size in bytes. Grants write leases.
  kAcquire = 2,   // items: tensor, [offset,length) (length 0 = to the end). kFlagWrite for exclusive.
  kRelease = 3,   // items: value = lease. A released write lease is *sealed*; with kFlagAbandon it is given up.
  kFree = 4,      // items: tensor.
  kPrefetch = 5,  // items: tensor, [offset,length). Answered when queued, not when there.
  kStep = 6,      // argument: step number, or ~0 = one more. Marks: all sealed so far belongs to finished steps.
  kPersist = 7,   // items: tensors, none = all of the job but transient ones. One manifest, atomically.
  kFlush = 8,     // items: tensors, none = all of the session, and those inherited or shared that no session writes.
                  // Answered when each piece has an SSD copy.
  kAccept = 9,    // items: tensor. Accepts a TORN tensor as it stands.
  kIntern = 10,   // text: a string key; completion.value = its 64-bit id in the job's table. Never 0.
  kStat = 11,     // items: tensor; answered with one TensorRecord.
  kDrop = 12,     // items: tensors, none = all of the session and what it inherited. Drops RAM copies of clean pieces
                  // (tests, benchmarks, `evict` hints).
  kTear = 13,     // items: tensor, [offset,length). Marks it TORN as it stands, for a writer that ends in the middle.
};
inline constexpr uint16_t kOpCount = 14;

inline constexpr uint32_t kFlagWrite = 1u << 0;      // Acquire: exclusive.
inline constexpr uint32_t kFlagShared = 1u << 1;     // Tensor ids are in the job-wide namespace.
inline constexpr uint32_t kFlagAbandon = 1u << 2;    // Release: contents are not final; revert or tear the pieces.
inline constexpr uint32_t kFlagNoWaitOwn = 1u << 3;  // Acquire/create/free: fail at once if only own leases block it.
inline constexpr uint32_t kFlagDiscard = 1u << 4;    // Acquire write: old bytes are not needed, do not read them back.
inline constexpr uint32_t kFlagNoWait = 1u << 5;     // Acquire/create/free: never wait; TIMEOUT at once instead.
inline constexpr uint32_t kFlagFreeAfter = 1u << 6;  // Release of a read lease: free the tensor with it.
inline constexpr uint32_t kFlagReplace = 1u << 7;    // Create of one tensor: replaces the one of the same id.
inline constexpr uint32_t kFlagUntouched = 1u << 8;  // Release: nothing was written. As if never granted.
inline constexpr uint32_t kFlagMore = 1u << 9;      // Release: what it seals is part of a rewrite, and more is to come.
inline constexpr uint32_t kFlagSharded = 1u << 10;  // Create, with kFlagShared: ranks divide it, each by its steps.
inline constexpr uint32_t kFlagContiguous = 1u << 11;  // Acquire: blocks move side by side first, where they can.
inline constexpr uint32_t kFlagEvictFirst = 1u << 12;  // Release: not used soon: it leaves RAM before the rest.
inline constexpr uint32_t kFlagTransient = 1u << 13;   // Create: a persist that names no tensors leaves it out.
inline constexpr uint32_t kFlagsKnown = (1u << 14) - 1;

struct RequestItem {
  uint64_t tensor;
  uint64_t offset;  // Bytes from the start of the tensor. Release: of the rewrite that the lease was part of.
  uint64_t length;  // Bytes. Release: 0 if it was part of none.
  uint64_t value;   // Bytes of the tensor: create; acquire, where it must have so many (else 0). Release: the lease.
};

struct RequestHeader {
  uint64_t sequence;  // 1, 2, 3 …: a gap or a repetition ends the session.
  uint16_t op;        // Op
  uint16_t entries;   // Entries of this message, this one included.
  uint32_t flags;
  uint32_t item_count;  // Items, or bytes of text for kIntern.
  uint32_t timeout_ms;
  uint64_t argument;
};

struct RequestEntry {
  RequestHeader header;
  RequestItem first;
};

struct SpanRecord {  // One contiguous run of window bytes under a lease.
  uint64_t lease;
  uint32_t window;  // WindowIndex
  uint32_t item;    // Which item of the request it answers. Spans come in item order, then tensor order.
  uint64_t offset;  // Bytes from the start of the window.
  uint64_t length;  // Bytes.
};

struct ErrorRecord {   // First record of a refusal; the sentence follows as text from the second entry on.
  uint64_t tensor;     // 0 if the refusal is about none.
  uint64_t requested;  // Bytes; for CORRUPT, IO_ERROR and TORN the offset in the tensor.
  uint64_t available;  // Bytes.
  uint64_t limit;      // Bytes.
};

struct TensorRecord {
  uint64_t size;
  uint64_t generation;
  uint64_t ram_bytes;  // Bytes that have a RAM copy.
  uint64_t ssd_bytes;  // Bytes that have a valid SSD copy. flags: CompletionHeader.value = TensorFlag bits.
};
inline constexpr uint64_t kTensorSealed = 1u << 0;
inline constexpr uint64_t kTensorTorn = 1u << 1;

// Content: a number that the first item's tensor has from each grant of a write lease to the next, and no other tensor
// has while this daemon runs. Bytes read under grants of one number are of one content, whatever was done in between.
struct CompletionHeader {
  uint64_t sequence;       // Of the request answered.
  uint16_t code;           // Code
  uint16_t entries;        // Entries of this message, this one included.
  uint32_t flags;          // 0
  uint32_t record_count;   // SpanRecords (acquire, create), else 0 or 1.
  uint32_t detail_length;  // Bytes of text after the first entry; only with code != OK.
  uint64_t value;          // Op-specific: content (acquire, create), interned id, generation, failing item, step.
};

union CompletionRecord {
  SpanRecord span;
  ErrorRecord error;
  TensorRecord tensor;
};

struct CompletionEntry {
  CompletionHeader header;
  CompletionRecord first;
};

static_assert(sizeof(RequestItem) == 32 && sizeof(RequestHeader) == 32 && sizeof(RequestEntry) == kEntrySize);
static_assert(sizeof(SpanRecord) == 32 && sizeof(ErrorRecord) == 32 && sizeof(TensorRecord) == 32);
static_assert(sizeof(CompletionHeader) == 32 && sizeof(CompletionEntry) == kEntrySize);
static_assert(offsetof(RequestHeader, op) == 8 && offsetof(RequestHeader, entries) == 10);
static_assert(offsetof(RequestHeader, flags) == 12 && offsetof(RequestHeader, item_count) == 16);
static_assert(offsetof(RequestHeader, timeout_ms) == 20 && offsetof(RequestHeader, argument) == 24);
static_assert(offsetof(SpanRecord, window) == 8 && offsetof(SpanRecord, item) == 12);
static_assert(offsetof(SpanRecord, offset) == 16 && offsetof(SpanRecord, length) == 24);
static_assert(offsetof(CompletionHeader, code) == 8 && offsetof(CompletionHeader, entries) == 10);
static_assert(offsetof(CompletionHeader, record_count) == 16 && offsetof(CompletionHeader, detail_length) == 20);
static_assert(offsetof(CompletionHeader, value) == 24);

// Entries that a message with `records` records (the first inline) and no text takes.
constexpr uint32_t EntriesForRecords(uint32_t records) { return records <= 1 ? 1 : 1 + records / 2; }
// Entries of a message whose text starts in the second entry.
constexpr uint32_t EntriesForText(uint32_t bytes) { return 1 + (bytes + kEntrySize - 1) / kEntrySize; }

}  // namespace tier::proto
