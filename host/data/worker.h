/* Worker processes that make batches for this process.
 *
 * A worker is a fork of this process: it has a copy of the script's data set and continues in the function that started
 * it. Messages of bytes are exchanged in order, both ways. Requests go through a socket, answers are in one of the
 * worker's slots of shared memory, which has no name, so nothing remains after either process ends. A worker ends when
 * its parent does, also when that is killed, and ignores Ctrl-C, which the terminal sends to both.
 *
 * The functions belong to the Lua thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AH_WORKERS = 256,     /* that are waited for together */
    AH_WORKER_SLOTS = 64, /* answers under way of each */
};

struct ah_worker;

/* Fork. In the parent *out is the worker and the result 1; in the worker the result is 0 and *out its end. AH_EIO. */
int ah_worker_start(struct ah_worker **out, int slots);

/* For both: receive the next message, whose bytes belong to the worker until the next call. *bytes is NULL when the
 * peer has closed its end. In the parent the message is the answer that ah_worker_wait has reported. */
int ah_worker_receive(struct ah_worker *worker, const unsigned char **bytes, size_t *count);

/* For the parent: send a request. */
int ah_worker_send(struct ah_worker *worker, const void *bytes, size_t count);

/* For the worker: enlarge a slot to at least `count` bytes, keeping its contents (ah_worker_room), and send the answer
 * written there. */
int ah_worker_room(struct ah_worker *worker, int slot, size_t count, unsigned char **out);
int ah_worker_answer(struct ah_worker *worker, int slot, size_t count);

/* For the parent: wait until one of the workers has answered; its index goes to *which. AH_EPEER: a worker has ended,
 * the text has its number and exit status; AH_ETIMEOUT: `seconds` (0: no limit) have passed. */
int ah_worker_wait(struct ah_worker *const *workers, int count, double seconds, int *which);

/* For the parent: close its end, so that the worker ends after its current batch; does not wait. */
void ah_worker_leave(struct ah_worker *worker);

/* For the parent: ah_worker_leave, and wait; a worker that has not ended after a second is killed. NULL is ignored. */
void ah_worker_free(struct ah_worker *worker);

/* The process; 0 in the worker itself. */
int ah_worker_pid(const struct ah_worker *worker);
