/* A batch is a job, filled by the first of two threads: the loader's, which runs jobs from one queue, or the caller of
 * ah_gather_take. Invariants: outputs are allocated by the Lua thread, indices are checked by the filling thread, and a
 * job in the queue changes its state under the loader's lock only. */
#include "data/gather.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process/threads.h"
#include "base/status/status.h"
#include "base/trace/trace.h"
#include "tensor/prefetch.h"

enum job_state {
    AT_TAKE, /* small: filled by the taker */
    QUEUED,  /* waits for the loader thread or the caller of ah_gather_take */
    FILLING,
    FILLED,
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
    void *scratch;                 /* gather->scratch bytes, where a column moves */
    int64_t count;
    uint64_t seed;
    uint32_t *turn; /* both are after index[] */
    int64_t *sample;
    int64_t index[];
};

struct ah_gather {
    int count;
    int64_t rows;
    size_t row_bytes; /* of a row in all columns of the result */
    size_t inline_bytes;
    size_t scratch; /* bytes that filling needs */
    bool random;
    bool uses_thread;
    struct ah_device *pin; /* for whose copies batches are in pinned memory; NULL: plain memory */
    struct ah_gather_column spec[AH_GATHER_COLUMNS];
    struct ah_column column[AH_GATHER_COLUMNS];
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
    bool filling; /* it is at a job */
    bool absent;  /* this process is a fork of the one that has the thread; takers do its jobs */
    struct job *first, *last;
} loader = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

/* Runs on either thread. */
static void gather_fill(struct job *job)
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
    struct ah_trace_mark mark = ah_trace_begin("gather a batch");
    const struct ah_gather_order order = {job->count, job->index, job->seed, job->sample, job->turn};
    for (int c = 0; c < gather->count; c++)
        ah_column_fill(&gather->column[c], job->data[c], &order, job->scratch);
    ah_trace_end(mark, AH_TRACE_LOADER, "gather a batch");
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
        loader.filling = true;
        pthread_mutex_unlock(&loader.lock);
        gather_fill(job);
        pthread_mutex_lock(&loader.lock);
        job->state = FILLED;
        loader.filling = false;
        pthread_cond_signal(&loader.filled);
    }
    pthread_mutex_unlock(&loader.lock);
    return NULL;
}

/* A fork happens while the thread is at no job, so that none stays half done in the new process. */
static void before_fork(void)
{
    pthread_mutex_lock(&loader.lock);
    while (loader.filling)
        pthread_cond_wait(&loader.filled, &loader.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&loader.lock);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&loader.lock, NULL);
    pthread_cond_init(&loader.work, NULL);
    pthread_cond_init(&loader.filled, NULL);
    loader.absent = loader.users > 0;
}

/* Start the thread for its first user. Signals stay with the Lua thread. */
static bool join_loader(struct ah_gather *gather)
{
    if (gather->uses_thread)
        return true;
    if (loader.users == 0) {
        static bool watches_forks;
        if (!watches_forks && pthread_atfork(before_fork, after_fork, after_fork_in_child))
            return false;
        watches_forks = true;
        loader.stop = loader.absent = false;
        if (ah_helper_start(&loader.thread, loader_main, NULL))
            return false;
    }
    loader.users++;
    gather->uses_thread = true;
    return true;
}

static void leave_loader(struct ah_gather *gather)
{
    if (!gather->uses_thread || --loader.users > 0 || loader.absent)
        return;
    pthread_mutex_lock(&loader.lock);
    loader.stop = true;
    pthread_cond_signal(&loader.work);
    pthread_mutex_unlock(&loader.lock);
    pthread_join(loader.thread, NULL);
}

static void gather_enqueue(struct job *job)
{
    AH_LOCK_SCOPE(&loader.lock);
    job->state = QUEUED;
    job->queue_next = NULL;
    if (loader.first)
        loader.last->queue_next = job;
    else
        loader.first = job;
    loader.last = job;
    pthread_cond_signal(&loader.work);
}

/* Make sure that the loader thread does not work on the job: remove it from the queue (true: it is not filled yet), or
 * wait. */
static bool gather_claim(struct job *job)
{
    AH_LOCK_SCOPE(&loader.lock);
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
    return unfilled;
}

static int add_column(struct ah_gather *gather, int at, const struct ah_gather_column *spec)
{
    struct ah_column *column = &gather->column[at];
    int status = ah_column_describe(column, spec);
    if (status == 0 && at && spec->source->size[0] != gather->rows) {
        status = ah_fail(AH_EINVAL, "expected %lld rows like the first, got %lld", (long long)gather->rows,
                         (long long)spec->source->size[0]);
    }
    if (status < 0)
        return ah_fail_prefix(status, "column %d of the data set", at + 1);
    gather->rows = spec->source->size[0];
    gather->row_bytes += column->out_bytes;
    gather->scratch = column->scratch > gather->scratch ? column->scratch : gather->scratch;
    gather->random |= column->random;
    gather->spec[at] = *spec;
    gather->spec[at].grid = NULL;
    gather->spec[at].erase = NULL;
    ah_tensor_retain(spec->source);
    if (spec->table)
        ah_tensor_retain(spec->table);
    gather->count = at + 1;
    return 0;
}

int ah_gather_new(struct ah_gather **out, const struct ah_gather_column *columns, int count, size_t inline_bytes)
{
    if (count < 1 || count > AH_GATHER_COLUMNS)
        return ah_fail(AH_EINVAL, "a data set has 1 to %d columns, got %d", AH_GATHER_COLUMNS, count);
    struct ah_gather *gather = calloc(1, sizeof *gather);
    AH_TRY_MEMORY(gather, "out of memory");
    gather->inline_bytes = inline_bytes;
    for (int c = 0; c < count; c++) {
        int status = add_column(gather, c, &columns[c]);
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
    free(job->scratch);
    free(job);
}

static struct job *gather_pop(struct ah_gather *gather)
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
        struct job *job = gather_pop(gather);
        gather_claim(job);
        free_job(job);
    }
    leave_loader(gather);
    for (int c = 0; c < gather->count; c++) {
        ah_tensor_release(gather->spec[c].source);
        ah_tensor_release(gather->spec[c].table);
    }
    free(gather);
}

static int gather_allocate(struct job *job)
{
    const struct ah_gather *gather = job->gather;
    if (gather->scratch && !(job->scratch = malloc(gather->scratch)))
        return ah_fail(AH_ENOMEM, "out of memory: %zu bytes to move pixels", gather->scratch);
    for (int c = 0; c < gather->count; c++) {
        const struct ah_gather_column *spec = &gather->spec[c];
        int64_t size[AH_MAX_DIMS] = {job->count};
        memcpy(size + 1, spec->size, (size_t)spec->ndim * sizeof *size);
        enum ah_dtype dtype = spec->table ? AH_F32 : spec->source->dtype;
        if (gather->pin)
            AH_TRY(ah_tensor_empty_pinned(&job->out[c], size, spec->ndim + 1, dtype, gather->pin));
        else
            AH_TRY(ah_tensor_empty(&job->out[c], size, spec->ndim + 1, dtype, &ah_cpu));
        job->data[c] = ah_tensor_data(job->out[c]);
    }
    return 0;
}

int ah_gather_pin(struct ah_gather *gather, struct ah_device *device)
{
    if (!device->type->prefetch)
        return ah_fail(AH_EINVAL, "memory is not pinned for device \"%s\"", device->name);
    gather->pin = device;
    return 0;
}

bool ah_gather_is_filled(const struct ah_gather *gather)
{
    AH_LOCK_SCOPE(&loader.lock);
    return gather->first && gather->first->state == FILLED;
}

bool ah_gather_is_threaded(const struct ah_gather *gather, int64_t count)
{
    return count > 0 && (size_t)count * gather->row_bytes >= gather->inline_bytes;
}

static struct job *new_job(struct ah_gather *gather, const struct ah_gather_order *order)
{
    size_t count = (size_t)order->count;
    struct job *job = malloc(sizeof *job + count * (2 * sizeof *job->index + sizeof *job->turn));
    if (!job)
        return NULL;
    memset(job, 0, sizeof *job);
    job->gather = gather;
    job->count = order->count;
    job->seed = order->seed;
    job->sample = job->index + count;
    job->turn = (uint32_t *)(job->sample + count);
    memcpy(job->index, order->row, count * sizeof *job->index);
    memcpy(job->sample, order->sample ? order->sample : order->row, count * sizeof *job->sample);
    if (order->turn)
        memcpy(job->turn, order->turn, count * sizeof *job->turn);
    else
        memset(job->turn, 0, count * sizeof *job->turn);
    return job;
}

int ah_gather_post(struct ah_gather *gather, const struct ah_gather_order *order)
{
    struct job *job = new_job(gather, order);
    if (!job)
        return ah_fail(AH_ENOMEM, "out of memory: a batch of %lld", (long long)order->count);
    if (ah_gather_is_threaded(gather, order->count) && join_loader(gather)) {
        int status = gather_allocate(job);
        if (status < 0) {
            free_job(job);
            return status;
        }
        gather_enqueue(job);
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
    struct job *job = gather_pop(gather);
    int status = 0;
    if (gather_claim(job)) {
        if (!job->out[0])
            status = gather_allocate(job);
        if (status == 0)
            gather_fill(job);
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

bool ah_gather_is_random(const struct ah_gather *gather)
{
    return gather->random;
}
