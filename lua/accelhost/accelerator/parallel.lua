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
    sync = true,
    reducer = C.comm.new_reducer(parameters, model:buffers(), options),
  }, Parallel)
end

--- Whether coming backwards average (true) or only add up here (no_sync).
---@param on boolean
function Parallel:set_sync(on)
  self.sync = on
end

-- Parameters that were added, removed or cast would silently stay out of the average.
local function check_parameters(self)
  local now = self.model:parameters()
  for i = 1, math.max(#now, #self.parameters) do
    if now[i] ~= self.parameters[i] then
      arguments.fail("backward: the model's parameters changed since prepare (parameter %d of %d); prepare it again", i,
        #now)
    end
    if now[i].dtype ~= self.dtypes[i] then
      arguments.fail("backward: parameter %d was cast from %s to %s since prepare; prepare the model again", i,
        self.dtypes[i], now[i].dtype)
    end
  end
end

--- Before the engine runs.
---@param weight number|false this process's weight in the mean; false: only add up
function Parallel:begin_backward(weight)
  check_parameters(self)
  if weight then self.reducer:begin(weight) end
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

--- After the engine ran: wait until all gradients are averaged.
function Parallel:finish_backward()
  self.reducer:finish()
  if not self.checked then warn_unused(self) end
end

return Parallel
