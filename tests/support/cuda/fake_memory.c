/* Memory of the fake driver: "device" allocations that are host memory, registrations, pointer attributes, copies. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cuda/fake_cuda.h"
#include "tests/support/cuda/fake_state.h"

typedef struct range {
  char* start;
  size_t bytes;
  fake_context* context;
  int kind;       /* of an allocation */
  unsigned flags; /* of a registration */
  struct range* next;
} range;

static range* allocations;
static range* registrations;

static range* find(range* list, const void* pointer) {
  const char* const at = pointer;
  for (range* entry = list; entry != NULL; entry = entry->next) {
    if (at >= entry->start && at < entry->start + entry->bytes) return entry;
  }
  return NULL;
}

static int overlaps(const range* entry, const void* pointer, size_t bytes) {
  const char* const at = pointer;
  return at < entry->start + entry->bytes && entry->start < at + bytes;
}

static void prepend(range** list, range value) {
  range* const entry = malloc(sizeof *entry);
  *entry = value;
  entry->next = *list;
  *list = entry;
}

static void unlink_entry(range** list, const range* gone) {
  range** link = list;
  while (*link != gone) link = &(*link)->next;
  *link = gone->next;
}

void fake_memory_reset(void) {
  while (allocations != NULL) {
    range* const gone = allocations;
    allocations = gone->next;
    free(gone->start);
    free(gone);
  }
  while (registrations != NULL) {
    range* const gone = registrations;
    registrations = gone->next;
    free(gone);
  }
}

void* fake_allocate(size_t bytes, int kind) {
  char* const memory = malloc(bytes);
  fake_context* const context = kind == FAKE_ALLOC_WITHOUT_CONTEXT ? NULL : fake_current();
  prepend(&allocations, (range){.start = memory, .bytes = bytes, .context = context, .kind = kind});
  return memory;
}

int fake_cuMemAlloc(unsigned long long* pointer, size_t bytes) {
  int code = fake_enter("cuMemAlloc", 1);
  if (code == FAKE_SUCCESS && fake_current() == NULL) code = FAKE_INVALID_CONTEXT;
  if (code == FAKE_SUCCESS) *pointer = (unsigned long long)(uintptr_t)fake_allocate(bytes, FAKE_ALLOC_PLAIN);
  return fake_leave(code);
}

int fake_cuMemFree(unsigned long long pointer) {
  int code = fake_enter("cuMemFree", 1);
  range* const entry = find(allocations, (const void*)(uintptr_t)pointer);
  if (code == FAKE_SUCCESS && entry == NULL) code = FAKE_INVALID_VALUE;
  if (code == FAKE_SUCCESS) {
    fake_run_all(); /* Freeing waits for the device. */
    unlink_entry(&allocations, entry);
    free(entry->start);
    free(entry);
  }
  return fake_leave(code);
}

int fake_cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  int code = fake_enter("cuMemHostRegister", 1);
  if (code == FAKE_SUCCESS && fake_current() == NULL) code = FAKE_INVALID_CONTEXT;
  if (code == FAKE_SUCCESS && (address == NULL || bytes == 0)) code = FAKE_INVALID_VALUE;
  for (const range* entry = registrations; code == FAKE_SUCCESS && entry != NULL; entry = entry->next) {
    if (overlaps(entry, address, bytes)) code = FAKE_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if (code == FAKE_SUCCESS) {
    prepend(&registrations, (range){.start = address, .bytes = bytes, .context = fake_current(), .flags = flags});
  }
  return fake_leave(code);
}

int fake_cuMemHostUnregister(void* address) {
  int code = fake_enter("cuMemHostUnregister", 1);
  range* const entry = find(registrations, address);
  if (code == FAKE_SUCCESS && fake_current() == NULL) code = FAKE_INVALID_CONTEXT;
  if (code == FAKE_SUCCESS && (entry == NULL || entry->start != address)) code = FAKE_HOST_MEMORY_NOT_REGISTERED;
  if (code == FAKE_SUCCESS) {
    if (fake_host_in_use(entry->start, entry->bytes)) {
      fprintf(stderr, "fake CUDA driver: memory unregistered while queued copies use it\n");
      abort();
    }
    unlink_entry(&registrations, entry);
    free(entry);
  }
  return fake_leave(code);
}

int fake_host_in_use(const void* host, size_t bytes) {
  const range window = {.start = (char*)(uintptr_t)host, .bytes = bytes};
  for (const fake_stream* stream = fake_streams(); stream != NULL; stream = stream->next) {
    for (const fake_work* work = stream->first; work != NULL; work = work->next) {
      if (work->kind != FAKE_COPY) continue;
      if (overlaps(&window, work->target, work->bytes) || overlaps(&window, work->source, work->bytes)) return 1;
    }
  }
  return 0;
}

uint64_t fake_registrations(void) {
  uint64_t count = 0;
  for (const range* entry = registrations; entry != NULL; entry = entry->next) ++count;
  return count;
}

uint64_t fake_registered_flags(void* address) {
  const range* const entry = find(registrations, address);
  return entry != NULL && entry->start == address ? entry->flags : UINT64_MAX;
}

int fake_cuPointerGetAttribute(void* value, int attribute, unsigned long long pointer) {
  enum { kContext = 1, kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9, kHost = 1, kDevice = 2 };
  int code = fake_enter("cuPointerGetAttribute", 1);
  const range* const device = find(allocations, (const void*)(uintptr_t)pointer);
  const range* const entry = device != NULL ? device : find(registrations, (const void*)(uintptr_t)pointer);
  if (code == FAKE_SUCCESS && entry == NULL) code = FAKE_INVALID_VALUE;
  if (code != FAKE_SUCCESS) return fake_leave(code);
  const int managed = device != NULL && device->kind == FAKE_ALLOC_MANAGED;
  if (attribute == kContext) {
    *(void**)value = entry->context;
  } else if (attribute == kMemoryType) {
    *(unsigned*)value = device != NULL && !managed ? kDevice : kHost;
  } else if (attribute == kIsManaged) {
    *(unsigned*)value = (unsigned)managed;
  } else if (attribute == kDeviceOrdinal) {
    *(int*)value = entry->context != NULL ? entry->context->device : 0;
  } else {
    code = FAKE_INVALID_VALUE;
  }
  return fake_leave(code);
}

/* INVALID_VALUE unless the device side lies in one allocation and the host side does not cross a registration's border.
 * *pinned: the host side lies in a registration. */
static int check_copy(const void* device, const void* host, size_t bytes, int* pinned) {
  const range* const allocation = find(allocations, device);
  if (allocation == NULL || (const char*)device + bytes > allocation->start + allocation->bytes)
    return FAKE_INVALID_VALUE;
  const range* const first = find(registrations, host);
  *pinned = first != NULL;
  for (const range* entry = registrations; entry != NULL; entry = entry->next) {
    if (!overlaps(entry, host, bytes)) continue;
    if (entry != first || (const char*)host + bytes > entry->start + entry->bytes) return FAKE_INVALID_VALUE;
  }
  return FAKE_SUCCESS;
}

static fake_work* queue_copy(fake_stream* stream, void* target, const void* source, size_t bytes) {
  fake_work* const work = fake_queue(stream, FAKE_COPY);
  work->target = target;
  work->source = source;
  work->bytes = bytes;
  return work;
}

int fake_cuMemcpyHtoDAsync(unsigned long long target, const void* source, size_t bytes, void* stream) {
  int code = fake_enter("cuMemcpyHtoDAsync", 1);
  void* const device = (void*)(uintptr_t)target;
  fake_stream* const queue = fake_stream_of(stream);
  int pinned = 0;
  if (code == FAKE_SUCCESS && queue == NULL) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS) code = check_copy(device, source, bytes, &pinned);
  if (code == FAKE_SUCCESS) {
    fake_work* const work = queue_copy(queue, device, source, bytes);
    if (!pinned) { /* Pageable memory is read before the call returns. */
      work->staged = malloc(bytes);
      memcpy(work->staged, source, bytes);
      work->source = work->staged;
    }
  }
  return fake_leave(code);
}

int fake_cuMemcpyDtoHAsync(void* target, unsigned long long source, size_t bytes, void* stream) {
  int code = fake_enter("cuMemcpyDtoHAsync", 1);
  const void* const device = (const void*)(uintptr_t)source;
  fake_stream* const queue = fake_stream_of(stream);
  int pinned = 0;
  if (code == FAKE_SUCCESS && queue == NULL) code = FAKE_INVALID_HANDLE;
  if (code == FAKE_SUCCESS) code = check_copy(device, target, bytes, &pinned);
  if (code == FAKE_SUCCESS) {
    (void)queue_copy(queue, target, device, bytes);
    if (!pinned) code = fake_run(queue, NULL); /* Pageable memory is written before the call returns. */
  }
  return fake_leave(code);
}
