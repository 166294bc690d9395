/* A message header to a rank of this host is free as soon as its receiver has not received it; for one to another host
 * the replica there decides, so it is recalled, and returns empty. */
#include "comm/group/message_place.h"

struct ah_message_header *ah_message_free_header(struct ah_group *group)
{
    struct ah_message_header *header = group->peer[group->rank]->header;
    for (int i = 0; i < AH_GROUP_MESSAGES; i++)
        if (atomic_load(&header[i].state) == AH_MESSAGE_FREE)
            return &header[i];
    return NULL;
}

/* Recall a message header from another host: the replica there answers whether it is still unreceived. */
static void message_recall(struct ah_message_request *request)
{
    struct ah_group *group = request->group;
    if (atomic_compare_exchange_strong(&request->header->state, &(unsigned){AH_MESSAGE_POSTED}, AH_MESSAGE_RECALLED))
        ah_group_notify(group->peer[group->rank], AH_REPLICA);
}

struct ah_message_header *ah_message_make_place(struct ah_group *group)
{
    struct ah_message_request *newest = NULL;
    for (struct ah_message_request *request = group->outgoing; request; request = request->next) {
        unsigned state = request->header ? atomic_load(&request->header->state) : AH_MESSAGE_FREE;
        if (state == AH_MESSAGE_RECALLED)
            return NULL;
        if (state == AH_MESSAGE_POSTED || state == AH_MESSAGE_EMPTY)
            newest = request;
        if (state == AH_MESSAGE_EMPTY)
            break;
    }
    if (!newest)
        return NULL;
    struct ah_message_header *header = newest->header;
    if (atomic_load(&header->state) != AH_MESSAGE_EMPTY) {
        if (!ah_control_is_local(group->control, atomic_load(&header->member))) {
            message_recall(newest);
            return NULL;
        }
        if (!atomic_compare_exchange_strong(&header->state, &(unsigned){AH_MESSAGE_POSTED}, AH_MESSAGE_FREE))
            return NULL;
    }
    newest->header = NULL;
    return header;
}
