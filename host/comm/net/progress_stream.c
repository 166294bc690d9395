/* All other kinds between hosts: each pair's stream (team.h) is cut into pieces of equal length. A piece within
 * one part is sent straight from the sender's segment to the receiver's landing; else it is assembled in memory of the
 * progress thread. For kinds that reduce, the hosts' sums are received there, and are added in the order of the hosts.
 */
#include <string.h>

#include "comm/control/combine.h"
#include "comm/net/progress_job.h"

/* A part of a stream within a piece, in bytes. */
struct bit {
    struct ah_stream_part part;
    size_t skipped, bytes, place; /* of the part before the piece begins; in the piece; in it from here on */
};

static struct flight *flight_of(struct progress_job *job, int64_t piece)
{
    return &job->flight[piece % PROGRESS_DEPTH];
}

/* The next part of a piece; `index` and `at` begin with 0. */
static bool next_bit(const struct progress_job *job, int from, int to, int64_t piece, int *index, size_t *at,
                     struct bit *out)
{
    size_t begin = (size_t)piece * AH_TEAM_PIECE, end = begin + AH_TEAM_PIECE;
    size_t width = ah_team_width(&job->team, &job->call);
    while (*at < end && ah_team_stream(&job->team, &job->call, from, to, *index, &out->part)) {
        size_t first = *at, last = first + (size_t)out->part.count * width;
        ++*index;
        *at = last;
        if (last <= begin)
            continue;
        size_t low = first > begin ? first : begin, high = last < end ? last : end;
        out->skipped = low - first;
        out->bytes = high - low;
        out->place = low - begin;
        return true;
    }
    return false;
}

static size_t piece_bytes(const struct progress_job *job, int from, int to, int64_t piece, int *bits)
{
    struct bit bit;
    size_t at = 0, all = 0;
    int index = 0;
    for (*bits = 0; next_bit(job, from, to, piece, &index, &at, &bit); ++*bits)
        all += bit.bytes;
    return all;
}

static size_t stream_bytes(const struct progress_job *job, int from, int to)
{
    struct ah_stream_part part;
    size_t all = 0;
    for (int i = 0; ah_team_stream(&job->team, &job->call, from, to, i, &part); i++)
        all += (size_t)part.count * ah_team_width(&job->team, &job->call);
    return all;
}

int64_t progress_stream_pieces(const struct progress_job *job)
{
    size_t most = 0;
    for (int h = 0; h < job->team.hosts; h++) {
        if (h == job->team.mine)
            continue;
        size_t given = stream_bytes(job, job->team.mine, h), taken = stream_bytes(job, h, job->team.mine);
        most = given > most ? given : most;
        most = taken > most ? taken : most;
    }
    return (int64_t)((most + AH_TEAM_PIECE - 1) / AH_TEAM_PIECE);
}

static int place_of(const struct progress_job *job, int rank)
{
    int place = 0;
    while (job->team.ranks[place] != rank)
        place++;
    return place;
}

static unsigned char *given_at(const struct progress_job *job, const struct bit *bit)
{
    size_t first = (size_t)bit->part.first * ah_team_width(&job->team, &job->call) + bit->skipped;
    if (bit->part.from < 0)
        return progress_at(job, 0, job->partial + first);
    int place = place_of(job, bit->part.from);
    return progress_at(job, place, job->offset[place] + first);
}

/* Return the address for a receiver. */
static unsigned char *landing_of(const struct progress_job *job, const struct bit *bit, int taker)
{
    int from = bit->part.from < 0 ? 0 : bit->part.from, place = place_of(job, taker);
    struct ah_part part = ah_collective_part(&job->call, job->team.size, from, taker);
    size_t width = ah_dtype_size(job->call.dtype), skipped = bit->skipped / ah_team_width(&job->team, &job->call);
    return progress_at(job, place, job->landing[place]) + ((size_t)part.place + skipped) * width;
}

static bool stream_takes(const struct progress_job *job, const struct bit *bit, int rank)
{
    return bit->part.to >= 0 ? bit->part.to == rank
                             : ah_collective_part(&job->call, job->team.size, bit->part.from, rank).count > 0;
}

static int first_taker(const struct progress_job *job, const struct bit *bit)
{
    int i = 0;
    while (!stream_takes(job, bit, job->team.ranks[i]))
        i++;
    return job->team.ranks[i];
}

/* Kinds that reduce receive everything into scratch, so does a piece of several parts. */
static struct ah_transport_piece receive_to(const struct progress_job *job, int host, int64_t piece,
                                            unsigned char *scratch)
{
    int bits, index = 0;
    size_t at = 0, bytes = piece_bytes(job, host, job->team.mine, piece, &bits);
    struct bit bit;
    if (bits != 1 || ah_collective_reduces(&job->call))
        return (struct ah_transport_piece){scratch, bytes};
    next_bit(job, host, job->team.mine, piece, &index, &at, &bit);
    return (struct ah_transport_piece){landing_of(job, &bit, first_taker(job, &bit)), bytes};
}

static struct ah_transport_piece send_from(const struct progress_job *job, int host, int64_t piece,
                                           unsigned char *scratch)
{
    int bits, index = 0;
    size_t at = 0, bytes = piece_bytes(job, job->team.mine, host, piece, &bits);
    struct bit bit;
    while (next_bit(job, job->team.mine, host, piece, &index, &at, &bit)) {
        if (bits == 1)
            return (struct ah_transport_piece){given_at(job, &bit), bytes};
        memcpy(scratch + bit.place, given_at(job, &bit), bit.bytes);
    }
    return (struct ah_transport_piece){scratch, bytes};
}

/* The scratch holds a received piece for each host, and one to be sent. */
static int stream_begin(struct progress_job *job, int64_t piece)
{
    struct flight *flight = flight_of(job, piece);
    struct ah_transport_piece send[AH_HOSTS_MAX] = {{0}}, receive[AH_HOSTS_MAX] = {{0}};
    size_t hosts = (size_t)job->team.hosts;
    AH_TRY(progress_scratch(job, flight, 2 * hosts * AH_TEAM_PIECE));
    for (int h = 0; h < job->team.hosts; h++) {
        if (h == job->team.mine)
            continue;
        receive[h] = receive_to(job, h, piece, flight->scratch.memory + (size_t)h * AH_TEAM_PIECE);
        send[h] = send_from(job, h, piece, flight->scratch.memory + (hosts + (size_t)h) * AH_TEAM_PIECE);
    }
    return progress_start(job, 0, send, receive, &flight->take);
}

static void stream_write(const struct progress_job *job, int host, int64_t piece, const unsigned char *scratch)
{
    int bits, index = 0;
    size_t at = 0;
    struct bit bit;
    piece_bytes(job, host, job->team.mine, piece, &bits);
    while (next_bit(job, host, job->team.mine, piece, &index, &at, &bit)) {
        const unsigned char *from = bits == 1 ? landing_of(job, &bit, first_taker(job, &bit)) : scratch + bit.place;
        for (int i = 0; i < job->team.local; i++) {
            unsigned char *to =
                stream_takes(job, &bit, job->team.ranks[i]) ? landing_of(job, &bit, job->team.ranks[i]) : NULL;
            if (to && to != from)
                memcpy(to, from, bit.bytes);
        }
    }
}

static void stream_add(const struct progress_job *job, int64_t piece, unsigned char *scratch)
{
    enum ah_dtype sums = ah_team_sums(&job->team, &job->call);
    size_t width = ah_dtype_size(sums), at = 0;
    int index = 0;
    struct bit bit;
    while (next_bit(job, job->team.mine, job->team.mine, piece, &index, &at, &bit)) {
        const void *source[AH_HOSTS_MAX];
        for (int h = 0; h < job->team.hosts; h++)
            source[h] = h == job->team.mine ? given_at(job, &bit) : scratch + (size_t)h * AH_TEAM_PIECE + bit.place;
        void *to = landing_of(job, &bit, bit.part.to);
        ah_combine_as(sums, job->call.dtype, job->call.reduce, &to, 1, source, job->team.hosts,
                      (int64_t)(bit.bytes / width), job->divisor);
    }
}

static void stream_finish(struct progress_job *job, int64_t piece)
{
    unsigned char *scratch = flight_of(job, piece)->scratch.memory;
    if (ah_collective_reduces(&job->call)) {
        stream_add(job, piece, scratch);
        return;
    }
    for (int h = 0; h < job->team.hosts; h++)
        if (h != job->team.mine)
            stream_write(job, h, piece, scratch + (size_t)h * AH_TEAM_PIECE);
}

int progress_stream(struct progress_job *job, bool *moved, int *lost)
{
    bool done;
    while (job->begun < job->pieces && job->begun - job->done < PROGRESS_DEPTH) {
        AH_TRY(stream_begin(job, job->begun++));
        *moved = true;
    }
    for (; job->done < job->begun; job->done++) {
        AH_TRY(progress_test(job, &flight_of(job, job->done)->take, &done, lost));
        if (!done)
            break;
        stream_finish(job, job->done);
        *moved = true;
    }
    return 0;
}
