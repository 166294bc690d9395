/* accelhost._C.jobs: the state of this user's running jobs, for `accelhost top`. Rules and words are in
 * lua/accelhost/top. Other processes write the data that are read here: none of them is trusted to be in range or to
 * end. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/process/process.h"
#include "base/trace/time.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "comm/control/collective.h"
#include "comm/control/jobs.h"
#include "comm/control/rank_status.h"

static const struct ah_class control_class;
AH_CLASS_CLOSER(close_control, control_class, struct ah_control_block, ah_control_close)

static const struct ah_class control_class = {.name = "accelhost.control_block", .collect = close_control};

static struct ah_control_block *check_control(lua_State *L, int index)
{
    struct ah_control_block **held = ah_class_check(L, index, &control_class);
    return *held;
}

/* Fields of the table on top of the stack. */

static void set_text(lua_State *L, const char *name, const char *text, size_t room)
{
    size_t length = strnlen(text, room);
    if (!length)
        return;
    lua_pushlstring(L, text, length);
    lua_setfield(L, -2, name);
}

static void set_op(lua_State *L, const char *name, int op)
{
    if (op > 0 && op <= AH_OP_COUNT)
        set_text(L, name, ah_op_get((enum ah_opid)(op - 1))->name, 64);
}

/* Seconds since then; nothing for never. */
static void set_age(lua_State *L, const char *name, int64_t since, int64_t now)
{
    if (since > 0)
        ah_set_number(L, name, (double)(now - since) / 1e9);
}

static void set_ranks(lua_State *L, const char *name, const int *rank, int count)
{
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushinteger(L, rank[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, name);
}

static void set_collective(lua_State *L, struct ah_control_block *control, int rank, int64_t now)
{
    uint32_t number;
    int member[AH_MAX_RANKS], members = ah_jobs_members(control, rank, member);
    const struct ah_call_record *record = ah_control_last_call(control, rank, &number);
    if (!record || record->kind >= AH_COLLECTIVE_KINDS)
        return;
    lua_createtable(L, 0, 6);
    set_text(L, "name", ah_call_record_name(record), 64);
    ah_set_number(L, "number", number);
    set_text(L, "site", record->where, sizeof record->where);
    set_age(L, "seconds", atomic_load(&ah_rank_entry(control, rank)->counters.collective_ns), now);
    lua_pushboolean(L, ah_jobs_waits(control, rank));
    lua_setfield(L, -2, "waiting");
    if (members > 0 && members < control->size) /* 0: of another host */
        set_ranks(L, "ranks", member, members);
    lua_setfield(L, -2, "collective");
}

static void set_message(lua_State *L, const struct ah_control_block *control, int rank, int64_t now)
{
    const struct ah_awaited *awaited = ah_jobs_awaited(control, rank);
    if (!awaited)
        return;
    lua_createtable(L, 0, 5);
    set_text(L, "kind", atomic_load(&awaited->what) == AH_AWAITS_MESSAGE ? "recv" : "send", 8);
    ah_set_number(L, "tag", (double)atomic_load(&awaited->tag));
    set_text(L, "site", awaited->where, sizeof awaited->where);
    set_age(L, "seconds", atomic_load(&awaited->since_ns), now);
    lua_setfield(L, -2, "message");
}

static void set_process(lua_State *L, int pid)
{
    struct ah_process process;
    if (!pid || !ah_process_look(pid, &process))
        return;
    lua_pushlstring(L, &process.state, 1);
    lua_setfield(L, -2, "process_state");
    ah_set_number(L, "threads", process.threads);
    ah_set_number(L, "memory", (double)process.memory);
    ah_set_number(L, "cpu_seconds", (double)process.cpu_ns / 1e9);
}

static void set_counters(lua_State *L, const struct ah_counters *counters, int64_t now)
{
    double step_time = atomic_load(&counters->step_time), loss = atomic_load(&counters->loss);
    ah_set_number(L, "steps", (double)atomic_load(&counters->steps));
    ah_set_number(L, "backwards", (double)atomic_load(&counters->backwards));
    if (step_time > 0)
        ah_set_number(L, "step_time", step_time);
    set_age(L, "step_seconds", atomic_load(&counters->step_ns), now);
    if (!isnan(loss) || atomic_load(&counters->backwards))
        ah_set_number(L, "loss", loss);
    set_op(L, "op", atomic_load(&counters->op));
    set_op(L, "backward_of", atomic_load(&counters->node));
    set_text(L, "site", counters->site, sizeof counters->site);
}

static void push_rank(lua_State *L, const struct ah_seen_job *job, int rank, int64_t now)
{
    static const char *const states[] = {"running", "ended", "failed", "died", "recovering"};
    struct ah_control_block *control = job->control;
    struct ah_rank_entry *slot = ah_rank_entry(control, rank);
    unsigned state = (unsigned)atomic_load(&slot->state);
    int pid = ah_jobs_pid(job, rank);
    int waited[AH_MAX_RANKS], count = ah_jobs_waited(control, rank, waited);
    lua_createtable(L, 0, 21);
    ah_set_number(L, "rank", rank);
    ah_set_number(L, "pid", pid);
    const char *word = states[state < sizeof states / sizeof *states ? state : 0];
    if (!atomic_load(&slot->pid))
        word = ah_control_is_local(control, rank) ? "starting" : "elsewhere"; /* on another host */
    set_text(L, "entry_state", word, 16);
    set_process(L, pid);
    set_counters(L, &slot->counters, now);
    set_collective(L, control, rank, now);
    set_message(L, control, rank, now);
    set_ranks(L, "waits_for", waited, count);
}

static void push_job(lua_State *L, const struct ah_seen_job *job)
{
    char command[1024];
    int64_t now = ah_now_ns();
    lua_createtable(L, 0, 4);
    ah_set_number(L, "pid", job->pid);
    ah_process_command(job->pid, command, sizeof command);
    lua_pushstring(L, command);
    lua_setfield(L, -2, "command");
    lua_createtable(L, job->control->size, 0);
    for (int r = 0; r < job->control->size; r++) {
        push_rank(L, job, r, now);
        lua_rawseti(L, -2, r + 1);
    }
    lua_setfield(L, -2, "ranks");
}

/* look() -> an array of jobs {pid, command, control block, ranks = {{rank, pid, ...}, ...}} */
static int jobs_look(lua_State *L)
{
    enum { MOST = 128 };
    struct ah_seen_job jobs[MOST];
    /* Userdata first: nothing below may leak when memory is out. */
    struct ah_control_block **held[MOST];
    luaL_checkstack(L, MOST + 16, "jobs");
    for (int i = 0; i < MOST; i++)
        held[i] = ah_class_new(L, &control_class, sizeof(struct ah_control_block *));
    int first = lua_gettop(L) - MOST + 1, count = ah_jobs_see(jobs, MOST);
    for (int i = 0; i < count; i++)
        *held[i] = jobs[i].control;
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        push_job(L, &jobs[i]);
        lua_pushvalue(L, first + i);
        lua_setfield(L, -2, "control_block");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* rank_status(control block, rank, its pid) -> the rank's answer to the status signal: "runs at train.lua:12"; nil if
 * none */
static int rank_status(lua_State *L)
{
    enum { ANSWER_MS = 300 };
    char text[AH_COUNTERS_TEXT];
    struct ah_control_block *control = check_control(L, 1);
    int rank = (int)luaL_checkinteger(L, 2);
    luaL_argcheck(L, control && rank >= 0 && rank < control->size, 2, "no such rank");
    ah_rank_status_of(ah_rank_entry(control, rank), (int)luaL_checkinteger(L, 3), ANSWER_MS, text, sizeof text);
    if (text[0])
        lua_pushstring(L, text);
    else
        lua_pushnil(L);
    return 1;
}

int ah_open_jobs(lua_State *L)
{
    static const luaL_Reg functions[] = {{"look", jobs_look}, {"rank_status", rank_status}, {NULL, NULL}};
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
