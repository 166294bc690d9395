--- Making modules without filling their parameters.
local C = require "accelhost._C"
local protect = require "accelhost.util.protect"

local skip, depth = {}, 0

--- Is a module being made whose parameters stay uninitialized?
function skip.is_on()
  return depth > 0
end

--- Run a function that fills a tensor, without recording gradients, unless tensors stay uninitialized.
---@param fn fun(tensor: userdata, ...): userdata
---@return userdata tensor
function skip.no_grad(fn, tensor, ...)
  if depth > 0 then return tensor end
  return C.autograd.no_grad(fn, tensor, ...)
end

--- Make a module without filling its parameters.
---@param module_cls table
---@return Module
function skip.make(module_cls, ...)
  depth = depth + 1
  return protect(function() depth = depth - 1 end, module_cls, ...)
end

return skip
