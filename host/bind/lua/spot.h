/* The registers of an interrupted thread; a file for each architecture. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ah_spot {
    uintptr_t code, stack;
    uintptr_t link;    /* the return address of a function that calls no other; 0: it is on the stack */
    bool blocked;      /* in a system call */
    long call;         /* its number, -1: not known */
    uintptr_t argument[2];
};

/* `context` is that of a signal handler. */
struct ah_spot ah_spot_of(const void *context);

/* Is the instruction before an address of LuaJIT's compiled code a call? */
bool ah_spot_follows_call(uintptr_t address);
