/* Stacks that alternate on one thread of the system.
 *
 * A fiber is a stack with a guard page below it. `fiber_switch` continues where the other one stopped; `fiber_reset`
 * restarts an abandoned fiber. Each belongs to the thread that made it. Every change is reported to
 * AddressSanitizer. */
#pragma once

#include <stddef.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace sim
{
struct Fiber {
    char *stack = nullptr; /* lowest usable byte */
    size_t bytes = 0;
    size_t skipped = 0; /* bytes at its top, so that stacks do not share a cache's lines */
    void *pointer = nullptr; /* saved stack pointer */
    void *fake_stack = nullptr;
    bool begun = false;
#if !defined(__x86_64__)
    ucontext_t context;
#endif
};

/* A new stack; `entry` runs on it and may not return. Null when there is no memory. */
Fiber *fiber_new(void (*entry)());
void fiber_free(Fiber *fiber);
/* Its next run begins at the entry again. */
void fiber_reset(Fiber *fiber, void (*entry)());
/* The fiber that represents the stack of this thread itself. */
void fiber_adopt_thread(Fiber *fiber);
void fiber_switch(Fiber *from, Fiber *to);
/* Continue at `to` and never return: also out of a signal's handler. */
[[noreturn]] void fiber_abandon(Fiber *to);
/* Each run of an entry begins with it. */
void fiber_arrived(Fiber *self);
} // namespace sim
