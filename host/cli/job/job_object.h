/* accelhost._C.job: jobs (cli/job/job.h) from Lua.
 *
 *   local job = C.job.start{num_processes = 2, argv = {"run", "train.lua"}, capture = true}
 *   repeat
 *     for _, event in ipairs(C.job.wait({job}, 1)) do print(event.kind, event.rank, event.text) end
 *   until job:exit_code()
 *
 * start{num_processes = 1, argv = {...}, ...} -> job. argv are the arguments of this program in each rank, its name
 * left out. Options: threads, timeout, patience, grace (30), monitor_interval as `launch` has them; variables =
 * {"A=B"} for the ranks' environment; name, prefix of reports on the job ("accelhost launch"); terminal = true
 * and columns when the ranks' output ends up on a terminal. Where their output goes: capture = true makes events of it;
 * show = true writes it to this process's own streams as `launch` does, and collapse = "all" omits the
 * prefix of lines that all ranks wrote and adds it to rank 0's own; without either the ranks write to these streams
 * themselves. log_dir writes it to files as launch's option does.
 *
 * wait({job, ...} [, seconds]) -> a list of events in their order, as soon as there is one; empty when the time is up
 * (nil: never), when a signal with a hook has arrived, or when all jobs are over and have been reported.
 *   {job =, kind = "output", rank =, stream = 0 | 1, text =}   a rank's output, capture only
 *   {job =, kind = "message", rank =, text =}                  its message (cli/process/parent.h), after its earlier
 *                                                              output
 *   {job =, kind = "notice", text =}                           whole lines about the job, for a person
 *   {job =, kind = "ended", code =}                            once, last
 *   {kind = "signal", name = "INT"}                            see watch_signals
 * Ranks block in their writes while there is no wait for them here, so unread output needs no memory here.
 *
 * watch_signals("INT", ...): these signals make events from now on; without a name none any more.
 * raise("INT") sends this process a signal, "STOP" too.
 *
 * job:send(rank or nil for all, text)     at most 256 MiB; kept until the rank reads it. Raises when it reads no more,
 *                                         of all ranks only when none does
 * job:signal("TERM")                      asks the ranks to end; killed after the grace, at the second call at once.
 *                                         USR1 is passed on, USR2 makes each rank write its traceback
 * job:interrupt([rank])                   SIGINT for all ranks or one, and the job continues
 * job:suspend(), job:resume()             stops the ranks, continues them
 * job:kill()                              at once
 * job:exit_code() -> nil before the end, then as launch's
 * job:failure() -> nil or {rank =, text = traceback or nil, signal = "KILL" or nil, code =, timed_out =, memory =}
 * job:report() -> the report of the failure, "" if there is none
 * job:settle()                            writes output that is shown and was held for a moment, unfinished lines too
 * job:close()                             kills processes that still run; so does the collector
 * job.num_processes, job.pids */
#pragma once

#include <lua.h>

/* Add C.job to the table on top of the stack. */
void ah_job_object_open_lua(lua_State *L);
