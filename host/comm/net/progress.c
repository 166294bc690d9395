/* The courier's thread: finds wired calls in the posts of its host's ranks, each of them by the first rank that its
 * group has here, and carries out those of one group in order and those of different groups side by side. While
 * something is under way it sleeps on the wire, and looks at the board now and then; otherwise on the board's news. */
#include "comm/net/progress.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"
#include "comm/net/progress_job.h"

/* Calls of one channel in which a rank is its host's first. */
struct lane {
    uint32_t seen;
    struct courier_job *first, **last;
};

struct ah_progress {
    struct ah_control_block *board;
    struct ah_replica *mirror;
    struct ah_transport *wire;
    struct lane *lane; /* of each local rank and channel */
    struct scratch spare[COURIER_AHEAD];
    pthread_t thread;
    pthread_mutex_t working; /* around all that is above */
    atomic_bool ending;
};

static const int64_t idle_ns = 100000000, shortest_ns = 50000, longest_ns = 1000000;
enum { SPARE_BYTES = 4 << 20 }; /* of a scratch that is kept */
/* all_reduce up to which each host gives all others everything; of two hosts, for which that is no more than halves. */
enum { DIRECT_BYTES = 256 * 1024, DIRECT_PAIR = 512 * 1024 };

/* Turns. */

int courier_scratch(struct courier_job *job, struct flight *flight, size_t bytes)
{
    struct scratch *mine = &flight->scratch;
    for (int i = 0; i < COURIER_AHEAD && mine->bytes < bytes; i++) {
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
    return ah_fail(AH_ENOMEM, "no memory is left for what comes from other hosts");
}

/* Of a job that is through: the first that are not too large are kept. */
static void leave_scratch(struct courier_job *job, struct scratch *scratch)
{
    int place = 0;
    while (place < COURIER_AHEAD && job->spare[place].memory)
        place++;
    if (place < COURIER_AHEAD && scratch->bytes <= SPARE_BYTES)
        job->spare[place] = *scratch;
    else
        free(scratch->memory);
}

int courier_start(struct courier_job *job, int phase, const struct ah_transport_piece *send,
                  const struct ah_transport_piece *receive, struct ah_transport_turn **turn)
{
    struct ah_transport_piece out[AH_HOSTS_MAX] = {{0}}, in[AH_HOSTS_MAX] = {{0}};
    for (int h = 0; h < job->team.hosts; h++) {
        out[job->team.host[h]] = send[h];
        in[job->team.host[h]] = receive[h];
    }
    uint64_t tag = (uint64_t)job->identity << 32 | (unsigned)(2 * job->tag + phase);
    return job->wire->type->start(job->wire, tag, out, in, turn);
}

int courier_test(struct courier_job *job, struct ah_transport_turn **turn, bool *done, int *lost)
{
    *done = !*turn;
    if (*turn)
        AH_TRY(job->wire->type->test(job->wire, *turn, done, lost));
    if (*done)
        *turn = NULL;
    return 0;
}

/* Finding calls. */

static void free_job(struct courier_job *job)
{
    for (int i = 0; i < COURIER_AHEAD; i++)
        leave_scratch(job, &job->flight[i].scratch);
    free((void *)job->call.counts);
    free(job);
}

static struct ah_group_block *channel_of(const struct courier_job *job, int place)
{
    return &ah_rank_entry(job->board, job->team.member[job->team.ranks[place]])->channel[job->channel];
}

/* The group's members, as its rank says; NULL when the post is not wired, or another rank of this host is the group's
 * first. */
static const struct ah_member_table *roll_of(struct ah_progress *courier, int rank, const struct ah_group_block *channel,
                                     uint32_t sequence)
{
    struct ah_member_table *roll = (void *)(courier->board->segment[rank] + atomic_load(&channel->roll));
    if (!atomic_load(&channel->roll) || atomic_load(&roll->wired[sequence % AH_GROUP_CALLS]) != sequence)
        return NULL;
    for (int r = 0; r < roll->size; r++)
        if (ah_control_is_local(courier->board, roll->member[r]))
            return roll->member[r] == rank ? roll : NULL;
    return NULL;
}

static int copy_counts(struct courier_job *job, const struct ah_call_record *post)
{
    size_t size = (size_t)job->team.size, n = job->call.kind == AH_ALL_TO_ALL_V ? size * size : size;
    if (!post->counts)
        return 0;
    int64_t *counts = malloc(n * sizeof *counts);
    if (!counts)
        return AH_ENOMEM;
    job->call.counts = memcpy(counts, courier_at(job, 0, post->counts), n * sizeof *counts);
    return 0;
}

static int add_job(struct ah_progress *courier, struct lane *lane, const struct ah_member_table *roll,
                   const struct ah_call_record *post, int channel)
{
    struct courier_job *job = calloc(1, sizeof *job);
    if (!job)
        return AH_ENOMEM;
    job->board = courier->board;
    job->wire = courier->wire;
    job->spare = courier->spare;
    job->sequence = post->sequence;
    job->channel = channel;
    job->tag = roll->member[0] * AH_MAX_GROUPS + channel;
    job->identity = roll->identity;
    job->call = (struct ah_collective){.kind = post->kind, .dtype = post->dtype, .reduce = post->reduce,
                                       .root = post->root, .count = post->count};
    ah_team_make(&job->team, courier->board->hosts, roll->member, roll->size);
    if (copy_counts(job, post) < 0) {
        free_job(job);
        return AH_ENOMEM;
    }
    *lane->last = job;
    lane->last = &job->next;
    return 0;
}

static int discover(struct ah_progress *courier)
{
    struct ah_control_header *header = courier->board->header;
    for (int r = header->first; r < header->first + header->local; r++) {
        for (int c = 0; c < atomic_load(&header->channels); c++) {
            struct ah_group_block *channel = &ah_rank_entry(courier->board, r)->channel[c];
            struct lane *lane = &courier->lane[(r - header->first) * AH_MAX_GROUPS + c];
            uint32_t posted = ah_group_counter(channel, AH_POSTED);
            if (posted - lane->seen > AH_GROUP_CALLS)
                lane->seen = posted - AH_GROUP_CALLS;
            while (lane->seen != posted) {
                const struct ah_member_table *roll = roll_of(courier, r, channel, ++lane->seen);
                if (roll)
                    AH_TRY(add_job(courier, lane, roll, ah_group_record(channel, lane->seen), c));
            }
        }
    }
    return 0;
}

/* Carrying out. */

/* Parts that all local ranks have done. */
static int64_t steps_of(const struct courier_job *job)
{
    int64_t least = INT32_MAX;
    for (int i = 0; i < job->team.local; i++) {
        struct ah_group_block *channel = channel_of(job, i);
        if (!ah_reached(ah_group_counter(channel, AH_POSTED), job->sequence))
            return 0;
        uint32_t before = job->known ? job->before[i] : ah_group_record(channel, job->sequence)->steps;
        int64_t steps = (int32_t)(ah_group_counter(channel, AH_SLICED) - before);
        least = steps < least ? steps : least;
    }
    return least;
}

/* All local ranks have posted the call and found that all agree on it. */
static void learn(struct courier_job *job)
{
    for (int i = 0; i < job->team.local; i++) {
        const struct ah_call_record *post = ah_group_record(channel_of(job, i), job->sequence);
        job->before[i] = post->steps;
        job->offset[i] = post->offset;
        job->landing[i] = post->landing;
        job->partial = i ? job->partial : post->partial;
    }
    const struct ah_member_table *roll = (void *)courier_at(job, 0, atomic_load(&channel_of(job, 0)->roll));
    job->divisor = roll->divisor[job->sequence % AH_GROUP_CALLS];
    bool reduces = job->call.kind == AH_ALL_REDUCE;
    size_t bytes = (size_t)job->call.count * ah_team_width(&job->team, &job->call);
    job->direct = bytes <= (job->team.hosts == 2 ? DIRECT_PAIR : DIRECT_BYTES);
    job->pieces = reduces ? ah_team_pieces(&job->team, &job->call) : courier_stream_pieces(job);
    job->known = true;
}

/* *done: the job is through. */
static int carry_on(struct courier_job *job, bool *moved, bool *done, int *lost)
{
    int64_t steps = steps_of(job);
    *done = false;
    if (!steps)
        return 0;
    if (!job->known)
        learn(job);
    bool reduces = job->call.kind == AH_ALL_REDUCE;
    AH_TRY(reduces ? courier_reduce(job, steps, moved, lost) : courier_stream(job, moved, lost));
    if (job->done < job->pieces)
        return 0;
    *done = *moved = true;
    for (int i = 0; i < job->team.local; i++)
        ah_group_counter_advance(channel_of(job, i), AH_ROUND, job->sequence);
    return 0;
}

static void fail_job(struct ah_progress *courier, struct courier_job *job, int lost)
{
    char why[256];
    struct ah_member_table *roll = (void *)courier_at(job, 0, atomic_load(&channel_of(job, 0)->roll));
    snprintf(why, sizeof why, "%s", ah_error_text());
    job->dead = true;
    atomic_store(&roll->lost, lost + 1); /* for those who wait: a host that has ended is not marked */
    for (int h = 0; h < job->team.hosts; h++)
        if (h != job->team.mine && (lost < 0 || job->team.host[h] == lost))
            ah_replica_lose(courier->mirror, job->team.host[h], why);
}

static bool work_through(struct ah_progress *courier, bool *under_way)
{
    struct ah_control_header *header = courier->board->header;
    bool moved = false;
    *under_way = false;
    for (int i = 0; i < header->local * AH_MAX_GROUPS; i++) {
        struct lane *lane = &courier->lane[i];
        bool done = true;
        while (lane->first && !lane->first->dead && done) {
            struct courier_job *job = lane->first;
            int lost = -1;
            if (carry_on(job, &moved, &done, &lost) < 0) {
                fail_job(courier, job, lost);
                break;
            }
            if (!done) {
                *under_way |= job->begun > job->done;
                break;
            }
            lane->first = job->next;
            if (!lane->first)
                lane->last = &lane->first;
            free_job(job);
        }
    }
    return moved;
}

static void *carry_all(void *context)
{
    struct ah_progress *courier = context;
    struct ah_notification *news = &courier->board->header->news[AH_PROGRESS];
    int64_t limit_ns = shortest_ns;
    uint32_t visits = 0;
    while (!atomic_load(&courier->ending)) {
        uint32_t seen = atomic_load(&news->changes); /* before it looks who attends */
        if (ah_notification_nap(news, &visits))
            continue;
        bool under_way = false;
        pthread_mutex_lock(&courier->working);
        bool found = discover(courier) == 0, moved = work_through(courier, &under_way);
        if (!moved && under_way && courier->wire->type->wait_for)
            courier->wire->type->wait_for(courier->wire, limit_ns);
        pthread_mutex_unlock(&courier->working);
        if (!found) /* no memory: perhaps later */
            ah_notification_sleep(news, seen, longest_ns);
        else if (!moved && !under_way)
            ah_notification_sleep(news, seen, idle_ns);
        else if (!moved && !courier->wire->type->wait_for)
            sched_yield();
        limit_ns = moved ? shortest_ns : limit_ns * 2 < longest_ns ? limit_ns * 2 : longest_ns;
    }
    return NULL;
}

bool ah_progress_attend(struct ah_progress *courier)
{
    bool under_way, moved = false;
    ah_notification_attend(&courier->board->header->news[AH_PROGRESS]);
    if (pthread_mutex_trylock(&courier->working))
        return false;
    if (discover(courier) == 0)
        moved = work_through(courier, &under_way);
    pthread_mutex_unlock(&courier->working);
    return moved;
}

void ah_progress_leave(struct ah_progress *courier)
{
    ah_notification_leave(&courier->board->header->news[AH_PROGRESS]);
}

/* Opening and closing. */

static void free_courier(struct ah_progress *courier)
{
    int lanes = courier->board->header->local * AH_MAX_GROUPS;
    if (courier->wire)
        courier->wire->type->close(courier->wire);
    for (int i = 0; courier->lane && i < lanes; i++)
        for (struct courier_job *job; (job = courier->lane[i].first) != NULL;) {
            courier->lane[i].first = job->next;
            free_job(job);
        }
    for (int i = 0; i < COURIER_AHEAD; i++)
        free(courier->spare[i].memory);
    pthread_mutex_destroy(&courier->working);
    free(courier->lane);
    free(courier);
}

int ah_progress_open(struct ah_progress **out, struct ah_control_block *board, struct ah_replica *mirror, int64_t timeout_ns)
{
    const char *name = board->hosts->wire ? board->hosts->wire : "tcp";
    const struct ah_transport_type *type = ah_transport_find(name);
    int lanes = board->header->local * AH_MAX_GROUPS, status;
    if (!type)
        return ah_fail(AH_EINVAL, "no wire of the name %s moves bytes between hosts", name);
    struct ah_progress *courier = calloc(1, sizeof *courier);
    if (!courier)
        return ah_fail(AH_ENOMEM, "courier: out of memory");
    courier->board = board;
    courier->mirror = mirror;
    pthread_mutex_init(&courier->working, NULL);
    courier->lane = calloc((size_t)lanes, sizeof *courier->lane);
    AH_TRYGO(courier->lane ? 0 : ah_fail(AH_ENOMEM, "courier: out of memory"), failed);
    for (int i = 0; i < lanes; i++)
        courier->lane[i].last = &courier->lane[i].first;
    AH_TRYGO(type->open(&courier->wire, board->hosts, timeout_ns), failed);
    if (pthread_create(&courier->thread, NULL, carry_all, courier)) {
        status = ah_fail(AH_ENOMEM, "courier: no thread for it");
        goto failed;
    }
    *out = courier;
    return 0;
failed:
    free_courier(courier);
    return status;
}

void ah_progress_close(struct ah_progress *courier)
{
    if (!courier)
        return;
    atomic_store(&courier->ending, true);
    ah_progress_leave(courier);
    ah_notification_notify(&courier->board->header->news[AH_PROGRESS]);
    pthread_join(courier->thread, NULL);
    free_courier(courier);
}
