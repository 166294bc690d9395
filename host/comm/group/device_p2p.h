/* Device p2p channels: communicators from one rank of a group to another, for messages between two devices' memories.
 *
 * The message header names the card of the sender's memory. Only the receiver knows the destination; it answers on
 * the header: by the p2p channel, or through the host, to which the sender then copies the bytes. A channel opens at
 * its first message, by a ticket on the header, and involves these two ranks only. Messages use it in the order in
 * which their receiver received them. As in message.h all steps are non-blocking: neither rank waits for the other.
 *
 * For message.c and device_comm.c. */
#pragma once

#include "comm/group/backend.h"

/* Decide whether a new message may use a p2p channel; if not, copy it to the host. */
int ah_device_p2p_begin(struct ah_message_request *request);
/* Write that decision to the message header. */
void ah_device_p2p_offer(const struct ah_message_request *request, struct ah_message_header *header);
/* Of the receiver: choose the path and write it to the message header. */
int ah_device_p2p_answer(struct ah_message_request *request);
/* Of the sender: advance its part until request->moved. */
int ah_device_p2p_serve(struct ah_message_request *request);
/* Of the receiver: advance the transfer, by either path, until request->done. */
int ah_device_p2p_fetch(struct ah_message_request *request);
/* Release the request's mark. */
void ah_device_p2p_forget(struct ah_message_request *request);

/* All channels of a group: return the first failure; wait for their messages; close them. */
int ah_device_p2p_check_all(struct ah_group *group);
int ah_device_p2p_settle_all(struct ah_group *group);
void ah_device_p2p_close_all(struct ah_group *group);
