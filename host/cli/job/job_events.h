/* A job whose notifications become events in a queue, and the loop that waits for several such jobs
 * (cli/job/job_object.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/job/job.h"
#include "comm/control/control_block.h"

enum ah_lua_event_kind { AH_LUA_OUTPUT, AH_LUA_MESSAGE, AH_LUA_NOTICE, AH_LUA_ENDED };

struct ah_lua_event {
    struct ah_lua_event *next;
    enum ah_lua_event_kind kind;
    int rank, stream, code;
    size_t bytes;
    char text[];
};

struct ah_lua_events {
    struct ah_lua_event *first, **end;
};

struct ah_lua_job {
    struct ah_job *job;       /* NULL: closed */
    struct ah_output *output; /* shows the ranks' output, or NULL */
    struct ah_rank_logs *logs; /* where it is kept, or NULL */
    struct ah_lua_events events;
    int size;
    int64_t due;   /* when the output has something to write, or -1 */
    bool finished; /* the output */
    bool reported; /* that it has ended */
    bool lost;     /* memory was out for an event */
};

/* `options` as the caller knows them; where the output goes and how it is heard is added. On failure the job is
 * closed. */
int ah_lua_job_start(struct ah_lua_job *job, const struct ah_job_options *options, bool capture, bool show,
                     bool collapse_all);
/* Before that: store the ranks' output in files below this folder. */
int ah_lua_job_keep_logs(struct ah_lua_job *job, const char *folder, int ranks);
void ah_lua_job_close(struct ah_lua_job *job);
/* Drop the first event. */
void ah_lua_job_drop(struct ah_lua_job *job);
/* Return the text of ah_job_report, to be freed; NULL if there is none. */
char *ah_lua_job_report(struct ah_lua_job *job);

/* Write all shown output so far, and wait until its reader has read it. */
void ah_lua_job_settle(struct ah_lua_job *job);

/* Step the jobs until there is an event or a signal (cli/base/signal_queue.h), all jobs are over and have been
 * reported, `until` (-1: never) has passed or a signal handler has run. */
int ah_lua_jobs_wait(struct ah_lua_job **jobs, int count, int64_t until);
