--- Tensors as specs of numbers make and sum them up.
local accelhost = require "accelhost"

local tensors = {}

--- Random numbers in float64 that require a gradient.
---@param ... integer sizes
function tensors.leaf(...) return accelhost.randn({...}, {dtype = "float64"}):requires_grad_() end

--- Whole numbers, as labels and indices are.
---@param values number|table
function tensors.long(values) return accelhost.tensor(values, {dtype = "int64"}) end

---@param values number|table
function tensors.double(values) return accelhost.tensor(values, {dtype = "float64"}) end

--- The sum of element times sin(position), in float64: as scripts/fixtures write it.
---@param tensor userdata
---@return number
function tensors.weighed(tensor)
  local flat = tensor:detach():to("float64"):reshape(-1)
  return (flat * accelhost.arange(flat:numel(), {dtype = "float64"}):sin()):sum():item()
end

--- The parameters of a module, as one list of numbers.
---@param net Module
---@return number[]
function tensors.weights(net)
  local flat = {}
  for _, parameter in ipairs(net:parameters()) do flat[#flat + 1] = parameter:detach():cpu():flatten() end
  return accelhost.cat(flat):tolist()
end

return tensors
