--- The losses of a training: of each update the mean over all samples (or tokens) of all processes, summed up since the
--- last log and over the whole run. The values stay on the device until something is logged or saved.
local C = require "accelhost._C"
local class = require "accelhost.util.class"
local warn = require "accelhost.util.warn"

local Losses = class.new "Losses"

local MOST = 1000 -- updates that may wait to be reduced

function Losses:init(accelerator, state, filter)
  self.accelerator, self.state, self.filter = accelerator, state, filter
  self._sums, self._weights, self._steps = {}, {}, {}
  self._sum, self._weight = nil, 0
end

--- The loss of a micro-batch, a mean over `weight` samples; without a weight it is the whole update's.
---@param loss userdata
---@param weight number?
function Losses:add(loss, weight)
  local value = loss:detach()
  if weight then
    value = value:to("float64"):reshape(1) * weight
    if self._sum then value = value + self._sum end
  end
  self._sum, self._weight = value, self._weight + (weight or 1)
end

-- Values of updates as one float64 tensor on the CPU. As a rule they are all of one dtype and shape.
local function stacked(values)
  local alike, all = pcall(C.stack, values)
  if not alike then
    for i, value in ipairs(values) do values[i] = value:to("float64"):reshape(1) end
    all = C.stack(values)
  end
  return all:to{dtype = "float64", device = "cpu"}:reshape(-1)
end

--- The update `step` is done. A collective now and then.
function Losses:close(step)
  local count = #self._sums + 1
  self._sums[count], self._weights[count], self._steps[count] = self._sum, self._weight, step
  self._sum, self._weight = nil, 0
  if count == MOST then self:settle() end
end

-- Report the position of a loss that is not finite.
local function report(self, step, ranks)
  if not self.accelerator.is_main_process then return end
  warn(("Trainer: the loss of step %d is not finite (rank %s)"):format(step, table.concat(ranks, ", ")))
end

--- Reduce the waiting updates over the processes. A collective.
function Losses:settle()
  local count, state = #self._sums, self.state
  if count == 0 then return end
  local mine = C.cat({stacked(self._sums), C.tensor(self._weights, {dtype = "float64", device = "cpu"})}, 0)
  local all = self.accelerator:gather(mine):reshape(self.accelerator.num_processes, 2, count):tolist()
  for i = 1, count do
    local sum, weight, wrong = 0, 0, {}
    for rank, parts in ipairs(all) do
      local part = parts[1][i]
      if part - part ~= 0 then wrong[#wrong + 1] = rank - 1 end
      sum, weight = sum + part, weight + parts[2][i]
    end
    if #wrong > 0 then report(self, self._steps[i], wrong) end
    if #wrong == 0 or not self.filter then
      state.loss_sum, state.loss_steps = state.loss_sum + sum / weight, state.loss_steps + 1
      state.logged_loss_sum = state.logged_loss_sum + sum / weight
      state.logged_loss_steps = state.logged_loss_steps + 1
    end
  end
  self._sums, self._weights, self._steps = {}, {}, {}
end

--- Is there anything to log?
function Losses:pending() return #self._sums > 0 or self.state.logged_loss_steps > 0 end

--- Return the mean over the updates since the last call, nil without any. A collective.
---@return number?
function Losses:pop_mean()
  self:settle()
  local state = self.state
  local mean = state.logged_loss_steps > 0 and state.logged_loss_sum / state.logged_loss_steps or nil
  state.logged_loss_sum, state.logged_loss_steps = 0, 0
  return mean
end

--- Return the updates that wait to be reduced.
function Losses:state_dict()
  return {sums = self._sums, weights = self._weights, steps = self._steps, sum = self._sum, weight = self._weight}
end

--- Restore the sums.
function Losses:load_state_dict(saved)
  self._sums, self._weights, self._steps = saved.sums, saved.weights, saved.steps
  self._sum, self._weight = saved.sum, saved.weight
end

return Losses
