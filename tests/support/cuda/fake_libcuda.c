/* Entry points of the fake driver: loading, devices, contexts, errors, scripts. See README.md. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/cuda/fake_cuda.h"
#include "tests/support/cuda/fake_state.h"

#define EXPORT __attribute__((visibility("default")))
#define FUNCTIONS_MAX 64

typedef void (*any_function)(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialised;
static pid_t process;
static int device_count = -1;
static fake_context primaries[FAKE_DEVICES_MAX];
static fake_context* others;
static char hidden[64];

static __thread fake_context* stack[FAKE_STACK_MAX];
static __thread int depth;

static struct {
  char name[48];
  uint64_t calls;
  int code;
  int skip;
  int times;
} functions[FUNCTIONS_MAX];
static int function_count;

static int function_index(const char* name) {
  for (int i = 0; i < function_count; ++i) {
    if (strcmp(functions[i].name, name) == 0) return i;
  }
  if (function_count == FUNCTIONS_MAX) abort();
  snprintf(functions[function_count].name, sizeof functions[0].name, "%s", name);
  return function_count++;
}

static void read_environment(void) {
  if (device_count >= 0) return;
  const char* const devices = getenv("FAKE_CUDA_DEVICES");
  device_count = devices != NULL ? atoi(devices) : 1;
  if (device_count < 0 || device_count > FAKE_DEVICES_MAX) abort();
  const char* const script = getenv("FAKE_CUDA_FAIL");
  const char* const equals = script != NULL ? strchr(script, '=') : NULL;
  if (equals == NULL) return;
  char name[48];
  snprintf(name, sizeof name, "%.*s", (int)(equals - script), script);
  const int index = function_index(name);
  functions[index].code = atoi(equals + 1);
  functions[index].times = -1;
}

int fake_enter(const char* function, int needs_init) {
  pthread_mutex_lock(&lock);
  read_environment();
  if (initialised && process != getpid()) {
    fprintf(stderr, "fake CUDA driver: %s called in a forked child\n", function);
    abort();
  }
  const int index = function_index(function);
  ++functions[index].calls;
  if (functions[index].code != FAKE_SUCCESS && functions[index].times != 0) {
    if (functions[index].skip > 0) {
      --functions[index].skip;
    } else {
      if (functions[index].times > 0) --functions[index].times;
      return functions[index].code;
    }
  }
  if (needs_init && !initialised) return FAKE_NOT_INITIALIZED;
  const fake_context* const current = fake_current();
  return current != NULL && needs_init ? current->sticky : FAKE_SUCCESS;
}

int fake_leave(int code) {
  pthread_mutex_unlock(&lock);
  return code;
}

fake_context* fake_current(void) { return depth > 0 ? stack[depth - 1] : NULL; }
fake_context* fake_primary(int device) { return &primaries[device]; }

int fake_context_alive(const fake_context* context) {
  for (int device = 0; device < device_count; ++device) {
    if (context == &primaries[device]) return context->retains > 0;
  }
  for (const fake_context* other = others; other != NULL; other = other->next) {
    if (context == other) return 1;
  }
  return 0;
}

static int cu_init(unsigned flags) {
  int code = fake_enter("cuInit", 0);
  if (code == FAKE_SUCCESS && flags != 0) code = FAKE_INVALID_VALUE;
  if (code == FAKE_SUCCESS && device_count == 0) code = FAKE_NO_DEVICE;
  if (code == FAKE_SUCCESS) {
    initialised = 1;
    process = getpid();
  }
  return fake_leave(code);
}

static int cu_driver_get_version(int* version) {
  const int code = fake_enter("cuDriverGetVersion", 0);
  *version = 13000;
  return fake_leave(code);
}

static int cu_get_error_name(int code, const char** name) {
  static const struct {
    int code;
    const char* name;
  } names[] = {
      {FAKE_SUCCESS, "CUDA_SUCCESS"},
      {FAKE_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {FAKE_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {FAKE_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
      {FAKE_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
      {FAKE_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
      {FAKE_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
      {FAKE_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
      {FAKE_NOT_READY, "CUDA_ERROR_NOT_READY"},
      {FAKE_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
      {FAKE_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {FAKE_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
      {FAKE_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    if (names[i].code != code) continue;
    *name = names[i].name;
    return FAKE_SUCCESS;
  }
  *name = NULL;
  return FAKE_INVALID_VALUE;
}

static int cu_device_get_count(int* count) {
  const int code = fake_enter("cuDeviceGetCount", 1);
  *count = device_count;
  return fake_leave(code);
}

static int check_device(int code, int device) {
  if (code != FAKE_SUCCESS) return code;
  return device >= 0 && device < device_count ? FAKE_SUCCESS : FAKE_INVALID_DEVICE;
}

static int cu_device_get(int* device, int ordinal) {
  const int code = check_device(fake_enter("cuDeviceGet", 1), ordinal);
  *device = ordinal;
  return fake_leave(code);
}

static int cu_primary_get_state(int device, unsigned* flags, int* active) {
  const int code = check_device(fake_enter("cuDevicePrimaryCtxGetState", 1), device);
  if (code == FAKE_SUCCESS) {
    *flags = 0;
    *active = primaries[device].retains > 0;
  }
  return fake_leave(code);
}

static int cu_primary_retain(void** context, int device) {
  const int code = check_device(fake_enter("cuDevicePrimaryCtxRetain", 1), device);
  if (code == FAKE_SUCCESS) {
    primaries[device].device = device;
    primaries[device].primary = 1;
    ++primaries[device].retains;
    *context = &primaries[device];
  }
  return fake_leave(code);
}

static int cu_primary_release(int device) {
  int code = check_device(fake_enter("cuDevicePrimaryCtxRelease", 1), device);
  if (code == FAKE_SUCCESS && primaries[device].retains == 0) code = FAKE_INVALID_CONTEXT;
  if (code == FAKE_SUCCESS && --primaries[device].retains == 0) {
    fake_streams_of_context_end(&primaries[device]);
    primaries[device].sticky = FAKE_SUCCESS;
  }
  return fake_leave(code);
}

static int cu_ctx_create(void** context, unsigned flags, int device) {
  (void)flags;
  const int code = check_device(fake_enter("cuCtxCreate", 1), device);
  if (code == FAKE_SUCCESS) {
    fake_context* const made = calloc(1, sizeof *made);
    made->device = device;
    made->retains = 1;
    made->next = others;
    others = made;
    if (depth < FAKE_STACK_MAX) stack[depth++] = made;
    *context = made;
  }
  return fake_leave(code);
}

static int cu_ctx_destroy(void* context) {
  int code = fake_enter("cuCtxDestroy", 1);
  fake_context** link = &others;
  while (*link != NULL && *link != context) link = &(*link)->next;
  if (code == FAKE_SUCCESS && *link == NULL) code = FAKE_INVALID_CONTEXT;
  if (code == FAKE_SUCCESS) {
    fake_context* const gone = *link;
    *link = gone->next;
    fake_streams_of_context_end(gone);
    if (fake_current() == gone) --depth;
    free(gone);
  }
  return fake_leave(code);
}

static int cu_ctx_get_current(void** context) {
  const int code = fake_enter("cuCtxGetCurrent", 1);
  *context = fake_current();
  return fake_leave(code == FAKE_LAUNCH_FAILED ? FAKE_SUCCESS : code);
}

static int cu_ctx_set_current(void* context) {
  const int code = fake_enter("cuCtxSetCurrent", 1);
  if (code == FAKE_SUCCESS) {
    if (depth > 0) --depth;
    if (context != NULL) stack[depth++] = context;
  }
  return fake_leave(code);
}

static int cu_ctx_push(void* context) {
  int code = fake_enter("cuCtxPushCurrent", 1);
  if (code == FAKE_LAUNCH_FAILED) code = FAKE_SUCCESS;
  if (code == FAKE_SUCCESS && context == NULL) code = FAKE_INVALID_CONTEXT;
  if (code == FAKE_SUCCESS && !fake_context_alive(context)) code = FAKE_CONTEXT_IS_DESTROYED;
  if (code == FAKE_SUCCESS && depth == FAKE_STACK_MAX) abort();
  if (code == FAKE_SUCCESS) stack[depth++] = context;
  return fake_leave(code);
}

static int cu_ctx_pop(void** context) {
  int code = fake_enter("cuCtxPopCurrent", 1);
  if (code == FAKE_LAUNCH_FAILED) code = FAKE_SUCCESS;
  if (code == FAKE_SUCCESS && depth == 0) code = FAKE_INVALID_CONTEXT;
  if (code == FAKE_SUCCESS) *context = stack[--depth];
  return fake_leave(code);
}

static int cu_ctx_get_device(int* device) {
  int code = fake_enter("cuCtxGetDevice", 1);
  if (code == FAKE_SUCCESS && fake_current() == NULL) code = FAKE_INVALID_CONTEXT;
  if (code == FAKE_SUCCESS) *device = fake_current()->device;
  return fake_leave(code);
}

static int cu_device_get_pci_bus_id(char* address, int size, int device) {
  int code = fake_enter("cuDeviceGetPCIBusId", 1);
  if (code == FAKE_SUCCESS && (device < 0 || device >= FAKE_DEVICES_MAX)) code = FAKE_INVALID_DEVICE;
  if (code == FAKE_SUCCESS) (void)snprintf(address, (size_t)size, "0000:%02X:00.0", 0x3a + device);
  return fake_leave(code);
}

#define ENTRY(name, function) {name, (any_function)(function)}
static const struct {
  const char* name;
  any_function function;
} entries[] = {
    ENTRY("cuInit", cu_init),
    ENTRY("cuDriverGetVersion", cu_driver_get_version),
    ENTRY("cuGetErrorName", cu_get_error_name),
    ENTRY("cuDeviceGetCount", cu_device_get_count),
    ENTRY("cuDeviceGet", cu_device_get),
    ENTRY("cuDevicePrimaryCtxGetState", cu_primary_get_state),
    ENTRY("cuDevicePrimaryCtxRetain", cu_primary_retain),
    ENTRY("cuDevicePrimaryCtxRelease", cu_primary_release),
    ENTRY("cuCtxCreate", cu_ctx_create),
    ENTRY("cuCtxDestroy", cu_ctx_destroy),
    ENTRY("cuCtxGetCurrent", cu_ctx_get_current),
    ENTRY("cuCtxSetCurrent", cu_ctx_set_current),
    ENTRY("cuCtxPushCurrent", cu_ctx_push),
    ENTRY("cuCtxPopCurrent", cu_ctx_pop),
    ENTRY("cuCtxGetDevice", cu_ctx_get_device),
    ENTRY("cuDeviceGetPCIBusId", cu_device_get_pci_bus_id),
    ENTRY("cuMemAlloc", fake_cuMemAlloc),
    ENTRY("cuMemFree", fake_cuMemFree),
    ENTRY("cuMemHostRegister", fake_cuMemHostRegister),
    ENTRY("cuMemHostUnregister", fake_cuMemHostUnregister),
    ENTRY("cuPointerGetAttribute", fake_cuPointerGetAttribute),
    ENTRY("cuMemcpyHtoDAsync", fake_cuMemcpyHtoDAsync),
    ENTRY("cuMemcpyDtoHAsync", fake_cuMemcpyDtoHAsync),
    ENTRY("cuStreamCreate", fake_cuStreamCreate),
    ENTRY("cuStreamDestroy", fake_cuStreamDestroy),
    ENTRY("cuStreamGetCtx", fake_cuStreamGetCtx),
    ENTRY("cuStreamSynchronize", fake_cuStreamSynchronize),
    ENTRY("cuStreamWaitEvent", fake_cuStreamWaitEvent),
    ENTRY("cuLaunchHostFunc", fake_cuLaunchHostFunc),
    ENTRY("cuEventCreate", fake_cuEventCreate),
    ENTRY("cuEventDestroy", fake_cuEventDestroy),
    ENTRY("cuEventRecord", fake_cuEventRecord),
    ENTRY("cuEventQuery", fake_cuEventQuery),
    ENTRY("cuEventSynchronize", fake_cuEventSynchronize),
};

EXPORT int cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  if (version < 11030 || flags != 0) return FAKE_INVALID_VALUE;
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; ++i) {
    if (strcmp(entries[i].name, symbol) != 0 || strcmp(symbol, hidden) == 0) continue;
    memcpy(function, &entries[i].function, sizeof *function);
    return FAKE_SUCCESS;
  }
  *function = NULL;
  return FAKE_NOT_FOUND;
}

#ifndef FAKE_CUDA_ONLY_V1
EXPORT int cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags, int* status) {
  const int code = cuGetProcAddress(symbol, function, version, flags);
  if (status != NULL) *status = code == FAKE_SUCCESS ? 0 : 1;
  return code == FAKE_NOT_FOUND ? FAKE_SUCCESS : code;  // The second version says "not found" by status and NULL.
}
#endif

static void control_reset(int devices) {
  pthread_mutex_lock(&lock);
  fake_streams_reset();
  fake_memory_reset();
  while (others != NULL) {
    fake_context* const gone = others;
    others = gone->next;
    free(gone);
  }
  memset(primaries, 0, sizeof primaries);
  memset(functions, 0, sizeof functions);
  function_count = 0;
  hidden[0] = '\0';
  initialised = 0;
  depth = 0;
  device_count = devices;
  pthread_mutex_unlock(&lock);
}

static void control_fail(const char* function, int code, int skip, int times) {
  pthread_mutex_lock(&lock);
  const int index = function_index(function);
  functions[index].code = code;
  functions[index].skip = skip;
  functions[index].times = times;
  pthread_mutex_unlock(&lock);
}

static void control_hide(const char* function) {
  snprintf(hidden, sizeof hidden, "%s", function != NULL ? function : "");
}

static uint64_t control_calls(const char* function) {
  pthread_mutex_lock(&lock);
  const uint64_t calls = functions[function_index(function)].calls;
  pthread_mutex_unlock(&lock);
  return calls;
}

static int control_primary_retains(int device) { return primaries[device].retains; }

EXPORT const fake_cuda_control_table* fake_cuda_control(void) {
  static const fake_cuda_control_table table = {
      .reset = control_reset,
      .fail = control_fail,
      .hide = control_hide,
      .hold = fake_hold,
      .launch_failing = fake_launch_failing,
      .allocate = fake_allocate,
      .calls = control_calls,
      .registrations = fake_registrations,
      .registered_flags = fake_registered_flags,
      .events = fake_count_events,
      .streams = fake_count_streams,
      .primary_retains = control_primary_retains,
  };
  return &table;
}
