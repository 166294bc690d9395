/* Switching stacks: the registers that a function has to keep are pushed, the stack pointer is exchanged. */
#include "fiber.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 256 * 1024 };
#else
#define __sanitizer_start_switch_fiber(save, bottom, bytes)
#define __sanitizer_finish_switch_fiber(fake, bottom, bytes)
#define __asan_unpoison_memory_region(from, bytes)
enum { STACK_BYTES = 64 * 1024 };
#endif

#if defined(__x86_64__)
extern "C" void ah_sim_swap_stacks(void **save, void *next) __attribute__((visibility("hidden")));
asm(".text\n.p2align 4\n.hidden ah_sim_swap_stacks\n.globl ah_sim_swap_stacks\n"
    ".type ah_sim_swap_stacks, @function\n"
    "ah_sim_swap_stacks:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n.size ah_sim_swap_stacks, . - ah_sim_swap_stacks\n");
#endif

namespace sim
{
void fiber_reset(Fiber *fiber, void (*entry)())
{
    __asan_unpoison_memory_region(fiber->stack, fiber->bytes);
    fiber->fake_stack = nullptr;
    fiber->begun = false;
#if defined(__x86_64__)
    /* As if the entry had been interrupted at its first instruction: six registers, its address, no caller. */
    uintptr_t *top = reinterpret_cast<uintptr_t *>(fiber->stack + fiber->bytes - fiber->skipped) - 8;
    for (int i = 0; i < 8; i++)
        top[i] = 0;
    top[6] = reinterpret_cast<uintptr_t>(entry);
    fiber->pointer = top;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = fiber->bytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, entry, 0);
#endif
}

Fiber *fiber_new(void (*entry)())
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = STACK_BYTES + page;
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    mprotect(memory, page, PROT_NONE);
    Fiber *fiber = new Fiber;
    fiber->stack = static_cast<char *>(memory) + page;
    fiber->bytes = STACK_BYTES;
    static thread_local size_t made = 0;
    fiber->skipped = made++ * 5 % 64 * 64;
    fiber_reset(fiber, entry);
    return fiber;
}

void fiber_free(Fiber *fiber)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    /* The next mapping there shall not inherit its red zones. */
    __asan_unpoison_memory_region(fiber->stack, fiber->bytes);
    munmap(fiber->stack - page, fiber->bytes + page);
    delete fiber;
}

void fiber_adopt_thread(Fiber *fiber)
{
    pthread_attr_t attributes;
    void *stack = nullptr;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &stack, &fiber->bytes);
        pthread_attr_destroy(&attributes);
    }
    fiber->stack = static_cast<char *>(stack);
    fiber->begun = true;
}

static void go(Fiber *from, Fiber *to)
{
#if defined(__x86_64__)
    ah_sim_swap_stacks(&from->pointer, to->pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
}

void fiber_switch(Fiber *from, Fiber *to)
{
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->bytes);
    go(from, to);
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
}

void fiber_abandon(Fiber *to)
{
    Fiber nowhere;
    __sanitizer_start_switch_fiber(nullptr, to->stack, to->bytes);
    go(&nowhere, to);
    abort();
}

void fiber_arrived(Fiber *self)
{
    self->begun = true;
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
}
} // namespace sim
