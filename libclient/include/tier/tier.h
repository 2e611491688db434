/* tier.h - the C interface of libtier: tensors that live in tierd, in RAM and on SSD.
 *
 * A function that can fail returns TIER_OK (0) or one of the codes below; a failure leaves a sentence that
 * tier_last_error() of the calling thread returns. All functions may be called from any thread; what ends a handle
 * (tier_close, tier_release, tier_wait) not while another thread is inside of a call with it. The library makes no
 * callbacks. After fork() the child has no client: every call on an inherited handle returns TIER_DISCONNECTED.
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

/* Version of this header. tier_version() tells that of the library. */
#define TIER_VERSION_MAJOR 0
#define TIER_VERSION_MINOR 1
#define TIER_VERSION_PATCH 0

#if defined(__GNUC__)
#define TIER_API __attribute__((visibility("default")))
#else
#define TIER_API
#endif

/* Codes. Each one exists because a caller acts differently on it. */
enum {
  TIER_OK = 0,
  TIER_INVALID = 1,          /* the call can never be right */
  TIER_NOT_FOUND = 2,        /* no such tensor, job, socket */
  TIER_ALREADY_EXISTS = 3,   /* created twice; a live job opened with mode create */
  TIER_DENIED = 4,           /* the caller has no right to it, or the daemon was started without what it needs */
  TIER_NO_MEMORY = 5,        /* the job's share of RAM cannot hold it */
  TIER_NO_SPACE = 6,         /* the SSD tier, or RAM and SSD together, cannot hold it */
  TIER_IO_ERROR = 7,         /* a device failed */
  TIER_CORRUPT = 8,          /* bytes came back from a device with a wrong checksum */
  TIER_TORN = 9,             /* a writer died: the tensor would mix generations; see tier_accept */
  TIER_STALE = 10,           /* a handle of an earlier epoch, or of an object that is freed already */
  TIER_DISCONNECTED = 11,    /* the daemon has ended or does not answer */
  TIER_REVOKED = 12,         /* the daemon ended this session: the sentence says why; libtier does not reconnect */
  TIER_WOULD_DEADLOCK = 13,  /* only leases of this client block the request: release some first */
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
typedef struct tier_lease tier_lease;   /* a right to touch a byte range of a tensor in RAM */
typedef struct tier_op tier_op;         /* an asynchronous call that tier_wait has not ended */

/* ---- Connecting ------------------------------------------------------------------------------------------------ */

/* ATTACH creates the job, or joins a live one. CREATE makes a new job: ALREADY_EXISTS when it is live. JOIN joins a
 * live job: NOT_FOUND when there is none. RESUME opens a named job as its last tier_persist left it:
 *   the caller                                              the answer
 *   the first rank of a run; the job has no sessions        opens the job; what changed since the persist is lost
 *   each later rank of that run, by its token or launch     joins, once
 *   any other process, while the job is live                ALREADY_EXISTS
 *   a rank of a run whose first rank used ATTACH            NOT_FOUND
 *   any process, where the job has persisted nothing        NOT_FOUND
 * RESUME_OR_CREATE does what RESUME does where the job has persisted something, and else opens a new named job;
 * tier_session says which (resumed). All ranks of a run give the same mode. A run that opened a named job by ATTACH may
 * not replace tensors that only the manifest of an earlier run has: tier_persist returns DENIED. A run that opened it
 * by CREATE may. */
enum {
  TIER_MODE_ATTACH = 0,
  TIER_MODE_CREATE = 1,
  TIER_MODE_JOIN = 2,
  TIER_MODE_RESUME = 3,
  TIER_MODE_RESUME_OR_CREATE = 4
};

typedef struct tier_connect_options {
  size_t struct_size;
  const char* socket; /* path of the data socket or its directory; NULL: $TIERD_SOCKET, else in $XDG_RUNTIME_DIR/tierd,
                         /tmp/tierd-UID (of root: /run/tierd-private) or /run/tierd */
  const char* job;    /* NULL: a name made of the launcher's environment (torchrun, Slurm), else a random one */
  const char* token;  /* NULL: $TIERD_JOB_TOKEN, else none; the ranks of one torchrun launch or Slurm step need none */
  int mode;           /* TIER_MODE_... */
  int named;          /* 1: the job lives until `tierctl job remove`; its owner's next run needs no token */
  int rank;           /* -1: $RANK or none */
  int world_size;     /* 0: $WORLD_SIZE or none */
  uint64_t guarantee_bytes; /* RAM that the job always gets; 0: the default share */
  uint64_t limit_bytes;     /* RAM that the job never exceeds, 2 MiB or more; 0: no limit */
  int copy_threads;         /* threads that copy for swap_out and swap_in; 0: 1 */
  int spin;                 /* whether a waiting call spins before it sleeps: 0 auto, 1 always, 2 never */
} tier_connect_options;
#define TIER_CONNECT_OPTIONS_INIT \
  {sizeof(tier_connect_options), NULL, NULL, NULL, TIER_MODE_ATTACH, 0, -1, 0, 0, 0, 0, 0}

/* Opens a session. The caller owns *client until tier_close. `options` may be NULL.
 * Without a token, ATTACH and JOIN also join a job that another client of this process has open.
 * NOT_FOUND and DISCONNECTED name every socket tried. TIMEOUT: a daemon accepts no connection, or does not answer, for
 * 30 s. A session ends with DISCONNECTED when the daemon leaves a request unanswered for 30 s beyond its deadline
 * (a persist: 5 minutes and 30 s). */
TIER_API int tier_connect(const tier_connect_options* options, tier_client** client);
/* Ends the session. It waits for copies under way, then the daemon ends every lease and frees the session's tensors;
 * the end of an ephemeral job's last session frees all tensors of the job. Leases and ops of the client become STALE,
 * and must still be released and waited for. A thread may be inside of tier_wait or tier_poll of such an op meanwhile,
 * and of no other call of the client. NULL is allowed. */
TIER_API void tier_close(tier_client* client);

typedef struct tier_session_view {
  size_t struct_size;
  uint64_t epoch;       /* which run of the daemon */
  uint64_t session;     /* the daemon's number of this session */
  uint64_t window_size; /* bytes of the largest windows of the arena */
  const char* job;      /* the three strings belong to the client, until tier_close */
  const char* token;    /* what other processes need to join: hand it on as TIERD_JOB_TOKEN */
  const char* socket;
  int connected;               /* 0 once the daemon has ended, or has ended the session */
  int resumed;                 /* 1: the job was opened with what an earlier run persisted */
  uint32_t request_timeout_ms; /* what timeout_ms 0 means in requests: engine.deadline as it was at the attach */
} tier_session_view;
/* Tells which daemon and which job the client is connected to. Fills *view; set its struct_size before. It sends no
 * request, so it also answers when the daemon has ended: `connected` is 0 then, and 0 in a forked child. INVALID: no
 * client, or struct_size is not set. */
TIER_API int tier_session(tier_client* client, tier_session_view* view);

/* ---- Tensors under leases ---------------------------------------------------------------------------------------- */

/* Flags. A call that does not take a flag which it is given returns INVALID. */
enum {
  TIER_WRITE = 1u << 0,        /* exclusive lease */
  TIER_SHARED = 1u << 1,       /* id in the job-wide namespace */
  TIER_ABANDON = 1u << 2,      /* release: the content is not final; the daemon reverts it, or the tensor is TORN */
  TIER_NO_WAIT_OWN = 1u << 3,  /* WOULD_DEADLOCK at once if only leases of this client block */
  TIER_DISCARD = 1u << 4,      /* write: the old bytes are not needed, so they are not read */
  TIER_NO_WAIT = 1u << 5,      /* TIMEOUT at once instead of waiting */
  TIER_FREE_AFTER = 1u << 6,   /* release, swap_in: free the tensor afterwards */
  TIER_UNTOUCHED = 1u << 8,    /* release: nothing was written; the lease ends as if it had never been granted */
  TIER_SHARDED = 1u << 10,     /* create, with TIER_SHARED: ranks divide the tensor, each writes its own part of it */
  TIER_EVICT_FIRST = 1u << 12, /* release: it will not be used soon: it leaves RAM before the rest of the job */
  TIER_TRANSIENT = 1u << 13,   /* create, swap_out of a whole tensor: tier_persist leaves it out unless named */
  TIER_SCATTERED_OK = 1u << 16 /* acquire, create: memory need not be contiguous; read it by tier_lease_segments */
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

/* Creates a tensor and grants a write lease on the given range of it (length 0: all), whose bytes are not defined yet.
 * Others can acquire the tensor once every byte of it has been sealed. timeout_ms 0: engine.deadline, 60 s by default.
 * ALREADY_EXISTS, NO_MEMORY, NO_SPACE, TIMEOUT with figures.
 * A tensor created with TIER_SHARDED is TORN also when one of the clients that write parts of it ends, in whatever way,
 * while the steps in which they wrote last have different numbers (tier_step). A client counts from its first write of
 * a part on; what it wrote counts until others have written over it, or the tensor was written as a whole or accepted.
 * INVALID without TIER_SHARED. */
TIER_API int tier_create(tier_client* client, const tier_range* range, uint32_t flags, uint32_t timeout_ms,
                         tier_lease** lease);
/* Grants a lease on a range, once it is in RAM: shared, or exclusive with TIER_WRITE. timeout_ms 0: engine.deadline;
 * more than a day counts as a day. It first waits, within the same deadline, for an unfinished swap of the tensor by
 * this client; there TIER_NO_WAIT returns TIMEOUT at once, and TIER_NO_WAIT_OWN WOULD_DEADLOCK. So do tier_create and,
 * with engine.deadline, calls on whole tensors. */
TIER_API int tier_acquire(tier_client* client, const tier_range* range, uint32_t flags, uint32_t timeout_ms,
                          tier_lease** lease);
/* Grants `count` leases (1 … 1023) in one request, all of them or none. `leases` receives `count` handles. */
TIER_API int tier_create_batch(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags,
                               uint32_t timeout_ms, tier_lease** leases);
TIER_API int tier_acquire_batch(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags,
                                uint32_t timeout_ms, tier_lease** leases);
/* The leased bytes as one contiguous range, valid until release. The first call maps scattered blocks together. Linux
 * allows a process vm.max_map_count mappings; a quarter of them may be for this. Where what is leased takes half of
 * that, acquires have blocks moved side by side before they are granted, unless they say TIER_SCATTERED_OK. NO_MEMORY
 * where that was not enough. The memory stays readable when the daemon or the session ends; where an administrator has
 * removed the job (REVOKED), it reads as zeros from then on. */
TIER_API int tier_lease_data(tier_lease* lease, void** address, uint64_t* length);
/* The leased bytes where they lie: writes up to `max` segments; *count becomes the number of all segments. */
TIER_API int tier_lease_segments(tier_lease* lease, tier_segment* segments, size_t max, size_t* count);
/* Ends a write lease: the content of the range is final. The handle is freed. */
TIER_API int tier_seal(tier_lease* lease);
/* Ends a lease; a write lease is sealed unless TIER_ABANDON or TIER_UNTOUCHED. TIER_EVICT_FIRST is a hint: the blocks
 * of the range leave RAM before what the job used otherwise, such as an optimizer's state, which the next step needs
 * last. The handle is freed even on failure. The call does not wait for the daemon, which may refuse (STALE: the tensor
 * was freed or replaced meanwhile, and the bytes written are lost). The next call of any thread that creates, acquires,
 * swaps, flushes, persists, accepts, interns or calls tier_tensor then returns that refusal, once, instead of doing its
 * work: the first refusal, with the number of those that followed. Frees and hints (prefetch, drop, step) do their work
 * and do not return it. */
TIER_API int tier_release(tier_lease* lease, uint32_t flags);
TIER_API int tier_release_batch(tier_lease* const* leases, size_t count, uint32_t flags);
/* Frees the tensor and all copies of it, once all leases on it have ended (engine.deadline). Where leases are open, it
 * returns TIMEOUT at once with TIER_NO_WAIT, and WOULD_DEADLOCK with TIER_NO_WAIT_OWN if they are this client's own. */
TIER_API int tier_free(tier_client* client, uint64_t tensor, uint32_t flags);
TIER_API int tier_free_batch(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags);
/* A hint: the ranges will be used soon, in this order, and should be read into RAM. Returns at once. What was read
 * stays in RAM for its use until the job's next step (tier_step), or for 10 s; if the memory of the job is full of it,
 * the rest is read as memory becomes free. */
TIER_API int tier_prefetch(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags);
/* Declares the content that a TORN tensor has now to be right. */
TIER_API int tier_accept(tier_client* client, uint64_t tensor, uint32_t flags);
/* Marks the end of training step `step` (UINT64_MAX: the next number), and finishes the updates of this session.
 * A session begins with the highest number of its job. Ranks that divide a tensor give their steps the same numbers. */
TIER_API int tier_step(tier_client* client, uint64_t step);
/* Makes tensors durable: they survive the end of the daemon and a loss of power. count 0: all tensors of the job
 * except those created with TIER_TRANSIENT. One manifest is committed atomically. It replaces the job's former manifest
 * completely; the manifest of an ephemeral job is deleted with the job. DENIED in a private daemon without
 * daemon.data_directory. The deadline is the daemon's engine.deadline (60 s by default), then TIMEOUT: where the
 * sentence says so, the manifest may be committed yet. */
TIER_API int tier_persist(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags);
/* Returns when every byte of the tensors (count 0: all of this session) has an SSD copy. It does not make them durable:
 * tier_persist does. The deadline is engine.deadline, as above. */
TIER_API int tier_flush(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags);
/* A hint: the tensors will not be used soon. Drops RAM copies that are on SSD too and under no lease. */
TIER_API int tier_drop(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags);
/* The job-wide 64-bit id of a string key (1 … 1024 bytes, no NUL). The same key gives the same id in every session of
 * the job, at all times. A job may have tensors under nearly 4 Mi keys, 64 MiB together (else NO_MEMORY). From three
 * quarters of that on, the daemon drops keys without a tensor, oldest first; a tensor that is created under such an id
 * later is listed without its key. */
TIER_API int tier_intern(tier_client* client, const char* key, size_t length, uint64_t* id);

typedef struct tier_tensor_view {
  size_t struct_size;
  uint64_t size;       /* of the tensor, in bytes */
  uint64_t generation; /* rises each time that write leases on it are granted */
  uint64_t ram_bytes;  /* bytes that have a copy in RAM */
  uint64_t ssd_bytes;  /* bytes that have a valid copy on SSD; a byte may have both */
  int sealed;          /* 1: every byte has been sealed since the tensor was created */
  int torn;            /* 1: an acquire for reading would return TORN */
} tier_tensor_view;
/* Tells where a tensor lies at this moment. Fills *view; set its struct_size before. `flags`: TIER_SHARED or 0. It
 * needs no lease and moves nothing; like tier_acquire it first waits for an unfinished swap of the tensor by this
 * client. NOT_FOUND: there is no such tensor. */
TIER_API int tier_tensor(tier_client* client, uint64_t tensor, uint32_t flags, tier_tensor_view* view);

/* ---- Streaming copies -------------------------------------------------------------------------------------------- */

/* Types of elements, for tier_copy_options and tier_optimizer_options. */
enum { TIER_BYTES = 0, TIER_FP32 = 1, TIER_BF16 = 2, TIER_FP16 = 3 };

typedef struct tier_copy_options {
  size_t struct_size;
  int memory_type;     /* type of the elements at `pointer`: TIER_BYTES, TIER_FP32 … */
  int tensor_type;     /* type of the elements in the tensor; where it differs they are cast (fp32 ↔ bf16, fp16) */
  int check_finite;    /* 1: count elements that are not finite */
  int sum_squares;     /* 1: sum the squares of the elements as they are read; the same elements at the same offset of
                          a tensor give the same bits in every run, wherever the tensor lies */
  void* stream;        /* CUstream of a device pointer; NULL: the legacy default stream. With its handle
                          CU_STREAM_LEGACY instead, device memory is refused (INVALID) where no driver can be used:
                          with NULL it is taken for host memory then, and reading it ends the process */
  uint32_t flags;      /* TIER_SHARED, _SHARDED (a swap_out that creates), _DISCARD, _NO_WAIT, _NO_WAIT_OWN (its first
                          range), _FREE_AFTER (swap_in) */
  uint32_t timeout_ms; /* for each range; 0: engine.deadline */
  uint64_t offset;     /* first byte in the tensor; must be 0 with `whole` */
  int whole;           /* 1 (default): all of the tensor; swap_out creates or replaces it with this size. 0: a part */
} tier_copy_options;
#define TIER_COPY_OPTIONS_INIT {sizeof(tier_copy_options), TIER_BYTES, TIER_BYTES, 0, 0, NULL, 0, 0, 0, 1}

typedef struct tier_copy_outcome {
  size_t struct_size;
  uint64_t bytes; /* copied, counted at `pointer` */
  uint64_t non_finite_count;
  double sum_of_squares;
} tier_copy_outcome;

/* Copies `size` bytes at `pointer` (host memory, or device memory where there is a GPU) into the tensor, range by
 * range, so that tensors larger than the arena work. Returns at once; `pointer` must stay valid and unchanged until
 * tier_wait. NO_MEMORY: no thread can be started; then `pointer` is not in use. A whole swap_out over a tensor of its
 * size overwrites it and takes only the memory of ranges under way; a tensor of another size is replaced by a new one,
 * and freed when the first range of the new one is granted. A swap_out may fail, be cancelled, or end with its process:
 * a tensor that it was creating is freed then, and one that it was overwriting is TORN. tier_persist, and other
 * sessions, wait for an unfinished swap_out. A swap_out that writes all of a TORN tensor makes it valid again. With
 * TIER_NO_WAIT it ends with TIMEOUT at the first range that must wait for a lease, for room in RAM or for a device;
 * behind another unfinished swap of the tensor by this client it returns TIMEOUT at once. */
TIER_API int tier_swap_out(tier_client* client, uint64_t tensor, const void* pointer, uint64_t size,
                           const tier_copy_options* options, tier_op** op);
/* Copies `size` bytes of the tensor to `pointer`. With `whole` = 1 they are one content of it: ranges that others write
 * meanwhile are read again, until timeout_ms has passed (TIMEOUT). Where RAM has no room for a range, shorter ones are
 * read, down to 2 MiB. With 0, a part of several ranges may mix contents.
 * With TIER_FREE_AFTER the tensor is freed behind the last copy, and with it what others wrote since it was read. */
TIER_API int tier_swap_in(tier_client* client, uint64_t tensor, void* pointer, uint64_t size,
                          const tier_copy_options* options, tier_op** op);
/* Waits for an operation and returns its code (timeout_ms 0: until it ends; its ranges have deadlines of their own).
 * Fills *outcome unless NULL, and frees the handle. The handle stays in two cases: the wait itself timed out (TIMEOUT,
 * and tier_done() is still 0), or struct_size of *outcome is not set (INVALID, before any wait). Signals do not
 * interrupt it. */
TIER_API int tier_wait(tier_op* op, uint32_t timeout_ms, tier_copy_outcome* outcome);
/* Waits up to timeout_ms (0: not at all) and returns 1 when the operation has ended, else 0. It frees nothing. For
 * callers that do other work while they wait, such as interpreters with signal handlers. */
TIER_API int tier_poll(tier_op* op, uint32_t timeout_ms);
/* 1 when the operation has ended, so that tier_wait returns at once; else 0. */
TIER_API int tier_done(const tier_op* op);
/* Asks that the operation end early, with TIMEOUT. It wakes a tier_wait that is under way, and still needs one. */
TIER_API void tier_cancel(tier_op* op);

/* ---- Started calls ----------------------------------------------------------------------------------------------- */

/* Each of these does what the call of the same name above does, in two parts: it sends the request and returns, and
 * tier_wait returns the outcome. It never waits: while swaps of the same tensors are unfinished, the request is sent
 * when they end. A client may have up to 512 started calls that tier_wait has not ended, else NO_MEMORY. They have room
 * of their own: the other calls (up to 320 requests at once) and releases (192) never wait for them. tier_cancel
 * followed by tier_wait gives a call up: leases that are granted later are released by libtier, and a free continues
 * alone. tier_wait fills `leases`, which must stay valid until then. Lists hold 1 … 1023 entries; those of flush and
 * persist may hold none, which means all, as above. */
TIER_API int tier_create_start(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags,
                               uint32_t timeout_ms, tier_lease** leases, tier_op** op);
TIER_API int tier_acquire_start(tier_client* client, const tier_range* ranges, size_t count, uint32_t flags,
                                uint32_t timeout_ms, tier_lease** leases, tier_op** op);
TIER_API int tier_free_start(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags, tier_op** op);
TIER_API int tier_flush_start(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags, tier_op** op);
TIER_API int tier_persist_start(tier_client* client, const uint64_t* tensors, size_t count, uint32_t flags,
                                tier_op** op);

/* ---- Optimizers -------------------------------------------------------------------------------------------------- */

/* Adam and AdamW, by `decoupled_decay`; and Lion (Chen et al. 2023, arXiv 2302.06675). */
enum { TIER_ADAM = 1, TIER_LION = 2 };

typedef struct tier_optimizer_options {
  size_t struct_size;
  int algorithm;
  int value_type;      /* of values and gradients: TIER_FP32 or TIER_BF16 */
  int state_type;      /* of the moments: TIER_FP32 or TIER_BF16 */
  int stochastic;      /* 1: round values (TIER_BF16) at random, with the right mean; 0: to nearest even */
  int decoupled_decay; /* 1: weight decay scales the values; 0: it is added to the gradients (Adam only) */
  int maximize;
  int amsgrad; /* Adam only */
  int threads; /* at most, 1 ... 64 */
  uint32_t seed;
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon; /* Adam only */
  double weight_decay;
} tier_optimizer_options;
#define TIER_OPTIMIZER_OPTIONS_INIT \
  {sizeof(tier_optimizer_options), TIER_ADAM, TIER_FP32, TIER_FP32, 0, 1, 0, 0, 1, 0, 1e-3, 0.9, 0.999, 1e-8, 0.0}

typedef struct tier_optimizer_slice {
  void* values;
  const void* gradients;
  void* exp_avg;        /* the first moment */
  void* exp_avg_sq;     /* the second moment; NULL for Lion */
  void* max_exp_avg_sq; /* read with amsgrad only */
  uint64_t count;       /* elements in each of them */
  uint64_t first;       /* index in the parameter of the first of them: a multiple of 128 */
  uint32_t parameter;   /* number of the parameter */
  uint32_t step;        /* number of this step: 1 for the first */
} tier_optimizer_slice;

/* Updates `count` slices in place, in memory of the caller, such as leases that it holds for writing: one step of the
 * optimizer. Computed in fp32, each operation rounded by itself; then values and moments are rounded to their types.
 * For Adam, with gradient g, value p, moments m and v, in this order (after g := -g with maximize; each factor that has
 * no letter of an array is one fp32 number):
 *   p := p * (1 - rate*decay)  if decoupled, else  g := g + p * decay  unless the decay is 0;
 *   m := m + (g - m) * (1 - beta1);  v := v * beta2 + (g * (1 - beta2)) * g;  with amsgrad v := its maximum;
 *   p := p - (m * (rate / (1 - beta1^step))) / (sqrt(v) * (1 / sqrt(1 - beta2^step)) + epsilon).
 * For Lion: c := m * beta1 + g * (1 - beta1);  m := m * beta2 + g * (1 - beta2);
 *   p := p * (1 - rate*decay) - (rate where c > 0, -rate where c < 0, else c).
 * The random numbers of `stochastic` are Philox 4x32-10's, by seed, parameter, step and index of the element; so the
 * result depends neither on how a parameter is divided into slices, nor on `threads`. INVALID, before anything is
 * written, for options or slices that cannot be; with `count` 0 only the options are checked. */
TIER_API int tier_optimizer_update(const tier_optimizer_options* options, const tier_optimizer_slice* slices,
                                   size_t count);

/* ---- Figures ----------------------------------------------------------------------------------------------------- */

typedef struct tier_stats_view {
  size_t struct_size;
  /* Copied by tier_swap_out from the caller's memory into tensors, and by tier_swap_in back: in RAM, whatever of it
   * goes to SSD or comes from there. The job's traffic with SSD is the daemon's figure (tierctl job show, metrics). */
  uint64_t copied_to_tensors_bytes;
  uint64_t copied_from_tensors_bytes;
  uint64_t acquires;           /* leases granted by create and acquire, by started calls too */
  uint64_t acquire_waits;      /* acquires that slept until their answer came; a call that spins first: after 20 µs */
  uint64_t acquire_wait_ns;    /* the sum of their waiting times, over all threads */
  uint64_t leases_open;        /* now */
  uint64_t windows_mapped;     /* windows of the arena that this process has mapped for the client now */
  uint64_t stitched_mappings;  /* mappings that show scattered blocks side by side, now (tier_lease_data) */
  uint64_t windows_registered; /* registered with CUDA */
} tier_stats_view;
/* What the client has done since it connected; fields that say "now" are the present state. Fills *view; set its
 * struct_size before. It sends no request, and answers when the daemon has ended too. DISCONNECTED in a forked
 * child. */
TIER_API int tier_stats(tier_client* client, tier_stats_view* view);

#ifdef __cplusplus
}
#endif
#endif /* TIER_TIER_H */
