/* The failure of work that is divided among threads: whichever part fails first hands its status and text over. */
#pragma once

#include <stdatomic.h>

/* Zero-initialise. */
struct ah_failure {
    atomic_int status; /* 0: no part has failed */
    char text[256];
};

/* Note the status of a part, with the text of the calling thread. Any thread; 0 and positive ones are no failure. */
void ah_failure_note(struct ah_failure *failure, int status);

/* Once all parts have ended: return 0, or the first failure, whose text becomes the calling thread's. */
int ah_failure_result(const struct ah_failure *failure);
