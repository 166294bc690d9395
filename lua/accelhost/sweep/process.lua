--- A running trial: its folder, its reports and its outcome. How its processes are started, asked and ended
--- is a subclass's (accelhost.sweep.launchers), which has the methods _launch, answer, kill, terminate, failure_text
--- and _close, and handle (events of its job) or poll.
---@param study Study
local C = require "accelhost._C"
local class = require "accelhost.util.class"
local LogFile = require "accelhost.track.log_file"
local params = require "accelhost.util.params"

---@field trial table
---@field job? userdata the job that C.job.wait waits for
---@field code? integer the exit code, when it has ended
local TrialProcess = class.new "TrialProcess"

-- Seconds that ranks get to end: when they are asked to, and when the first of them has left.
local GRACE, LEAVE = 10, 10
TrialProcess.GRACE = GRACE

local numbers = {nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge}

local function decode_number(value)
  if type(value) == "table" then return numbers[value.number] end
  return value
end

--- The arguments of accelhost for a trial, without `run`.
---@param path string the sweep's file
function TrialProcess.words(definition, path)
  if definition.objective then return {"-e", "require('accelhost.sweep.objective').run((...))", path} end
  local words = {definition.script_path}
  for _, word in ipairs(definition.arguments) do words[#words + 1] = tostring(word) end
  return words
end

--- Return the facts of the trial for its own processes.
function TrialProcess:facts(study)
  local trial, definition = self.trial, study.definition
  return {
    number = trial.number, replicate = trial.replicate, attempt = trial.attempt, metric = definition.metric,
    directory = self.directory, seed = definition.seed + trial.replicate, objective = definition.objective ~= nil,
    waits = self.waits, mailbox = self.mailbox,
  }
end

--- The variables of the trial's processes, "NAME=VALUE".
function TrialProcess:variables(study)
  local list = {
    "ACCELHOST_TRIAL=" .. C.json.encode(self:facts(study)), "ACCELHOST_TRIAL_DIR=" .. self.directory,
    "ACCELHOST_PARAMS=" .. self.directory .. "/params.yaml",
  }
  if self.gpus then list[#list + 1] = "CUDA_VISIBLE_DEVICES=" .. self.gpus end
  for name, value in pairs(study.definition.variables) do list[#list + 1] = ("%s=%s"):format(name, value) end
  return list
end

--- Start a trial.
---@param place table {directory, file = the sweep's file, threads, gpus?}
function TrialProcess:init(study, trial, place)
  local definition = study.definition
  self.trial, self.directory, self.metric, self.gpus = trial, place.directory, definition.metric, place.gpus
  self.waits = study.has_pruner or definition.num_processes > 1
  LogFile.folder("sweep", self.directory)
  C.io.write_text(self.directory .. "/params.yaml", params.yaml(study.space:expand(trial.params)))
  self.metrics = LogFile("sweep", self.directory .. "/metrics.jsonl")
  self.reported, self.last_words = {}, ""
  self:_launch(study, place)
end

--- It has begun: from now on its time counts.
function TrialProcess:begin(definition)
  self.due = definition.timeout and C.system.now() + definition.timeout
end

local function json_value(value)
  if type(value) == "number" and value - value ~= 0 then
    return value ~= value and "NaN" or value > 0 and "Infinity" or "-Infinity"
  end
  return value
end

--- Write a report into metrics.jsonl, as the tracker "jsonl" does.
---@param metrics table<string, any>
---@param now number seconds since 1970
function TrialProcess:keep_metrics(step, metrics, now)
  local row = {step = step, wall_time = now}
  for name, value in pairs(metrics) do row[name] = json_value(value) end
  self.metrics:append(C.json.encode(row) .. "\n")
end

-- Handle a rank's message. `report` receives {step, metrics} and returns an answer.
local messages = {}

messages.read = function(self) self.read = true end

messages.refuse = function(self, message) self.refused = message.text end

messages.leave = function(self, message)
  self.left = message.answer
  self.due, self.leaving = C.system.now() + LEAVE, true
end

messages.result = function(self, message)
  local list = type(message.value) == "table" and message.value.list
  self.result, self.unread = not list and decode_number(message.value) or {}, message.unread
  for i, value in ipairs(list or {}) do self.result[i] = decode_number(value) end
end

--- The metrics of a report as they were.
---@param message table
---@return table<string, any>
function TrialProcess.metrics_of(message)
  local metrics = {}
  for name, value in pairs(message.metrics) do metrics[name] = decode_number(value) end
  return metrics
end

messages.report = function(self, message, report)
  local metrics = self.metrics_of(message)
  for name in pairs(metrics) do self.reported[name] = true end
  local answer = report(message.step, metrics)
  -- The pruner's decision is recorded, so it has priority over an interruption.
  if answer == "continue" and self.interrupting then answer = "interrupt" end
  if metrics[self.metric] ~= nil and self.waits then self:answer(answer) end
end

--- Handle a message of rank 0.
---@param report fun(step: integer, metrics: table): string
function TrialProcess:hear(text, report)
  local message = C.json.decode(text)
  messages[message.kind](self, message, report)
end

--- The text of an answer in a message.
---@param answer string
---@return string
function TrialProcess.answer_text(answer) return C.json.encode {kind = "answer", answer = answer} end

--- Answer a report, to all ranks.
---@param answer string
function TrialProcess:answer(answer) end

--- End all ranks at once.
function TrialProcess:kill() end

--- Ask the ranks to end.
function TrialProcess:terminate() end

--- Ask the trial to leave at its next report.
function TrialProcess:interrupt()
  self.interrupting = true
  if not self.waits then self:answer "interrupt" end
end

--- End it now; it will resume later.
function TrialProcess:abort()
  self.aborted = true
  self:kill()
end

--- Enforce the timeout: end trials that run too long.
---@param now number of C.system.now
function TrialProcess:check_time(now)
  if not self.due or now < self.due then return end
  if self.leaving or self.timed_out then
    self:kill()
    self.due = nil
  else
    self.timed_out, self.due = true, now + GRACE
    self:terminate()
  end
end

local memory_words = {"not enough memory", "cannot allocate memory"}

--- Report an exhausted memory if a text means that in other words.
function TrialProcess.name_memory(text)
  local lower = text:lower()
  for _, words in ipairs(memory_words) do
    if lower:find(words, 1, true) and not lower:find("out of memory", 1, true) then return "out of memory: " .. text end
  end
  return (text:gsub("%s+$", ""))
end

local function names_text(self)
  local names = {}
  for name in pairs(self.reported) do names[#names + 1] = ("'%s'"):format(name) end
  table.sort(names)
  return #names > 0 and " (it reported " .. table.concat(names, ", ") .. ")" or ""
end

local function last_line(text) return text:match "([^\n]+)%s*$" or "" end

-- A trial whose processes have all ended well.
local function outcome_of_end(self, definition)
  local last = self.trial.reports[#self.trial.reports]
  if definition.objective then
    if self.result then return "complete", self.result end
    return "failed", "the objective ended the process before it returned a number"
  end
  if not self.read and next(definition.space.parameters) then
    return "refused", ("%s never reads its parameters: accelhost.args{...} or accelhost.parse_args{...} does")
      :format(definition.script)
  end
  if last then return "complete", last.value end
  return "refused", ("%s never reported '%s', the metric of the sweep%s: accelhost.report(step, {%s = x}) or "
    .. "accelerator:log{%s = x} does"):format(definition.script, definition.metric, names_text(self),
    definition.metric, definition.metric)
end

--- The outcome of a trial whose processes have ended: the arguments of study:leave, or a reason to stop the sweep.
---@return string how "complete", "stopped", "paused", "interrupted", "failed" or "refused"
---@return any detail
function TrialProcess:outcome(definition)
  local trial = self.trial
  if self.refused then return "refused", self.refused end
  -- The pruner's decision holds however the processes ended.
  local left = self.left or trial.decision
  if left == "stop" then return "stopped" end
  if left == "pause" then return "paused" end
  if left == "interrupt" or self.aborted then return "interrupted" end
  if self.timed_out then return "failed", ("exceeded %g s (timeout)"):format(definition.timeout) end
  if self.code == 0 then return outcome_of_end(self, definition) end
  if self.code == 2 and #trial.reports == 0 then
    return "refused", last_line(self.last_words:gsub("\nTry %-%-help%.%s*$", ""))
  end
  return "failed", self:failure_text()
end

--- Keep the failure message and traceback with the trial's output, if its launcher does not do so by itself.
function TrialProcess:keep_failure(text) end

--- Let go of everything.
function TrialProcess:close()
  self:_close()
  self.metrics:close()
end

return TrialProcess
