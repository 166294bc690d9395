--- Patience around another pruner.
local BasePruner = require "accelhost.sweep.pruners.pruner"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local PatiencePruner = BasePruner:extend "PatiencePruner"
PatiencePruner.takes_seed = true

local read = arguments.signature("PatiencePruner", {
  {"patience: size", 3}, {"min_delta: nonnegative", 0}, {"pruner: any"}, {"seed: integer", 0},
})
--- Asks another pruner only about a trial that has not got better in its last `patience` + 1 reports; without another
--- one such a trial is stopped.
--
--   local pruner = accelhost.sweep.PatiencePruner{patience = 3, pruner = "median"}
---@param min_delta? number default 0: to be better is to be lower by more than this
---@param pruner? any the other one: its name, {name, option = value}, or one that was made
---@param seed? integer the other one's
function PatiencePruner:init(...)
  self.patience, self.min_delta, self.pruner, self.seed = read(...)
  if self.pruner ~= nil and not class.is(self.pruner, BasePruner) then
    self.pruner = require("accelhost.sweep.pruners").new(self.pruner, self.seed)
  end
  self.reports = {}
end

function PatiencePruner:setup(study)
  if self.pruner then self.pruner:setup(study) end
  return BasePruner.setup(self, study)
end

function PatiencePruner:assign(trial) return self.pruner and self.pruner:assign(trial) end

-- Reports of a trial by step, the latest of a step alone.
local function add(reports, step, loss)
  local at = #reports
  while at > 0 and reports[at].step > step do at = at - 1 end
  if at > 0 and reports[at].step == step then
    reports[at].loss = loss
  else
    table.insert(reports, at + 1, {step = step, loss = loss})
  end
end

local function least(reports, from, to)
  local found = math.huge
  for i = from, to do
    if reports[i].loss < found then found = reports[i].loss end
  end
  return found
end

function PatiencePruner:record(trial, step, loss)
  local reports = self.reports[trial.number] or {}
  self.reports[trial.number] = reports
  add(reports, step, loss)
  if self.pruner then self.pruner:record(trial, step, loss) end
end

function PatiencePruner:judge(trial, step, loss)
  local reports = self.reports[trial.number]
  local before = #reports - self.patience - 1
  if before < 1 or not (least(reports, 1, before) + self.min_delta < least(reports, before + 1, #reports)) then
    return "continue"
  end
  return self.pruner and self.pruner:judge(trial, step, loss) or "stop"
end

function PatiencePruner:finish(trial, loss)
  self.reports[trial.number] = nil
  if self.pruner then self.pruner:finish(trial, loss) end
end

function PatiencePruner:promote() return self.pruner and self.pruner:promote() end

return PatiencePruner
