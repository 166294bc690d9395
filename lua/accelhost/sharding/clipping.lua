--- Clipping where processes have their shard of the gradients only.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local clip = require "accelhost.nn.utils.clip"

local clipping = {}

-- The gradients that this process has: pieces of those that are sharded, the others, and the processes of the former,
-- also where none of these has a gradient here.
local function split(what, parameters, shard_of)
  local pieces, rest, native = {}, {}, nil
  for _, parameter in ipairs(C.is_tensor(parameters) and {parameters} or parameters) do
    local grad, shard = parameter.grad, shard_of(parameter)
    if shard and shard.slices then
      shard:check_means(what)
      native = shard.native
      if grad ~= nil then pieces[#pieces + 1] = shard:piece(parameter).grad end
    elseif grad ~= nil then
      rest[#rest + 1] = grad
    end
  end
  return pieces, rest, native
end

--- Are any of the parameters' gradients shared out?
---@param parameters userdata|userdata[]
function clipping.concerns(parameters, shard_of)
  if type(parameters) ~= "table" and not C.is_tensor(parameters) then return false end
  for _, parameter in ipairs(C.is_tensor(parameters) and {parameters} or parameters) do
    local shard = C.is_tensor(parameter) and shard_of(parameter)
    if shard and shard.slices then return true end
  end
  return false
end

local function all_of(pieces, rest)
  local list = arguments.copy(pieces)
  for _, grad in ipairs(rest) do list[#list + 1] = grad end
  return list
end

-- Call a method of all gradients.
local function each(pieces, rest, method, ...)
  for _, grad in ipairs(all_of(pieces, rest)) do C.autograd.no_grad(grad[method], grad, ...) end
end

-- The norm of order p of all gradients, a float64 of no dims. A collective.
local function total_norm(pieces, rest, native, order)
  local first = pieces[1] or rest[1]
  local function power_sum(grads)
    local sum = C.zeros({}, {dtype = "float64", device = first and first.device or "cpu"})
    for _, grad in ipairs(grads) do
      if grad:numel() > 0 then
        local norm = grad:norm(order):to "float64"
        sum = order == math.huge and sum:maximum(norm) or sum + norm ^ order
      end
    end
    return sum
  end
  local own = C.autograd.no_grad(power_sum, pieces):cpu() -- a process may have none, and no device
  native:all_reduce(own, order == math.huge and "max" or "sum")
  local others = C.autograd.no_grad(power_sum, rest):cpu()
  if order == math.huge then return own:maximum(others) end
  return (own + others) ^ (1 / order)
end

--- Clip as nn.utils.clip_grad_norm_, by the norm over the shards of all processes. A collective.
---@param ... any its arguments
---@return userdata # the norm before, a 0-dim tensor
function clipping.clip_grad_norm_(shard_of, ...)
  local parameters, max_norm, norm_type, strict = clip.read_norm(...)
  local order = clip.order_of(norm_type)
  local pieces, rest, native = split("clip_grad_norm_", parameters, shard_of)
  local norm = total_norm(pieces, rest, native, order)
  local number = norm:item()
  if strict and (number ~= number or number == math.huge) then
    arguments.fail("clip_grad_norm_: the total norm of order %s of the gradients is %g, so they cannot be clipped",
      norm_type, number)
  end
  local all = all_of(pieces, rest)
  local factor, doubles = max_norm / (number + 1e-6), #all > 0
  for _, grad in ipairs(all) do doubles = doubles and grad.dtype == "float64" end
  if not (factor >= 1) then each(pieces, rest, "mul_", factor) end
  return norm:to(doubles and "float64" or "float32")
end

--- Clip this process's shards as nn.utils.clip_grad_value_.
---@param ... any its arguments
function clipping.clip_grad_value_(shard_of, ...)
  local parameters, limit = clip.read_value(...)
  local pieces, rest = split("clip_grad_value_", parameters, shard_of)
  each(pieces, rest, "clamp_", -limit, limit)
end

return clipping
