/* The progress thread: finds wired calls in the posts of its host's ranks, each of them by the first rank that its
 * group has here, and carries out those of one group in order and those of different groups side by side. While calls
 * are in progress it sleeps on the transport and polls the control block now and then; otherwise it sleeps on the
 * control block's notifications. */
#include "comm/net/progress.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process/threads.h"
#include "comm/net/progress_job.h"

/* Calls of one group block in which a rank is its host's first. */
struct queue {
    uint32_t seen;
    struct progress_job *first, **last;
};

struct ah_progress {
    struct ah_control_block *control;
    struct ah_replica *replica;
    struct ah_transport *transport;
    struct queue *queue; /* of each local rank and group block */
    struct scratch spare[PROGRESS_AHEAD];
    pthread_t thread;
    pthread_mutex_t working; /* around all that is above */
    atomic_bool shutting_down;
};

static const int64_t idle_ns = 100000000, shortest_ns = 50000, longest_ns = 1000000;
enum { SPARE_BYTES = 4 << 20 }; /* of a scratch that is kept */
/* all_reduce up to which each host sends all others everything; of two hosts, which so send no more than by halves. */
enum { DIRECT_BYTES = 256 * 1024, DIRECT_PAIR = 512 * 1024 };

/* Turns. */

int progress_scratch(struct progress_job *job, struct flight *flight, size_t bytes)
{
    struct scratch *mine = &flight->scratch;
    for (int i = 0; i < PROGRESS_AHEAD && mine->bytes < bytes; i++) {
        struct scratch left = *mine;
        *mine = job->spare[i];
        job->spare[i] = left;
    }
    if (mine->bytes >= bytes)
        return 0;
    free(mine->memory);
    *mine = (struct scratch){malloc(bytes), bytes};
    if (mine->memory)
        return 0;
    mine->bytes = 0;
    return ah_fail(AH_ENOMEM, "out of memory for data from other hosts");
}

/* Of a completed job: keep the first scratch buffers that are not too large. */
static void leave_scratch(struct progress_job *job, struct scratch *scratch)
{
    int place = 0;
    while (place < PROGRESS_AHEAD && job->spare[place].memory)
        place++;
    if (place < PROGRESS_AHEAD && scratch->bytes <= SPARE_BYTES)
        job->spare[place] = *scratch;
    else
        free(scratch->memory);
}

int progress_start(struct progress_job *job, int phase, const struct ah_transport_piece *send,
                  const struct ah_transport_piece *receive, struct ah_transport_exchange **exchange)
{
    struct ah_transport_piece out[AH_HOSTS_MAX] = {{0}}, in[AH_HOSTS_MAX] = {{0}};
    for (int h = 0; h < job->team.hosts; h++) {
        out[job->team.host[h]] = send[h];
        in[job->team.host[h]] = receive[h];
    }
    uint64_t tag = (uint64_t)job->identity << 32 | (unsigned)(2 * job->tag + phase);
    return job->transport->type->start(job->transport, tag, out, in, exchange);
}

int progress_test(struct progress_job *job, struct ah_transport_exchange **exchange, bool *done, int *lost)
{
    *done = !*exchange;
    if (*exchange)
        AH_TRY(job->transport->type->test(job->transport, *exchange, done, lost));
    if (*done)
        *exchange = NULL;
    return 0;
}

/* Finding calls. */

static void free_job(struct progress_job *job)
{
    for (int i = 0; i < PROGRESS_AHEAD; i++)
        leave_scratch(job, &job->flight[i].scratch);
    free((void *)job->call.counts);
    free(job);
}

static struct ah_group_block *block_of(const struct progress_job *job, int place)
{
    return &ah_rank_entry(job->control, job->team.member[job->team.ranks[place]])->block[job->block];
}

/* The member table that the rank wrote for the group; NULL when the post is not wired, or another rank of this host is
 * the group's first. */
static const struct ah_member_table *members_of(struct ah_progress *progress, int rank,
                                                const struct ah_group_block *block, uint32_t sequence)
{
    struct ah_member_table *member_table =
        (void *)(progress->control->segment[rank] + atomic_load(&block->member_table));
    if (!atomic_load(&block->member_table) || atomic_load(&member_table->wired[sequence % AH_GROUP_CALLS]) != sequence)
        return NULL;
    for (int r = 0; r < member_table->size; r++)
        if (ah_control_is_local(progress->control, member_table->member[r]))
            return member_table->member[r] == rank ? member_table : NULL;
    return NULL;
}

static int copy_counts(struct progress_job *job, const struct ah_call_record *record)
{
    size_t size = (size_t)job->team.size, n = job->call.kind == AH_ALL_TO_ALL_V ? size * size : size;
    if (!record->counts)
        return 0;
    int64_t *counts = malloc(n * sizeof *counts);
    if (!counts)
        return AH_ENOMEM;
    job->call.counts = memcpy(counts, progress_at(job, 0, record->counts), n * sizeof *counts);
    return 0;
}

static int add_job(struct ah_progress *progress, struct queue *queue, const struct ah_member_table *member_table,
                   const struct ah_call_record *record, int block)
{
    struct progress_job *job = calloc(1, sizeof *job);
    if (!job)
        return AH_ENOMEM;
    job->control = progress->control;
    job->transport = progress->transport;
    job->spare = progress->spare;
    job->sequence = record->sequence;
    job->block = block;
    job->tag = member_table->member[0] * AH_MAX_GROUPS + block;
    job->identity = member_table->identity;
    job->call = (struct ah_collective){.kind = record->kind, .dtype = record->dtype, .reduce = record->reduce,
                                       .root = record->root, .count = record->count};
    ah_team_make(&job->team, progress->control->hosts, member_table->member, member_table->size);
    if (copy_counts(job, record) < 0) {
        free_job(job);
        return AH_ENOMEM;
    }
    *queue->last = job;
    queue->last = &job->next;
    return 0;
}

static int progress_discover(struct ah_progress *progress)
{
    struct ah_control_header *header = progress->control->header;
    for (int r = header->first; r < header->first + header->local; r++) {
        for (int c = 0; c < atomic_load(&header->blocks); c++) {
            struct ah_group_block *block = &ah_rank_entry(progress->control, r)->block[c];
            struct queue *queue = &progress->queue[(r - header->first) * AH_MAX_GROUPS + c];
            uint32_t issued = ah_group_counter(block, AH_ISSUED);
            if (issued - queue->seen > AH_GROUP_CALLS)
                queue->seen = issued - AH_GROUP_CALLS;
            while (queue->seen != issued) {
                const struct ah_member_table *member_table = members_of(progress, r, block, ++queue->seen);
                if (member_table)
                    AH_TRY(add_job(progress, queue, member_table, ah_group_record(block, queue->seen), c));
            }
        }
    }
    return 0;
}

/* Carrying out. */

/* Parts that all local ranks have done. */
static int64_t steps_of(const struct progress_job *job)
{
    int64_t least = INT32_MAX;
    for (int i = 0; i < job->team.local; i++) {
        struct ah_group_block *block = block_of(job, i);
        if (!ah_reached(ah_group_counter(block, AH_ISSUED), job->sequence))
            return 0;
        uint32_t before = job->known ? job->before[i] : ah_group_record(block, job->sequence)->steps;
        int64_t steps = (int32_t)(ah_group_counter(block, AH_SLICED) - before);
        least = steps < least ? steps : least;
    }
    return least;
}

/* All local ranks have issued the call and found that all agree on it. */
static void progress_learn(struct progress_job *job)
{
    for (int i = 0; i < job->team.local; i++) {
        const struct ah_call_record *record = ah_group_record(block_of(job, i), job->sequence);
        job->before[i] = record->steps;
        job->offset[i] = record->offset;
        job->landing[i] = record->landing;
        job->partial = i ? job->partial : record->partial;
    }
    const struct ah_member_table *member_table =
        (void *)progress_at(job, 0, atomic_load(&block_of(job, 0)->member_table));
    job->divisor = member_table->divisor[job->sequence % AH_GROUP_CALLS];
    bool reduces = job->call.kind == AH_ALL_REDUCE;
    size_t bytes = (size_t)job->call.count * ah_team_width(&job->team, &job->call);
    job->direct = bytes <= (job->team.hosts == 2 ? DIRECT_PAIR : DIRECT_BYTES);
    job->pieces = reduces ? ah_team_pieces(&job->team, &job->call) : progress_stream_pieces(job);
    job->known = true;
}

/* *done: the job has completed. */
static int carry_on(struct progress_job *job, bool *moved, bool *done, int *lost)
{
    int64_t steps = steps_of(job);
    *done = false;
    if (!steps)
        return 0;
    if (!job->known)
        progress_learn(job);
    bool reduces = job->call.kind == AH_ALL_REDUCE;
    AH_TRY(reduces ? progress_reduce(job, steps, moved, lost) : progress_stream(job, moved, lost));
    if (job->done < job->pieces)
        return 0;
    *done = *moved = true;
    for (int i = 0; i < job->team.local; i++)
        ah_group_counter_advance(block_of(job, i), AH_ROUND, job->sequence);
    return 0;
}

static void fail_job(struct ah_progress *progress, struct progress_job *job, int lost)
{
    char why[256];
    struct ah_member_table *member_table = (void *)progress_at(job, 0, atomic_load(&block_of(job, 0)->member_table));
    snprintf(why, sizeof why, "%s", ah_error_text());
    job->dead = true;
    atomic_store(&member_table->lost, lost + 1); /* for those who wait: a host that has ended is not marked */
    for (int h = 0; h < job->team.hosts; h++)
        if (h != job->team.mine && lost < 0)
            ah_replica_lose(progress->replica, job->team.host[h], why);
        else if (h != job->team.mine && job->team.host[h] == lost)
            ah_replica_doubt(progress->replica, lost, why);
}

static bool work_through(struct ah_progress *progress, bool *under_way)
{
    struct ah_control_header *header = progress->control->header;
    bool moved = false;
    *under_way = false;
    for (int i = 0; i < header->local * AH_MAX_GROUPS; i++) {
        struct queue *queue = &progress->queue[i];
        bool done = true;
        while (queue->first && !queue->first->dead && done) {
            struct progress_job *job = queue->first;
            int lost = -1;
            if (carry_on(job, &moved, &done, &lost) < 0) {
                fail_job(progress, job, lost);
                break;
            }
            if (!done) {
                *under_way |= job->begun > job->done;
                break;
            }
            queue->first = job->next;
            if (!queue->first)
                queue->last = &queue->first;
            free_job(job);
        }
    }
    return moved;
}

static void *carry_all(void *context)
{
    struct ah_progress *progress = context;
    struct ah_notification *notification = &progress->control->header->notification[AH_PROGRESS];
    int64_t limit_ns = shortest_ns;
    uint32_t visits = 0;
    while (!atomic_load(&progress->shutting_down)) {
        uint32_t seen = atomic_load(&notification->changes); /* before it reads the attending ranks */
        if (ah_notification_nap(notification, &visits))
            continue;
        bool under_way = false;
        pthread_mutex_lock(&progress->working);
        bool found = progress_discover(progress) == 0, moved = work_through(progress, &under_way);
        if (!moved && under_way && progress->transport->type->wait_for)
            progress->transport->type->wait_for(progress->transport, limit_ns);
        pthread_mutex_unlock(&progress->working);
        if (!found) /* no memory: perhaps later */
            ah_notification_sleep(notification, seen, longest_ns);
        else if (!moved && !under_way)
            ah_notification_sleep(notification, seen, idle_ns);
        else if (!moved && !progress->transport->type->wait_for)
            sched_yield();
        limit_ns = moved ? shortest_ns : limit_ns * 2 < longest_ns ? limit_ns * 2 : longest_ns;
    }
    return NULL;
}

bool ah_progress_attend(struct ah_progress *progress)
{
    bool under_way, moved = false;
    ah_notification_attend(&progress->control->header->notification[AH_PROGRESS]);
    if (pthread_mutex_trylock(&progress->working))
        return false;
    if (progress_discover(progress) == 0)
        moved = work_through(progress, &under_way);
    pthread_mutex_unlock(&progress->working);
    return moved;
}

void ah_progress_leave(struct ah_progress *progress)
{
    ah_notification_leave(&progress->control->header->notification[AH_PROGRESS]);
}

/* Opening and closing. */

static void free_progress(struct ah_progress *progress)
{
    int queues = progress->control->header->local * AH_MAX_GROUPS;
    if (progress->transport)
        progress->transport->type->close(progress->transport);
    for (int i = 0; progress->queue && i < queues; i++)
        for (struct progress_job *job; (job = progress->queue[i].first) != NULL;) {
            progress->queue[i].first = job->next;
            free_job(job);
        }
    for (int i = 0; i < PROGRESS_AHEAD; i++)
        free(progress->spare[i].memory);
    pthread_mutex_destroy(&progress->working);
    free(progress->queue);
    free(progress);
}

int ah_progress_open(struct ah_progress **out, struct ah_control_block *control, struct ah_replica *replica,
                     int64_t timeout_ns)
{
    const char *name = control->hosts->transport ? control->hosts->transport : "tcp";
    const struct ah_transport_type *type = ah_transport_find(name);
    int queues = control->header->local * AH_MAX_GROUPS, status;
    if (!type)
        return ah_fail(AH_EINVAL, "unknown transport between hosts: %s", name);
    struct ah_progress *progress = calloc(1, sizeof *progress);
    AH_TRY_MEMORY(progress, "progress thread: out of memory");
    progress->control = control;
    progress->replica = replica;
    pthread_mutex_init(&progress->working, NULL);
    progress->queue = calloc((size_t)queues, sizeof *progress->queue);
    AH_TRYGO(progress->queue ? 0 : ah_fail(AH_ENOMEM, "progress thread: out of memory"), failed);
    for (int i = 0; i < queues; i++)
        progress->queue[i].last = &progress->queue[i].first;
    AH_TRYGO(type->open(&progress->transport, control->hosts, timeout_ns), failed);
    if (ah_helper_start(&progress->thread, carry_all, progress)) {
        status = ah_fail(AH_ENOMEM, "progress thread: cannot be started");
        goto failed;
    }
    *out = progress;
    return 0;
failed:
    free_progress(progress);
    return status;
}

void ah_progress_close(struct ah_progress *progress)
{
    if (!progress)
        return;
    atomic_store(&progress->shutting_down, true);
    ah_progress_leave(progress);
    ah_notification_notify(&progress->control->header->notification[AH_PROGRESS]);
    pthread_join(progress->thread, NULL);
    free_progress(progress);
}
