/* The inside of the fake driver: what its three sources share. Everything is under one lock, taken by fake_enter and
 * given back by fake_leave; the functions below other than those two are called with it held. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
  FAKE_SUCCESS = 0,
  FAKE_INVALID_VALUE = 1,
  FAKE_OUT_OF_MEMORY = 2,
  FAKE_NOT_INITIALIZED = 3,
  FAKE_NO_DEVICE = 100,
  FAKE_INVALID_DEVICE = 101,
  FAKE_INVALID_CONTEXT = 201,
  FAKE_INVALID_HANDLE = 400,
  FAKE_NOT_FOUND = 500,
  FAKE_NOT_READY = 600,
  FAKE_CONTEXT_IS_DESTROYED = 709,
  FAKE_HOST_MEMORY_ALREADY_REGISTERED = 712,
  FAKE_HOST_MEMORY_NOT_REGISTERED = 713,
  FAKE_LAUNCH_FAILED = 719,
};

#define FAKE_DEVICES_MAX 8
#define FAKE_STACK_MAX 32

typedef struct fake_context fake_context;
typedef struct fake_stream fake_stream;
typedef struct fake_event fake_event;
typedef struct fake_work fake_work;

struct fake_work {
  enum { FAKE_COPY, FAKE_CALL, FAKE_RECORD, FAKE_WAIT, FAKE_FAIL } kind;
  void* target;
  const void* source;
  void* staged; /* owned: what a pageable source held when the copy was queued */
  size_t bytes;
  void (*function)(void* argument);
  void* argument;
  fake_event* event;
  uint64_t ticket;
  fake_work* next;
};

struct fake_stream {
  fake_context* context;
  fake_work* first;
  fake_work** last;
  fake_stream* next;
};

struct fake_event {
  fake_context* context;
  fake_stream* stream; /* of the last record */
  uint64_t recorded;   /* tickets given */
  uint64_t done;       /* tickets reached */
  int destroyed;
  int references; /* by queued work */
  fake_event* next;
};

struct fake_context {
  int device;
  int primary;
  int retains; /* of a primary context; 1 for a living other one */
  int sticky;  /* the error every call in it answers from now on */
  fake_stream* default_stream;
  fake_context* next; /* other than primary ones */
};

/* Counts the call, answers a scripted error, CUDA_ERROR_NOT_INITIALIZED, or the current context's sticky error. */
int fake_enter(const char* function, int needs_init);
int fake_leave(int code);

fake_context* fake_current(void);
int fake_context_alive(const fake_context* context);
fake_context* fake_primary(int device);

/* fake_memory.c */
int fake_host_in_use(const void* host, size_t bytes); /* queued copies touch it */
void fake_memory_reset(void);
uint64_t fake_registrations(void);
uint64_t fake_registered_flags(void* address);
void* fake_allocate(size_t bytes, int kind);

/* fake_streams.c */
fake_stream* fake_stream_of(void* handle); /* the current context's default stream for default handles; NULL: invalid */
fake_work* fake_queue(fake_stream* stream, int kind);
int fake_run(fake_stream* stream, const fake_event* until);
void fake_run_all(void);
fake_stream* fake_streams(void);
void fake_streams_reset(void);
void fake_streams_of_context_end(const fake_context* context);
uint64_t fake_count_streams(void);
uint64_t fake_count_events(void);
void fake_hold(int hold);
int fake_launch_failing(void* stream);

/* Entry points, as cuGetProcAddress hands them out. */
int fake_cuMemAlloc(unsigned long long* pointer, size_t bytes);
int fake_cuMemFree(unsigned long long pointer);
int fake_cuMemHostRegister(void* address, size_t bytes, unsigned flags);
int fake_cuMemHostUnregister(void* address);
int fake_cuPointerGetAttribute(void* value, int attribute, unsigned long long pointer);
int fake_cuMemcpyHtoDAsync(unsigned long long target, const void* source, size_t bytes, void* stream);
int fake_cuMemcpyDtoHAsync(void* target, unsigned long long source, size_t bytes, void* stream);
int fake_cuStreamCreate(void** stream, unsigned flags);
int fake_cuStreamDestroy(void* stream);
int fake_cuStreamGetCtx(void* stream, void** context);
int fake_cuStreamSynchronize(void* stream);
int fake_cuStreamWaitEvent(void* stream, void* event, unsigned flags);
int fake_cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument);
int fake_cuEventCreate(void** event, unsigned flags);
int fake_cuEventDestroy(void* event);
int fake_cuEventRecord(void* event, void* stream);
int fake_cuEventQuery(void* event);
int fake_cuEventSynchronize(void* event);
