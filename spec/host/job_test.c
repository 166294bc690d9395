/* Hosts and jobs as functions: two hosts in one process, two jobs at once. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/trace/time.h"
#include "cli/job/job.h"
#include "cli/process/host.h"
#include "test.h"

static int run_text(struct ah_host *host, const char *text)
{
    int status = ah_host_run_text(host, text, strlen(text), "=test", 0, NULL);
    return status == AH_ELUA ? ah_fail(status, "%s", ah_host_error(host)) : status;
}

AH_TEST(hosts_open_and_close_one_after_the_other_and_side_by_side)
{
    static const char train[] =
        "local accelhost = require 'accelhost' "
        "local layer = accelhost.nn.Linear(3, 2) "
        "local optimizer = accelhost.optim.AdamW(layer:parameters(), {lr = 0.1}) "
        "layer(accelhost.ones(4, 3)):sum():backward() optimizer:step() "
        "kept = layer.weight";
    for (int round = 0; round < 3; round++) {
        struct ah_host first = {0}, second = {0};
        REQUIRE(!ah_host_open(&first, &(struct ah_host_options){0}));
        REQUIRE(!ah_host_open(&second, &(struct ah_host_options){.jit_off = true}));
        CHECK_OK(run_text(&first, train));
        CHECK_OK(run_text(&second, "assert(kept == nil and not jit.status())"));
        CHECK_OK(run_text(&second, train));
        ah_host_close(&first);
        CHECK_OK(run_text(&second, "kept:sum():backward() assert(kept.grad:sum():item() ~= 0)"));
        CHECK(run_text(&second, "error('planned')") == AH_ELUA && strstr(ah_host_error(&second), "test:1: planned"));
        ah_host_close(&second);
    }
}

/* The output of the ranks of one job. */
struct heard {
    char text[2][4096];
    int ends;
    char notice[4096];
};

static void on_output(void *context, int rank, int stream, const char *text, size_t bytes)
{
    struct heard *heard = context;
    size_t have = strlen(heard->text[stream]);
    heard->ends += bytes == 0;
    if (have + bytes < sizeof heard->text[stream])
        memcpy(heard->text[stream] + have, text, bytes);
}

static void on_notice(void *context, const char *text)
{
    struct heard *heard = context;
    strncat(heard->notice, text, sizeof heard->notice - strlen(heard->notice) - 1);
}

static struct ah_job *job_begin(struct heard *heard, int ranks, const char *code)
{
    char *argv[] = {(char *)"accelhost", (char *)"run", (char *)"-e", (char *)(uintptr_t)code, NULL};
    struct ah_job_options options = {
        .ranks = ranks, .threads = 1, .grace = 2, .argv = argv, .script = -1,
        .output = on_output, .notice = on_notice, .context = heard,
    };
    struct ah_job *job = NULL;
    if (ah_job_start(&job, &options) < 0)
        test_failed(__FILE__, __LINE__, "ah_job_start: %s", ah_error_text());
    return job;
}

AH_TEST(a_rank_that_does_not_start_is_reported)
{
    char *argv[] = {(char *)"accelhost", (char *)"stay-out", NULL};
    struct heard heard = {0};
    struct ah_job_options options = {.ranks = 2, .threads = 1, .stall_warning = 0.05, .grace = 2, .argv = argv,
        .script = -1, .output = on_output, .notice = on_notice, .context = &heard};
    struct ah_job *job = NULL;
    int64_t began = ah_now_ns();
    CHECK_OK(ah_job_start(&job, &options));
    REQUIRE(job);
    while (ah_now_ns() < began + INT64_C(20000000000) && !*heard.notice) {
        CHECK(ah_job_due(job) >= 0 && ah_job_due(job) < ah_now_ns() + INT64_C(60000000));
        ah_job_step(job);
        usleep(1000);
    }
    CHECK(ah_now_ns() >= began + 50000000);
    CHECK(!strcmp(heard.notice, "accelhost launch: not started after 0.05 s: ranks 0, 1\n"));
    ah_job_close(job);
}

AH_TEST(two_jobs_run_at_once)
{
    static const char good[] = "require('accelhost._C').comm.barrier() print('good ' .. os.getenv('RANK'))";
    static const char bad[] = "local comm = require('accelhost._C').comm comm.barrier() "
                              "if comm.rank() == 1 then error('bad') end comm.barrier()";
    struct heard heard[2] = {0};
    struct ah_job *jobs[2] = {job_begin(&heard[0], 3, good), job_begin(&heard[1], 2, bad)};
    REQUIRE(jobs[0] && jobs[1]);
    CHECK_OK(ah_jobs_wait(jobs, 2));
    CHECK(ah_job_exit_code(jobs[0]) == 0 && ah_job_exit_code(jobs[1]) == 3);
    CHECK(strstr(heard[0].text[0], "good 0\n") && strstr(heard[0].text[0], "good 2\n"));
    CHECK(heard[0].ends == 6 && heard[1].ends == 4);
    for (int j = 0; j < 2; j++)
        ah_job_report(jobs[j]);
    CHECK(!*heard[0].notice && strstr(heard[1].notice, "rank 1 failed: -e:1: bad\n"));
    for (int j = 0; j < 2; j++)
        ah_job_close(jobs[j]);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

AH_TEST(a_job_is_ended_by_a_signal_and_by_closing_it)
{
    static const char forever[] = "print('up') while true do end";
    struct heard heard[2] = {0};
    struct ah_job *jobs[2] = {job_begin(&heard[0], 2, forever), job_begin(&heard[1], 2, forever)};
    REQUIRE(jobs[0] && jobs[1]);
    int64_t began = ah_now_ns();
    while (strlen(heard[0].text[0]) < 6 && ah_now_ns() < began + INT64_C(20000000000)) {
        ah_job_step(jobs[0]);
        usleep(1000);
    }
    ah_job_end(jobs[0], SIGTERM);
    CHECK_OK(ah_jobs_wait(jobs, 1));
    CHECK(ah_job_exit_code(jobs[0]) == 128 + SIGTERM);
    CHECK(!ah_job_is_over(jobs[1]));
    ah_job_close(jobs[0]);
    ah_job_close(jobs[1]);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

AH_TEST(a_signal_that_a_rank_could_not_handle_while_it_started_is_sent_again)
{
    char *argv[] = {(char *)"accelhost", (char *)"stay-out", NULL};
    struct heard heard = {0};
    struct ah_job_options options = {.ranks = 4, .threads = 1, .grace = 60, .argv = argv, .script = -1,
                                     .output = on_output, .notice = on_notice, .context = &heard};
    struct ah_job *job = NULL;
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    int64_t began = ah_now_ns();
    CHECK_OK(ah_job_start(&job, &options));
    REQUIRE(job);
    ah_job_end(job, SIGPIPE);
    CHECK_OK(ah_jobs_wait(&job, 1));
    CHECK(ah_now_ns() < began + INT64_C(30000000000));
    CHECK(ah_job_exit_code(job) == 128 + SIGPIPE);
    ah_job_close(job);
    signal(SIGPIPE, before);
}

AH_TEST(a_held_stream_waits_and_loses_nothing)
{
    static const char much[] = "for i = 1, 200000 do print('0123456789') end";
    struct heard heard = {0};
    struct ah_job *job = job_begin(&heard, 2, much);
    REQUIRE(job);
    ah_job_hold(job, 0, true);
    int64_t until = ah_now_ns() + 500000000;
    while (ah_now_ns() < until) {
        ah_job_step(job);
        usleep(1000);
    }
    CHECK(!*heard.text[0] && !ah_job_is_over(job));
    ah_job_hold(job, 0, false);
    CHECK_OK(ah_jobs_wait(&job, 1));
    CHECK(ah_job_exit_code(job) == 0 && heard.ends == 4);
    ah_job_close(job);
}
