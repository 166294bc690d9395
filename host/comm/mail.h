/* Messages from one rank of a group to another.
 *
 * Messages of one tag between two ranks are received in the order in which they were sent; other tags may overtake. A
 * message waits with its sender until it is received, as many of them as there are, so two ranks may both send first.
 * Waits end as those of collectives do: with a peer that is gone, or at the deadline; a message whose dtype or number
 * of elements is not what its receiver expects fails on both. Any failure but AH_EINVAL poisons the group. Messages and
 * collectives do not wait for each other.
 *
 * Circle: group, lane, mail, watch: the door poisons a group for a message that fails, waits of the door move messages,
 * and waits for messages look at the peers as all waits do, and at the group's lane, which opens by calls. */
#ifndef AH_COMM_MAIL_H
#define AH_COMM_MAIL_H

#include "comm/collective.h"

struct ah_group;
struct ah_mail;

struct ah_message {
    int peer;    /* its rank in the group; of a receive AH_ANY_PEER: whoever's message is there first */
    int64_t tag;
    void *memory; /* plain row-major */
    int64_t count;
    enum ah_dtype dtype;
    int ndim; /* for texts, as the shape and the script's line */
    const int64_t *size;
    const char *where;
};
#define AH_ANY_PEER (-1)

/* Begin to send. `stays`: the memory is left alone until the message is received; else it is copied where peers cannot
 * reach it. AH_EINVAL for a peer that is no other rank of the group. */
int ah_group_send(struct ah_group *group, struct ah_message message, bool stays, struct ah_mail **out);
/* Begin to receive; the memory is written until the mail is done. */
int ah_group_receive(struct ah_group *group, struct ah_message message, struct ah_mail **out);

/* Done: received. */
int ah_mail_test(struct ah_mail *mail, bool *done);
/* Waits and frees; *peer (may be NULL) says who it was. */
int ah_mail_wait(struct ah_mail *mail, int *peer);
/* Nobody waits for it: what was sent can still be received, what was to be received is left to others. */
void ah_mail_abandon(struct ah_mail *mail);

/* For the door and its waits: do what can be done without waiting. */
int ah_mail_progress(struct ah_group *group);
void ah_mail_drop_all(struct ah_group *group);
/* For a group that begins anew: free what nobody holds; the rest fails when it is waited for. */
void ah_mail_forget(struct ah_group *group);

#endif
