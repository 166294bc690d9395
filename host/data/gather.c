/* A batch is a job, filled by whoever comes first: the loader's thread, which takes jobs from one queue, or the taker.
 * What must stay true: outputs are allocated by the Lua thread, indices are checked by whoever fills, and a job in the
 * queue changes its state under the loader's lock only. */
#include "data/gather.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum job_state {
    AT_TAKE, /* small: filled by the taker */
    QUEUED,  /* waits for the loader thread, or for a taker that comes first */
    FILLING,
    FILLED,
};

/* What filling a column needs, without tensor headers. */
struct column {
    const char *source;
    const float *table;
    int64_t channels, plane; /* a row is channels x plane bytes, when there is a table */
    size_t row_bytes, out_bytes;
};

struct job {
    struct job *next;       /* in its gather, oldest first */
    struct job *queue_next; /* in the loader's queue */
    struct ah_gather *gather;
    enum job_state state; /* under the lock, once queued */
    int status;
    char text[192]; /* of the failure */
    struct ah_tensor *out[AH_GATHER_COLUMNS];
    char *data[AH_GATHER_COLUMNS]; /* of out[] */
    int64_t count;
    int64_t index[];
};

struct ah_gather {
    int count;
    int64_t rows;
    size_t row_bytes; /* of a row in all columns of the result */
    size_t inline_bytes;
    bool uses_thread;
    struct ah_gather_column spec[AH_GATHER_COLUMNS];
    struct column column[AH_GATHER_COLUMNS];
    struct job *first, *last;
    int pending;
};

/* The one loader thread of the process. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, filled;
    pthread_t thread;
    int users; /* gathers that have queued something; the thread lives while there are any */
    bool stop;
    struct job *first, *last;
} loader = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

static void copy_rows(char *restrict to, const char *restrict from, size_t bytes, const int64_t *index, int64_t count)
{
    if (bytes == sizeof(int64_t)) { /* labels */
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * 8, from + index[i] * 8, 8);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        memcpy(to + (size_t)i * bytes, from + (size_t)index[i] * bytes, bytes);
}

/* Eight bytes a load. The vectoriser would make gather instructions of it, which are slower than scalar loads on
 * today's processors (measured: 18.6 against 14.8 us for 64 x 784; the plain loop 47). */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("no-tree-slp-vectorize", "no-tree-vectorize")))
#endif
static void
map_bytes(float *restrict to, const unsigned char *restrict from, int64_t count, const float *restrict table)
{
    int64_t k = 0;
    for (; k + 8 <= count; k += 8) {
        uint64_t eight;
        memcpy(&eight, from + k, 8);
        for (int byte = 0; byte < 8; byte++)
            to[k + byte] = table[(eight >> (8 * byte)) & 255];
    }
    for (; k < count; k++)
        to[k] = table[from[k]];
}

static void map_rows(float *restrict to, const struct column *column, const int64_t *index, int64_t count)
{
    const unsigned char *source = (const unsigned char *)column->source;
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *from = source + (size_t)index[i] * column->row_bytes;
        if (i + 1 < count) { /* shuffled rows defeat the hardware's prefetcher */
            const unsigned char *ahead = source + (size_t)index[i + 1] * column->row_bytes;
            size_t reach = column->row_bytes < 4096 ? column->row_bytes : 4096;
            for (size_t at = 0; at < reach; at += 64)
                __builtin_prefetch(ahead + at);
        }
        for (int64_t c = 0; c < column->channels; c++) {
            map_bytes(to, from, column->plane, column->table + 256 * c);
            to += column->plane;
            from += column->plane;
        }
    }
}

/* Runs on either thread. */
static void fill(struct job *job)
{
    const struct ah_gather *gather = job->gather;
    for (int64_t i = 0; i < job->count; i++) {
        if (job->index[i] < 0 || job->index[i] >= gather->rows) {
            job->status = AH_EINVAL;
            snprintf(job->text, sizeof job->text, "index %lld is out of range for a data set of %lld",
                     (long long)job->index[i], (long long)gather->rows);
            return;
        }
    }
    for (int c = 0; c < gather->count; c++) {
        const struct column *column = &gather->column[c];
        if (column->table)
            map_rows((float *)job->data[c], column, job->index, job->count);
        else
            copy_rows(job->data[c], column->source, column->row_bytes, job->index, job->count);
    }
}

static void *loader_main(void *unused)
{
    pthread_mutex_lock(&loader.lock);
    for (;;) {
        while (!loader.first && !loader.stop)
            pthread_cond_wait(&loader.work, &loader.lock);
        struct job *job = loader.first;
        if (!job)
            break;
        loader.first = job->queue_next;
        job->state = FILLING;
        pthread_mutex_unlock(&loader.lock);
        fill(job);
        pthread_mutex_lock(&loader.lock);
        job->state = FILLED;
        pthread_cond_signal(&loader.filled);
    }
    pthread_mutex_unlock(&loader.lock);
    return NULL;
}

/* Start the thread for its first user. Signals stay with the Lua thread. */
static bool join_loader(struct ah_gather *gather)
{
    if (gather->uses_thread)
        return true;
    if (loader.users == 0) {
        sigset_t all, old;
        loader.stop = false;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int failed = pthread_create(&loader.thread, NULL, loader_main, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (failed)
            return false;
    }
    loader.users++;
    gather->uses_thread = true;
    return true;
}

static void leave_loader(struct ah_gather *gather)
{
    if (!gather->uses_thread || --loader.users > 0)
        return;
    pthread_mutex_lock(&loader.lock);
    loader.stop = true;
    pthread_cond_signal(&loader.work);
    pthread_mutex_unlock(&loader.lock);
    pthread_join(loader.thread, NULL);
}

static void enqueue(struct job *job)
{
    pthread_mutex_lock(&loader.lock);
    job->state = QUEUED;
    job->queue_next = NULL;
    if (loader.first)
        loader.last->queue_next = job;
    else
        loader.first = job;
    loader.last = job;
    pthread_cond_signal(&loader.work);
    pthread_mutex_unlock(&loader.lock);
}

/* Make sure nobody else works on the job: take it out of the queue (true: it is not filled yet), or wait. */
static bool claim(struct job *job)
{
    pthread_mutex_lock(&loader.lock);
    bool unfilled = job->state == QUEUED || job->state == AT_TAKE;
    if (job->state == QUEUED) {
        struct job *before = NULL;
        for (struct job *at = loader.first; at != job; at = at->queue_next)
            before = at;
        if (before)
            before->queue_next = job->queue_next;
        else
            loader.first = job->queue_next;
        if (loader.last == job)
            loader.last = before;
        job->state = AT_TAKE;
    } else if (!unfilled) {
        while (job->state != FILLED)
            pthread_cond_wait(&loader.filled, &loader.lock);
    }
    pthread_mutex_unlock(&loader.lock);
    return unfilled;
}

static int describe_column(struct ah_gather *gather, int at, const struct ah_gather_column *spec)
{
    struct ah_tensor *source = spec->source, *table = spec->table;
    struct column *column = &gather->column[at];
    int64_t elements = 1;
    if (source->ndim < 1)
        return ah_fail(AH_EINVAL, "column %d of the data set: expected at least one dimension", at + 1);
    if (!ah_on_cpu(source))
        return ah_fail(AH_EINVAL, "column %d of the data set: expected a tensor on the CPU", at + 1);
    if (!ah_tensor_is_contiguous(source) || source->storage->channels_last)
        return ah_fail(AH_EINVAL, "column %d of the data set: expected a contiguous tensor", at + 1);
    if (at && source->size[0] != gather->rows) {
        return ah_fail(AH_EINVAL, "column %d of the data set: expected %lld rows like the first, got %lld", at + 1,
                       (long long)gather->rows, (long long)source->size[0]);
    }
    if (spec->ndim < 0 || spec->ndim > AH_MAX_DIMS - 1)
        return ah_fail(AH_EINVAL, "column %d of the data set: rows have %d dimensions", at + 1, spec->ndim);
    gather->rows = source->size[0];
    for (int d = 1; d < source->ndim; d++)
        elements *= source->size[d];
    int64_t shaped = 1;
    for (int d = 0; d < spec->ndim; d++)
        shaped *= spec->size[d];
    if (shaped != elements) {
        return ah_fail(AH_EINVAL, "column %d of the data set: rows %s do not have the %lld elements of %s", at + 1,
                       ah_shape_text(spec->size, spec->ndim), (long long)elements, ah_shape(source));
    }
    column->source = ah_tensor_data(source);
    column->row_bytes = (size_t)elements * ah_dtype_size(source->dtype);
    column->out_bytes = column->row_bytes;
    if (table) {
        if (source->dtype != AH_U8 || table->dtype != AH_F32 || table->ndim != 2 || table->size[1] != 256 ||
            table->size[0] < 1 || elements % table->size[0] || !ah_tensor_is_contiguous(table) || !ah_on_cpu(table)) {
            return ah_fail(AH_EINVAL, "column %d of the data set: a float32 table %s does not fit %s rows of %lld",
                           at + 1, ah_shape(table), ah_dtype_name(source->dtype), (long long)elements);
        }
        column->table = ah_tensor_data(table);
        column->channels = table->size[0];
        column->plane = elements / table->size[0];
        column->out_bytes = (size_t)elements * sizeof(float);
    }
    gather->row_bytes += column->out_bytes;
    gather->spec[at] = *spec;
    ah_tensor_retain(source);
    if (table)
        ah_tensor_retain(table);
    gather->count = at + 1;
    return 0;
}

int ah_gather_new(struct ah_gather **out, const struct ah_gather_column *columns, int count, size_t inline_bytes)
{
    if (count < 1 || count > AH_GATHER_COLUMNS)
        return ah_fail(AH_EINVAL, "a data set has 1 to %d columns, got %d", AH_GATHER_COLUMNS, count);
    struct ah_gather *gather = calloc(1, sizeof *gather);
    if (!gather)
        return ah_fail(AH_ENOMEM, "out of memory");
    gather->inline_bytes = inline_bytes;
    for (int c = 0; c < count; c++) {
        int status = describe_column(gather, c, &columns[c]);
        if (status < 0) {
            ah_gather_free(gather);
            return status;
        }
    }
    *out = gather;
    return 0;
}

static void free_job(struct job *job)
{
    for (int c = 0; c < AH_GATHER_COLUMNS; c++)
        ah_tensor_release(job->out[c]);
    free(job);
}

static struct job *pop(struct ah_gather *gather)
{
    struct job *job = gather->first;
    gather->first = job->next;
    gather->pending--;
    return job;
}

void ah_gather_free(struct ah_gather *gather)
{
    if (!gather)
        return;
    while (gather->first) {
        struct job *job = pop(gather);
        claim(job);
        free_job(job);
    }
    leave_loader(gather);
    for (int c = 0; c < gather->count; c++) {
        ah_tensor_release(gather->spec[c].source);
        ah_tensor_release(gather->spec[c].table);
    }
    free(gather);
}

static int allocate(struct job *job)
{
    const struct ah_gather *gather = job->gather;
    for (int c = 0; c < gather->count; c++) {
        const struct ah_gather_column *spec = &gather->spec[c];
        int64_t size[AH_MAX_DIMS] = {job->count};
        memcpy(size + 1, spec->size, (size_t)spec->ndim * sizeof *size);
        AH_TRY(ah_tensor_empty(&job->out[c], size, spec->ndim + 1, spec->table ? AH_F32 : spec->source->dtype,
                               &ah_cpu));
        job->data[c] = ah_tensor_data(job->out[c]);
    }
    return 0;
}

bool ah_gather_is_threaded(const struct ah_gather *gather, int64_t count)
{
    return count > 0 && (size_t)count * gather->row_bytes >= gather->inline_bytes;
}

int ah_gather_post(struct ah_gather *gather, const int64_t *index, int64_t count)
{
    struct job *job = malloc(sizeof *job + (size_t)count * sizeof *index);
    if (!job)
        return ah_fail(AH_ENOMEM, "out of memory: a batch of %lld", (long long)count);
    memset(job, 0, sizeof *job);
    job->gather = gather;
    job->count = count;
    memcpy(job->index, index, (size_t)count * sizeof *index);
    if (ah_gather_is_threaded(gather, count) && join_loader(gather)) {
        int status = allocate(job);
        if (status < 0) {
            free_job(job);
            return status;
        }
        enqueue(job);
    }
    if (gather->first)
        gather->last->next = job;
    else
        gather->first = job;
    gather->last = job;
    gather->pending++;
    return 0;
}

int ah_gather_take(struct ah_gather *gather, struct ah_tensor **out)
{
    if (!gather->first)
        return ah_fail(AH_ESTATE, "no batch was asked for");
    struct job *job = pop(gather);
    int status = 0;
    if (claim(job)) {
        if (!job->out[0])
            status = allocate(job);
        if (status == 0)
            fill(job);
    }
    if (status == 0 && job->status < 0)
        status = ah_fail(job->status, "%s", job->text);
    if (status == 0) {
        memcpy(out, job->out, (size_t)gather->count * sizeof *out);
        memset(job->out, 0, sizeof job->out);
    }
    free_job(job);
    return status;
}

int ah_gather_columns(const struct ah_gather *gather)
{
    return gather->count;
}

int64_t ah_gather_rows(const struct ah_gather *gather)
{
    return gather->rows;
}

int ah_gather_pending(const struct ah_gather *gather)
{
    return gather->pending;
}
