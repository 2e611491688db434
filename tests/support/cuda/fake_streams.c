/* Streams and events of the fake driver: queues of work that run when somebody waits for them or asks. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/cuda/fake_state.h"

static fake_stream* streams;
static fake_event* events;
static int holding;

static fake_stream* new_stream(fake_context* context) {
  fake_stream* const stream = calloc(1, sizeof *stream);
  stream->context = context;
  stream->last = &stream->first;
  stream->next = streams;
  streams = stream;
  return stream;
}

static void free_event_if_unused(fake_event* event) {
  if (!event->destroyed || event->references > 0) return;
  fake_event** link = &events;
  while (*link != event) link = &(*link)->next;
  *link = event->next;
  free(event);
}

static void free_work(fake_work* work) {
  if (work->event != NULL) {
    --work->event->references;
    free_event_if_unused(work->event);
  }
  free(work->staged);
  free(work);
}

static void free_stream(fake_stream* stream) {
  while (stream->first != NULL) {
    fake_work* const work = stream->first;
    stream->first = work->next;
    free_work(work);
  }
  fake_stream** link = &streams;
  while (*link != stream) link = &(*link)->next;
  *link = stream->next;
  for (fake_event* event = events; event != NULL; event = event->next) {
    if (event->stream == stream) event->stream = NULL;
  }
  if (stream->context->default_stream == stream) stream->context->default_stream = NULL;
  free(stream);
}

void fake_streams_reset(void) {
  while (streams != NULL) free_stream(streams);
  while (events != NULL) {
    fake_event* const gone = events;
    events = gone->next;
    free(gone);
  }
  holding = 0;
}

void fake_streams_of_context_end(const fake_context* context) {
  fake_stream* stream = streams;
  while (stream != NULL) {
    fake_stream* const next = stream->next;
    if (stream->context == context) free_stream(stream);
    stream = next;
  }
}

fake_stream* fake_streams(void) { return streams; }

static fake_stream* find_stream(const void* handle) {
  for (fake_stream* stream = streams; stream != NULL; stream = stream->next) {
    if (stream == handle) return stream;
  }
  return NULL;
}

static fake_event* find_event(const void* handle) {
  for (fake_event* event = events; event != NULL; event = event->next) {
    if (event == handle && !event->destroyed) return event;
  }
  return NULL;
}

fake_stream* fake_stream_of(void* handle) {
  fake_context* const current = fake_current();
  if (current == NULL) return NULL;
  if ((uintptr_t)handle <= 2) {
    if (current->default_stream == NULL) current->default_stream = new_stream(current);
    return current->default_stream;
  }
  fake_stream* const stream = find_stream(handle);
  return stream != NULL && stream->context == current ? stream : NULL;
}

fake_work* fake_queue(fake_stream* stream, int kind) {
  fake_work* const work = calloc(1, sizeof *work);
  work->kind = kind;
  *stream->last = work;
  stream->last = &work->next;
  return work;
}

/* Does the first thing in the queue. */
static int run_first(fake_stream* stream) {
  fake_work* const work = stream->first;
  int code = FAKE_SUCCESS;
  if (work->kind == FAKE_WAIT && work->event->done < work->ticket && work->event->stream != NULL) {
    code = fake_run(work->event->stream, work->event);
  }
  stream->first = work->next;
  if (stream->first == NULL) stream->last = &stream->first;
  if (work->kind == FAKE_COPY) memmove(work->target, work->source, work->bytes);
  if (work->kind == FAKE_CALL) work->function(work->argument);
  if (work->kind == FAKE_RECORD) work->event->done = work->ticket;
  if (work->kind == FAKE_FAIL) code = stream->context->sticky = FAKE_LAUNCH_FAILED;
  free_work(work);
  return code;
}

/* Until the queue is empty or, with `until`, that event's last record has been reached. */
int fake_run(fake_stream* stream, const fake_event* until) {
  const uint64_t ticket = until != NULL ? until->recorded : 0;
  while (stream->first != NULL && (until == NULL || until->done < ticket)) {
    if (stream->context->sticky != FAKE_SUCCESS) return stream->context->sticky;
    const int code = run_first(stream);
    if (code != FAKE_SUCCESS) return code;
  }
  return stream->context->sticky;
}

void fake_run_all(void) {
  for (fake_stream* stream = streams; stream != NULL; stream = stream->next) (void)fake_run(stream, NULL);
}

int fake_cuStreamCreate(void** stream, unsigned flags) {
  int code = fake_enter("cuStreamCreate", 1);
  if (code == FAKE_SUCCESS && fake_current() == NULL) code = FAKE_INVALID_CONTEXT;
  if (code == FAKE_SUCCESS && flags > 1) code = FAKE_INVALID_VALUE;
  if (code == FAKE_SUCCESS) *stream = new_stream(fake_current());
  return fake_leave(code);
}

int fake_cuStreamDestroy(void* handle) {
  int code = fake_enter("cuStreamDestroy", 1);
  fake_stream* const stream = find_stream(handle);
  if (code == FAKE_SUCCESS && stream == NULL) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS) {
    code = fake_run(stream, NULL);
    free_stream(stream);
  }
  return fake_leave(code);
}

int fake_cuStreamGetCtx(void* handle, void** context) {
  int code = fake_enter("cuStreamGetCtx", 1);
  const fake_stream* const stream = find_stream(handle);
  if (code == FAKE_SUCCESS && stream == NULL) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS) *context = stream->context;
  return fake_leave(code);
}

int fake_cuStreamSynchronize(void* handle) {
  int code = fake_enter("cuStreamSynchronize", 1);
  fake_stream* const stream = fake_stream_of(handle);
  if (code == FAKE_SUCCESS && stream == NULL) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS) code = fake_run(stream, NULL);
  return fake_leave(code);
}

int fake_cuLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  int code = fake_enter("cuLaunchHostFunc", 1);
  fake_stream* const stream = fake_stream_of(handle);
  if (code == FAKE_SUCCESS && stream == NULL) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS) {
    fake_work* const work = fake_queue(stream, FAKE_CALL);
    work->function = function;
    work->argument = argument;
  }
  return fake_leave(code);
}

int fake_launch_failing(void* handle) {
  int code = fake_enter("cuLaunchKernel", 1);
  fake_stream* const stream = fake_stream_of(handle);
  if (code == FAKE_SUCCESS && stream == NULL) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS) (void)fake_queue(stream, FAKE_FAIL);
  return fake_leave(code);
}

static void attach(fake_work* work, fake_event* event, uint64_t ticket) {
  work->event = event;
  work->ticket = ticket;
  ++event->references;
}

int fake_cuEventCreate(void** handle, unsigned flags) {
  (void)flags;
  int code = fake_enter("cuEventCreate", 1);
  if (code == FAKE_SUCCESS && fake_current() == NULL) code = FAKE_INVALID_CONTEXT;
  if (code == FAKE_SUCCESS) {
    fake_event* const event = calloc(1, sizeof *event);
    event->context = fake_current();
    event->next = events;
    events = event;
    *handle = event;
  }
  return fake_leave(code);
}

int fake_cuEventDestroy(void* handle) {
  int code = fake_enter("cuEventDestroy", 1);
  fake_event* const event = find_event(handle);
  if (event == NULL) return fake_leave(FAKE_INVALID_HANDLE);
  if (code == FAKE_LAUNCH_FAILED) code = FAKE_SUCCESS;
  if (code == FAKE_SUCCESS) {
    event->destroyed = 1;
    free_event_if_unused(event);
  }
  return fake_leave(code);
}

int fake_cuEventRecord(void* handle, void* stream_handle) {
  int code = fake_enter("cuEventRecord", 1);
  fake_event* const event = find_event(handle);
  fake_stream* const stream = fake_stream_of(stream_handle);
  if (code == FAKE_SUCCESS && (event == NULL || stream == NULL)) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS && event->context != stream->context) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS) {
    event->stream = stream;
    attach(fake_queue(stream, FAKE_RECORD), event, ++event->recorded);
  }
  return fake_leave(code);
}

int fake_cuStreamWaitEvent(void* stream_handle, void* handle, unsigned flags) {
  int code = fake_enter("cuStreamWaitEvent", 1);
  fake_event* const event = find_event(handle);
  fake_stream* const stream = fake_stream_of(stream_handle);
  if (code == FAKE_SUCCESS && (event == NULL || stream == NULL)) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS && flags != 0) code = FAKE_INVALID_VALUE;
  if (code == FAKE_SUCCESS) attach(fake_queue(stream, FAKE_WAIT), event, event->recorded);
  return fake_leave(code);
}

int fake_cuEventQuery(void* handle) {
  int code = fake_enter("cuEventQuery", 1);
  const fake_event* const event = find_event(handle);
  if (code == FAKE_SUCCESS && event == NULL) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS && event->done < event->recorded) {
    code = holding ? FAKE_NOT_READY : fake_run(event->stream, event);
  }
  return fake_leave(code);
}

int fake_cuEventSynchronize(void* handle) {
  int code = fake_enter("cuEventSynchronize", 1);
  const fake_event* const event = find_event(handle);
  if (code == FAKE_SUCCESS && event == NULL) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS && event->done < event->recorded) code = fake_run(event->stream, event);
  return fake_leave(code);
}

void fake_hold(int hold) { holding = hold; }

uint64_t fake_count_streams(void) { /* Default streams are nobody's. */
  uint64_t count = 0;
  for (const fake_stream* stream = streams; stream != NULL; stream = stream->next) {
    count += stream->context->default_stream != stream;
  }
  return count;
}

uint64_t fake_count_events(void) {
  uint64_t count = 0;
  for (const fake_event* event = events; event != NULL; event = event->next) count += !event->destroyed;
  return count;
}
