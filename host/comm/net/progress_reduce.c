/* all_reduce between hosts, piece after piece: the sum of this host's ranks is in its first rank's buffer, or as
 * float32 next to it. Each host adds its slice of a piece for all (phase 0), then they exchange the results (phase 1).
 * A short call goes directly: each host sends all others everything, and adds it up itself, in the same order. While a
 * piece is in transit the ranks sum the next ones. */
#include <string.h>

#include "comm/control/combine.h"
#include "comm/net/progress_job.h"

struct range {
    int64_t begin, end; /* elements of the call */
};

static struct flight *flight_of(struct progress_job *job, int64_t piece)
{
    return &job->flight[piece % PROGRESS_AHEAD];
}

static struct range range_of(const struct progress_job *job, int64_t piece)
{
    int64_t n = ah_team_piece(&job->team, &job->call), begin = piece * n;
    return (struct range){begin, begin + n < job->call.count ? begin + n : job->call.count};
}

/* A host's slice of a piece. */
static struct range slice_of(const struct progress_job *job, int64_t piece, int host)
{
    struct range all = range_of(job, piece), slice = all;
    if (job->direct)
        return all;
    ah_team_slice(all.end - all.begin, host, job->team.hosts, ah_team_width(&job->team, &job->call), &slice.begin,
                  &slice.end);
    return (struct range){all.begin + slice.begin, all.begin + slice.end};
}

static unsigned char *result_at(const struct progress_job *job, int place, int64_t element)
{
    return progress_at(job, place, job->offset[place]) + (size_t)element * ah_dtype_size(job->call.dtype);
}

/* Of this host's sum. */
static struct ah_transport_piece reduce_given(const struct progress_job *job, struct range range)
{
    size_t width = ah_team_width(&job->team, &job->call);
    return (struct ah_transport_piece){progress_at(job, 0, job->partial) + (size_t)range.begin * width,
                                  (size_t)(range.end - range.begin) * width};
}

/* Of the sum of all. */
static struct ah_transport_piece reduce_result(const struct progress_job *job, struct range range)
{
    return (struct ah_transport_piece){result_at(job, 0, range.begin),
                                  (size_t)(range.end - range.begin) * ah_dtype_size(job->call.dtype)};
}

static const struct ah_transport_piece no_piece[AH_HOSTS_MAX];

/* Receive the own slice from all hosts, and the sums of their slices, which a host sends when it has received all of
 * the data that they overwrite. */
static int reduce_await(struct progress_job *job, int64_t piece)
{
    struct flight *flight = flight_of(job, piece);
    struct ah_transport_piece receive[AH_HOSTS_MAX] = {{0}}, sums[AH_HOSTS_MAX] = {{0}};
    struct ah_transport_piece own = reduce_given(job, slice_of(job, piece, job->team.mine));
    AH_TRY(progress_scratch(job, flight, own.bytes * (size_t)job->team.hosts));
    for (int h = 0; h < job->team.hosts; h++) {
        if (h == job->team.mine)
            continue;
        sums[h] = reduce_result(job, slice_of(job, piece, h));
        receive[h] = (struct ah_transport_piece){flight->scratch.memory + own.bytes * (size_t)h, own.bytes};
    }
    if (!job->direct)
        AH_TRY(progress_start(job, 1, no_piece, sums, &flight->sums));
    return progress_start(job, 0, no_piece, receive, &flight->take);
}

/* Send each host its slice. */
static int reduce_begin(struct progress_job *job, int64_t piece)
{
    struct ah_transport_piece send[AH_HOSTS_MAX] = {{0}};
    for (int h = 0; h < job->team.hosts; h++)
        if (h != job->team.mine)
            send[h] = reduce_given(job, slice_of(job, piece, h));
    return progress_start(job, 0, send, no_piece, &flight_of(job, piece)->give);
}

/* The sums of all hosts; directly, for every local rank at once. */
static void reduce_add(struct progress_job *job, int64_t piece)
{
    struct flight *flight = flight_of(job, piece);
    struct range own = slice_of(job, piece, job->team.mine);
    struct ah_transport_piece mine = reduce_given(job, own);
    const void *source[AH_HOSTS_MAX];
    void *to[AH_MAX_RANKS];
    for (int h = 0; h < job->team.hosts; h++)
        source[h] = h == job->team.mine ? mine.memory : flight->scratch.memory + mine.bytes * (size_t)h;
    for (int i = 0; i < job->team.local; i++)
        to[i] = result_at(job, i, own.begin);
    ah_combine_as(ah_team_sums(&job->team, &job->call), job->call.dtype, job->call.reduce, to,
                  job->direct ? job->team.local : 1, source, job->team.hosts, own.end - own.begin, job->divisor);
}

static int give_sums(struct progress_job *job, int64_t piece)
{
    struct ah_transport_piece send[AH_HOSTS_MAX] = {{0}};
    for (int h = 0; h < job->team.hosts; h++)
        if (h != job->team.mine)
            send[h] = reduce_result(job, slice_of(job, piece, job->team.mine));
    return progress_start(job, 1, send, no_piece, &flight_of(job, piece)->give);
}

static void hand_out(struct progress_job *job, int64_t piece)
{
    struct range all = range_of(job, piece);
    struct ah_transport_piece sum = reduce_result(job, all);
    for (int i = 1; i < job->team.local; i++)
        memcpy(result_at(job, i, all.begin), sum.memory, sum.bytes);
}

/* Have the exchanges of a piece completed? */
static int test_both(struct progress_job *job, struct ah_transport_exchange **one, struct ah_transport_exchange **other,
                     bool *done, int *lost)
{
    AH_TRY(progress_test(job, one, done, lost));
    return *done ? progress_test(job, other, done, lost) : 0;
}

int progress_reduce(struct progress_job *job, int64_t steps, bool *moved, int *lost)
{
    bool done;
    while (job->awaited < job->pieces && job->awaited - job->done < PROGRESS_AHEAD)
        AH_TRY(reduce_await(job, job->awaited++));
    while (job->begun < job->pieces && job->begun < steps && job->begun - job->done < PROGRESS_DEPTH) {
        AH_TRY(reduce_begin(job, job->begun++));
        *moved = true;
    }
    for (; job->halfway < job->begun; job->halfway++) {
        struct flight *flight = flight_of(job, job->halfway);
        AH_TRY(test_both(job, &flight->take, &flight->give, &done, lost));
        if (!done)
            break;
        reduce_add(job, job->halfway);
        if (!job->direct)
            AH_TRY(give_sums(job, job->halfway));
        *moved = true;
    }
    for (; job->done < job->halfway; job->done++) {
        struct flight *flight = flight_of(job, job->done);
        AH_TRY(test_both(job, &flight->give, &flight->sums, &done, lost));
        if (!done)
            break;
        if (!job->direct)
            hand_out(job, job->done);
        *moved = true;
    }
    return 0;
}
