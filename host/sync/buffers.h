/* Broadcast a model's buffers (such as batch norm's statistics) from rank 0, in one work. */
#pragma once

#include "comm/group/group.h"
#include "tensor/tensor.h"

struct ah_buffers;

/* Retains the tensors. In a group of one nothing travels. */
int ah_buffers_new(struct ah_buffers **out, struct ah_group *group, struct ah_tensor **list, int count);
/* From now on it is this tensor, of the same dtype and shape, whose values go along in the place of one of these. */
int ah_buffers_replace(struct ah_buffers *buffers, int index, struct ah_tensor *tensor);
void ah_buffers_free(struct ah_buffers *buffers); /* NULL is ignored; a pending work is abandoned */
/* Abandon a pending broadcast; NULL is ignored. */
void ah_buffers_forget(struct ah_buffers *buffers);

/* A collective in two halves; the second waits and writes the values. */
int ah_buffers_send(struct ah_buffers *buffers, int from, enum ah_purpose purpose, const char *where);
int ah_buffers_receive(struct ah_buffers *buffers);
