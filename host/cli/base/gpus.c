/* Count GPUs in a child process: the driver leaves memory and threads in a process, and a launcher forks its ranks. */
#include "cli/base/gpus.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status/status.h"
#include "tensor/device.h"

enum { TIMEOUT_MS = 60000 };

static const char variable[] = "CUDA_VISIBLE_DEVICES";

struct answer {
    int count;
    char reason[512];
};

/* The reason needs the plugin, which a count without a driver does not. */
static void gpus_query(struct answer *answer, bool with_reason)
{
    memset(answer, 0, sizeof *answer);
    answer->count = ah_device_count("cuda");
    const char *missing = answer->count || !with_reason ? NULL : ah_device_missing("cuda");
    snprintf(answer->reason, sizeof answer->reason, "%s", missing ? missing : "");
}

static void gpus_answer(int pipe, const char *visible, bool with_reason)
{
    struct answer answer;
    if (visible)
        setenv(variable, visible, 1);
    gpus_query(&answer, with_reason);
    ssize_t written = write(pipe, &answer, sizeof answer);
    _exit(written == (ssize_t)sizeof answer ? 0 : 1);
}

static int gpus_receive(int pipe, pid_t child, struct answer *answer)
{
    struct pollfd wait = {.fd = pipe, .events = POLLIN};
    int ready, status;
    do
        ready = poll(&wait, 1, TIMEOUT_MS);
    while (ready < 0 && errno == EINTR);
    ssize_t n = ready > 0 ? read(pipe, answer, sizeof *answer) : 0;
    if (n != (ssize_t)sizeof *answer)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (n == (ssize_t)sizeof *answer)
        return 0;
    return ah_fail(AH_EIO, ready == 0 ? "NVIDIA's driver does not answer (60 s); --cpu does without it"
                                      : "NVIDIA's driver ended the process that counted GPUs; --cpu does without it");
}

int ah_gpus_count(const char *visible, int *count, char *reason, size_t room)
{
    struct answer answer;
    int ends[2];
    if (!ah_device_is_possible("cuda")) {
        gpus_query(&answer, reason != NULL);
    } else {
        if (pipe(ends))
            return ah_fail(AH_EIO, "cannot make a pipe: %s", strerror(errno));
        pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            gpus_answer(ends[1], visible, reason != NULL);
        }
        close(ends[1]);
        int status = child < 0 ? ah_fail(AH_EIO, "cannot start a process: %s", strerror(errno))
                               : gpus_receive(ends[0], child, &answer);
        close(ends[0]);
        AH_TRY(status);
    }
    *count = answer.count;
    if (reason)
        snprintf(reason, room, "%s", answer.reason);
    return 0;
}

/* Return the address of a word in a list; NULL: absent. */
static const char *gpus_find(const char *list, const char *word, size_t bytes)
{
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        if (length == bytes && !strncmp(at, word, bytes))
            return at;
        at += length + (at[length] == ',');
    }
    return NULL;
}

int ah_gpus_check(const char *what, const char *ids, int *count)
{
    const char *outer = getenv(variable);
    *count = 0;
    for (const char *at = ids; *at || !*count;) {
        size_t bytes = strcspn(at, ",");
        bool number = bytes > 0 && strspn(at, "0123456789") >= bytes;
        if (!number && strncmp(at, "GPU-", 4) && strncmp(at, "MIG-", 4))
            return ah_fail(AH_EINVAL, "%s expects numbers or identifiers of GPUs, as in 0,1, or all, got '%s'", what,
                           ids);
        if (gpus_find(ids, at, bytes) != at)
            return ah_fail(AH_EINVAL, "%s: %.*s is there twice", what, (int)bytes, at);
        if (outer && *outer && !gpus_find(outer, at, bytes))
            return ah_fail(AH_EINVAL, "%s: %.*s is not among CUDA_VISIBLE_DEVICES=%s", what, (int)bytes, at, outer);
        ++*count;
        at += bytes;
        if (*at && !*++at)
            return ah_fail(AH_EINVAL, "%s: '%s' ends with a comma", what, ids);
    }
    return 0;
}
