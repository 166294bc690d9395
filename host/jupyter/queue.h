/* A queue of messages between two threads, bounded by count and bytes. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/process/jupyter.h"

enum { AH_QUEUE_MESSAGES = 4096, AH_QUEUE_BYTES = 256 << 20 };

struct ah_jupyter_queue {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct ah_jupyter_message *first, *last;
    size_t count, bytes;
    bool closed;
};

int ah_queue_open(struct ah_jupyter_queue *queue);
void ah_queue_close(struct ah_jupyter_queue *queue); /* frees the messages in it */

/* Append a message, which the queue now owns. */
void ah_queue_add(struct ah_jupyter_queue *queue, struct ah_jupyter_message *message);
/* Remove and return the first; NULL when empty. */
struct ah_jupyter_message *ah_queue_take(struct ah_jupyter_queue *queue);
/* Is it at its bounds? */
bool ah_queue_is_full(struct ah_jupyter_queue *queue);
/* Wait, at most `seconds`, until the queue has a message (`filled`), or room for one, or is ended. */
void ah_queue_wait(struct ah_jupyter_queue *queue, bool filled, double seconds);
/* Wake all that wait now and later. */
void ah_queue_end(struct ah_jupyter_queue *queue);
bool ah_queue_is_ended(struct ah_jupyter_queue *queue);
