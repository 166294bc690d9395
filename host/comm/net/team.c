/* Streams are found part by part: givers in the group's order, and for each of them its takers. */
#include "comm/net/team.h"

void ah_team_make(struct ah_team *team, const struct ah_hosts *hosts, const int *member, int size)
{
    int place[AH_HOSTS_MAX];
    bool has[AH_HOSTS_MAX] = {false};
    *team = (struct ah_team){.size = size};
    for (int r = 0; r < size; r++)
        has[ah_hosts_of(hosts, member[r])] = true;
    for (int h = 0; h < hosts->count; h++) {
        place[h] = team->hosts;
        if (h == hosts->mine)
            team->mine = team->hosts;
        if (has[h])
            team->host[team->hosts++] = h;
    }
    int ranks[AH_HOSTS_MAX] = {0};
    for (int r = 0; r < size; r++) {
        int count = ++ranks[ah_hosts_of(hosts, member[r])];
        team->most = count > team->most ? count : team->most;
        team->member[r] = member[r];
        team->at[r] = place[ah_hosts_of(hosts, member[r])];
        if (team->at[r] == team->mine && has[hosts->mine])
            team->ranks[team->local++] = r;
    }
}

/* Bytes of an input that is inline data in any case, and of all inline data that a host sends for a call. */
enum { INLINE_LEAST = 8 * 1024, INLINE_MOST = 128 * 1024 };
_Static_assert((int)INLINE_MOST <= (int)AH_STAGE_BYTES, "serialised inputs fit into a stage");

bool ah_team_wires(const struct ah_team *team, const struct ah_collective *call)
{
    int64_t limit = INLINE_MOST / (team->most * (team->hosts > 1 ? team->hosts - 1 : 1));
    limit = limit > INLINE_LEAST ? limit : INLINE_LEAST;
    for (int r = 0; r < team->size; r++)
        if (ah_collective_input(call, team->size, r) * (int64_t)ah_dtype_size(call->dtype) > limit)
            return true;
    return false;
}

/* The first receiver of a rank's one input on a host; -1: none. */
static int first_taker(const struct ah_team *team, const struct ah_collective *call, int from, int at)
{
    for (int r = 0; r < team->size; r++)
        if (team->at[r] == at && ah_collective_part(call, team->size, from, r).count)
            return r;
    return -1;
}

/* Of kinds that reduce: a part for each rank that has a result. */
static bool sum_stream(const struct ah_team *team, const struct ah_collective *call, int to, int index,
                       struct ah_stream_part *out)
{
    for (int r = 0; r < team->size; r++) {
        struct ah_part part = ah_collective_part(call, team->size, team->ranks[0], r);
        if (team->at[r] != to || !part.count || index-- > 0)
            continue;
        *out = (struct ah_stream_part){-1, r, part.first, part.count};
        return true;
    }
    return false;
}

bool ah_team_stream(const struct ah_team *team, const struct ah_collective *call, int from, int to, int index,
                    struct ah_stream_part *out)
{
    if (ah_collective_reduces(call))
        return sum_stream(team, call, to, index, out);
    for (int giver = 0; giver < team->size; giver++) {
        if (team->at[giver] != from)
            continue;
        int one = ah_collective_splits(call) ? -1 : first_taker(team, call, giver, to);
        for (int r = 0; r < team->size; r++) {
            struct ah_part part = ah_collective_part(call, team->size, giver, r);
            bool taken = ah_collective_splits(call) ? team->at[r] == to && part.count : r == one;
            if (!taken || index-- > 0)
                continue;
            *out = (struct ah_stream_part){giver, ah_collective_splits(call) ? r : -1, part.first, part.count};
            return true;
        }
    }
    return false;
}

int64_t ah_team_result(const struct ah_collective *call, int size, int rank)
{
    int64_t end = 0;
    for (int r = 0; r < size; r++) {
        struct ah_part part = ah_collective_part(call, size, r, rank);
        end = part.count && part.place + part.count > end ? part.place + part.count : end;
    }
    return end;
}

enum ah_dtype ah_team_sums(const struct ah_team *team, const struct ah_collective *call)
{
    bool half = call->dtype == AH_F16 || call->dtype == AH_BF16;
    bool picks = call->reduce == AH_REDUCE_MAX || call->reduce == AH_REDUCE_MIN;
    return half && !picks && ah_collective_reduces(call) && team->size > team->hosts ? AH_F32 : call->dtype;
}

size_t ah_team_width(const struct ah_team *team, const struct ah_collective *call)
{
    return ah_dtype_size(ah_team_sums(team, call));
}

int64_t ah_team_piece(const struct ah_team *team, const struct ah_collective *call)
{
    return AH_TEAM_PIECE / (int64_t)ah_team_width(team, call);
}

int64_t ah_team_pieces(const struct ah_team *team, const struct ah_collective *call)
{
    int64_t piece = ah_team_piece(team, call);
    return call->kind == AH_ALL_REDUCE ? (call->count + piece - 1) / piece : 1;
}

void ah_team_slice(int64_t n, int index, int of, size_t width, int64_t *begin, int64_t *end)
{
    int64_t line = 64 / (int64_t)width, length = ((n + of - 1) / of + line - 1) / line * line;
    *begin = length * index < n ? length * index : n;
    *end = *begin + length < n ? *begin + length : n;
}
