--- Trials as jobs of Slurm: one batch job each, in which `srun accelhost launch` starts the ranks on one node. The
--- sweep itself runs wherever sbatch works, and shares nothing with its trials but the study's folder.
---
--- A trial's folder gets, for each start K, slurm-K.sh (the submitted script), slurm-K.job (the job's number),
--- slurm-K.messages and slurm-K.answers (accelhost.util.link), and slurm-K.ended with the exit code.
local C = require "accelhost._C"
local TrialProcess = require "accelhost.sweep.process"
local link = require "accelhost.util.link"
local printable = require "accelhost.util.printable"

local SlurmTrial = TrialProcess:extend "SlurmTrial"

-- Seconds between two questions to Slurm, which is not to be asked often.
local ASK = 5

local function quote(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

local function read(path)
  local handle = io.open(path, "rb")
  local text = handle and handle:read "*a"
  if handle then handle:close() end
  return text
end

local function ask(command)
  local pipe = io.popen(command .. " 2>&1")
  local text = pipe:read "*a"
  pipe:close()
  return text
end

-- A word as sbatch reads it in a line of a script: a backslash quotes the next character, in quotes too.
local function batch_word(value)
  local word = tostring(value)
  return word:find "^[%w_./:,=@+%%-]+$" and word or '"' .. word:gsub('[\\"]', "\\%0") .. '"'
end

-- sbatch replaces %j and its like in the name of the output file, and a backslash anywhere in it ends that.
local function output_word(directory)
  if directory:find "[%c\\]" then
    error(("launcher = 'slurm': expected a study's folder without control characters and backslashes, got %s"):format(
      printable.text(directory)), 0)
  end
  return quote(directory:gsub("%%", "%%%%") .. "/log.txt")
end

-- Lines with the definition's options of sbatch: {partition = "long", time = "2:00:00", exclusive = true}.
local function option_lines(definition, threads)
  local lines, options = {}, {["cpus-per-task"] = definition.num_processes * threads}
  for name, value in pairs(definition.slurm) do options[(name:gsub("_", "-"))] = value end
  for name, value in pairs(options) do
    lines[#lines + 1] = value == true and ("#SBATCH --%s"):format(name)
      or ("#SBATCH --%s=%s"):format(name, batch_word(value))
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end

local script = [[
#!/bin/sh
#SBATCH --job-name=%s
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --open-mode=append
%s
cd %s || exit 3
%s
: > %s.begun
srun --ntasks=1 %s launch --quiet --num_processes %d --num_cpu_threads_per_process %d %s
echo $? > %s.code && mv %s.code %s.ended
]]

local function script_text(self, study, place)
  local definition, words, exports = study.definition, {}, {}
  for i, word in ipairs(self.words(definition, place.file)) do words[i] = quote(word) end
  for i, variable in ipairs(self:variables(study)) do
    local name, value = variable:match "^([^=]*)=(.*)$"
    exports[i] = ("export %s=%s"):format(name, quote(value))
  end
  local base, program = quote(self.mailbox), quote(C.system.program() or "accelhost")
  return script:format(("trial-%d"):format(self.trial.number), option_lines(definition, place.threads),
    quote(C.system.working_folder()), table.concat(exports, "\n"), base, program, definition.num_processes,
    place.threads, table.concat(words, " "), base, base, base)
end

local function next_start(directory)
  local count = 0
  while C.data.look(("%s/slurm-%d.sh"):format(directory, count)) do count = count + 1 end
  return count
end

--- Cancel the jobs that an earlier process of the sweep has left running, and read their remaining reports.
---@param directory string the trial's
---@param report (fun(step: integer, metrics: table): string)|false
function SlurmTrial.recover(directory, report)
  local last = next_start(directory) - 1
  local base = ("%s/slurm-%d"):format(directory, last)
  local stored = last >= 0 and read(base .. ".job")
  if not stored then return end
  local number = stored:match "^%d+$" -- it becomes a word of shell commands, and others may have written the file
  if number and not read(base .. ".ended") then
    os.execute(("scancel %s 2> /dev/null"):format(number))
    while ask(("squeue -h -j %s -o %%i"):format(number)):find "^%d" do C.system.sleep(0.5) end
  end
  for _, text in ipairs(report and link.mailbox(base .. ".messages"):receive() or {}) do
    local message = C.json.decode(text)
    if message.kind == "report" then report(message.step, SlurmTrial.metrics_of(message)) end
  end
end

function SlurmTrial:_launch(study, place)
  local output = output_word(self.directory)
  self.definition = study.definition
  self.mailbox = ("%s/slurm-%d"):format(self.directory, next_start(self.directory))
  self.inbox, self.outbox = link.mailbox(self.mailbox .. ".messages"), link.mailbox(self.mailbox .. ".answers")
  self.log_size = #(read(self.directory .. "/log.txt") or "")
  C.io.write_text(self.mailbox .. ".sh", script_text(self, study, place))
  local answer = ask(("sbatch --parsable --output=%s %s"):format(output, quote(self.mailbox .. ".sh")))
  self.number = answer:match "^(%d+)"
  if not self.number then error(("sbatch: %s"):format(answer:gsub("%s+$", "")), 0) end
  C.io.write_text(self.mailbox .. ".job", self.number)
  self.asked = C.system.now()
end

function SlurmTrial:answer(answer) self.outbox:send(self.answer_text(answer)) end

function SlurmTrial:kill() os.execute("scancel " .. self.number .. " 2> /dev/null") end

function SlurmTrial:terminate() self:kill() end

-- Has the job left Slurm's queue without a report of its end?
local function has_vanished(self)
  local now = C.system.now()
  if now - self.asked < ASK and not self.aborted and not self.timed_out then return false end
  self.asked = now
  return not ask(("squeue -h -j %s -o %%i"):format(self.number)):find "^%d"
end

local function hear_all(self, report)
  for _, text in ipairs(self.inbox:receive()) do self:hear(text, report) end
end

--- Read new output of the trial.
---@param report fun(step: integer, metrics: table): string
function SlurmTrial:poll(report)
  if not self.begun and C.data.look(self.mailbox .. ".begun") then
    self.begun = true
    self:begin(self.definition)
  end
  hear_all(self, report)
  local code = tonumber(read(self.mailbox .. ".ended") or "")
  local vanished = not code and has_vanished(self)
  if not code and not vanished then return end
  code = code or tonumber(read(self.mailbox .. ".ended") or "")
  self.lost, self.code = code == nil, code or 3
  self.last_words = (read(self.directory .. "/log.txt") or ""):sub(self.log_size + 1):sub(-4000)
  hear_all(self, report)
end

local reasons = {
  OUT_OF_MEMORY = "out of memory, according to Slurm", TIMEOUT = "exceeded Slurm's time limit (time)",
  NODE_FAIL = "its node failed", CANCELLED = "was cancelled (scancel)", PREEMPTED = "was preempted",
}

--- Return the reason of its failure.
function SlurmTrial:failure_text()
  local state = ask("scontrol -o show job " .. self.number):match "JobState=([%u_]+)"
  if reasons[state] then return ("Slurm's job %s %s"):format(self.number, reasons[state]) end
  if self.lost then return ("Slurm's job %s ended without a word (%s)"):format(self.number, state or "unknown") end
  return self.name_memory((self.last_words:gsub("^accelhost launch: rank %d+ failed: ", "")))
end

function SlurmTrial:_close() end

return SlurmTrial
