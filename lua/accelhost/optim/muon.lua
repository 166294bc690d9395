--- Muon.
local C = require "accelhost._C"
local Optimizer = require "accelhost.optim.optimizer"
local arguments = require "accelhost.util.arguments"

--- Momentum whose step is made orthogonal, for the matrices of hidden layers (Jordan, 2024), as PyTorch has it.
-- m moves by 1 - momentum to g; u = m, or with nesterov g moved by momentum to m; five (ns_steps) Newton-Schulz steps
-- X = a X + (b X X' + c (X X')^2) X in bfloat16 move u / |u| near to an orthogonal matrix; then
-- p = (1 - lr weight_decay) p - lr r X. For a matrix (A, B) r is sqrt(max(1, A / B)) when adjust_lr_fn is "original"
-- (the default), 0.2 sqrt(max(A, B)) when "match_rms_adamw", sqrt(A / B) when "spectral_unclamped". Parameters have 2
-- dims: embeddings, biases and heads belong into a separate AdamW.
--
--   optim.Muon({net.fc1.weight, net.fc2.weight}, {lr = 0.02})
local Muon = Optimizer:define("Muon", {
  {"lr: nonnegative|tensor", 1e-3}, {"weight_decay: nonnegative", 0.1}, {"momentum: nonnegative", 0.95},
  {"nesterov: flag", true}, {"ns_coefficients: numbers", {3.4445, -4.775, 2.0315}}, {"eps: nonnegative", 1e-7},
  {"ns_steps: size", 5}, {"adjust_lr_fn: 'original'|'match_rms_adamw'|'spectral_unclamped'"},
})

function Muon:check_group(group)
  Optimizer.check_group(self, group)
  if type(group.ns_coefficients) ~= "table" or #group.ns_coefficients ~= 3 then
    arguments.fail("Muon: ns_coefficients: expected {a, b, c}, got %s", arguments.describe(group.ns_coefficients))
  end
  if group.ns_steps >= 100 then
    arguments.fail("Muon: ns_steps: expected less than 100, got number %d", group.ns_steps)
  end
  for i, param in ipairs(group.params) do
    if param:dim() ~= 2 then
      arguments.fail("Muon: parameter %d: expected 2 dims (other parameters go into an AdamW), got shape %s", i,
        arguments.shape_text(param))
    end
  end
end

local function orthogonal(matrix, group)
  local a, b, c = unpack(group.ns_coefficients)
  local tall = matrix:size(0) > matrix:size(1)
  local x = matrix:to "bfloat16"
  if tall then x = x:t() end
  x = x / x:norm():clamp(group.eps)
  for _ = 1, group.ns_steps do
    local gram = x:matmul(x:t())
    x = C.addmm(x, C.addmm(gram, gram, gram, b, c), x, a, 1)
  end
  return tall and x:t() or x
end

local factors = {
  original = function(rows, cols) return math.sqrt(math.max(1, rows / cols)) end,
  match_rms_adamw = function(rows, cols) return 0.2 * math.sqrt(math.max(rows, cols)) end,
  spectral_unclamped = function(rows, cols) return math.sqrt(rows / cols) end,
}

function Muon:step(closure)
  return self:each_parameter(closure, function(group, param)
    local state, grad = self.state[param] or {}, param.grad
    self.state[param] = state
    state.momentum_buffer = state.momentum_buffer or C.zeros_like(param)
    state.momentum_buffer:lerp_(grad, 1 - group.momentum)
    local moved = group.nesterov and grad:lerp(state.momentum_buffer, group.momentum) or state.momentum_buffer
    if param:numel() == 0 then return end
    local lr = C.is_tensor(group.lr) and group.lr:item() or group.lr
    local rate = lr * factors[group.adjust_lr_fn or "original"](param:size(0), param:size(1))
    param:mul_(1 - lr * group.weight_decay)
    param:sub_(orthogonal(moved, group):to(param.dtype) * rate)
  end)
end

return Muon
