/* A list of messages under a mutex. */
#include "jupyter/queue.h"

#include <stdlib.h>
#include <time.h>

#include "base/status/status.h"

static size_t queue_bytes_of(const struct ah_jupyter_message *message)
{
    return sizeof *message + message->header.count + message->parent.count + message->metadata.count +
           message->content.count;
}

int ah_queue_open(struct ah_jupyter_queue *queue)
{
    pthread_condattr_t attributes;
    *queue = (struct ah_jupyter_queue){.mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(&queue->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return failed ? ah_fail(AH_ENOMEM, "out of memory") : 0;
}

void ah_queue_close(struct ah_jupyter_queue *queue)
{
    for (struct ah_jupyter_message *message; (message = ah_queue_take(queue));)
        free(message);
    pthread_cond_destroy(&queue->changed);
}

void ah_queue_add(struct ah_jupyter_queue *queue, struct ah_jupyter_message *message)
{
    message->next = NULL;
    AH_LOCK_SCOPE(&queue->mutex);
    if (queue->last)
        queue->last->next = message;
    else
        queue->first = message;
    queue->last = message;
    queue->count++;
    queue->bytes += queue_bytes_of(message);
    pthread_cond_broadcast(&queue->changed);
}

struct ah_jupyter_message *ah_queue_take(struct ah_jupyter_queue *queue)
{
    AH_LOCK_SCOPE(&queue->mutex);
    struct ah_jupyter_message *message = queue->first;
    if (message) {
        queue->first = message->next;
        if (!queue->first)
            queue->last = NULL;
        queue->count--;
        queue->bytes -= queue_bytes_of(message);
        pthread_cond_broadcast(&queue->changed);
    }
    return message;
}

static bool queue_at_bounds(const struct ah_jupyter_queue *queue)
{
    return queue->count >= AH_QUEUE_MESSAGES || queue->bytes >= AH_QUEUE_BYTES;
}

bool ah_queue_is_full(struct ah_jupyter_queue *queue)
{
    AH_LOCK_SCOPE(&queue->mutex);
    return queue_at_bounds(queue);
}

void ah_queue_wait(struct ah_jupyter_queue *queue, bool filled, double seconds)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)seconds;
    end.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        end.tv_sec++;
    }
    AH_LOCK_SCOPE(&queue->mutex);
    int failed = 0;
    while (!failed && !queue->closed && (filled ? !queue->first : queue_at_bounds(queue)))
        failed = pthread_cond_timedwait(&queue->changed, &queue->mutex, &end);
}

void ah_queue_end(struct ah_jupyter_queue *queue)
{
    AH_LOCK_SCOPE(&queue->mutex);
    queue->closed = true;
    pthread_cond_broadcast(&queue->changed);
}

bool ah_queue_is_ended(struct ah_jupyter_queue *queue)
{
    AH_LOCK_SCOPE(&queue->mutex);
    return queue->closed;
}
