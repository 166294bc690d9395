--- The rank of a running trial's value among the values of other trials at the same step.
local class = require "accelhost.util.class"
local summary = require "accelhost.sweep.report.summary"

local Ranks = class.new "Ranks"

function Ranks:init()
  self._read, self._values = {}, {} -- by number: count of its known reports; by step: values
end

--- Read the reports since the last call.
function Ranks:read(study)
  self._sign = summary.sign(study)
  for _, trial in ipairs(study.trials) do
    local reports, known = trial.reports or {}, self._read[trial.number] or 0
    for i = known + 1, #reports do
      local step, value = reports[i].step, reports[i].value
      if summary.is_finite(value) then
        local list = self._values[step] or {}
        list[#list + 1] = value
        self._values[step] = list
      end
    end
    self._read[trial.number] = #reports
  end
end

--- The rank of a trial's last value among all at its step, 1 is best; nil without a value.
---@return integer? rank
---@return integer? count
function Ranks:of(trial)
  local value, step = summary.last_report(trial)
  if not summary.is_finite(value) then return nil end
  local list, rank = self._values[step] or {}, 1
  for _, other in ipairs(list) do
    if self._sign * other < self._sign * value then rank = rank + 1 end
  end
  return rank, math.max(#list, 1)
end

return {new = Ranks}
