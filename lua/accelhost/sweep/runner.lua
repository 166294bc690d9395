--- Runs a study: starts trials in the free slots, receives their reports, and stores them.
local C = require "accelhost._C"
local class = require "accelhost.util.class"
local gpus = require "accelhost.sweep.gpus"
local Inline = require "accelhost.sweep.inline"

local Runner = class.new "Runner"

--- The default number of trials that run at once, and the number of threads of each rank: a rank on each GPU, without
--- any one on each processor.
---@return integer parallel
---@return integer threads
function Runner.shares(definition)
  if definition.launcher == "slurm" then return definition.parallel, definition.threads or 1 end
  local cores, ranks = C.system.cpu_count(), definition.num_processes
  local places = definition.parallel and 0 or #gpus.of(definition)
  if places == 0 then places = cores / (definition.threads or 1) end
  local parallel = definition.parallel or math.max(1, math.floor(places / ranks))
  return parallel, definition.threads or math.max(1, math.floor(cores / (parallel * ranks)))
end

--- Make one.
---@param study Study
---@param place table {directory = the study's, absolute; file = the sweep's}
---@param observer table event(kind, trial, ...) and update(study, now)
function Runner:init(study, place, observer)
  self.study, self.place, self.observer = study, place, observer
  self.parallel, self.threads = Runner.shares(study.definition)
  self.running, self.slots, self.gpus = {}, {}, gpus.of(study.definition)
  self.launcher = require("accelhost.sweep.launchers." .. study.definition.launcher)
  if self.launcher.recover then self:_recover() end
end

local function first_free(self)
  for slot = 0, self.parallel - 1 do
    if not self.slots[slot] then return slot end
  end
end

function Runner:_notify(kind, trial, ...) self.observer:event(kind, trial, ...) end

-- A folder named checkpoint_N somewhere in the trial's.
local function has_checkpoint(folder, depth)
  for _, name in ipairs(C.data.look(folder) == "folder" and C.data.list_folder(folder) or {}) do
    if name:find "^checkpoint" then return true end
    if depth > 0 and has_checkpoint(folder .. "/" .. name, depth - 1) then return true end
  end
  return false
end

function Runner:_folder(trial) return ("%s/trials/%04d"):format(self.place.directory, trial.number) end

-- Trials of an earlier process of the sweep: those that continue may have reported more since, except for those
-- that failed and run again.
function Runner:_recover()
  for _, trial in ipairs(self.study.trials) do
    local resumes = trial.state == "waiting" and not trial.reopened
    if resumes or trial.state == "paused" or trial.state == "pruned" then
      self.launcher.recover(self:_folder(trial), resumes and function(step, metrics)
        return self:report(trial, step, metrics)
      end)
    end
  end
end

function Runner:_start(trial, slot)
  local directory = self:_folder(trial)
  local resumes = #trial.reports > 0
  if resumes and not self.reported and not has_checkpoint(directory, 2) then
    self.reported = true
    self:_notify("note", trial, "has saved no checkpoint, so it starts from the beginning (to resume, call "
      .. "accelerator:load_state at the start and save_state before a report)")
  end
  local process = self.launcher(self.study, trial, {directory = directory, file = self.place.file,
    threads = self.threads, gpus = gpus.share(self.gpus, slot, self.study.definition.num_processes)})
  process.slot = slot
  self.slots[slot] = process
  self.running[#self.running + 1] = process
  self:_notify("start", trial)
end

-- Start trials in the free slots; false when none runs and none is left.
function Runner:_fill()
  while not self.leaving do
    local slot = first_free(self)
    local trial = slot and self.study:next(C.system.time(), slot)
    if not trial then break end
    if self.study.definition.inline then
      Inline.run(self, trial)
    else
      self:_start(trial, slot)
    end
  end
  return #self.running > 0
end

--- Store a report, and return the answer.
---@param metrics table<string, any>
---@param process? table
---@return string answer
function Runner:report(trial, step, metrics, process)
  local now = C.system.time()
  local answer, is_new = self.study:report(trial, step, metrics, now)
  if is_new and process then process:keep_metrics(step, metrics, now) end
  if is_new then self:_notify("report", trial, step, metrics) end
  return answer
end

--- A trial has ended.
---@param how string an argument of study:leave, or "refused"
function Runner:leave(trial, how, detail)
  if how == "refused" and self.study.endings > 0 then how = "failed" end
  if how == "refused" then
    self.study:refuse(detail)
    self:abort()
    return
  end
  self.study:leave(trial, how, C.system.time(), detail)
  self:_notify(trial.state, trial, how)
end

-- Parameters that no code asked for, reported once.
local function report_unread(self, process)
  if self.reported_unread or not process.unread or #process.unread == 0 then return end
  self.reported_unread = true
  self:_notify("note", process.trial, ("never read %s"):format(table.concat(process.unread, ", ")))
end

function Runner:_conclude(process)
  for i, other in ipairs(self.running) do
    if other == process then table.remove(self.running, i) break end
  end
  self.slots[process.slot] = nil
  local how, detail = process:outcome(self.study.definition)
  report_unread(self, process)
  if how == "failed" then process:keep_failure(detail) end
  process:close()
  if self.study.refused then return end
  self:leave(process.trial, how, detail)
end

function Runner:_drain()
  self.leaving = true
  for _, process in ipairs(self.running) do process:interrupt() end
end

--- Start no more, and end those that run at their next report; the second time at once.
function Runner:interrupt()
  if self.interrupted then return self:abort() end
  self.interrupted = true
  self:_drain()
  if #self.running > 0 then self:_notify("interrupt", nil, #self.running) end
end

--- End the running trials now; they resume when the sweep is started again.
function Runner:abort()
  self.leaving = true
  for _, process in ipairs(self.running) do process:abort() end
end

-- Slurm's trials are polled, not waited for.
local LOOK = 0.25

function Runner:_next_look(now)
  local wait = self.launcher.poll and LOOK or 1
  for _, process in ipairs(self.running) do
    if process.due then wait = math.min(wait, math.max(0, process.due - now)) end
  end
  return wait
end

local function reporter(self, process)
  return function(step, metrics) return self:report(process.trial, step, metrics, process) end
end

-- Poll trials that make no events.
function Runner:_poll(seconds)
  C.system.sleep(seconds)
  for _, event in ipairs(C.job.wait({}, 0)) do self:_handle(event) end
  for i = #self.running, 1, -1 do
    local process = self.running[i]
    process:poll(reporter(self, process))
    if process.code then self:_conclude(process) end
  end
end

function Runner:_wait(seconds)
  local jobs = {}
  for i, process in ipairs(self.running) do jobs[i] = process.job end
  for _, event in ipairs(C.job.wait(jobs, seconds)) do self:_handle(event) end
end

function Runner:_handle(event)
  if event.kind == "signal" then return self:interrupt() end
  for _, process in ipairs(self.running) do
    if process.job == event.job then
      process:handle(event, reporter(self, process))
      if event.kind == "ended" then self:_conclude(process) end
      return
    end
  end
end

function Runner:_step()
  local seconds = self:_next_look(C.system.now())
  if self.launcher.poll then self:_poll(seconds) else self:_wait(seconds) end
  local now = C.system.now()
  for _, process in ipairs(self.running) do process:check_time(now) end
  self.observer:update(self.study, C.system.time())
end

--- Run until no trial is left, or a signal requests the end.
function Runner:run()
  C.job.watch_signals("INT", "TERM", "HUP")
  while self:_fill() do
    self:_step()
    if self.study.stopping and not self.leaving then self:_drain() end
  end
  C.job.watch_signals()
end

return Runner
