/* Who has come of a job's hosts, as each tells in a line of text; and the table that follows from it. Whoever has taken
 * the same lines in the same order has the same table, or the same contradiction. Included by host/comm/muster.c and
 * cli/machines*.c. */
#ifndef AH_COMM_ROLL_H
#define AH_COMM_ROLL_H

#include "comm/muster.h"

enum { AH_ROLL_TEXT = 256 };

struct ah_roll {
    const struct ah_muster *mine;
    struct ah_muster host[AH_HOSTS_MAX];
    int64_t place[AH_HOSTS_MAX]; /* of each one's line in the list */
    int count, ranks;
};

/* A host's line, and what it has of it in common with no other (place: where it stands). AH_EINVAL, AH_EIO. */
int ah_roll_write(const struct ah_muster *host, char *text, size_t room);
int ah_roll_take(struct ah_roll *roll, const char *text, int64_t place);
/* It is here no more; a place that is not in the roll is ignored. */
void ah_roll_drop(struct ah_roll *roll, int64_t place);

/* Who is missing: "machine 1", "1 of 2 machines", "ranks 2-3". */
void ah_roll_missing(const struct ah_roll *roll, char *text, size_t room);

/* Which host of the roll is number h of the job, -1: none. By what was told, then by first ranks, then by the order of
 * coming. */
void ah_roll_order(const struct ah_roll *roll, int order[AH_HOSTS_MAX]);
/* Count, first ranks and names; `mine` is left to the caller. AH_EINVAL. */
int ah_roll_table(const struct ah_roll *roll, const int order[AH_HOSTS_MAX], struct ah_hosts *out);

#endif
