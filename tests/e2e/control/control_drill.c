/* A launcher's day, in C: opens a job by libtier-control, lets libtier swap in it from another thread, and meanwhile
 * watches, limits, drains and closes it. Prints one line a step; exit 1 with a sentence at the first surprise.
 *
 *   control_drill CONTROL_SOCKET DATA_SOCKET */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tier/control.h"
#include "tier/tier.h"

enum { TENSORS = 8, TENSOR_BYTES = 4 << 20, ROUNDS_MAX = 100000 };

static const char* data_socket;
static char token[65];
static atomic_int rounds;

static void require(int condition, const char* what, const char* why) {
  if (condition) return;
  fprintf(stderr, "control_drill: %s: %s\n", what, why);
  exit(1);
}
#define CONTROL(call) require((call) == TIER_OK, #call, tier_control_last_error())
#define DATA(call) require((call) == TIER_OK, #call, tier_last_error())

/* Swaps until its session is revoked, which is how it learns that the job was closed. */
static void* swap(void* unused) {
  (void)unused;
  tier_connect_options options = TIER_CONNECT_OPTIONS_INIT;
  options.socket = data_socket;
  options.job = "drill";
  options.token = token;
  options.mode = TIER_MODE_JOIN;
  tier_client* client = NULL;
  DATA(tier_connect(&options, &client));
  unsigned char* bytes = malloc(TENSOR_BYTES);
  unsigned char* back = malloc(TENSOR_BYTES);
  int code = TIER_OK;
  for (int round = 0; round < ROUNDS_MAX && code == TIER_OK; ++round) {
    memset(bytes, round & 255, TENSOR_BYTES);
    tier_op* op = NULL;
    code = tier_swap_out(client, 1 + (uint64_t)(round % TENSORS), bytes, TENSOR_BYTES, NULL, &op);
    if (code == TIER_OK) code = tier_wait(op, 0, NULL);
    if (code != TIER_OK) break;
    code = tier_swap_in(client, 1 + (uint64_t)(round % TENSORS), back, TENSOR_BYTES, NULL, &op);
    if (code == TIER_OK) code = tier_wait(op, 0, NULL);
    if (code == TIER_OK)
      require(memcmp(bytes, back, TENSOR_BYTES) == 0, "swap_in", "other bytes than were swapped out");
    atomic_fetch_add(&rounds, 1);
  }
  require(code == TIER_REVOKED, "the swaps should end by revocation", tier_last_error());
  tier_close(client);
  free(bytes);
  free(back);
  return NULL;
}

static void wait_for_event(tier_control_watch* watch, const char* kind) {
  tier_control_event event = TIER_CONTROL_EVENT_INIT;
  do {
    CONTROL(tier_control_watch_next(watch, 10000, &event));
  } while (strcmp(event.kind, kind) != 0 || strcmp(event.job, "drill") != 0);
  require(event.has_uid && event.uid == geteuid() && event.owner[0] == '\0', "event", "not of this user's job");
  printf("event %s: %s\n", event.kind, event.message);
}

static void refuse_a_wrong_token(const char* control_socket) {
  tier_control* stranger = NULL;
  tier_control_job job = TIER_CONTROL_JOB_INIT;
  tier_control_open_options open = TIER_CONTROL_OPEN_OPTIONS_INIT;
  const char* wrong = "0000000000000000000000000000000000000000000000000000000000000000";
  CONTROL(tier_control_connect(control_socket, wrong, &stranger));
  open.name = "drill";
  open.mode = TIER_MODE_JOIN;
  open.token = wrong;
  const int code = tier_control_open_job(stranger, &open, &job);
  require(code == TIER_DENIED, "a wrong token must be DENIED", tier_control_last_error());
  printf("wrong token: %s\n", tier_control_last_error());
  tier_control_close(stranger);
}

int main(int argc, char** argv) {
  require(argc == 3, "usage", "control_drill CONTROL_SOCKET DATA_SOCKET");
  data_socket = argv[2];
  tier_control* control = NULL;
  CONTROL(tier_control_connect(argv[1], NULL, &control));
  tier_control_watch* watch = NULL;
  CONTROL(tier_control_watch_start(control, &watch));

  tier_control_open_options open = TIER_CONTROL_OPEN_OPTIONS_INIT;
  open.name = "drill";
  open.mode = TIER_MODE_CREATE;
  tier_control_job job = TIER_CONTROL_JOB_INIT;
  CONTROL(tier_control_open_job(control, &open, &job));
  require(strlen(job.token) == 64, "open", "no token");
  memcpy(token, job.token, sizeof(token));
  wait_for_event(watch, "job_opened");

  pthread_t swapper;
  require(pthread_create(&swapper, NULL, swap, NULL) == 0, "pthread_create", "failed");
  wait_for_event(watch, "session_attached");
  refuse_a_wrong_token(argv[1]);

  const uint64_t limit = 16u << 20;
  CONTROL(tier_control_set_job(control, "drill", NULL, &limit, &job));
  require(job.limit_bytes == limit, "set_job", "the limit is not what was set");
  wait_for_event(watch, "job_changed");
  const int before = atomic_load(&rounds);
  CONTROL(tier_control_drain(control, "drill", 30000));
  size_t count = 0;
  tier_control_job jobs[4] = {TIER_CONTROL_JOB_INIT, TIER_CONTROL_JOB_INIT, TIER_CONTROL_JOB_INIT,
                              TIER_CONTROL_JOB_INIT};
  CONTROL(tier_control_list_jobs(control, jobs, 4, &count));
  require(count >= 1, "list_jobs", "the job is not listed");
  while (atomic_load(&rounds) < before + 2) { /* The swaps go on under the new limit. */
    tier_control_event event = TIER_CONTROL_EVENT_INIT;
    (void)tier_control_watch_next(watch, 10, &event);
  }
  CONTROL(tier_control_close_job(control, "drill", 0));
  wait_for_event(watch, "job_closed");
  require(pthread_join(swapper, NULL) == 0, "pthread_join", "failed");
  printf("drill done: %d swaps\n", atomic_load(&rounds));
  tier_control_watch_stop(watch);
  CONTROL(tier_control_watch_since(control, 0, &watch)); /* Who was away is told what happened meanwhile. */
  wait_for_event(watch, "job_opened");
  wait_for_event(watch, "job_closed");
  tier_control_watch_stop(watch);
  tier_control_close(control);
  return 0;
}
