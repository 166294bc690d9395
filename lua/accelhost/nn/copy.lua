--- Copying a module with all that it holds.
local C = require "accelhost._C"
local parameter = require "accelhost.nn.parameter"

local function copy_tensor(tensor)
  if parameter.is_parameter(tensor) then
    return parameter.new(C.autograd.no_grad(tensor.clone, tensor), tensor.requires_grad)
  end
  local copy = tensor:detach():clone()
  if tensor.requires_grad then copy.requires_grad = true end
  return copy
end

--- Add the copying method to the Module class.
---@param is_module fun(value: any): boolean
return function(Module, is_module)
  -- `seen` keeps shared values (tied parameters, modules used twice) shared in the copy.
  local function copy(value, seen)
    local known = seen[value]
    if known ~= nil then return known end
    if C.is_tensor(value) then
      seen[value] = copy_tensor(value)
      return seen[value]
    end
    if type(value) ~= "table" or not (is_module(value) or getmetatable(value) == nil) then return value end
    local result = setmetatable({}, getmetatable(value))
    seen[value] = result
    for key, item in next, value do rawset(result, copy(key, seen), copy(item, seen)) end
    return result
  end

  --- A separate module with the same weights: tensors, submodules and plain tables are copied, functions and
  -- other objects shared. Gradients are left out.
  --
  --   local ema = net:deepcopy():requires_grad_(false)
  ---@return Module
  function Module:deepcopy()
    return copy(self, {})
  end
end
