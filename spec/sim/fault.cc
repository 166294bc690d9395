/* SIGSEGV and SIGBUS. In a kernel the fault becomes the context's error and ends the block; an access of the host to
 * device memory is reported in one line, and the previous handler of the signal is called. */
#include "state.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"
#include "poison.h"

namespace sim
{
static struct sigaction before_segv, before_bus;

static std::string place_of(const void *at)
{
    CUcontext device = device_of(at);
    if (!device)
        return "no device memory";
    return "memory of cuda:" + std::to_string(device->index) + ", " + device->memory.place(at);
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = number == SIGBUS ? &before_bus : &before_segv;
    if (before->sa_flags & SA_SIGINFO) {
        before->sa_sigaction(number, info, context);
    } else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
    } else {
        /* Happens again when this returns, and then ends the process. */
        sigaction(number, before, nullptr);
    }
}

static void handle(int number, siginfo_t *info, void *context)
{
    if (here.engine) {
        char text[256];
        snprintf(text, sizeof text, "%s", place_of(info->si_addr).c_str());
        here.engine->fail(CUDA_ERROR_ILLEGAL_ADDRESS, "touched address %p: %s", info->si_addr, text);
    }
    if (device_of(info->si_addr)) {
        char text[320];
        int length = snprintf(text, sizeof text, "simulated GPU: the host touched device memory at %p: %s\n",
                              info->si_addr, place_of(info->si_addr).c_str());
        if (write(STDERR_FILENO, text, (size_t)length) < 0)
            _exit(1);
    }
    pass_on(number, info, context);
}

void faults_install()
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handle;
    /* A handler that ends a kernel's block is left by a change of stacks. */
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_segv);
    sigaction(SIGBUS, &action, &before_bus);
}

void use_signal_stack()
{
    enum { BYTES = 64 * 1024 };
    static thread_local struct Stack {
        void *at = mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ~Stack()
        {
            stack_t none;
            memset(&none, 0, sizeof none);
            none.ss_flags = SS_DISABLE;
            sigaltstack(&none, nullptr);
            __asan_unpoison_memory_region(at, BYTES);
            munmap(at, BYTES);
        }
    } own;
    stack_t stack;
    memset(&stack, 0, sizeof stack);
    stack.ss_sp = own.at;
    stack.ss_size = BYTES;
    sigaltstack(&stack, nullptr);
}
} // namespace sim
