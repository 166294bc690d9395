/* One thread for each part. Invariant: a failed fsync ends the save (the kernel may have dropped the pages); nothing is
 * removed before the new folder has its name on the disk. */
#include "io/saver.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io/folder.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "io/manifest.h"
#include "io/stage.h"

enum phase { IDLE, WRITING, WRITTEN, OVER };

struct ah_saver {
    char folder[PATH_MAX];  /* that is filled */
    struct ah_stage stage;  /* of part 0 */
    int part;
    struct ah_saver_plan plan;
    pthread_t thread;
    bool started, joined, asked; /* asked: the result has been returned */
    pthread_mutex_t mutex;       /* of the following fields */
    pthread_cond_t changed;
    enum phase phase;
    bool wrote;                  /* this part's files are on the disk */
    bool cancelled;
    int status;
    char error[1024];
    struct ah_saver *next; /* in the list of all that were started */
};

static struct ah_saver *all_savers;

static int new_saver(struct ah_saver **out, int part)
{
    struct ah_saver *saver = calloc(1, sizeof *saver);
    AH_TRY_MEMORY(saver, "out of memory");
    saver->part = part;
    saver->stage.lock = -1;
    pthread_mutex_init(&saver->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&saver->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = saver;
    return 0;
}

int ah_saver_begin(struct ah_saver **out, const char *goal, bool replace)
{
    struct ah_saver *saver = NULL;
    AH_TRY(new_saver(&saver, 0));
    int status = ah_stage_open(&saver->stage, goal, replace);
    if (status < 0) {
        ah_saver_close(saver);
        return status;
    }
    memcpy(saver->folder, saver->stage.folder, sizeof saver->folder);
    *out = saver;
    return 0;
}

int ah_saver_join(struct ah_saver **out, const char *folder, int part)
{
    if (strlen(folder) >= PATH_MAX)
        return ah_fail(AH_EIO, "%s: %s", folder, strerror(ENAMETOOLONG));
    AH_TRY(new_saver(out, part));
    snprintf((*out)->folder, sizeof (*out)->folder, "%s", folder);
    return 0;
}

const char *ah_saver_folder(const struct ah_saver *saver)
{
    return saver->folder;
}

/* The thread's work. */

static bool is_cancelled(struct ah_saver *saver)
{
    AH_LOCK_SCOPE(&saver->mutex);
    return saver->cancelled;
}

static int saver_inside(const struct ah_saver *saver, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", saver->folder, name) >= PATH_MAX)
        return ah_fail(AH_EIO, "%s: %s", name, strerror(ENAMETOOLONG));
    return 0;
}

/* Write one file; `hash` accumulates its size and hash. */
static int write_file(const struct ah_saver *saver, struct ah_saver_file *file, struct ah_sha256 *hash)
{
    char path[PATH_MAX];
    struct ah_writer *writer = NULL;
    AH_TRY(saver_inside(saver, file->name, path));
    ah_sha256_begin(hash);
    int status = ah_writer_open(&writer, path);
    if (status == 0) {
        ah_writer_hash(writer, hash);
        ah_writer_share_folder(writer);
        status = file->text ? ah_writer_write(writer, file->text, file->bytes)
                            : ah_safetensors_write(writer, file->tensor, file->tensor_count, file->note,
                                                   file->note_count);
    }
    if (status == 0)
        status = ah_writer_commit(writer);
    else
        ah_writer_abandon(writer);
    return status < 0 ? ah_fail_prefix(status, "'%s'", file->name) : 0;
}

/* Write this part's files; their lines for the manifest are appended to `lines`, which the caller frees. */
static int write_files(struct ah_saver *saver, char **lines)
{
    *lines = strdup("");
    for (size_t i = 0; i < saver->plan.count && *lines; i++) {
        struct ah_sha256 hash;
        char text[AH_SHA256_TEXT], *more;
        AH_TRY(is_cancelled(saver) ? ah_fail(AH_EIO, "given up") : write_file(saver, &saver->plan.file[i], &hash));
        unsigned long long size = hash.count;
        ah_sha256_end_text(&hash, text);
        if (asprintf(&more, "%s%s %llu %s\n", *lines, text, size, saver->plan.file[i].name) < 0)
            more = NULL;
        free(*lines);
        *lines = more;
    }
    return *lines ? ah_folder_sync(saver->folder) : ah_fail(AH_ENOMEM, "out of memory");
}

static void name_part(char name[32], int part, bool failed)
{
    snprintf(name, 32, failed ? ".failed_%d" : ".part_%d", part);
}

/* Report to part 0, by a file, that this part's files are complete or that they have failed. */
static int report_part(struct ah_saver *saver, int status, const char *lines)
{
    char name[32];
    name_part(name, saver->part, status < 0);
    const char *text = status < 0 ? "" : lines;
    struct ah_saver_file file = {.name = name, .text = text, .bytes = strlen(text)};
    struct ah_sha256 hash;
    return write_file(saver, &file, &hash);
}

/* Wait a moment, or until cancelled. */
static void pause_for(struct ah_saver *saver, long milliseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += milliseconds * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    AH_LOCK_SCOPE(&saver->mutex);
    if (!saver->cancelled)
        pthread_cond_timedwait(&saver->changed, &saver->mutex, &until);
}

/* Wait until another part has completed, and add its files to the manifest. */
static int take_part(struct ah_saver *saver, struct ah_manifest *manifest, int part, int64_t deadline)
{
    char name[32], done[PATH_MAX], failed[PATH_MAX];
    name_part(name, part, false);
    AH_TRY(saver_inside(saver, name, done));
    name_part(name, part, true);
    AH_TRY(saver_inside(saver, name, failed));
    for (long wait = 1; access(done, F_OK); wait = wait < 50 ? wait * 2 : 50) {
        if (is_cancelled(saver))
            return ah_fail(AH_EIO, "given up");
        if (access(failed, F_OK) == 0)
            return ah_fail(AH_EIO, "rank %d could not write its files", part);
        if (ah_now_ns() > deadline)
            return ah_fail(AH_EIO, "rank %d has not written its files in %g s", part, saver->plan.timeout);
        pause_for(saver, wait);
    }
    AH_TRY(ah_manifest_add_list_file(manifest, done));
    return unlink(done) ? ah_fail(AH_EIO, "%s: %s", done, strerror(errno)) : 0;
}

/* All parts' files into the manifest, the manifest into the folder, and the folder to its name. */
static int saver_conclude(struct ah_saver *saver, const char *lines)
{
    int status;
    char *text = NULL;
    struct ah_manifest *manifest = NULL;
    struct ah_sha256 hash;
    int64_t deadline = ah_now_ns() + (int64_t)(saver->plan.timeout * 1e9);
    AH_TRYGO(ah_manifest_new(&manifest, saver->plan.facts), out);
    AH_TRYGO(ah_manifest_add_list(manifest, lines), out);
    for (int part = 1; part < saver->plan.parts; part++)
        AH_TRYGO(take_part(saver, manifest, part, deadline), out);
    AH_TRYGO(ah_manifest_add_folder(manifest, saver->folder), out);
    AH_TRYGO(ah_manifest_text(manifest, &text), out);
    struct ah_saver_file file = {.name = AH_MANIFEST, .text = text, .bytes = strlen(text)};
    AH_TRYGO(write_file(saver, &file, &hash), out);
    AH_TRYGO(ah_folder_sync(saver->folder), out);
    AH_TRYGO(is_cancelled(saver) ? ah_fail(AH_EIO, "given up") : ah_stage_commit(&saver->stage), out);
    for (int i = 0; status == 0 && saver->plan.victim && saver->plan.victim[i]; i++)
        ah_stage_remove(saver->plan.victim[i]);
out:
    free(text);
    ah_manifest_free(manifest);
    return status;
}

static void saver_enter(struct ah_saver *saver, enum phase phase, int status)
{
    AH_LOCK_SCOPE(&saver->mutex);
    saver->phase = phase;
    saver->wrote |= phase == WRITTEN;
    saver->status = status;
    if (status < 0)
        snprintf(saver->error, sizeof saver->error, "%s", ah_error_text());
    pthread_cond_broadcast(&saver->changed);
}

static void *saver_run(void *context)
{
    struct ah_saver *saver = context;
    AH_FREED char *lines = NULL;
    int status = write_files(saver, &lines);
    if (status == 0)
        saver_enter(saver, WRITTEN, 0);
    if (saver->part) {
        char error[1024];
        snprintf(error, sizeof error, "%s", status < 0 ? ah_error_text() : "");
        int reported = report_part(saver, status, lines);
        status = status < 0 ? ah_fail(status, "%s", error) : reported;
    } else if (status == 0) {
        status = saver_conclude(saver, lines);
    }
    saver_enter(saver, OVER, status);
    return NULL;
}

int ah_saver_start(struct ah_saver *saver, const struct ah_saver_plan *plan)
{
    saver->plan = *plan;
    saver->phase = WRITING;
    int failed = ah_helper_start(&saver->thread, saver_run, saver);
    if (failed)
        return ah_fail(AH_ENOMEM, "cannot start a thread: %s", strerror(failed));
    saver->started = true;
    saver->next = all_savers;
    all_savers = saver;
    return 0;
}

/* Asking. */

static int saver_wait(struct ah_saver *saver, enum phase phase)
{
    AH_LOCK_SCOPE(&saver->mutex);
    while (saver->started && saver->phase < phase)
        pthread_cond_wait(&saver->changed, &saver->mutex);
    int status = phase == WRITTEN && saver->wrote ? 0 : saver->status;
    if (status < 0)
        ah_fail(status, "%s", saver->error);
    return status;
}

int ah_saver_written(struct ah_saver *saver)
{
    return saver_wait(saver, WRITTEN);
}

int ah_saver_wait(struct ah_saver *saver)
{
    int status = saver_wait(saver, OVER);
    saver->asked = true;
    if (saver->started && !saver->joined)
        pthread_join(saver->thread, NULL);
    saver->joined = true;
    return status;
}

bool ah_saver_is_over(struct ah_saver *saver)
{
    AH_LOCK_SCOPE(&saver->mutex);
    return !saver->started || saver->phase == OVER;
}

void ah_saver_cancel(struct ah_saver *saver)
{
    AH_LOCK_SCOPE(&saver->mutex);
    saver->cancelled = true;
    pthread_cond_broadcast(&saver->changed);
}

void ah_saver_close(struct ah_saver *saver)
{
    if (!saver)
        return;
    if (!ah_saver_is_over(saver))
        ah_saver_cancel(saver);
    ah_saver_wait(saver);
    ah_stage_close(&saver->stage);
    for (struct ah_saver **at = &all_savers; *at; at = &(*at)->next)
        if (*at == saver) {
            *at = saver->next;
            break;
        }
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->mutex);
    free(saver);
}

int ah_saver_finish_all(bool well)
{
    int status = 0;
    char error[PATH_MAX + 1024];
    for (struct ah_saver *saver = all_savers; saver; saver = saver->next) {
        bool asked = saver->asked;
        if (!well && (saver->part || saver->plan.parts > 1))
            ah_saver_cancel(saver);
        int ended = ah_saver_wait(saver);
        if (ended < 0 && !asked && status == 0) {
            status = ended;
            const char *goal = saver->stage.goal;
            snprintf(error, sizeof error, "%s%s%s%s", goal[0] ? "'" : "", goal,
                     goal[0] ? "' was not saved: " : "", ah_error_text());
        }
        ah_stage_close(&saver->stage);
    }
    return status < 0 ? ah_fail(status, "save_state: %s", error) : 0;
}
