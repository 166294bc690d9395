/* The log of allocated and freed blocks of a recording, with the op that ran. The allocator writes it under its lock;
 * one thread starts, stops and reads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ah_memory_event {
    uint64_t block;   /* its address, which later blocks may have too */
    int64_t bytes;    /* negative: freed */
    uint64_t cached;  /* bytes in freed blocks after it */
    int64_t time_ns;  /* ah_now_ns */
    const char *tensor, *site, *module; /* of ah_memory_log_describe; NULL: not known */
    int32_t op;       /* of the op table, from 1; 0: none */
    bool in_backward;
};

struct ah_memory_log {
    struct ah_memory_event *event;
    size_t count, lost;   /* events beyond a limit, or without memory, are lost */
    size_t live;          /* bytes of blocks at the start */
};

/* Start a log, or start again with an empty one. */
void ah_memory_log_start(void);

/* Describe the block of the last allocation at an address: dtype and shape of its tensor, the script's line, the
 * running modules. The texts live as long as the recording, or are NULL. Any thread may call. */
void ah_memory_log_describe(const void *block, const char *tensor, const char *site, const char *module);

/* End the log and return it; the caller frees `event`. */
struct ah_memory_log ah_memory_log_stop(void);
