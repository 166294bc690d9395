/* all_reduce between hosts, piece after piece: the sum of this host's ranks lies in its first rank's buffer. Each host
 * adds its share of a piece for all (phase 0), then they give each other the sums (phase 1). A short call goes
 * directly: each host gives all others everything, and adds it up itself, in the same order. While a piece travels the
 * ranks sum the next ones. */
#include <string.h>

#include "comm/combine.h"
#include "comm/courier_job.h"

struct range {
    int64_t begin, end; /* elements of the call */
};

static struct range range_of(const struct courier_job *job, int64_t piece)
{
    int64_t n = ah_team_piece(&job->call), begin = piece * n;
    return (struct range){begin, begin + n < job->call.count ? begin + n : job->call.count};
}

/* A host's share of a piece. */
static struct range share_of(const struct courier_job *job, int64_t piece, int host)
{
    struct range all = range_of(job, piece), share = all;
    if (job->direct)
        return all;
    ah_team_share(all.end - all.begin, host, job->team.hosts, ah_dtype_size(job->call.dtype), &share.begin, &share.end);
    return (struct range){all.begin + share.begin, all.begin + share.end};
}

static unsigned char *sum_at(const struct courier_job *job, int64_t element)
{
    return courier_at(job, 0, job->partial) + (size_t)element * ah_dtype_size(job->call.dtype);
}

static struct ah_wire_piece piece_of(const struct courier_job *job, struct range range)
{
    return (struct ah_wire_piece){sum_at(job, range.begin),
                                  (size_t)(range.end - range.begin) * ah_dtype_size(job->call.dtype)};
}

/* Give each host its share, and take the own one of all; be ready for the sums of their shares, which a host gives when
 * it has got all of what lies in their place. */
static int begin(struct courier_job *job, int64_t piece)
{
    static const struct ah_wire_piece nothing[AH_HOSTS_MAX];
    struct flight *flight = courier_flight(job, piece);
    struct ah_wire_piece send[AH_HOSTS_MAX] = {{0}}, receive[AH_HOSTS_MAX] = {{0}};
    struct ah_wire_piece own = piece_of(job, share_of(job, piece, job->team.mine));
    AH_TRY(courier_scratch(flight, own.bytes * (size_t)job->team.hosts));
    for (int h = 0; h < job->team.hosts; h++) {
        if (h == job->team.mine)
            continue;
        send[h] = piece_of(job, share_of(job, piece, h));
        receive[h] = (struct ah_wire_piece){flight->scratch + own.bytes * (size_t)h, own.bytes};
    }
    if (!job->direct)
        AH_TRY(courier_start(job, 1, nothing, send, &flight->sums));
    return courier_start(job, 0, send, receive, &flight->turn);
}

/* The sums of all hosts; directly, for every local rank at once. */
static void add(struct courier_job *job, int64_t piece)
{
    struct flight *flight = courier_flight(job, piece);
    struct range own = share_of(job, piece, job->team.mine);
    size_t width = ah_dtype_size(job->call.dtype), bytes = (size_t)(own.end - own.begin) * width;
    const void *source[AH_HOSTS_MAX];
    void *to[AH_BOARD_MAX_RANKS] = {sum_at(job, own.begin)};
    for (int h = 0; h < job->team.hosts; h++)
        source[h] = h == job->team.mine ? to[0] : flight->scratch + bytes * (size_t)h;
    for (int i = 1; i < job->team.local; i++)
        to[i] = courier_at(job, i, job->offset[i]) + (size_t)own.begin * width;
    ah_combine(job->call.dtype, job->call.reduce, to, job->direct ? job->team.local : 1, source, job->team.hosts,
               own.end - own.begin, job->divisor);
}

static int give_sums(struct courier_job *job, int64_t piece)
{
    static const struct ah_wire_piece nothing[AH_HOSTS_MAX];
    struct ah_wire_piece send[AH_HOSTS_MAX] = {{0}};
    for (int h = 0; h < job->team.hosts; h++)
        if (h != job->team.mine)
            send[h] = piece_of(job, share_of(job, piece, job->team.mine));
    return courier_start(job, 1, send, nothing, &courier_flight(job, piece)->turn);
}

static void hand_out(struct courier_job *job, int64_t piece)
{
    struct range all = range_of(job, piece);
    size_t width = ah_dtype_size(job->call.dtype);
    for (int i = 1; i < job->team.local; i++)
        memcpy(courier_at(job, i, job->offset[i]) + (size_t)all.begin * width, sum_at(job, all.begin),
               (size_t)(all.end - all.begin) * width);
}

int courier_reduce(struct courier_job *job, int64_t steps, bool *moved, int *lost)
{
    bool done;
    while (job->begun < job->pieces && job->begun < steps && job->begun - job->done < COURIER_DEPTH) {
        AH_TRY(begin(job, job->begun++));
        *moved = true;
    }
    for (; job->halfway < job->begun; job->halfway++) {
        AH_TRY(courier_test(job, &courier_flight(job, job->halfway)->turn, &done, lost));
        if (!done)
            break;
        add(job, job->halfway);
        if (!job->direct)
            AH_TRY(give_sums(job, job->halfway));
        *moved = true;
    }
    for (; job->done < job->halfway; job->done++) {
        AH_TRY(courier_test(job, &courier_flight(job, job->done)->turn, &done, lost));
        if (done)
            AH_TRY(courier_test(job, &courier_flight(job, job->done)->sums, &done, lost));
        if (!done)
            break;
        if (!job->direct)
            hand_out(job, job->done);
        *moved = true;
    }
    return 0;
}
