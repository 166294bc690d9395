/* The thread that keeps a launcher connected to the others, and what it has read so far (cli/machines.h). Included by
 * cli/machines*.c only. */
#ifndef AH_CLI_MACHINES_LINK_H
#define AH_CLI_MACHINES_LINK_H

#include <pthread.h>
#include <stdbool.h>

#include "base/array.h"
#include "comm/hosts.h"

/* A machine in an attempt. */
struct ah_machine {
    bool failing, concluded, victim, final;
    int signal, code;
    int order;   /* of its first trouble among all, from 1; 0: none */
    char *text;  /* of the verdict; from malloc, or NULL */
};
struct ah_machine_round {
    struct ah_machine machine[AH_HOSTS_MAX];
    int port; /* of the ranks' store, 0: not known */
};

struct ah_machine_link {
    struct ah_store *store; /* the thread's */
    int mine, count;
    pthread_t thread;
    bool runs;
    int news; /* eventfd */

    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t change;
    bool ending;          /* the thread is to end when it has said everything */
    struct ah_text posts; /* what is to be appended, each with a 0 behind it */
    struct ah_machine_round round[2]; /* this attempt's and the next one's, by their parity */
    int orders;           /* troubles so far */
    bool here[AH_HOSTS_MAX], gone[AH_HOSTS_MAX], left[AH_HOSTS_MAX];
    int gone_order[AH_HOSTS_MAX];
    char reason[AH_HOSTS_MAX][160]; /* why it is gone */
    bool lost;            /* the store is out of reach: machine 0 is gone */
};

/* Start the thread, which owns the store from now on; closed with it. */
int ah_machine_link_open(struct ah_machine_link *link, struct ah_store *store, int mine, int count);
/* Say what is left to say, within a moment, and end. */
void ah_machine_link_close(struct ah_machine_link *link);
/* Append a line to the list. */
void ah_machine_link_post(struct ah_machine_link *link, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Forget an attempt, for the next but one. */
void ah_machine_link_clear(struct ah_machine_link *link, int attempt);

#endif
