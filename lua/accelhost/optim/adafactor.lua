--- Adafactor.
local C = require "accelhost._C"
local Optimizer = require "accelhost.optim.optimizer"
local arguments = require "accelhost.util.arguments"

local epsilon = {float64 = 2 ^ -52, float32 = 2 ^ -23, float16 = 2 ^ -10, bfloat16 = 2 ^ -7}

--- Adam without momentum whose mean square of a matrix is kept as a column and a row (Shazeer and Stern, 2018), as
-- PyTorch has it. With b = t^beta2_decay the means move by b to those of g^2; v = row col / mean(row), or the mean
-- itself for a parameter of fewer than 2 dims; u = g / sqrt(max(v, eps1^2)); p *= 1 - lr weight_decay;
-- p -= max(eps2, rms(p)) min(lr, 1 / sqrt(t)) u / max(1, rms(u) / d). eps is {eps1, eps2}; an eps1 of false
-- (PyTorch's None) is the dtype's own.
--
--   optim.Adafactor(net:parameters(), {lr = 1e-2, eps = {false, 1e-3}})
local Adafactor = Optimizer:define("Adafactor", {
  {"lr: nonnegative|tensor", 1e-2}, {"beta2_decay: number", -0.8}, {"eps: any", {false, 1e-3}}, {"d: number", 1},
  {"weight_decay: nonnegative", 0}, {"maximize: flag", false},
})

local function is_size(value) return type(value) == "number" and value >= 0 end

function Adafactor:check_group(group)
  Optimizer.check_group(self, group)
  local eps = group.eps
  if type(eps) ~= "table" or not is_size(eps[2]) or not (not eps[1] or is_size(eps[1])) then
    arguments.fail("Adafactor: eps: expected {eps1, eps2}, numbers of at least 0 (eps1 may be false), got %s",
      arguments.describe(eps))
  end
  group.eps = {eps[1] or false, eps[2]} -- without a hole, so that it can be saved
  if group.beta2_decay > 0 then
    arguments.fail("Adafactor: beta2_decay: expected a number of at most 0, got number %s", group.beta2_decay)
  end
  if group.d < 1 then arguments.fail("Adafactor: d: expected a number of at least 1, got number %s", group.d) end
end

local function make_state(param, grad)
  local state = {step = Optimizer._new_scalar(0)}
  if param:dim() > 1 then
    local sizes = grad:shape()
    local row, col = arguments.copy(sizes), arguments.copy(sizes)
    row[#row], col[#col - 1] = 1, 1
    state.row_var, state.col_var = grad:new_zeros(row), grad:new_zeros(col)
  else
    state.variance = C.zeros_like(grad)
  end
  return state
end

-- The mean squares along a dim, without a matrix of the squares.
local function mean_square(grad, dim)
  return grad:norm(2, dim, true):pow_(2):div_(grad:size(dim))
end

local function rms(tensor)
  return tensor:norm(2):item() / tensor:numel() ^ 0.5
end

--- The rate of a step before it is clipped.
---@param group table
---@param param Tensor
---@param step integer from 1
---@param lr number
---@return number
function Adafactor:rate(group, param, step, lr) -- luacheck: ignore self
  return math.max(group.eps[2], rms(param)) * math.min(lr, 1 / step ^ 0.5)
end

local function update(self, group, param, state)
  local grad = group.maximize and -param.grad or param.grad
  local step = state.step:item() + 1
  state.step:fill_(step)
  local lr = C.is_tensor(group.lr) and group.lr:item() or group.lr
  local weight, eps1 = step ^ group.beta2_decay, group.eps[1] or epsilon[param.dtype]
  local alpha = self:rate(group, param, step, lr)
  if group.weight_decay ~= 0 then param:mul_(1 - lr * group.weight_decay) end
  local estimate
  if state.row_var then
    state.row_var:lerp_(mean_square(grad, -1), weight)
    state.col_var:lerp_(mean_square(grad, -2), weight)
    estimate = state.row_var / state.row_var:mean(-2, true):clamp_(eps1) * state.col_var
  else
    state.variance:lerp_(grad * grad, weight)
    estimate = state.variance:clone()
  end
  local change = estimate:clamp_(eps1 * eps1):rsqrt_():mul_(grad)
  param:add_(change, -alpha / math.max(1, rms(change) / group.d))
end

function Adafactor:step(closure)
  return self:each_parameter(closure, function(group, param)
    self.state[param] = self.state[param] or make_state(param, param.grad)
    if param:numel() > 0 then update(self, group, param, self.state[param]) end
  end)
end

return Adafactor
