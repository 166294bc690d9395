/* A letter to a rank of this host is free as soon as its receiver has not taken it; of one to another host the mirror
 * there decides, so it is asked for, and comes back empty. */
#include "comm/group/message_place.h"

struct ah_letter *ah_mail_free_letter(struct ah_group *group)
{
    struct ah_letter *letter = group->peer[group->rank]->letter;
    for (int i = 0; i < AH_CHANNEL_LETTERS; i++)
        if (atomic_load(&letter[i].state) == AH_LETTER_FREE)
            return &letter[i];
    return NULL;
}

/* Take a letter back from another host: the mirror there says whether it still can be had. */
static void recall(struct ah_mail *mail)
{
    struct ah_group *group = mail->group;
    if (atomic_compare_exchange_strong(&mail->letter->state, &(unsigned){AH_LETTER_POSTED}, AH_LETTER_RECALLED))
        ah_channel_tell(group->peer[group->rank], AH_MIRROR);
}

struct ah_letter *ah_mail_make_place(struct ah_group *group)
{
    struct ah_mail *newest = NULL;
    for (struct ah_mail *mail = group->outgoing; mail; mail = mail->next) {
        unsigned state = mail->letter ? atomic_load(&mail->letter->state) : AH_LETTER_FREE;
        if (state == AH_LETTER_RECALLED)
            return NULL;
        if (state == AH_LETTER_POSTED || state == AH_LETTER_EMPTY)
            newest = mail;
        if (state == AH_LETTER_EMPTY)
            break;
    }
    if (!newest)
        return NULL;
    struct ah_letter *letter = newest->letter;
    if (atomic_load(&letter->state) != AH_LETTER_EMPTY) {
        if (!ah_board_is_local(group->board, atomic_load(&letter->member))) {
            recall(newest);
            return NULL;
        }
        if (!atomic_compare_exchange_strong(&letter->state, &(unsigned){AH_LETTER_POSTED}, AH_LETTER_FREE))
            return NULL;
    }
    newest->letter = NULL;
    return letter;
}
