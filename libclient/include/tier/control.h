/* control.h - the C interface of libtier-control: jobs, limits, events and draining, over gRPC.
 *
 * For launchers, tools and trainers that manage jobs; the data path is tier.h. A function returns TIER_OK or a code of
 * tier.h; a failure leaves a sentence that tier_control_last_error() of the calling thread returns. All functions are
 * thread-safe, and block: for at most 10 s, unless the function says otherwise. Strings are UTF-8. Structs begin with
 * `struct_size`: set it to sizeof the struct; a library of another version reads and fills no more than that.
 */
#ifndef TIER_CONTROL_H
#define TIER_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "tier/tier.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tier_control tier_control;             /* a channel to one daemon */
typedef struct tier_control_watch tier_control_watch; /* a stream of events */

/* The sentence of the last failure on this thread ("" if none). Valid until the next call on this thread. */
TIER_API const char* tier_control_last_error(void);

/* Opens a channel, which the caller owns until tier_control_close. `socket`: path of control.sock or admin.sock, or of
 * tierd.sock or its directory, which stand for the control.sock there; NULL: $TIERD_SOCKET, in the same way, else in
 * $XDG_RUNTIME_DIR/tierd/, /tmp/tierd-UID/ or /run/tierd/. `token`: of a job, sent with every call; NULL:
 * $TIERD_JOB_TOKEN or none. DISCONNECTED names the socket when no daemon answers within 5 s. */
TIER_API int tier_control_connect(const char* socket, const char* token, tier_control** control);
TIER_API void tier_control_close(tier_control* control); /* NULL is allowed */

typedef struct tier_control_job {
  size_t struct_size;
  uint64_t id;
  char name[128];
  char token[65]; /* of tier_control_open_job: hand it to the other ranks as TIERD_JOB_TOKEN; else "" */
  uint32_t uid;
  int named;
  int world_size;
  uint64_t guarantee_bytes;
  uint64_t limit_bytes; /* 0: none */
  uint64_t share_bytes;
  uint64_t ram_bytes;
  uint64_t ssd_bytes;
  uint64_t leased_bytes;
  uint64_t dirty_bytes;
  uint64_t session_count;
  uint64_t tensor_count;
  uint64_t torn_count;
} tier_control_job;
#define TIER_CONTROL_JOB_INIT {sizeof(tier_control_job), 0, "", "", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

typedef struct tier_control_open_options {
  size_t struct_size;
  const char* name;  /* NULL: the daemon makes a name */
  const char* token; /* NULL: the channel's token, else the daemon makes one */
  int mode;          /* TIER_MODE_... */
  int named;
  int rank; /* read only where world_size > 0 */
  int world_size;
  uint64_t guarantee_bytes;
  uint64_t limit_bytes;
} tier_control_open_options;
#define TIER_CONTROL_OPEN_OPTIONS_INIT {sizeof(tier_control_open_options), NULL, NULL, TIER_MODE_ATTACH, 0, -1, 0, 0, 0}

/* Opens a job for processes that will attach to it; rules and refusals are those of tier_connect. The daemon waits 60 s
 * for the first process, and accepts no other token meanwhile. Then it closes an ephemeral job; a named job accepts any
 * next run of its owner. */
TIER_API int tier_control_open_job(tier_control* control, const tier_control_open_options* options,
                                   tier_control_job* job);
/* Ends the job's sessions (with REVOKED) and frees its tensors. `purge` 1 also deletes what a named job persisted, even
 * if the job is not open. */
TIER_API int tier_control_close_job(tier_control* control, const char* name, int purge);
/* Changes the guarantee, the limit or both; NULL: no change. Fills *job unless NULL. */
TIER_API int tier_control_set_job(tier_control* control, const char* name, const uint64_t* guarantee_bytes,
                                  const uint64_t* limit_bytes, tier_control_job* job);
/* Lists the jobs that this caller may see: writes up to `max`, each jobs[0].struct_size long; *count becomes the number
 * of all such jobs. */
TIER_API int tier_control_list_jobs(tier_control* control, tier_control_job* jobs, size_t max, size_t* count);
/* Writes the job's dirty bytes to SSD, and waits up to timeout_ms (0: 60 s) until they are there. Does nothing where
 * the daemon has no SSD tier. An empty name is INVALID. */
TIER_API int tier_control_drain(tier_control* control, const char* name, uint32_t timeout_ms);
/* The same for all jobs of the daemon, which then takes no new job or process, also where this fails, until
 * tier_control_undrain; jobs that run go on. Administrators only, as the next. */
TIER_API int tier_control_drain_node(tier_control* control, uint32_t timeout_ms);
/* New jobs and processes are taken again. */
TIER_API int tier_control_undrain(tier_control* control);
/* Starts to move all bytes off a device, and returns. Administrators only. */
TIER_API int tier_control_drain_device(tier_control* control, uint32_t device);

typedef struct tier_control_event {
  size_t struct_size;
  uint64_t sequence; /* rises with each event of the daemon, also with those that this caller may not see */
  int64_t unix_time_ms;
  char kind[32]; /* job_opened, session_attached ...; events_lost: some up to this one are missing here */
  char job[128];
  char message[512];
  int has_uid;    /* 0: it is of no job, and uid means nothing */
  uint32_t uid;   /* whose job it is, as several users may have jobs of one name */
  char owner[64]; /* the owner of a socket whose uid this is; "": a user of the system, or of no job */
} tier_control_event;
#define TIER_CONTROL_EVENT_INIT {sizeof(tier_control_event), 0, 0, "", "", "", 0, 0, ""}

/* Begins a stream of events. From its return on no event is missed. */
TIER_API int tier_control_watch_start(tier_control* control, tier_control_watch** watch);
/* The same, and first come the events behind the one with this `sequence`, as far as the daemon has kept them; 0: all
 * that it has. For who was away: an events_lost stands for those that it has no more. */
TIER_API int tier_control_watch_since(tier_control* control, uint64_t since, tier_control_watch** watch);
/* The next event; TIMEOUT after timeout_ms without one; DISCONNECTED when the daemon is gone. */
TIER_API int tier_control_watch_next(tier_control_watch* watch, uint32_t timeout_ms, tier_control_event* event);
TIER_API void tier_control_watch_stop(tier_control_watch* watch); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif /* TIER_CONTROL_H */
