/* Memory that runs out on purpose: put in front of every source file of a build made with FAIL_ALLOC=1.
 *
 * ACCELHOST_FAIL_ALLOC=n lets the n-th request for memory of the process fail, n+ that one and all after it; requests
 * of other libraries are not counted. ACCELHOST_COUNT_ALLOC=FILE appends the number of requests at the end. Any thread.
 *
 * The system's headers are read first, so that the names below replace calls and no declarations. */
#ifndef AH_SPEC_FAIL_ALLOC_H
#define AH_SPEC_FAIL_ALLOC_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *ah_failing_malloc(size_t bytes);
void *ah_failing_calloc(size_t count, size_t bytes);
void *ah_failing_realloc(void *block, size_t bytes);
char *ah_failing_strdup(const char *text);
char *ah_failing_strndup(const char *text, size_t bytes);
int ah_failing_posix_memalign(void **out, size_t alignment, size_t bytes);
void *ah_failing_mmap(void *at, size_t bytes, int protection, int flags, int file, long offset);
int ah_failing_memfd_create(const char *name, unsigned flags);

#undef strdup
#undef strndup
#define malloc(bytes) ah_failing_malloc(bytes)
#define calloc(count, bytes) ah_failing_calloc(count, bytes)
#define realloc(block, bytes) ah_failing_realloc(block, bytes)
#define strdup(text) ah_failing_strdup(text)
#define strndup(text, bytes) ah_failing_strndup(text, bytes)
#define posix_memalign(out, alignment, bytes) ah_failing_posix_memalign(out, alignment, bytes)
#define mmap(at, bytes, protection, flags, file, offset) ah_failing_mmap(at, bytes, protection, flags, file, offset)
#define memfd_create(name, flags) ah_failing_memfd_create(name, flags)

#endif
