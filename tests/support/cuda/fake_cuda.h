/* What tests may ask of the fake CUDA driver, besides the driver's own functions through cuGetProcAddress.
 * Every function is thread-safe. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_ALLOC_PLAIN = 0, FAKE_ALLOC_MANAGED = 1, FAKE_ALLOC_WITHOUT_CONTEXT = 2 };

typedef struct fake_cuda_control_table {
  /* As after loading: frees everything, forgets scripts and counters. `devices` < 0: from FAKE_CUDA_DEVICES, or 1. */
  void (*reset)(int devices);
  /* The next calls of `function` ("cuMemHostRegister") answer `code`: after `skip` good ones, `times` times, or always
   * with -1. */
  void (*fail)(const char* function, int code, int skip, int times);
  /* cuGetProcAddress does not know `function` (NULL: knows all again). */
  void (*hide)(const char* function);
  /* 1: cuEventQuery answers CUDA_ERROR_NOT_READY and runs nothing. */
  void (*hold)(int hold);
  /* Queues work that ends in CUDA_ERROR_LAUNCH_FAILED, which then sticks to the context. */
  int (*launch_failing)(void* stream);
  /* Device memory of another kind than cuMemAlloc's; freed by cuMemFree. */
  void* (*allocate)(size_t bytes, int kind);
  uint64_t (*calls)(const char* function);
  uint64_t (*registrations)(void);
  uint64_t (*registered_flags)(void* address); /* UINT64_MAX: not registered */
  uint64_t (*events)(void);                    /* alive */
  uint64_t (*streams)(void);                   /* alive */
  int (*primary_retains)(int device);
} fake_cuda_control_table;

const fake_cuda_control_table* fake_cuda_control(void);

#ifdef __cplusplus
}
#endif
