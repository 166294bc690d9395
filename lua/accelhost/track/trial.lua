--- A trial as its own processes see it: it reports, and receives the sweep's answers.
---
--- Every rank waits at its k-th report for the sweep's k-th answer, so all leave at the same place; rank 0's report
--- counts. A trial of one process in a study without a pruner does not wait, and leaves at the next report when it is
--- asked to. Without a sweep nothing happens.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local link = require "accelhost.util.link"
local params = require "accelhost.util.params"

local trial = {count = 0, answer = "continue"}

local function number_of(value)
  if C.is_tensor(value) and value:numel() == 1 then return value:item() end
  return value
end

-- Numbers that JSON cannot represent are sent as strings.
local function encode(metrics)
  local copy = {}
  for name, value in pairs(metrics) do
    value = number_of(value)
    if type(value) == "number" and value - value ~= 0 then
      copy[name] = {number = value ~= value and "nan" or value > 0 and "inf" or "-inf"}
    elseif type(value) == "number" or type(value) == "boolean" or type(value) == "string" then
      copy[name] = value
    end
  end
  return next(copy) and copy
end

-- Is any of them the study's metric?
local function has_metric(metrics, facts) return number_of(metrics[facts.metric]) ~= nil end

local function refuse(format, ...)
  local text = format:format(...)
  params.send {kind = "refuse", text = text}
  io.stdout:flush()
  if C.comm.rank() == 0 then io.stderr:write(text, "\n") end
  os.exit(2)
end

-- Refuse a script that never read its parameters: it tries nothing.
local function check_was_read(facts)
  if facts.objective or params.taken or not params.given() then return end
  refuse("the script never reads its parameters: accelhost.args{...} or accelhost.parse_args{...} does")
end

-- The sweep's answer; "continue" when there is none within that time.
local function wait_for_answer(facts)
  local seconds = not facts.waits and 0 or nil
  while true do
    local text = link.receive(facts, seconds)
    local message = text and C.json.decode(text)
    if message and message.kind == "answer" then return message.answer end
    if not text and seconds then return "continue" end
  end
end

-- Leave at this place, on all ranks.
local function leave(answer)
  params.send {kind = "leave", answer = answer}
  io.stdout:flush()
  os.exit(0)
end

local function check_metrics(what, step, metrics)
  arguments.check(what, "step", "integer", step)
  if type(metrics) ~= "table" then
    arguments.fail("%s: expected a table {loss = x}, got %s", what, arguments.describe(metrics))
  end
end

--- Report a trial's progress to the sweep; the sweep's metric decides whether it continues, and a trial that is to stop
--- ends here, on all ranks at the same report. Outside a sweep nothing happens.
--
--   accelhost.report(1, {loss = 0.25, accuracy = 0.9})
--
-- Save a checkpoint before, so that a trial that is paused or interrupted resumes from here.
---@param step integer epochs, or optimizer steps: the unit of the pruner's resources; each step once
---@param metrics table<string, any> numbers, or tensors of one element
---@param options? table stay = true: do not end here but return the sweep's answer, "stop" among it
---@return string # "continue", or with stay also "stop", "pause" or "interrupt"
function trial.report(step, metrics, options)
  check_metrics("report", step, metrics)
  local facts = params.trial()
  if not facts then return "continue" end
  check_was_read(facts)
  if C.comm.rank() == 0 then
    local encoded = encode(metrics)
    if encoded then params.send {kind = "report", step = step, metrics = encoded} end
  end
  if not has_metric(metrics, facts) then return "continue" end
  trial.answer = wait_for_answer(facts)
  if trial.answer ~= "continue" and not (options and options.stay) then leave(trial.answer) end
  return trial.answer
end

--- Send the values of `accelerator:log` to the sweep, too.
---@param values table<string, any>
---@param step? integer
function trial.log(values, step)
  local facts = params.trial()
  if not facts then return end
  trial.count = has_metric(values, facts) and trial.count + 1 or trial.count
  trial.report(step or trial.count, values)
end

return trial
