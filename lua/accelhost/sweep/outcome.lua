--- The outcome of a trial, and the order of outcomes: complete trials first, by loss, then pruned ones, the highest
--- last step first, then by loss. NaN is the worst loss.
local outcome = {}

local function last_step(trial)
  local last = -1
  for _, report in ipairs(trial.reports or {}) do last = math.max(last, report.step) end
  return last
end

--- Return the outcome of a trial.
---@param trial table {number, state, reports}; a paused one counts as a pruned one
---@param loss number
---@return {number: integer, loss: number, step: number|false} # step: the last one of a trial that was not complete
function outcome.of(trial, loss)
  return {
    number = trial.number, loss = loss == loss and loss or math.huge,
    step = trial.state ~= "complete" and last_step(trial),
  }
end

--- Return true if outcome a is better than b; of two equal ones the earlier trial is better.
---@param a table
---@param b table
function outcome.is_better(a, b)
  if (a.step == false) ~= (b.step == false) then return a.step == false end
  if a.step ~= b.step then return a.step > b.step end
  if a.loss ~= b.loss then return a.loss < b.loss end
  return a.number < b.number
end

return outcome
