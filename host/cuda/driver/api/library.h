/* NVIDIA's libraries other than the driver: each is opened on first use and its functions looked up in a table. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* A function and its place in the library's struct of pointers. */
struct ah_cuda_symbol {
    const char *name;
    size_t place;
};

struct ah_cuda_library {
    const char *title;        /* "cuBLASLt" */
    const char *const *files; /* the names to try, the newest first; NULL at the end */
    const struct ah_cuda_symbol *symbols;
    size_t count;
    void *table;
    bool without_driver; /* it needs no driver that has been started */
    pthread_mutex_t lock;
    int state; /* 0: not asked for yet; 1: open; else the status */
    char reason[512];
};

/* Open it, once; the simulated GPU has all of them in one library. AH_EINVAL names the missing part in one line, each
 * time the same. Any thread. */
int ah_cuda_library_open(struct ah_cuda_library *library);
