--- A prepared model: its parameters and gradients live in flat arenas, and gradients are averaged over the processes
--- while backward runs.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local warn = require "accelhost.util.warn"

---@class Parallel
local Parallel = {}
Parallel.__index = Parallel

--- A collective: every process takes rank 0's parameters and buffers.
---@param model table
---@param options {bucket_cap_mb?: number}
---@return Parallel
function Parallel.new(model, options)
  local parameters = model:parameters()
  local dtypes = {}
  for i, parameter in ipairs(parameters) do dtypes[i] = parameter.dtype end
  return setmetatable({
    model = model,
    parameters = parameters,
    dtypes = dtypes,
    window = 0,      -- sum of this process's weights since gradients were averaged
    averaged_by = 1, -- what that sum was when they last were
    reducer = C.comm.new_reducer(parameters, model:buffers(), options),
  }, Parallel)
end

-- The first parameter that is not what it was at prepare, by its place; also how many there are now.
local function changed(self)
  local now = self.model:parameters()
  for i = 1, math.max(#now, #self.parameters) do
    if now[i] ~= self.parameters[i] or now[i].dtype ~= self.dtypes[i] then return i, now end
  end
end

--- Were parameters added, removed or cast since prepare?
---@return boolean
function Parallel:is_stale()
  return changed(self) ~= nil
end

--- Give the parameters back: another may take them over.
function Parallel:close()
  self.reducer:close()
end

-- Parameters that were added, removed or cast would silently stay out of the average.
local function check_parameters(self)
  local i, now = changed(self)
  if not i then return end
  if now[i] ~= self.parameters[i] then
    arguments.fail("backward: the model's parameters changed since prepare (parameter %d of %d); prepare it again", i,
      #now)
  end
  arguments.fail("backward: parameter %d was cast from %s to %s since prepare; prepare the model again", i,
    self.dtypes[i], now[i].dtype)
end

local function has_gradient(self)
  for _, parameter in ipairs(self.parameters) do
    if parameter.grad ~= nil then return true end
  end
  return false
end

local function scale_gradients(self, factor)
  if factor == 1 then return end
  C.autograd.no_grad(function()
    for _, parameter in ipairs(self.parameters) do
      if parameter.grad ~= nil then parameter.grad:mul_(factor) end
    end
  end)
end

--- Before the engine runs.
---@param weight number of this micro-step
---@param micro_step? integer which one it is; nil: every backward is one of its own
function Parallel:begin_backward(weight, micro_step)
  check_parameters(self)
  self.reducer:touched()
  if self.window > 0 and not has_gradient(self) then self.window = 0 end
  local again = micro_step ~= nil and self.micro_step == micro_step
  self.before = {window = self.window, micro_step = self.micro_step}
  self.micro_step = micro_step
  if not again then
    self.window = self.window + weight
  elseif self.window == 0 then
    -- What an earlier backward of this micro-step averaged is to come out of the next average as it is.
    self.rescaled = has_gradient(self)
    self.window = self.rescaled and self.averaged_by or weight
    if self.rescaled then scale_gradients(self, self.window) end
  end
end

--- After the engine ran: did the loss depend on the model, on this process?
---@return boolean
function Parallel:was_reached()
  return self.reducer:touched()
end

--- The loss depended on this model on no process: as if begin_backward had not been called.
function Parallel:skip()
  if self.rescaled then scale_gradients(self, 1 / self.window) end
  self.window, self.micro_step, self.rescaled = self.before.window, self.before.micro_step, nil
end

--- Start averaging; in the middle of a backward buckets are sent as they get ready.
function Parallel:begin_average()
  self.reducer:begin(self.window)
end

-- A parameter without gradient on every process is most often a mistake in the model: name it, once.
local function warn_unused(self)
  self.checked = true
  local names = {}
  for name, parameter in self.model:named_parameters() do
    if parameter.requires_grad and parameter.grad == nil then names[#names + 1] = name end
  end
  if #names > 0 and C.comm.rank() == 0 then
    warn(("%d parameter%s of the model got no gradient on any process: %s"):format(#names, #names == 1 and "" or "s",
      table.concat(names, ", ")))
  end
end

--- Wait until all gradients are averaged.
function Parallel:finish_average()
  self.reducer:finish()
  self.window, self.averaged_by, self.rescaled = 0, self.window, nil
  if not self.checked then warn_unused(self) end
end

--- Drop the gradients of an unfinished window.
function Parallel:drop_window()
  self.model:zero_grad()
  self.window = 0
end

return Parallel
