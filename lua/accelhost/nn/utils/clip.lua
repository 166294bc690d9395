--- Gradients kept small.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local clip = {}

local function order_of(norm_type)
  return norm_type == "inf" and math.huge or norm_type
end

local read_norm = arguments.signature("clip_grad_norm_", {
  "parameters: tensors", "max_norm: nonnegative", {"norm_type: positive|'inf'", 2},
  {"error_if_nonfinite: flag", false}, {"foreach: flag"},
})
clip.order_of, clip.read_norm = order_of, read_norm

--- Scale all gradients so that their common norm is at most max_norm. "inf" is the largest absolute value.
--
--   nn.utils.clip_grad_norm_(net:parameters(), 1.0)
---@param parameters table|table[] a tensor or a table of them; those without gradient are passed over
---@param error_if_nonfinite boolean? default false: raise when the norm is not finite
---@return Tensor norm the norm before, a 0-dim tensor
function clip.clip_grad_norm_(...)
  local parameters, max_norm, norm_type, strict = read_norm(...)
  return C.optim.clip_grad_norm(parameters, max_norm, order_of(norm_type), strict)
end

local read_value = arguments.signature("clip_grad_value_",
  {"parameters: tensors", "clip_value: nonnegative", {"foreach: flag"}})
clip.read_value = read_value

--- Clamp every gradient to [-clip_value, clip_value].
--
--   loss:backward()
--   nn.utils.clip_grad_value_({w}, 3)
--   w.grad  --> tensor([2., 3., 3.])
---@param parameters table|table[]
function clip.clip_grad_value_(...)
  local parameters, clip_value = read_value(...)
  C.optim.clip_grad_value(parameters, clip_value)
end

--- The norm of all elements of some tensors together, as of gradients.
--
--   nn.utils.get_total_norm{accelhost.tensor{3}, accelhost.tensor{4}}  --> tensor(5.)
---@param tensors table|table[]
---@return Tensor norm 0-dim
clip.get_total_norm = arguments.checked("get_total_norm", {
  "tensors: tensors", {"norm_type: positive|'inf'", 2}, {"error_if_nonfinite: flag", false}, {"foreach: flag"},
}, function(tensors, norm_type, strict)
  if C.is_tensor(tensors) then tensors = {tensors} end
  local order, norms = order_of(norm_type), {}
  for i, tensor in ipairs(tensors) do norms[i] = tensor:norm(order):reshape(1) end
  if #norms == 0 then return C.tensor(0) end
  local total = C.cat(norms, 0):norm(order)
  local value = total:item()
  if strict and (value ~= value or math.abs(value) == math.huge) then
    arguments.fail("get_total_norm: the norm of order %s is not finite", norm_type)
  end
  return total
end)

--- Scale all gradients by max_norm / total_norm when that is below 1: the second half of clip_grad_norm_.
--
--   loss:backward()
--   nn.utils.clip_grads_with_norm_({w}, 1.0, w.grad:norm())
--   w.grad:norm()  --> tensor(1.0000)
---@param parameters table|table[]
---@param total_norm Tensor|number their norm, one element
clip.clip_grads_with_norm_ = arguments.checked("clip_grads_with_norm_", {
  "parameters: tensors", "max_norm: nonnegative", "total_norm: tensor|nonnegative", {"foreach: flag"},
}, function(parameters, max_norm, total)
  if C.is_tensor(total) then
    if total:numel() ~= 1 then
      arguments.fail("clip_grads_with_norm_: total_norm: expected one number, got %s", arguments.describe(total))
    end
    total = total:item()
  end
  local factor = math.min(1, max_norm / (total + 1e-6))
  C.autograd.no_grad(function()
    for _, parameter in ipairs(C.is_tensor(parameters) and {parameters} or parameters) do
      if parameter.grad ~= nil then parameter.grad:mul_(factor) end
    end
  end)
end)

return clip
