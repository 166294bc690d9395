--- L-BFGS.
local C = require "accelhost._C"
local Optimizer = require "accelhost.optim.optimizer"
local arguments = require "accelhost.util.arguments"
local line_search = require "accelhost.optim.line_search"

local fail = arguments.fail

--- The quasi-Newton method with the last `history_size` changes of the gradient as its memory (Nocedal, 1980), as
-- PyTorch has it. step(closure) makes up to max_iter steps and calls the closure, which clears the gradients, computes
-- the loss and its gradients and returns it, up to max_eval times (5 / 4 of max_iter). It ends early when the largest
-- gradient is at most tolerance_grad, or step or change of the loss are below tolerance_change. Each step is lr times
-- the direction, or with line_search_fn = "strong_wolfe" as long as that search finds. There is one group only.
-- A prepared one searches by the mean of the processes' losses.
--
--   local optimizer = optim.LBFGS(net:parameters(), {line_search_fn = "strong_wolfe"})
--   optimizer:step(function()
--     optimizer:zero_grad()
--     local loss = F.mse_loss(net(x), y)
--     loss:backward()
--     return loss
--   end)
local LBFGS = Optimizer:define("LBFGS", {
  {"lr: nonnegative|tensor", 1}, {"max_iter: size", 20}, {"max_eval: size"}, {"tolerance_grad: number", 1e-7},
  {"tolerance_change: number", 1e-9}, {"history_size: count", 100}, {"line_search_fn: 'strong_wolfe'"},
  {"maximize: flag", false},
})

LBFGS._reads_loss = true

function LBFGS:add_param_group(group)
  if #self.param_groups > 0 or (group.params and next(group, next(group)) ~= nil) then
    fail("LBFGS: it has one group of parameters, without other options; pass all parameters in one table")
  end
  Optimizer.add_param_group(self, group)
  local only = self.param_groups[1]
  if only.max_eval == nil then only.max_eval = math.floor(only.max_iter * 5 / 4) end
end

local function number(value)
  return C.is_tensor(value) and value:item() or value
end

local function largest(tensor)
  return tensor:abs():max():item()
end

local function dot(a, b)
  return a:dot(b):item()
end

local function flat_gradient(params, sign)
  local parts = {}
  for i, param in ipairs(params) do
    parts[i] = param.grad and param.grad:reshape(-1) or C.zeros({param:numel()}, {dtype = param.dtype,
      device = param.device})
  end
  local flat = C.cat(parts, 0)
  return sign < 0 and flat:neg_() or flat
end

local function move(params, length, direction)
  local at = 0
  for _, param in ipairs(params) do
    param:add_(direction:narrow(0, at, param:numel()):view(param:shape()), length)
    at = at + param:numel()
  end
end

-- Store the last step in the memory, and return the inverse Hessian times the gradient, negated.
local function direction_of(state, gradient, history_size)
  local y, s = gradient - state.prev_flat_grad, state.d * number(state.t)
  local ys = dot(y, s)
  local dirs, steps, ro = state.old_dirs, state.old_stps, state.ro
  if ys > 1e-10 then
    if #dirs == history_size then
      table.remove(dirs, 1)
      table.remove(steps, 1)
      table.remove(ro, 1)
    end
    dirs[#dirs + 1], steps[#steps + 1], ro[#ro + 1] = y, s, 1 / ys
    state.H_diag = ys / dot(y, y)
  end
  local q, al = -gradient, {}
  for i = #dirs, 1, -1 do
    al[i] = dot(steps[i], q) * number(ro[i])
    q:add_(dirs[i], -al[i])
  end
  q:mul_(number(state.H_diag))
  for i = 1, #dirs do q:add_(steps[i], al[i] - dot(dirs[i], q) * number(ro[i])) end
  state.al = al
  return q
end

-- One call of step: its options from the group, and its counters.
local Run = {}
Run.__index = Run

--- Loss and gradient at the parameters' place.
function Run:evaluate()
  local loss = C.autograd.enable_grad(self.closure)
  if not (type(loss) == "number" or C.is_tensor(loss) and loss:numel() == 1) then
    fail("LBFGS: step: expected the closure to return the loss, got %s", arguments.describe(loss))
  end
  self.evals, self.state.func_evals = self.evals + 1, self.state.func_evals + 1
  self.original = self.original or loss
  self.loss, self.gradient = self.sign * number(loss), flat_gradient(self.params, self.sign)
end

--- The first step is short, for nothing is known about the scale.
function Run:first_length()
  local lr = number(self.group.lr)
  if self.state.n_iter > 1 then return lr end
  return math.min(1, 1 / self.gradient:abs():sum():item()) * lr
end

--- Move by the line search's length.
function Run:search(direction, slope)
  local group, state, before = self.group, self.state, {}
  for i, param in ipairs(self.params) do before[i] = param:clone() end
  local start = {t = 0, f = self.loss, gradient = self.gradient, slope = slope}
  local function evaluate(t)
    move(self.params, t, direction)
    self:evaluate()
    for i, param in ipairs(self.params) do param:copy_(before[i]) end
    return {t = t, f = self.loss, gradient = self.gradient, slope = dot(self.gradient, direction)}
  end
  local point = line_search.strong_wolfe(evaluate, start, self:first_length(), {
    size = largest(direction), tolerance = group.tolerance_change, most = group.max_eval - self.evals,
  })
  self.loss, self.gradient, state.t = point.f, point.gradient, point.t
  move(self.params, point.t, direction)
end

--- One step; true when it was the last one.
function Run:iterate(last)
  local group, state = self.group, self.state
  state.n_iter = state.n_iter + 1
  if state.n_iter == 1 then
    state.d, state.old_dirs, state.old_stps, state.ro, state.H_diag = -self.gradient, {}, {}, {}, 1
  else
    state.d = direction_of(state, self.gradient, group.history_size)
  end
  state.prev_flat_grad, state.prev_loss = self.gradient:clone(), self.loss
  local slope = dot(self.gradient, state.d)
  if slope > -group.tolerance_change then
    state.t = self:first_length()
    return true
  end
  if group.line_search_fn then
    self:search(state.d, slope)
  else
    state.t = self:first_length()
    move(self.params, state.t, state.d)
    if not last then self:evaluate() end
  end
  return last or self.evals >= group.max_eval or largest(self.gradient) <= group.tolerance_grad
    or largest(state.d) * math.abs(number(state.t)) <= group.tolerance_change
    or math.abs(self.loss - state.prev_loss) < group.tolerance_change
end

--- Up to max_iter steps.
---@param closure fun(): table clears the gradients, computes the loss and its gradients, and returns it
---@return any loss the closure's first
function LBFGS:step(closure)
  arguments.check("LBFGS:step", "closure", "callable", closure)
  self._step_count = self._step_count + 1
  local group = self.param_groups[1]
  local state = self.state[group.params[1]] or {}
  self.state[group.params[1]] = state
  state.func_evals, state.n_iter = state.func_evals or 0, state.n_iter or 0
  local run = setmetatable({closure = closure, group = group, params = group.params, state = state, evals = 0,
    sign = group.maximize and -1 or 1}, Run)
  C.autograd.no_grad(function()
    run:evaluate()
    if largest(run.gradient) <= group.tolerance_grad then return end
    for i = 1, group.max_iter do
      if run:iterate(i == group.max_iter) then return end
    end
  end)
  return run.original
end

return LBFGS
