/* Places for message headers on a sender's group block. Included by message.c. */
#pragma once

#include "comm/group/backend.h"

/* NULL: all are in use. */
struct ah_message_header *ah_message_free_header(struct ah_group *group);

/* Recall the newest posted message header, so that its place is free. From another host that lasts a while, one at a
 * time: NULL until then, and when none can be recalled. */
struct ah_message_header *ah_message_make_place(struct ah_group *group);
