/* Notify the processor that a loop polls memory, so that the other thread of its core runs. */
#pragma once

static inline void ah_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
