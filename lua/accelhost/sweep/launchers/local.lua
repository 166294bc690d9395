--- Trials as jobs of this process, each rank with a private channel.
local C = require "accelhost._C"
local LogFile = require "accelhost.track.log_file"
local TrialProcess = require "accelhost.sweep.process"

local LocalTrial = TrialProcess:extend "LocalTrial"

function LocalTrial:_launch(study, place)
  local definition, words = study.definition, {"run"}
  for _, word in ipairs(self.words(definition, place.file)) do words[#words + 1] = word end
  self.log, self.partial = LogFile("sweep", self.directory .. "/log.txt"), {}
  self.job = C.job.start {
    num_processes = definition.num_processes, threads = place.threads, argv = words,
    variables = self:variables(study), name = ("trial %d"):format(self.trial.number), capture = true,
    grace = self.GRACE,
  }
  self:begin(definition)
end

-- Write output; lines of several ranks do not mix, and begin with their rank.
local function write(self, rank, stream, text)
  if stream == 1 then self.last_words = (self.last_words .. text):sub(-4000) end
  if self.job.num_processes == 1 then return self.log:append(text) end
  local key = rank * 2 + stream
  text = (self.partial[key] or "") .. text
  local whole, rest = text:match "^(.*\n)([^\n]*)$"
  self.partial[key] = rest or text
  if whole then self.log:append((whole:gsub("[^\n]*\n", ("[r%d] %%0"):format(rank)))) end
end

function LocalTrial:answer(answer) pcall(self.job.send, self.job, nil, self.answer_text(answer)) end

function LocalTrial:kill() self.job:kill() end

function LocalTrial:terminate() self.job:signal "TERM" end

--- Handle an event of the job.
---@param event table of C.job.wait
---@param report fun(step: integer, metrics: table): string
function LocalTrial:handle(event, report)
  if event.kind == "output" then
    write(self, event.rank, event.stream, event.text)
  elseif event.kind == "notice" then
    self.log:append(event.text)
  elseif event.kind == "message" then
    self:hear(event.text, report)
  elseif event.kind == "ended" then
    self.code = event.code
  end
end

--- Return the reason of its failure: one line, and the traceback below.
---@return string
function LocalTrial:failure_text()
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
  return self.name_memory(text)
end

function LocalTrial:keep_failure(text) self.failure = text end

function LocalTrial:_close()
  for key, text in pairs(self.partial) do
    if text ~= "" then self.log:append(("[r%d] %s\n"):format(math.floor(key / 2), text)) end
  end
  if self.failure then self.log:append(self.failure:gsub("\n*$", "\n", 1)) end
  self.job:close()
  self.log:close()
end

return LocalTrial
