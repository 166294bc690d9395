/* A letter to a rank of this host is free as soon as its receiver has not taken it; of one to another host the mirror
 * there decides, so it is asked for, and comes back empty. */
#include "comm/group/message_place.h"

struct ah_message_header *ah_message_free_header(struct ah_group *group)
{
    struct ah_message_header *letter = group->peer[group->rank]->letter;
    for (int i = 0; i < AH_GROUP_MESSAGES; i++)
        if (atomic_load(&letter[i].state) == AH_MESSAGE_FREE)
            return &letter[i];
    return NULL;
}

/* Take a letter back from another host: the mirror there says whether it still can be had. */
static void recall(struct ah_message_request *mail)
{
    struct ah_group *group = mail->group;
    if (atomic_compare_exchange_strong(&mail->letter->state, &(unsigned){AH_MESSAGE_POSTED}, AH_MESSAGE_RECALLED))
        ah_group_notify(group->peer[group->rank], AH_REPLICA);
}

struct ah_message_header *ah_message_make_place(struct ah_group *group)
{
    struct ah_message_request *newest = NULL;
    for (struct ah_message_request *mail = group->outgoing; mail; mail = mail->next) {
        unsigned state = mail->letter ? atomic_load(&mail->letter->state) : AH_MESSAGE_FREE;
        if (state == AH_MESSAGE_RECALLED)
            return NULL;
        if (state == AH_MESSAGE_POSTED || state == AH_MESSAGE_EMPTY)
            newest = mail;
        if (state == AH_MESSAGE_EMPTY)
            break;
    }
    if (!newest)
        return NULL;
    struct ah_message_header *letter = newest->letter;
    if (atomic_load(&letter->state) != AH_MESSAGE_EMPTY) {
        if (!ah_control_is_local(group->board, atomic_load(&letter->member))) {
            recall(newest);
            return NULL;
        }
        if (!atomic_compare_exchange_strong(&letter->state, &(unsigned){AH_MESSAGE_POSTED}, AH_MESSAGE_FREE))
            return NULL;
    }
    newest->letter = NULL;
    return letter;
}
