/* Settings that must be made before the constructors of the libraries run. OpenBLAS and oneDNN are loaded by their
 * first call (base/process/lazy_library.h), the others at the start.
 *
 * Kernels: an OpenBLAS that is older than an Intel processor does not know it and uses the kernels of 2004: float64
 * matmul is then 2.4 times slower (measured, 0.3.21). It reads OPENBLAS_CORETYPE by getenv in its constructor;
 * so this program answers that one question itself while it is loaded, with its choice for the newest Intel processors
 * that it knows. The user's setting wins. At other times getenv is the usual one.
 *
 * Threads: libgomp and OpenBLAS keep arrays of OMP_NUM_THREADS entries on their stacks, so a number above
 * AH_MOST_THREADS is overwritten before they read it, also for programs that are started from here.
 *
 * Memory: OpenBLAS maps 128 MB for each thread in its constructor. Where a limit refuses that it tries again for ever,
 * and where one refuses later allocations, libgomp and libgcc end the process in their own ways. So where there is a
 * limit the room is tried first and the libraries are loaded at the start, before tensors have the room; in case it is
 * not enough all the same, a timer ends the process unless the constructors return.
 *
 * Processors: under OMP_PROC_BIND the libraries are loaded at the start as well, since libgomp then binds the main
 * thread. */
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/process/lazy_library.h"
#include "base/process/threads.h"
#include "cli/base/blas_kernels.h"
#include "cpu/linear/gemm.h"
#include "cpu/loop/onednn.h"

enum { TIMEOUT_S = 2 }; /* seconds of processor time; the constructors take some milliseconds */
enum { MIB = 1 << 20, BLAS_MIB = 128, STACK_MIB = 8 }; /* of each thread */
enum { OTHER_MIB = 40 }; /* mapped by the library's start and its first ops beyond that (measured: 20 to 30) */
enum { LIBRARY_MIB = 82 }; /* of address space for the libraries' files: 36 for OpenBLAS, 38 for oneDNN */
enum { LEAST_STACK = 256 * 1024 }; /* the main thread's; with 64 KiB the start fails, with 100 it succeeds */

static bool guarded;
static char **early_environment; /* the environment before libc has set environ */

static char *before_main_find(const char *name)
{
    size_t length = strlen(name);
    for (char **at = environ ? environ : early_environment; at && *at; at++)
        if (!strncmp(*at, name, length) && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

char *getenv(const char *name)
{
    char *value = before_main_find(name);
    if (!value && ah_lazy_is_loading() && !strcmp(name, "OPENBLAS_CORETYPE"))
        return ah_blas_kernels();
    return value;
}

static void print_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void print_line(const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    (void)!write(STDERR_FILENO, line, (size_t)bytes < sizeof line ? (size_t)bytes : sizeof line - 1);
}

static void timed_out(int number)
{
    static const char text[] =
        "accelhost: a library cannot get its memory: some 128 MB for each thread, beyond the limit of address space or "
        "data (ulimit -v, ulimit -d)\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(1);
}

static void set_timer(int seconds)
{
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = seconds}, NULL);
}

static bool is_limited(int resource)
{
    struct rlimit limit;
    return !getrlimit(resource, &limit) && limit.rlim_cur != RLIM_INFINITY;
}

/* "100000" or "100000,4" becomes "1024" or "1024,4", in its place in the environment. */
static void limit_threads(const char *name)
{
    char *text = before_main_find(name);
    size_t digits = text ? strspn(text, "0123456789") : 0;
    if (!digits || (digits < 9 && strtol(text, NULL, 10) <= AH_MOST_THREADS))
        return;
    char most[8];
    int bytes = snprintf(most, sizeof most, "%d", AH_MOST_THREADS);
    print_line("accelhost: %s: expected at most %s threads, got %.*s: %s are used\n", name, most,
               (int)(digits < 24 ? digits : 24), text, most);
    memcpy(text, most, (size_t)bytes);
    memmove(text + bytes, text + digits, strlen(text + digits) + 1);
}

static void check_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= LEAST_STACK)
        return;
    print_line("accelhost: the stack may have %llu KiB (ulimit -s): at least %d KiB are needed\n",
               (unsigned long long)limit.rlim_cur / 1024, LEAST_STACK / 1024);
    _exit(1);
}

static int needed_mib(int threads, int processors)
{
    return BLAS_MIB * (threads < processors ? threads : processors) + STACK_MIB * (threads - 1) + OTHER_MIB;
}

/* Can memory of this size be mapped? It is not touched. */
static bool has_room(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at != MAP_FAILED && !munmap(at, bytes);
}

static void check_room(void)
{
    const char *text = before_main_find("OMP_NUM_THREADS");
    int processors = ah_affinity_count(), threads = text ? (int)strtol(text, NULL, 10) : 0;
    threads = threads > 0 ? threads : processors;
    int needed = needed_mib(threads, processors);
    if (has_room((size_t)(needed + LIBRARY_MIB) * MIB))
        return;
    print_line("accelhost: too little memory below the limit of address space or data (ulimit -v, ulimit -d): the "
               "libraries need %d MB besides the program itself (for %d thread%s; OMP_NUM_THREADS=1 needs %d MB)\n",
               needed, threads, threads == 1 ? "" : "s", needed_mib(1, 1));
    _exit(1);
}

static void before_libraries(int argc, char **argv, char **environment)
{
    early_environment = environment;
    ah_affinity_count();
    limit_threads("OMP_NUM_THREADS");
    limit_threads("OPENBLAS_NUM_THREADS");
    check_stack();
    if (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA))
        return;
    check_room();
    guarded = true;
    sigaction(SIGPROF, &(struct sigaction){.sa_handler = timed_out}, NULL);
    set_timer(TIMEOUT_S);
}

/* .preinit_array is the only section that runs before the constructors of shared libraries. */
__attribute__((section(".preinit_array"), used)) static void (*const at_first)(int, char **, char **) =
    before_libraries;

/* libgomp, which OpenBLAS and oneDNN need, binds the main thread when it is loaded. */
static bool binds_threads(void)
{
    return before_main_find("OMP_PROC_BIND") || before_main_find("OMP_PLACES") || before_main_find("GOMP_CPU_AFFINITY");
}

/* The program's own constructors run after those of the libraries. */
__attribute__((constructor)) static void after_libraries(void)
{
    if (!guarded && !binds_threads())
        return;
    ah_blas_version();
    ah_onednn_version();
    if (!guarded)
        return;
    set_timer(0);
    signal(SIGPROF, SIG_DFL);
}
