/* The hosts of a job that have joined, one line of text each, and the table that follows from the lines. Every process
 * that reads the same lines in the same order gets the same table, or the same contradiction. Included by
 * host/comm/join/membership.c and cli/machines. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "comm/control/hosts.h"

enum { AH_MEMBER_TEXT = 256 };

/* The properties of a joining host. */
struct ah_membership {
    const char *what;  /* the word for a host in texts: "machine" */
    int number;        /* among the hosts; -1: free ones are assigned in the order of arrival, or of first ranks */
    int first;         /* its first rank; -1: follows from the numbers */
    int ranks;
    int hosts;         /* number of hosts to wait for; 0: until the ranks are `size` */
    int size;          /* ranks of the job; 0: the sum over its hosts */
    int least;         /* hosts that are enough; 0: not set */
    int restarts;      /* of all ranks after failures, at most */
    char name[AH_HOST_NAME];
    int64_t timeout_ns, stall_warning_ns; /* until the join fails, and until missing hosts are reported */
};

struct ah_member_table {
    const struct ah_membership *mine;
    struct ah_membership host[AH_HOSTS_MAX];
    int64_t place[AH_HOSTS_MAX]; /* of each one's line in the list */
    int count, ranks;
};

/* Is the text a valid host name: one word of visible characters without a separator of the table? */
bool ah_host_is_name(const char *name);

/* A host's line, and a part that no other line has (place: its address). AH_EINVAL, AH_EIO. */
int ah_member_table_write(const struct ah_membership *host, char *text, size_t room);
int ah_member_table_add(struct ah_member_table *member_table, const char *text, int64_t place);
/* It is here no more; a place that is not in the member table is ignored. */
void ah_member_table_drop(struct ah_member_table *member_table, int64_t place);

/* Describe the missing members: "machine 1", "1 of 2 machines", "ranks 2-3". */
void ah_member_table_missing(const struct ah_member_table *member_table, char *text, size_t room);

/* Assign a host of the member table to each number h of the job, -1: none. By configured numbers, then by first ranks,
 * then by the order of arrival. */
void ah_member_table_order(const struct ah_member_table *member_table, int order[AH_HOSTS_MAX]);
/* Count, first ranks and names; `mine` is left to the caller. AH_EINVAL. */
int ah_member_table_make(const struct ah_member_table *member_table, const int order[AH_HOSTS_MAX],
                         struct ah_hosts *out);
