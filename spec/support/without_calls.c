/* without_calls ERROR CALL[,CALL...] PROGRAM ARGUMENTS...: run a program whose system calls of these names fail, as on
 * older kernels and in gVisor (ENOSYS) or under a container's seccomp profile (EPERM). O_TMPFILE: openat with that
 * flag. Exit code 77: seccomp is not available here. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 120, UNAVAILABLE = 77 };

static const struct {
    const char *name;
    unsigned number;
} calls[] = {
#define CALL(name) {#name, SYS_##name}
    CALL(close_range), CALL(eventfd2), CALL(flock), CALL(fsync), CALL(getrandom), CALL(io_uring_setup),
    CALL(linkat), CALL(madvise), CALL(memfd_create), CALL(pidfd_open), CALL(pidfd_send_signal), CALL(prctl),
    CALL(prlimit64), CALL(renameat2), CALL(sched_getaffinity), CALL(sched_setaffinity), CALL(setpgid),
    CALL(sigaltstack), CALL(signalfd4), CALL(timer_create),
#undef CALL
};

static struct sock_filter filter[MOST];
static unsigned short count;

static void add(unsigned code, unsigned value, unsigned char yes, unsigned char no)
{
    filter[count++] = (struct sock_filter){(unsigned short)code, yes, no, value};
}

static void load(size_t offset)
{
    add(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

/* Have a call fail. False: no such name here. */
static int refuse(const char *name, unsigned error)
{
    if (count + 8 > MOST)
        return 0;
    load(offsetof(struct seccomp_data, nr));
    if (!strcmp(name, "O_TMPFILE")) {
        add(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3);
        load(offsetof(struct seccomp_data, args[2]));
        add(BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 0, 1);
        add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0);
        return 1;
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (strcmp(calls[i].name, name))
            continue;
        add(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 1);
        add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fputs("usage: without_calls ENOSYS|EPERM CALL[,CALL...] PROGRAM [ARGUMENTS...]\n", stderr);
        return 2;
    }
    unsigned error = strcmp(argv[1], "EPERM") ? ENOSYS : EPERM;
    for (char *name = strtok(argv[2], ","); name; name = strtok(NULL, ",")) {
        if (!refuse(name, error)) {
            fprintf(stderr, "without_calls: unknown call '%s', or more than fit\n", name);
            return 2;
        }
    }
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &(struct sock_fprog){count, filter})) {
        perror("without_calls: seccomp");
        return UNAVAILABLE;
    }
    execvp(argv[3], argv + 3);
    perror("without_calls: exec");
    return 2;
}
