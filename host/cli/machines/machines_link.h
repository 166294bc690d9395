/* The thread that keeps a launcher connected to the others in one generation of the job, and the events that it has
 * read so far (cli/machines/machines.h). Included by cli/machines only. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/memory/array.h"
#include "comm/control/hosts.h"

struct ah_rendezvous;

struct ah_machine {
    bool failing, concluded, victim, final, lost, left;
    int signal, code;
    int order;   /* of its first trouble among all, from 1; 0: none */
    int lost_order;
    char *text;  /* of the outcome; from malloc, or NULL */
    char reason[160]; /* why it is lost */
};

struct ah_machine_link {
    struct ah_store *store; /* the thread's */
    int generation, mine, count;
    int64_t places[AH_HOSTS_MAX]; /* by which the list names the machines */
    pthread_t thread;
    bool runs;
    int notification; /* eventfd */

    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t change;
    bool shutting_down;   /* the thread is to end when it has sent everything */
    bool keeps;           /* and its machine then counts as lost */
    struct ah_text posts; /* events to be appended, each with a 0 after it */
    struct ah_machine machine[AH_HOSTS_MAX];
    int orders;           /* troubles so far */
    bool lost;            /* the store is out of reach: machine 0 is lost */
    int joined;           /* order of the first newcomer that causes a restart, 0: none */
    int arrivals;         /* of them */
    char newcomers[256];  /* their names */
    int64_t knock[AH_HOSTS_MAX]; /* places of machines that arrived since, for machine 0 to check */
    int knocks;
};

/* Start the thread, which owns the meeting's store from now on; closed with it. */
int ah_machine_link_open(struct ah_machine_link *link, struct ah_rendezvous *rendezvous, int mine, int count);
/* Send the remaining events, within a moment, and end. `lost`: this machine shall count as lost. */
void ah_machine_link_close(struct ah_machine_link *link, bool lost);
/* Append a line to the list. */
void ah_machine_link_post(struct ah_machine_link *link, const char *format, ...) __attribute__((format(printf, 2, 3)));
