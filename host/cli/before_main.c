/* What must be settled before the constructors of the libraries run, and is over when they have.
 *
 * Spinning: libgomp's waiting threads should sleep soon. With its default they spin for milliseconds, and on a machine
 * that has other work a two-thread step then takes ten times as long (measured). libgomp reads GOMP_SPINCOUNT by getenv
 * in its constructor, when the environment cannot be changed yet; so this program answers that one question itself,
 * that once. What the user set wins. From main on getenv is what it always is.
 *
 * Kernels: an OpenBLAS that is older than an Intel processor does not know it and takes the kernels of 2004: float64
 * products are then 2.4 times as slow (measured, 0.3.21). It asks for OPENBLAS_CORETYPE in its constructor, and is told
 * in the same way what it chooses for the Intel processors that it knows.
 *
 * Memory: OpenBLAS maps 128 MB for each thread in its constructor, and where a limit refuses that it tries again for
 * ever. So where there is a limit a timer stands by until the constructors are through. */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

char *getenv(const char *name);

enum { PATIENCE = 2 }; /* seconds of processor time; the constructors take some milliseconds */

static bool through; /* all constructors have run */
static bool guarded;

static char *find(const char *name)
{
    size_t length = strlen(name);
    for (char **at = environ; at && *at; at++)
        if (!strncmp(*at, name, length) && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

/* NULL: OpenBLAS shall look for itself. */
static char *blas_kernels(void)
{
    static char avx512[] = "SkylakeX", avx2[] = "Haswell";
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_is("intel"))
        return __builtin_cpu_supports("avx512dq") ? avx512 : __builtin_cpu_supports("avx2") ? avx2 : NULL;
#endif
    return NULL;
}

char *getenv(const char *name)
{
    static char spins[] = "20000"; /* about 0.1 ms */
    char *value = find(name);
    if (through || value)
        return value;
    if (!strcmp(name, "GOMP_SPINCOUNT") && !find("OMP_WAIT_POLICY"))
        return spins;
    if (!strcmp(name, "OPENBLAS_CORETYPE"))
        return blas_kernels();
    return value;
}

static void out_of_patience(int number)
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

static void before_libraries(int argc, char **argv, char **environment)
{
    if (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA))
        return;
    guarded = true;
    sigaction(SIGPROF, &(struct sigaction){.sa_handler = out_of_patience}, NULL);
    set_timer(PATIENCE);
}

/* The one place that comes before the constructors of shared libraries. */
__attribute__((section(".preinit_array"), used)) static void (*const at_first)(int, char **, char **) =
    before_libraries;

/* The program's own constructors come after those of the libraries. */
__attribute__((constructor)) static void after_libraries(void)
{
    through = true;
    if (!guarded)
        return;
    set_timer(0);
    signal(SIGPROF, SIG_DFL);
}
