/* Bytes are written as they arrive, without a buffer: after a kill the files contain all output received. */
#include "cli/output/rank_logs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io/folder.h"
#include "base/status/status.h"
#include "config/value.h"

struct rank_log {
    int file[2]; /* -1: none */
    bool shown[2];
};

struct ah_rank_logs {
    char *folder;
    const char *tee, *redirects;
    int first, ranks, error;
    struct rank_log rank[];
};

static int make_folder(struct ah_rank_logs *logs, const char *folder)
{
    char date[32];
    time_t now = time(NULL);
    struct tm local;
    const char *temporary = getenv("TMPDIR");
    if (folder)
        AH_TRY(ah_folder_make(folder));
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    const char *parent = folder ? folder : temporary && *temporary ? temporary : "/tmp";
    if (asprintf(&logs->folder, "%s/%s%s_XXXXXX", parent, folder ? "" : "accelhost-", date) < 0) {
        logs->folder = NULL;
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    if (!mkdtemp(logs->folder))
        return ah_fail(AH_EIO, "cannot make a folder for logs in '%s': %s", parent, strerror(errno));
    return 0;
}

int ah_rank_logs_open(struct ah_rank_logs **out, const char *folder, const char *tee, const char *redirects, int ranks)
{
    struct ah_rank_logs *logs = calloc(1, sizeof *logs + (size_t)ranks * sizeof logs->rank[0]);
    AH_TRY_MEMORY(logs, "out of memory");
    logs->tee = tee;
    logs->redirects = redirects;
    logs->ranks = ranks;
    for (int r = 0; r < ranks; r++)
        logs->rank[r].file[0] = logs->rank[r].file[1] = -1;
    int status = make_folder(logs, folder);
    if (status < 0)
        ah_rank_logs_close(logs);
    else
        *out = logs;
    return status;
}

static void close_files(struct ah_rank_logs *logs)
{
    for (int r = 0; r < logs->ranks; r++)
        for (int s = 0; s < 2; s++) {
            if (logs->rank[r].file[s] >= 0)
                close(logs->rank[r].file[s]);
            logs->rank[r].file[s] = -1;
        }
}

void ah_rank_logs_close(struct ah_rank_logs *logs)
{
    if (!logs)
        return;
    close_files(logs);
    free(logs->folder);
    free(logs);
}

const char *ah_rank_logs_folder(const struct ah_rank_logs *logs)
{
    return logs->folder;
}

static int open_file(struct ah_rank_logs *logs, int attempt, int rank, int stream)
{
    static const char *const names[] = {"stdout.log", "stderr.log"};
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/attempt_%d/%d", logs->folder, attempt, logs->first + rank);
    if (length + 16 > (int)sizeof path)
        return ah_fail(AH_EIO, "the folder of logs has too long a name");
    AH_TRY(ah_folder_make(path));
    snprintf(path + length, sizeof path - (size_t)length, "/%s", names[stream]);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0)
        return ah_fail(AH_EIO, "cannot write '%s': %s", path, strerror(errno));
    logs->rank[rank].file[stream] = file;
    return 0;
}

int ah_rank_logs_begin(struct ah_rank_logs *logs, int attempt, int first)
{
    close_files(logs);
    logs->first = first;
    for (int r = 0; r < logs->ranks; r++) {
        int both = ah_value_streams(logs->tee, first + r), only = ah_value_streams(logs->redirects, first + r);
        for (int s = 0; s < 2; s++) {
            logs->rank[r].shown[s] = (both >> s & 1) || !(only >> s & 1);
            if ((both | only) >> s & 1)
                AH_TRY(open_file(logs, attempt, r, s));
        }
    }
    return 0;
}

void ah_rank_logs_write(struct ah_rank_logs *logs, int rank, int stream, const char *text, size_t bytes)
{
    int *file = &logs->rank[rank].file[stream];
    while (*file >= 0 && bytes > 0) {
        ssize_t n = write(*file, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            logs->error = errno;
            close(*file);
            *file = -1;
            return;
        }
        text += n;
        bytes -= (size_t)n;
    }
}

bool ah_rank_logs_shows(const struct ah_rank_logs *logs, int rank, int stream)
{
    return logs->rank[rank].shown[stream];
}

int ah_rank_logs_take_error(struct ah_rank_logs *logs)
{
    int error = logs->error;
    logs->error = 0;
    return error;
}
