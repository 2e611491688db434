/* tier.h - the C interface of libtier: tensors that live in tierd, in RAM and on SSD.
 *
 * Every function that can fail returns TIER_OK (0) or one of the codes below, and leaves a sentence for
 * tier_last_error() of the calling thread. All functions may be called from any thread. Nothing here calls back on the
 * caller's thread. After fork() the child has no client: every call on an inherited handle answers TIER_DISCONNECTED.
 *
 * Option structs begin with `struct_size`: set it to sizeof the struct (the TIER_..._INIT macros do).
 * Sizes and offsets are bytes. Tensor ids are chosen by the caller, 64 bits, in the namespace of the session or, with
 * TIER_SHARED, of the job. Compiles as C11 and C++.
 */
#ifndef TIER_TIER_H
#define TIER_TIER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TIER_VERSION_MAJOR 0
#define TIER_VERSION_MINOR 1
#define TIER_VERSION_PATCH 0

#if defined(__GNUC__)
#define TIER_API __attribute__((visibility("default")))
#else
#define TIER_API
#endif

/* Codes: each exists because a caller acts differently on it. */
enum {
  TIER_OK = 0,
  TIER_INVALID = 1,          /* the call can never be right */
  TIER_NOT_FOUND = 2,        /* no such tensor, job, socket */
  TIER_ALREADY_EXISTS = 3,   /* created twice; a live job opened with mode create */
  TIER_DENIED = 4,           /* no right to it, or the daemon was started without what it needs */
  TIER_NO_MEMORY = 5,        /* the share of RAM cannot hold it */
  TIER_NO_SPACE = 6,         /* the SSD tier cannot hold it */
  TIER_IO_ERROR = 7,         /* a device failed */
  TIER_CORRUPT = 8,          /* bytes came back with a wrong checksum */
  TIER_TORN = 9,             /* a writer died: the tensor would mix generations; see tier_accept */
  TIER_STALE = 10,           /* a handle of an earlier epoch, or of something already freed */
  TIER_DISCONNECTED = 11,    /* the daemon is gone, or answers no more */
  TIER_REVOKED = 12,         /* the daemon ended this session */
  TIER_WOULD_DEADLOCK = 13,  /* only the caller's own leases stand in the way */
  TIER_TIMEOUT = 14,         /* the deadline passed */
  TIER_VERSION_MISMATCH = 15 /* library and daemon speak different versions */
};

/* Name of a code ("NO_MEMORY"); "UNKNOWN" for others. Static storage. */
TIER_API const char* tier_code_name(int code);
/* The sentence of the last failure on this thread ("" if none). Valid until the next call on this thread. */
TIER_API const char* tier_last_error(void);
/* "0.1.0". Static storage. */
TIER_API const char* tier_version(void);

typedef struct tier_client tier_client; /* one session with a daemon */
typedef struct tier_lease tier_lease;   /* a right to touch a byte range in RAM */
typedef struct tier_op tier_op;         /* an asynchronous call under way */

/* ---- Connecting ------------------------------------------------------------------------------------------------ */

/* ATTACH creates the job or joins it as it is; CREATE: ALREADY_EXISTS when it is there; JOIN: NOT_FOUND when it is
 * not. RESUME opens a named job as its last tier_persist left it, in whichever daemon:
 *   who asks                                               answer
 *   the first rank of a run; the job has no sessions       opened; what its sessions made since is given up
 *   a later rank of that run, with its token, once each    joins
 *   any other, while the job is live                       ALREADY_EXISTS
 *   a rank of a run whose first rank said ATTACH           NOT_FOUND
 *   any, where the job has persisted nothing               NOT_FOUND
 * A job that was opened otherwise while a manifest of an earlier run lay there, or that was attached to when its last
 * session had gone, may not replace what only the manifest has (tier_persist: DENIED). One that CREATE made in its
 * place may. */
enum { TIER_MODE_ATTACH = 0, TIER_MODE_CREATE = 1, TIER_MODE_JOIN = 2, TIER_MODE_RESUME = 3 };

typedef struct tier_connect_options {
  size_t struct_size;
  const char* socket; /* path of the data socket; NULL: $TIERD_SOCKET, else $XDG_RUNTIME_DIR/tierd/tierd.sock, else
                         /run/tierd/tierd.sock */
  const char* job;    /* NULL: derived from the launcher's environment, with a random suffix if there is none */
  const char* token;  /* NULL: $TIERD_JOB_TOKEN or none; the ranks of one torchrun or Slurm step need none */
  int mode;           /* TIER_MODE_... */
  int named;          /* 1: kept until `tierctl job remove`, for its owner's next run, whatever that one's token */
  int rank;           /* -1: $RANK or none */
  int world_size;     /* 0: $WORLD_SIZE or none */
  uint64_t guarantee_bytes; /* RAM this job must always get; 0: the default share */
  uint64_t limit_bytes;     /* RAM this job must never exceed; 0: none */
  int copy_threads;         /* threads for swap_out and swap_in; 0: 1 */
  int spin;                 /* 0 auto, 1 always, 2 never: how a waiting call waits */
} tier_connect_options;
#define TIER_CONNECT_OPTIONS_INIT \
  {sizeof(tier_connect_options), NULL, NULL, NULL, TIER_MODE_ATTACH, 0, -1, 0, 0, 0, 0, 0}

/* Opens a session. *client is the caller's until tier_close. `options` may be NULL.
 * Without a token, ATTACH and JOIN join a job that another client of this process has open: its own job.
 * NOT_FOUND or DISCONNECTED name every socket tried; TIMEOUT is the answer where a daemon takes nobody, or does not
 * answer, for 30 s. A daemon that leaves a request unanswered 30 s beyond its deadline (5 minutes more for a persist)
 * ends the session: DISCONNECTED. */
TIER_API int tier_connect(const tier_connect_options* options, tier_client** client);
/* Ends the session: waits for copies under way, then gives back every lease and, in an ephemeral job's last session,
 * every tensor. Leases and ops of the client become STALE but must still be released/freed. NULL is allowed. */
TIER_API void tier_close(tier_client* client);

typedef struct tier_session_view {
  size_t struct_size;
  uint64_t epoch; /* which run of the daemon */
  uint64_t session;
  uint64_t window_size; /* bytes of a window for whole blocks; those for small tensors and tails may be smaller */
  const char* job;      /* owned by the client, until tier_close */
  const char* token;    /* for other ranks: TIERD_JOB_TOKEN */
  const char* socket;
  int connected; /* 0 after a hang-up or revocation */
} tier_session_view;
TIER_API int tier_session(tier_client* client, tier_session_view* view);

/* ---- Tensors under leases ---------------------------------------------------------------------------------------- */

enum {
  TIER_WRITE = 1u << 0,        /* exclusive lease */
  TIER_SHARED = 1u << 1,       /* id in the job-wide namespace */
  TIER_ABANDON = 1u << 2,      /* release: the content is not final; revert it */
  TIER_NO_WAIT_OWN = 1u << 3,  /* WOULD_DEADLOCK at once if only own leases block */
  TIER_DISCARD = 1u << 4,      /* write: old bytes are not needed */
  TIER_NO_WAIT = 1u << 5,      /* TIMEOUT at once instead of waiting */
  TIER_FREE_AFTER = 1u << 6,   /* release, swap_in: free the tensor with it */
  TIER_UNTOUCHED = 1u << 8,    /* release: nothing was written; as if it had not been granted */
  TIER_SCATTERED_OK = 1u << 16 /* acquire/create: do not stitch; read the pieces with tier_lease_segments */
};

typedef struct tier_range { /* one byte range of one tensor */
  uint64_t tensor;
  uint64_t offset;
  uint64_t length; /* 0: to the end */
  uint64_t size;   /* create: size of the whole tensor in bytes (> 0); else 0 */
} tier_range;

typedef struct tier_segment { /* contiguous memory under a lease */
  void* address;
  uint64_t length;
  uint64_t offset; /* in the tensor */
} tier_segment;

/* Creates a tensor and grants a write lease on the given range of it (length 0: all). The tensor becomes visible to
 * acquire when every range of it has been sealed. ALREADY_EXISTS, NO_MEMORY, NO_SPACE, TIMEOUT with figures. */
TIER_API int tier_create(tier_client* client, const tier_range* range, uint32_t flags, uint32_t timeout_ms,
                         tier_lease** lease);
/* Grants a lease on a range that is, or is brought, into RAM. Shared unless TIER_WRITE. timeout_ms 0: 60 s. Behind an
 * unfinished swap of the same client it waits for that one first, within the same deadline: TIER_NO_WAIT answers
 * TIMEOUT at once, TIER_NO_WAIT_OWN WOULD_DEADLOCK. So do tier_create and, with 60 s, the calls on whole tensors. */
TIER_API int tier_acquire(tier_client* client, const tier_range* range, uint32_t flags, uint32_t timeout_ms,
                          tier_lease** lease);
/* All or nothing: `count` leases in one request (1 … 1023). `leases` receives count handles. */
TIER_API int tier_create_batch(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags,
                               uint32_t timeout_ms, tier_lease** leases);
TIER_API int tier_acquire_batch(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags,
                                uint32_t timeout_ms, tier_lease** leases);
/* The leased bytes as one contiguous range. Stitches scattered blocks on first use. Valid until release. */
TIER_API int tier_lease_data(tier_lease* lease, void** address, uint64_t* length);
/* The leased bytes as they lie: writes up to `max` segments, returns how many there are in *count. */
TIER_API int tier_lease_segments(tier_lease* lease, tier_segment* segments, size_t max, size_t* count);
/* Ends a write lease: the content of the range is final. The handle is freed. */
TIER_API int tier_seal(tier_lease* lease);
/* Ends a lease (a write lease is sealed unless TIER_ABANDON or TIER_UNTOUCHED). The handle is freed even on failure.
 * Does not wait for the daemon. What that refuses (STALE: the tensor was freed or replaced meanwhile, and what was
 * written is gone; of several the first, and how many requests to release were refused after it) is the answer, once,
 * of the next call of any thread that creates, acquires, swaps, flushes, persists, accepts, interns or looks, which
 * does nothing else. Frees and hints (prefetch, drop, step) do their work and leave it to that one. */
TIER_API int tier_release(tier_lease* lease, uint32_t flags);
TIER_API int tier_release_batch(tier_lease* const* leases, size_t count, uint32_t flags);
/* Frees the tensor and all copies. Waits for all leases on it to end (deadline 60 s): with TIER_NO_WAIT_OWN
 * WOULD_DEADLOCK at once if they are this client's own, with TIER_NO_WAIT TIMEOUT at once. */
TIER_API int tier_free(tier_client* client, uint64_t tensor, uint32_t flags);
TIER_API int tier_free_batch(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags);
/* Asks that ranges be brought into RAM soon; returns at once. */
TIER_API int tier_prefetch(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags);
/* Accepts a TORN tensor as it stands. */
TIER_API int tier_accept(tier_client* client, uint64_t tensor, uint32_t flags);
/* Marks the end of step `step` (UINT64_MAX: the next one). */
TIER_API int tier_step(tier_client* client, uint64_t step);
/* Makes tensors survive the machine: one manifest, atomically. count 0: all of the job. It replaces the job's former
 * one, whatever that named; an ephemeral job's goes with the job. DENIED in a private daemon without
 * daemon.data_directory. It takes no timeout of its own: TIMEOUT when the daemon's engine.deadline (60 s by default)
 * passes first. */
TIER_API int tier_persist(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags);
/* Returns when every piece of the tensors (count 0: all of this session) has an SSD copy. Durable against memory
 * pressure, not against the machine's loss: that is tier_persist. Its deadline is engine.deadline too. */
TIER_API int tier_flush(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags);
/* Drops RAM copies of clean, unleased pieces (a hint that they will not be used soon). */
TIER_API int tier_drop(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags);
/* The job-wide 64-bit id of a string key (1 … 1024 bytes). The same key gives the same id in every session of the
 * job, at all times. A job may have tensors under nearly 4 Mi of them, of 64 MiB together (else NO_MEMORY). From
 * three quarters of that on, keys without a tensor are forgotten, oldest first: what is created later is shown
 * without its key. */
TIER_API int tier_intern(tier_client* client, const char* key, size_t length, uint64_t* id);

typedef struct tier_tensor_view {
  size_t struct_size;
  uint64_t size;
  uint64_t generation;
  uint64_t ram_bytes;
  uint64_t ssd_bytes;
  int sealed;
  int torn;
} tier_tensor_view;
TIER_API int tier_tensor(tier_client* client, uint64_t tensor, uint32_t flags, tier_tensor_view* view);

/* ---- Streaming copies ----------------------------------------------------------------------------------------------
 */

enum { TIER_BYTES = 0, TIER_FP32 = 1, TIER_BF16 = 2, TIER_FP16 = 3 };

typedef struct tier_copy_options {
  size_t struct_size;
  int memory_type;     /* element type at `pointer`: TIER_BYTES, TIER_FP32 … */
  int tensor_type;     /* element type inside the tensor; a difference asks for a cast (fp32 ↔ bf16/fp16) */
  int check_finite;    /* count elements that are not finite */
  int sum_squares;     /* sum of squares of the elements, as read; the same elements at the same offset of a tensor
                          give the same bits in every run, wherever the tensor lies */
  void* stream;        /* CUstream of a device pointer; NULL: the legacy default stream */
  uint32_t flags;      /* TIER_SHARED, TIER_DISCARD, TIER_NO_WAIT, TIER_FREE_AFTER (swap_in) */
  uint32_t timeout_ms; /* per range; 0: 60 s */
  uint64_t offset;     /* first byte within the tensor; with `whole` = 0 an existing tensor is updated in part */
  int whole;           /* 1 (default): the tensor is created, or replaced, with this size */
} tier_copy_options;
#define TIER_COPY_OPTIONS_INIT {sizeof(tier_copy_options), TIER_BYTES, TIER_BYTES, 0, 0, NULL, 0, 0, 0, 1}

typedef struct tier_copy_outcome {
  size_t struct_size;
  uint64_t bytes; /* moved, as counted in memory */
  uint64_t non_finite_count;
  double sum_of_squares;
} tier_copy_outcome;

/* Streams `size` bytes at `pointer` (host, or device when a GPU is present) into tensor `tensor` by ranges, so that
 * tensors larger than the arena work. Returns at once; `pointer` must stay valid and unchanged until tier_wait.
 * An acquire or swap_in that meets it under way is served from RAM. NO_MEMORY when no thread to copy is to be had: then
 * `pointer` is not in use. One that fails, is cancelled or dies with its process half way leaves no tensor where it was
 * creating one, and one of the same size that it was overwriting TORN; tier_persist waits for it. One that was TORN
 * and is written whole is whole for every session of the job when the swap ends.
 * With TIER_NO_WAIT it ends with TIMEOUT at the first range that would have to wait for a lease, room in RAM or a
 * device; behind an unfinished swap of the same tensor by this client nothing is started: TIMEOUT at once. */
TIER_API int tier_swap_out(tier_client* client, uint64_t tensor, const void* pointer, uint64_t size,
                           const tier_copy_options* options, tier_op** op);
/* The reverse: fills `size` bytes at `pointer`. With `whole` = 1 they are one content of the tensor: where others write
 * it meanwhile, it is read again, until timeout_ms has passed (TIMEOUT). A part of several ranges may mix contents. */
TIER_API int tier_swap_in(tier_client* client, uint64_t tensor, void* pointer, uint64_t size,
                          const tier_copy_options* options, tier_op** op);
/* Waits for an operation (timeout_ms 0: until it ends; its ranges have deadlines of their own), fills *outcome if not
 * NULL, and frees the handle unless the wait itself timed out (TIMEOUT with tier_done() still 0) or the struct_size of
 * *outcome is not set: that is INVALID before anything is waited for or taken. Interrupted by no signal. */
TIER_API int tier_wait(tier_op* op, uint32_t timeout_ms, tier_copy_outcome* outcome);
/* Waits like tier_wait (timeout_ms 0: not at all), but takes nothing and frees nothing: 1 when the operation has ended,
 * 0 when the time passed first. For callers that look up while they wait, such as interpreters with signal handlers. */
TIER_API int tier_poll(tier_op* op, uint32_t timeout_ms);
/* 1 when tier_wait would not wait. */
TIER_API int tier_done(const tier_op* op);
/* Asks that the operation end early (TIMEOUT); still needs tier_wait, of which it wakes the one under way. */
TIER_API void tier_cancel(tier_op* op);

/* ---- Calls that are waited for later -------------------------------------------------------------------------------
 */

/* The calls above of the same name, split in two: the request is sent, tier_wait brings its outcome. They never wait:
 * behind unfinished swaps of the same tensors the request is sent when those end. A client has up to 512 of them that
 * tier_wait has not ended; beyond it NO_MEMORY, and other calls find room all the same. tier_poll waits in slices;
 * tier_cancel followed by tier_wait gives up (what is granted afterwards is given back by itself; a free goes on
 * alone, however many there are, and calls on other tensors find room beside them). `leases` is filled by tier_wait and
 * must stay valid until then. Lists hold 1 … 1023 entries. */
TIER_API int tier_create_start(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags,
                               uint32_t timeout_ms, tier_lease** leases, tier_op** op);
TIER_API int tier_acquire_start(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags,
                                uint32_t timeout_ms, tier_lease** leases, tier_op** op);
TIER_API int tier_free_start(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags, tier_op** op);
TIER_API int tier_flush_start(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags, tier_op** op);
TIER_API int tier_persist_start(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags,
                                tier_op** op);

/* ---- Figures
 * --------------------------------------------------------------------------------------------------------- */

typedef struct tier_stats_view {
  size_t struct_size;
  uint64_t swap_out_bytes;  /* copied in by this client */
  uint64_t swap_in_bytes;   /* copied out */
  uint64_t acquires;        /* leases granted by create and acquire, started ones too */
  uint64_t acquire_waits;   /* that did not complete within 20 µs */
  uint64_t acquire_wait_ns; /* time spent waiting, all threads */
  uint64_t leases_open;
  uint64_t windows_mapped;
  uint64_t stitched_mappings;
  uint64_t windows_registered; /* with CUDA */
} tier_stats_view;
TIER_API int tier_stats(tier_client* client, tier_stats_view* view);

#ifdef __cplusplus
}
#endif
#endif /* TIER_TIER_H */
