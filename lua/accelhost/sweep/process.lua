--- A trial that runs: its processes, its folder, and what they tell.
local C = require "accelhost._C"
local class = require "accelhost.util.class"
local LogFile = require "accelhost.track.log_file"
local params = require "accelhost.util.params"

---@class TrialProcess
local TrialProcess = class.new "TrialProcess"

-- Seconds that the ranks of a trial get to end: when asked to, and when the first of them has left.
local GRACE, LEAVE = 10, 10

local numbers = {nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge}

local function decode_number(value)
  if type(value) == "table" then return numbers[value.number] end
  return value
end

local function write_file(path, text)
  local handle, reason = io.open(path, "wb")
  if not handle then error("cannot write " .. reason, 0) end
  handle:write(text)
  handle:close()
end

local function words_of(definition, path)
  if definition.objective then
    return {"run", "-e", "require('accelhost.sweep.objective').run((...))", path}
  end
  local words = {"run", definition.script_path}
  for _, word in ipairs(definition.arguments) do words[#words + 1] = tostring(word) end
  return words
end

local function facts_of(self, study)
  local trial, definition = self.trial, study.definition
  return {
    number = trial.number, replicate = trial.replicate, attempt = trial.attempt, metric = definition.metric,
    directory = self.directory, seed = definition.seed + trial.replicate, objective = definition.objective ~= nil,
    waits = study.has_pruner or definition.num_processes > 1,
  }
end

local function variables_of(self, study)
  local list = {
    "ACCELHOST_TRIAL=" .. C.json.encode(facts_of(self, study)), "ACCELHOST_TRIAL_DIR=" .. self.directory,
    "ACCELHOST_PARAMS=" .. self.directory .. "/params.yaml",
  }
  for name, value in pairs(study.definition.variables) do list[#list + 1] = ("%s=%s"):format(name, value) end
  return list
end

--- Start a trial.
---@param study Study
---@param trial table
---@param place table {directory, file = the sweep's file, threads}
function TrialProcess:init(study, trial, place)
  local definition = study.definition
  self.trial, self.directory, self.metric = trial, place.directory, definition.metric
  self.waits = study.has_pruner or definition.num_processes > 1
  LogFile.folder("sweep", self.directory)
  write_file(self.directory .. "/params.yaml", params.yaml(study.space:expand(trial.params)))
  self.log = LogFile("sweep", self.directory .. "/log.txt")
  self.metrics = LogFile("sweep", self.directory .. "/metrics.jsonl")
  self.partial, self.reported, self.last_words = {}, {}, ""
  self.begun = C.system.now()
  self.due = definition.timeout and self.begun + definition.timeout
  self.job = C.job.start {
    num_processes = definition.num_processes, threads = place.threads, argv = words_of(definition, place.file),
    variables = variables_of(self, study), name = ("trial %d"):format(trial.number), capture = true, grace = GRACE,
  }
end

-- Lines of several ranks do not mix, and say whose they are.
function TrialProcess:_write(rank, stream, text)
  if stream == 1 then self.last_words = (self.last_words .. text):sub(-4000) end
  if self.job.num_processes == 1 then return self.log:append(text) end
  local key = rank * 2 + stream
  text = (self.partial[key] or "") .. text
  local whole, rest = text:match "^(.*\n)([^\n]*)$"
  self.partial[key] = rest or text
  if whole then self.log:append((whole:gsub("[^\n]*\n", ("[r%d] %%0"):format(rank)))) end
end

local function json_value(value)
  if type(value) == "number" and value - value ~= 0 then
    return value ~= value and "NaN" or value > 0 and "Infinity" or "-Infinity"
  end
  return value
end

--- Write a report into metrics.jsonl, as the tracker "jsonl" does.
---@param step integer
---@param metrics table<string, any>
---@param now number seconds since 1970
function TrialProcess:keep_metrics(step, metrics, now)
  local row = {step = step, wall_time = now}
  for name, value in pairs(metrics) do row[name] = json_value(value) end
  self.metrics:append(C.json.encode(row) .. "\n")
end

-- What a rank's message does. `report` is told {step, metrics} and returns an answer.
local messages = {}

messages.read = function(self) self.read = true end

messages.refuse = function(self, message) self.refused = message.text end

messages.leave = function(self, message)
  self.left = message.answer
  self.due, self.leaving = C.system.now() + LEAVE, true
end

messages.result = function(self, message)
  self.result, self.unread = decode_number(message.value), message.unread
end

messages.report = function(self, message, report)
  local metrics = {}
  for name, value in pairs(message.metrics) do
    metrics[name] = decode_number(value)
    self.reported[name] = true
  end
  local answer = report(message.step, metrics)
  if metrics[self.metric] ~= nil and self.waits then self:answer(self.interrupting and "interrupt" or answer) end
end

--- Answer a report, to all ranks.
---@param answer string
function TrialProcess:answer(answer)
  pcall(self.job.send, self.job, nil, C.json.encode {kind = "answer", answer = answer})
end

--- Handle an event of the job.
---@param event table of C.job.wait
---@param report fun(step: integer, metrics: table): string
function TrialProcess:handle(event, report)
  if event.kind == "output" then
    self:_write(event.rank, event.stream, event.text)
  elseif event.kind == "notice" then
    self.log:append(event.text)
  elseif event.kind == "message" then
    local message = C.json.decode(event.text)
    messages[message.kind](self, message, report)
  elseif event.kind == "ended" then
    self.code = event.code
  end
end

--- Ask the trial to leave at its next report.
function TrialProcess:interrupt()
  self.interrupting = true
  if not self.waits then self:answer "interrupt" end
end

--- End it now; it is to go on later.
function TrialProcess:abort()
  self.aborted = true
  self.job:kill()
end

--- Look at the clock: end what takes too long.
---@param now number of C.system.now
function TrialProcess:check_time(now)
  if not self.due or now < self.due then return end
  if self.leaving or self.timed_out then
    self.job:kill()
    self.due = nil
  else
    self.timed_out, self.due = true, now + GRACE
    self.job:signal "TERM"
  end
end

local memory_words = {"out of memory", "not enough memory", "cannot allocate memory"}

-- What is said of a trial that failed: one line, and the traceback below.
local function failure_text(self)
  local failure = self.job:failure()
  local text = failure and failure.text or ""
  if failure and failure.signal == "KILL" and text == "" then
    return ("out of memory, or killed from outside: rank %d was killed by SIGKILL; it had %.0f MB"):format(failure.rank,
      failure.memory / 1e6)
  end
  if text == "" then
    text = self.job:report():gsub("^trial %d+: ", "")
    if text == "" then text = ("ended with code %d: %s"):format(self.code, self.last_words) end
  end
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

--- How a trial ended whose processes have: what study:leave takes, or a reason to give up the sweep.
---@param definition Definition
---@return string how "complete", "stopped", "paused", "interrupted", "failed" or "refused"
---@return any detail
function TrialProcess:verdict(definition)
  local trial = self.trial
  local last = trial.reports[#trial.reports]
  if self.refused then return "refused", self.refused end
  local left = self.left or (self.code ~= 0 or self.aborted) and trial.verdict
  if left == "stop" then return "stopped" end
  if left == "pause" then return "paused" end
  if left == "interrupt" or self.aborted then return "interrupted" end
  if self.timed_out then return "failed", ("took longer than %g s (timeout)"):format(definition.timeout) end
  if self.code == 0 and definition.objective then
    if self.result then return "complete", self.result end
    return "failed", "the objective ended the process before it returned a number"
  end
  if self.code == 0 then
    if not self.read and next(definition.space.parameters) then
      return "refused", ("%s never reads its parameters: accelhost.args{...} or accelhost.parse_args{...} does")
        :format(definition.script)
    end
    if last then return "complete", last.value end
    return "refused", ("%s never reported '%s', the metric of the sweep%s: accelhost.report(step, {%s = x}) or "
      .. "accelerator:log{%s = x} does"):format(definition.script, definition.metric, names_text(self),
      definition.metric, definition.metric)
  end
  if self.code == 2 and not last then return "refused", last_line(self.last_words:gsub("\nTry %-%-help%.%s*$", "")) end
  return "failed", failure_text(self)
end

--- Let go of everything.
function TrialProcess:close()
  for key, text in pairs(self.partial) do
    if text ~= "" then self.log:append(("[r%d] %s\n"):format(math.floor(key / 2), text)) end
  end
  self.job:close()
  self.log:close()
  self.metrics:close()
end

return TrialProcess
