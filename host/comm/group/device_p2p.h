/* Lines: lanes from one rank of a group to another, by which messages go whose memory is on devices at both ends.
 *
 * The message header of such a message says which card it comes from. Its receiver, which alone knows where it is to
 * go, answers on the message header: by a line, or through the host, to which the sender then brings the bytes. A line
 * opens at its first message, by a ticket on its message header, and concerns nobody but the two. Messages go by it in
 * the order in which their receiver took them. As all of message.h these are steps that are done when they can
 * be: neither waits for the other.
 *
 * For message.c and lane.c. */
#ifndef AH_COMM_LINE_H
#define AH_COMM_LINE_H

#include "comm/group/backend.h"

/* A new message: can it go by a line? If not it lies with the host from here on. */
int ah_device_p2p_begin(struct ah_message_request *request);
/* What its message header says of that. */
void ah_device_p2p_offer(const struct ah_message_request *request, struct ah_message_header *header);
/* The receiver has taken the message header: say which way it goes. */
int ah_device_p2p_answer(struct ah_message_request *request);
/* Of its sender: do what the receiver counts on, until message request->moved. */
int ah_device_p2p_serve(struct ah_message_request *request);
/* Of its receiver: bring what there is, whichever way, until message request->done. */
int ah_device_p2p_fetch(struct ah_message_request *request);
/* The message goes. */
void ah_device_p2p_forget(struct ah_message_request *request);

/* Of all lines of a group: the failure of one; wait for them; close them. */
int ah_device_p2p_check_all(struct ah_group *group);
int ah_device_p2p_settle_all(struct ah_group *group);
void ah_device_p2p_close_all(struct ah_group *group);

#endif
