/* A job and its events that have not been returned yet. Invariant: whatever raises, an event is either in its queue or
 * in Lua. */
#include "cli/job/job_object.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process/signals.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "cli/base/signal_queue.h"
#include "cli/base/syscalls.h"
#include "cli/job/job_events.h"

static const struct ah_class job_class;

static struct ah_lua_job *check_job(lua_State *L, int index)
{
    struct ah_lua_job *job = ah_class_check(L, index, &job_class);
    if (!job->job)
        ah_raise_text(L, "this job was closed");
    return job;
}

/* Starting. */

/* The array of texts in a field as a NULL-ended array of Lua's memory, `first` in front; both stay on the stack. */
static const char **check_texts(lua_State *L, const char *field, const char *first)
{
    lua_getfield(L, 1, field);
    if (!lua_istable(L, -1) && !(lua_isnil(L, -1) && !first))
        ah_raise_text(L, "job.start: %s: expected a table of texts, got %s", field, ah_value_text(L, -1));
    int table = lua_gettop(L), count = lua_isnil(L, -1) ? 0 : (int)lua_objlen(L, -1), at = 0;
    const char **texts = lua_newuserdata(L, ((size_t)count + 2) * sizeof *texts);
    if (first)
        texts[at++] = first;
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, table, i);
        if (lua_type(L, -1) != LUA_TSTRING)
            ah_raise_text(L, "job.start: %s: expected texts, got %s", field, ah_value_text(L, -1));
        texts[at++] = lua_tostring(L, -1); /* the table holds it */
        lua_pop(L, 1);
    }
    texts[at] = NULL;
    return texts;
}

static void check_variables(lua_State *L, const char **variables)
{
    for (; *variables; variables++)
        if (!strchr(*variables, '=') || **variables == '=')
            ah_raise_text(L, "job.start: variables: expected NAME=VALUE, got '%s'", *variables);
}

static int job_object_start(lua_State *L)
{
    static const char *const known[] = {"num_processes", "argv", "threads", "timeout", "patience", "grace",
        "monitor_interval", "variables", "name", "terminal", "columns", "capture", "show", "collapse", "log_dir", NULL};
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    ah_check_options(L, 1, "job.start", known);
    struct ah_lua_job *job = ah_class_new(L, &job_class, sizeof *job);
    job->events.end = &job->events.first;
    struct ah_job_options options = {
        .ranks = (int)ah_opt_int(L, 1, "num_processes", 1),
        .threads = (int)ah_opt_int(L, 1, "threads", 0),
        .timeout = ah_opt_number(L, 1, "timeout", 0),
        .stall_warning = ah_opt_number(L, 1, "patience", 0),
        .grace = ah_opt_number(L, 1, "grace", 30),
        .monitor_interval = ah_opt_number(L, 1, "monitor_interval", 0),
        .name = ah_opt_string(L, 1, "name", NULL),
        .columns = (int)ah_opt_int(L, 1, "columns", 0),
        .script = -1,
        .context = job,
    };
    bool terminal = ah_opt_flag(L, 1, "terminal", false), capture = ah_opt_flag(L, 1, "capture", false);
    bool show = ah_opt_flag(L, 1, "show", false);
    const char *log_dir = ah_opt_string(L, 1, "log_dir", NULL);
    if (log_dir && !capture && !show)
        return ah_raise_text(L, "job.start: log_dir: only with show or capture");
    const char *collapse = ah_opt_string(L, 1, "collapse", "");
    if (capture && show)
        return ah_raise_text(L, "job.start: capture and show cannot both be set");
    options.terminal[0] = options.terminal[1] = terminal;
    options.argv = (char **)(uintptr_t)check_texts(L, "argv", "accelhost");
    options.variables = check_texts(L, "variables", NULL);
    check_variables(L, (const char **)(uintptr_t)options.variables);
    job->size = options.ranks;
    if (log_dir)
        ah_check(L, ah_lua_job_keep_logs(job, log_dir, job->size));
    ah_check(L, ah_lua_job_start(job, &options, capture, show, !strcmp(collapse, "all")));
    lua_settop(L, 2);
    return 1;
}

/* Methods. */

static int job_send(lua_State *L)
{
    struct ah_lua_job *job = check_job(L, 1);
    size_t count;
    const char *text = luaL_checklstring(L, 3, &count);
    if (!lua_isnil(L, 2)) {
        ah_check(L, ah_job_send(job->job, (int)luaL_checkinteger(L, 2), text, count));
        return 0;
    }
    int status = 0, sent = 0;
    for (int rank = 0; rank < job->size; rank++) {
        status = ah_job_send(job->job, rank, text, count);
        sent += status == 0;
        if (status < 0 && status != AH_EPEER)
            return ah_raise(L, status);
    }
    return sent ? 0 : ah_raise_text(L, "job:send: no rank listens any more");
}

static int check_signal(lua_State *L, int index)
{
    const char *name = luaL_checkstring(L, index);
    if (!strcmp(name, "USR2"))
        return SIGUSR2;
    if (!strcmp(name, "QUIT"))
        return SIGQUIT;
    if (!strcmp(name, "TSTP"))
        return SIGTSTP;
    int number = ah_signal_number(name);
    if (!number)
        ah_raise_text(L, "expected TERM, INT, HUP, QUIT, TSTP, USR1 or USR2, got '%s'", name);
    return number;
}

static int job_signal(lua_State *L)
{
    struct ah_lua_job *job = check_job(L, 1);
    int number = check_signal(L, 2);
    if (number == SIGUSR1)
        ah_job_pass(job->job, number);
    else if (number == SIGUSR2)
        ah_job_ask(job->job, number);
    else if (number == SIGTSTP)
        ah_job_suspend(job->job);
    else
        ah_job_end(job->job, number);
    return 0;
}

static int job_interrupt(lua_State *L)
{
    struct ah_lua_job *job = check_job(L, 1);
    ah_job_interrupt(job->job, luaL_optint(L, 2, -1), SIGINT);
    return 0;
}

AH_LUA_CALL(job_suspend, ah_job_suspend(check_job(L, 1)->job))
AH_LUA_CALL(job_resume, ah_job_resume(check_job(L, 1)->job))
AH_LUA_CALL(job_kill, ah_job_end(check_job(L, 1)->job, SIGKILL))

static int job_exit_code(lua_State *L)
{
    struct ah_lua_job *job = check_job(L, 1);
    if (!ah_job_is_over(job->job))
        return 0;
    lua_pushinteger(L, ah_job_exit_code(job->job));
    return 1;
}

static int job_failure(lua_State *L)
{
    struct ah_lua_job *job = check_job(L, 1);
    struct ah_job_failure failure;
    if (!ah_job_is_over(job->job) || !ah_job_failed(job->job, &failure))
        return 0;
    lua_createtable(L, 0, 6);
    ah_set_number(L, "rank", failure.rank);
    ah_set_number(L, "code", failure.code);
    ah_set_number(L, "memory", (double)failure.most_bytes);
    lua_pushboolean(L, failure.timed_out);
    lua_setfield(L, -2, "timed_out");
    if (failure.signal) {
        const char *name = ah_signal_name(failure.signal);
        lua_pushstring(L, name ? name + strlen("SIG") : "a signal");
        lua_setfield(L, -2, "signal");
    }
    if (failure.text[0]) {
        lua_pushstring(L, failure.text);
        lua_setfield(L, -2, "text");
    }
    return 1;
}

AH_LUA_CALL(job_settle, ah_lua_job_settle(check_job(L, 1)))

static int job_report(lua_State *L)
{
    struct ah_lua_job *job = check_job(L, 1);
    AH_FREED char *text = ah_lua_job_report(job);
    lua_pushstring(L, text ? text : "");
    return 1;
}

AH_LUA_CALL(job_close, ah_lua_job_close(ah_class_check(L, 1, &job_class)))

static int push_pids(lua_State *L, const struct ah_lua_job *job)
{
    int pids[AH_MAX_RANKS];
    int count = ah_job_pids(job->job, pids, AH_MAX_RANKS);
    lua_createtable(L, count, 0);
    for (int r = 0; r < count; r++) {
        lua_pushinteger(L, pids[r]);
        lua_rawseti(L, -2, r + 1);
    }
    return 1;
}

/* Upvalue: the methods. */
static int job_index(lua_State *L)
{
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
    if (!lua_isnil(L, -1))
        return 1;
    const char *name = lua_tostring(L, 2);
    if (name && !strcmp(name, "pids"))
        return push_pids(L, check_job(L, 1));
    if (!name || strcmp(name, "num_processes"))
        return ah_raise_text(L, "a job has no field or method %s", ah_value_text(L, 2));
    lua_pushinteger(L, check_job(L, 1)->size);
    return 1;
}

/* Waiting. */

/* The table of an event, but for its job, which is on top of the stack when there is one. */
static void push_event(lua_State *L, const struct ah_lua_event *event)
{
    static const char *const kinds[] = {"output", "message", "notice", "ended"};
    lua_createtable(L, 0, 5);
    lua_pushstring(L, kinds[event->kind]);
    lua_setfield(L, -2, "kind");
    if (event->kind == AH_LUA_ENDED) {
        ah_set_number(L, "code", event->code);
        return;
    }
    lua_pushlstring(L, event->text, event->bytes);
    lua_setfield(L, -2, "text");
    if (event->kind != AH_LUA_NOTICE)
        ah_set_number(L, "rank", event->rank);
    if (event->kind == AH_LUA_OUTPUT)
        ah_set_number(L, "stream", event->stream);
}

/* Move events into the table on top of the stack; the list of jobs is at 1. */
static void push_events(lua_State *L, struct ah_lua_job **jobs, int count)
{
    int at = (int)lua_objlen(L, -1);
    for (int i = 0; i < count; i++) {
        struct ah_lua_event *event;
        while ((event = jobs[i]->events.first)) {
            push_event(L, event);
            ah_lua_job_drop(jobs[i]);
            lua_rawgeti(L, 1, i + 1);
            lua_setfield(L, -2, "job");
            lua_rawseti(L, -2, ++at);
        }
    }
}

static void push_signals(lua_State *L)
{
    int number, at = 0;
    while ((number = ah_signal_queue_take())) {
        const char *name = ah_signal_name(number);
        lua_createtable(L, 0, 2);
        lua_pushliteral(L, "signal");
        lua_setfield(L, -2, "kind");
        lua_pushstring(L, name ? name + strlen("SIG") : "?");
        lua_setfield(L, -2, "name");
        lua_rawseti(L, -2, ++at);
    }
}

static int wait_for_jobs(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    double seconds = luaL_optnumber(L, 2, -1);
    int count = (int)lua_objlen(L, 1);
    lua_settop(L, 2);
    struct ah_lua_job **jobs = lua_newuserdata(L, ((size_t)count + 1) * sizeof(void *));
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 1, i + 1);
        jobs[i] = check_job(L, -1);
        lua_pop(L, 1);
    }
    int64_t until = seconds < 0 ? -1 : ah_now_ns() + (int64_t)((seconds < 1e9 ? seconds : 1e9) * 1e9);
    ah_check(L, ah_lua_jobs_wait(jobs, count, until));
    lua_newtable(L);
    push_signals(L);
    push_events(L, jobs, count);
    return 1;
}

static int raise_signal(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    kill(getpid(), strcmp(name, "STOP") ? check_signal(L, 1) : SIGSTOP);
    return 0;
}

static int watch_signals(lua_State *L)
{
    int count = lua_gettop(L);
    if (!count)
        ah_signal_queue_release();
    for (int i = 1; i <= count; i++)
        ah_check(L, ah_signal_queue_watch(check_signal(L, i)));
    return 0;
}

static const luaL_Reg job_methods[] = {
    {"send", job_send}, {"signal", job_signal}, {"interrupt", job_interrupt}, {"suspend", job_suspend},
    {"resume", job_resume}, {"kill", job_kill}, {"exit_code", job_exit_code}, {"failure", job_failure},
    {"report", job_report}, {"settle", job_settle}, {"close", job_close}, {NULL, NULL}};
static const struct ah_class job_class = {"accelhost.job", job_methods, job_index, job_close};

void ah_job_object_open_lua(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"start", job_object_start}, {"wait", wait_for_jobs}, {"watch_signals", watch_signals},
        {"raise", raise_signal}, {NULL, NULL}};
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "job");
}
