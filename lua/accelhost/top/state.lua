--- The status of each rank of the running jobs, as `accelhost top` prints it: from two reads of their control blocks,
--- some time apart, and from the status text of a rank that made no progress in between.
local C = require "accelhost._C"

local state = {}

-- The counters that change while a rank makes progress.
local function progress_of(rank)
  local collective = rank.collective
  return ("%d %d %d"):format(rank.steps, rank.backwards, collective and collective.number or 0)
end

local function is_waiting(rank)
  return rank.message ~= nil or rank.collective ~= nil and rank.collective.waiting
end

-- One word: starting, elsewhere (on another host), running, waiting (for other ranks), sleeping, stopped, ended,
-- failed, died.
local function word_for(rank)
  local process = rank.process_state
  if rank.entry_state ~= "running" then return rank.entry_state end
  if not process then return "died" end
  if process == "T" or process == "t" then return "stopped" end
  if is_waiting(rank) then return "waiting" end
  return process == "R" and "running" or "sleeping"
end

local function list(ranks)
  return (#ranks == 1 and "rank " or "ranks ") .. table.concat(ranks, ", ")
end

-- "waits for a message from rank 1, tag 3"
local function waiting_text(rank)
  local message, peers = rank.message, #rank.waits_for > 0 and list(rank.waits_for) or nil
  if not message then return "waits for " .. (peers or "other ranks") end
  local tag = message.tag ~= 0 and (", tag %d"):format(message.tag) or ""
  if message.kind == "recv" then return ("waits for a message from %s%s"):format(peers or "any rank", tag) end
  return ("waits for %s to receive a message%s"):format(peers or "a rank", tag)
end

-- The states of programs without a script's line, by command.
local idle = {repl = "at its prompt", ["-i"] = "at its prompt", sweep = "waits for its trials"}

local function idle_text(command)
  local word = command:match "^%S+%s+(%S+)"
  return idle[word or "repl"]
end

-- Details of a rank's status: the rank it waits for, the script's line, its answer to a status request.
local function doing_of(job, rank, before)
  if rank.state == "waiting" then return waiting_text(rank) end
  local stuck = before and before.progress == rank.progress
  if rank.state == "stopped" or (stuck and (rank.state == "running" or rank.state == "sleeping")) then
    local doing = C.jobs.rank_status(job.control_block, rank.rank, rank.pid)
    local is_idle = rank.state == "sleeping" and doing and doing:find " at %?$"
    return is_idle and idle_text(job.command) or doing
  end
  if rank.backward_of then return "backward of " .. rank.backward_of end
  return rank.op and "in " .. rank.op or nil
end

-- The step rate over the time between the samples, or, with few steps in it, the rank's own rate of its last steps.
local function step_rate(rank, before, seconds)
  if not rank.step_time then return nil end
  if rank.step_seconds > math.max(10, 5 * rank.step_time) then return 0 end -- the last step is long ago
  local steps = before and rank.steps - before.steps or 0
  return steps >= 5 and steps / seconds or 1 / rank.step_time
end

local function finish(job, rank, before, seconds)
  rank.progress = progress_of(rank)
  rank.state = word_for(rank)
  rank.doing = doing_of(job, rank, before)
  rank.step_rate = step_rate(rank, before, seconds)
  if before and rank.cpu_seconds and before.cpu_seconds and before.pid == rank.pid then
    rank.cpu = math.max(0, (rank.cpu_seconds - before.cpu_seconds) / seconds)
  end
end

local function rank_before(before, pid, number)
  for _, job in ipairs(before and before.jobs or {}) do
    if job.pid == pid then return job.ranks[number + 1] end
  end
end

-- The cards of this host with their sensors and the ranks of the jobs that have a context there.
local function look_at_cards(jobs)
  local rank_of, cards = {}, {}
  for _, job in ipairs(jobs) do
    for _, rank in ipairs(job.ranks) do rank_of[tostring(rank.pid)] = rank.rank end
  end
  for card = 0, math.huge do
    local readings = C.device.sensors("cuda", card)
    if not readings then return cards end
    readings.ranks = {}
    for pid in (readings.pids or ""):gmatch "%d+" do table.insert(readings.ranks, rank_of[pid]) end
    table.sort(readings.ranks)
    readings.pids = nil
    cards[#cards + 1] = readings
  end
end

--- Read the state of all jobs, or of those that `wanted` names.
---@param wanted? string the pid of a launcher (or of a script alone), or a part of its command line
---@param before? table an earlier result: rates and shares are over the time since then
---@return table {time = seconds, jobs = {{pid, command, ranks}, ...}, cards = {readings of a card's sensors, ...}}
function state.look(wanted, before)
  local now = C.system.now()
  local seen, own = {time = now, jobs = {}}, C.system.process_id()
  for _, job in ipairs(C.jobs.look()) do
    local named = not wanted or tostring(job.pid) == wanted
      or (not tonumber(wanted) and job.command:find(wanted, 1, true) ~= nil)
    if job.pid ~= own and named then
      for _, rank in ipairs(job.ranks) do
        finish(job, rank, rank_before(before, job.pid, rank.rank), before and now - before.time or 1)
      end
      seen.jobs[#seen.jobs + 1] = job
    end
  end
  seen.cards = look_at_cards(seen.jobs)
  return seen
end

return state
