--- The reports of a trial, in the order of their steps: trial.reports = {{step, value}, ...}.
--
-- A failed trial that runs again by `accelhost sweep retry` reports from its start, or from its own checkpoint: its
-- earlier reports from there on are replaced.
local reports = {}

--- Mark a trial whose next report replaces the earlier ones from its step on.
function reports.reopen(trial) trial.reopened = true end

--- Add a report.
---@param value number
---@return boolean # were reports of an earlier attempt removed?
function reports.add(trial, step, value)
  local list, reopened = trial.reports, trial.reopened
  local count = #list
  trial.reopened = nil
  while reopened and #list > 0 and list[#list].step >= step do list[#list] = nil end
  local removed = #list < count
  list[#list + 1] = {step = step, value = value}
  return removed
end

return reports
