--- Scaling of losses, so that gradients in float16 do not become 0, and leaving out the steps whose gradients became
--- infinite by it.
--
-- If the gradients' device supports it (amp/found.lua), the device unscales them without the host, which reads the
-- result when it needs it: in step, or, when the step is captured in a graph, after its replay (util/host_updates.lua).
-- The device skips the optimizer's step in a graph.
local C = require "accelhost._C"
local Found = require "accelhost.amp.found"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local host_updates = require "accelhost.util.host_updates"

local fail = arguments.fail

local GradScaler = class.new "GradScaler"

local read = arguments.signature("GradScaler", {
  {"device: string", "cpu"}, {"init_scale: positive", 2 ^ 16}, {"growth_factor: number", 2},
  {"backoff_factor: number", 0.5}, {"growth_interval: count", 2000}, {"enabled: flag", true},
})

-- A number as a float32 holds it: the scale is one, as in PyTorch.
local function rounded(number)
  return C.tensor({number}, {device = "cpu"}):item()
end

local function check_growth(factor)
  if factor <= 1 then
    fail("GradScaler: growth_factor: expected a number above 1, got %s", arguments.describe(factor))
  end
  return factor
end

local function check_backoff(factor)
  if factor >= 1 then
    fail("GradScaler: backoff_factor: expected a number below 1, got %s", arguments.describe(factor))
  end
  return factor
end

--- A scaler of losses for training in float16: gradients of a loss times `scale` are that much larger, and are divided
--- by it before the step. A step whose gradients hold inf or nan is left out, and the scale becomes smaller; after
--- growth_interval steps without any it becomes larger.
--
--   local scaler = accelhost.amp.GradScaler{init_scale = 1024}
--   local sgd = optim.SGD({w}, {lr = 0.1})
--   scaler:scale(loss):backward()
--   scaler:unscale_(sgd)                                    -- where gradients are clipped
--   scaler:step(sgd)
--   scaler:update()
--   scaler:get_scale()  --> 1024
---@param device? string the loss's device: "cpu" (default) or "cuda"
---@param enabled? boolean false: scale returns its argument, step steps, update does nothing
function GradScaler:init(...)
  local device, scale, growth, backoff, interval, enabled = read(...)
  self._device = device
  self._enabled = enabled
  self._init_scale, self._scale = scale, rounded(scale)
  self._growth_factor, self._backoff_factor, self._growth_interval = check_growth(growth), check_backoff(backoff),
    interval
  self._growth_tracker = 0
  -- Optimizer -> {stage = "unscaled" or "stepped", overflow = boolean, or nil as long as the host has not asked for
  -- `found`} since the last update, and in all.
  self._stages, self._latest = {}, setmetatable({}, {__mode = "k"})
  self._found = Found()
end

-- Did gradients overflow? Asks the device.
local function overflowed(entry)
  if entry.overflow == nil then entry.overflow = entry.found:item() ~= 0 end
  return entry.overflow
end

local function set_scale(self, scale)
  if scale == self._scale then return end
  self._scale = scale
  self._found:rescale(scale)
end

function GradScaler:extra_repr()
  return self._enabled and ("scale=%g"):format(self._scale) or "disabled"
end

-- The scale as a tensor of no dims, so that the loss's dtype follows PyTorch's rule.
local function scaled(self, outputs, factors)
  if C.is_tensor(outputs) then
    local device = outputs.device
    local there = device ~= "cpu" and self._found:scales(device, self._scale)
    -- A separate tensor, which an update does not change before backward, unless the graph needs one that it does.
    factors[device] = factors[device] or host_updates.is_recording() and there and there.factor
      or there and there.factor:clone() or C.tensor(self._scale, {device = device})
    return outputs * factors[device]
  end
  if type(outputs) ~= "table" or getmetatable(outputs) ~= nil then
    fail("scale: expected a tensor or a table of them, got %s", arguments.describe(outputs))
  end
  local copy = {}
  for key, value in next, outputs do copy[key] = scaled(self, value, factors) end
  return copy
end

--- A loss, or a table of them, times the scale.
--
--   local scaler = accelhost.amp.GradScaler{init_scale = 8}
--   scaler:scale(accelhost.tensor(2))  --> tensor(16.)
---@param outputs Tensor|table
---@return Tensor|table
function GradScaler:scale(outputs)
  if not self._enabled then return outputs end
  host_updates.settle()
  if host_updates.is_recording() and self._ended == host_updates.current() then
    fail("scale: the scaler has been updated in this captured step, so that its scale may be another now; capture the "
      .. "following code as a separate step")
  end
  return scaled(self, outputs, {})
end

local function parameters_of(optimizer, what)
  if type(optimizer) ~= "table" or type(optimizer.param_groups) ~= "table" then
    fail("%s: expected an optimizer, got %s", what, arguments.describe(optimizer))
  end
  local list = {}
  for _, group in ipairs(optimizer.param_groups) do
    for _, parameter in ipairs(group.params) do
      local grad = parameter.grad
      if grad ~= nil then
        if grad.dtype == "float16" then
          fail("%s: a gradient is float16: parameters stay float32, autocast casts them where they are used", what)
        end
        list[#list + 1] = parameter
      end
    end
  end
  return list
end

local function unscale(self, optimizer, what)
  local parameters = parameters_of(optimizer, what)
  local entry = {stage = "unscaled", count = #parameters, within = host_updates.current(),
    found = self._found:unscale(optimizer, parameters, self._scale)}
  if not entry.found then
    local _, overflow = C.optim.unscale_grad(parameters, rounded(1 / self._scale))
    entry.overflow = overflow
  end
  self._stages[optimizer], self._latest[optimizer] = entry, entry
  if not host_updates.is_recording() then return end
  host_updates.add(function()
    entry.stage, entry.overflow = "unscaled", nil
    self._stages[optimizer], self._latest[optimizer] = entry, entry
  end, function() self._stages[optimizer] = nil end)
end

-- The device skips the step, and the host's part of it is reverted when the device reports that.
local function step_captured(optimizer, entry)
  if entry.within ~= host_updates.current() then
    fail "step: the gradients were unscaled outside of the captured step; unscale them within it"
  end
  host_updates.add(function() entry.stage = "stepped" end)
  optimizer._unless = entry.found
  local skipped = function() return overflowed(entry) end
  local fine, problem = pcall(host_updates.unless_skipped, skipped, optimizer.step, optimizer)
  local left = optimizer._unless
  optimizer._unless = nil
  if not fine then error(problem, 0) end
  if left then fail("step: %s's step is no kernel that the device could leave out in a graph", optimizer._name) end
end

--- Divide an optimizer's gradients by the scale now, for clipping or reading them; `step` does it otherwise. Once
--- between two updates.
--
--   local scaler, sgd = accelhost.amp.GradScaler(), optim.SGD({w}, {lr = 0.1})
--   scaler:scale(loss):backward()
--   scaler:unscale_(sgd)
--   w.grad  --> tensor([2., 4., 6.])
function GradScaler:unscale_(optimizer)
  if not self._enabled then return end
  host_updates.settle()
  local entry = self._stages[optimizer]
  if entry then
    fail(entry.stage == "stepped" and "unscale_: step has been called for this optimizer since the last update"
      or "unscale_: this optimizer's gradients have been unscaled since the last update")
  end
  unscale(self, optimizer, "unscale_")
end

--- Step the optimizer, unless its gradients hold inf or nan. Unscales them first where unscale_ has not.
--
--   local scaler, sgd = accelhost.amp.GradScaler(), optim.SGD({w}, {lr = 0.1})
--   scaler:scale(loss):backward()
--   scaler:step(sgd)
---@param ... any the step's arguments; no closure
---@return any # the results of the step, nil when it was skipped
function GradScaler:step(optimizer, ...)
  if not self._enabled then return optimizer:step(...) end
  if (...) ~= nil then
    fail("step: a closure would make gradients that are not unscaled; leave it out, or use bfloat16 without a scaler")
  end
  host_updates.settle()
  local entry = self._stages[optimizer]
  if entry and entry.stage == "stepped" then
    fail "step: it has been called for this optimizer since the last update"
  end
  if not entry then
    unscale(self, optimizer, "step")
    entry = self._stages[optimizer]
  end
  if entry.count == 0 then fail "step: no parameter of the optimizer has a gradient" end
  entry.stage = "stepped"
  if host_updates.is_recording() then return step_captured(optimizer, entry) end
  if not overflowed(entry) then return optimizer:step() end
end

-- The scale after a step, by whether it was left out.
local function adapt(self, overflow)
  if overflow then
    set_scale(self, rounded(self._scale * self._backoff_factor))
    self._growth_tracker = 0
    return
  end
  self._growth_tracker = self._growth_tracker + 1
  if self._growth_tracker < self._growth_interval then return end
  local grown = rounded(self._scale * self._growth_factor)
  if grown < math.huge then set_scale(self, grown) end
  self._growth_tracker = 0
end

-- Adapt the scale by these entries, and keep those; in a step that is captured, after each replay.
local function finish(self, entries, kept)
  local function adapt_by_all()
    local overflow = false
    for _, entry in ipairs(entries) do overflow = overflowed(entry) or overflow end
    adapt(self, overflow)
  end
  local before = self._stages
  self._stages = arguments.copy(kept)
  if not host_updates.is_recording() then return adapt_by_all() end
  self._ended = host_updates.current()
  host_updates.add(function() self._stages = arguments.copy(kept) end, function() self._stages = before end)
  host_updates.after_settle(adapt_by_all)
end

--- End an iteration: the scale shrinks if one of the optimizers' steps was left out, and grows after growth_interval
--- updates without such. Once, after the steps of all optimizers.
--
--   local scaler, sgd = accelhost.amp.GradScaler(), optim.SGD({w}, {lr = 0.1})
--   scaler:scale(loss):backward()
--   scaler:step(sgd)
--   scaler:update()
---@param new_scale? number|Tensor set the scale to this
function GradScaler:update(new_scale)
  if not self._enabled then return end
  host_updates.settle()
  if new_scale ~= nil then
    if host_updates.is_recording() then
      fail "update: a new scale cannot be captured in a graph; set it between two steps"
    end
    if C.is_tensor(new_scale) then new_scale = new_scale:item() end
    set_scale(self, rounded(arguments.check("update", "new_scale", "positive", new_scale)))
    self._stages = {}
    return
  end
  local entries = {}
  for _, entry in next, self._stages do entries[#entries + 1] = entry end
  if #entries == 0 then fail "update: no step or unscale_ since the last update" end
  finish(self, entries, {})
end

-- For an accelerator, which has one scaler for several optimizers and updates it by itself.

-- Was the last step of this optimizer left out? Asks the device.
function GradScaler:_overflowed(optimizer)
  local entry = self._latest[optimizer]
  return entry ~= nil and overflowed(entry)
end

-- Let `agree` decide whether the gradients of this optimizer, just unscaled, overflowed, on any process for example.
function GradScaler:_agree(optimizer, agree)
  local entry = self._stages[optimizer]
  if entry then entry.overflow = agree(overflowed(entry)) end
end

-- Has unscale_ or step been called for this optimizer since the last update?
function GradScaler:_unscaled(optimizer)
  return self._stages[optimizer] ~= nil
end

-- Has step been called for it?
function GradScaler:_stepped(optimizer)
  local entry = self._stages[optimizer]
  return entry ~= nil and entry.stage == "stepped"
end

-- Forget the stage of an optimizer whose gradients were reset.
function GradScaler:_forget(optimizer)
  if self:_stepped(optimizer) or not self._stages[optimizer] then return end
  self._stages[optimizer] = nil
  if host_updates.is_recording() then host_updates.add(function() self._stages[optimizer] = nil end) end
end

-- Update by the steps so far. Gradients that are unscaled and not stepped yet stay so.
function GradScaler:_update_stepped()
  local entries, kept = {}, {}
  for optimizer, entry in next, self._stages do
    if entry.stage == "stepped" then
      entries[#entries + 1] = entry
    else
      kept[optimizer] = entry
    end
  end
  finish(self, entries, kept)
end

--- The scale; 1 when the scaler is not enabled.
---@return number
function GradScaler:get_scale()
  host_updates.settle()
  return self._enabled and self._scale or 1
end

--- The factor by which the scale grows.
---@return number
function GradScaler:get_growth_factor() return self._growth_factor end

--- Set the factor by which the scale grows.
---@param factor number above 1
function GradScaler:set_growth_factor(factor)
  self._growth_factor = check_growth(arguments.check("set_growth_factor", "factor", "number", factor))
end

--- The factor by which the scale shrinks.
---@return number
function GradScaler:get_backoff_factor() return self._backoff_factor end

--- Set the factor by which the scale shrinks.
---@param factor number below 1
function GradScaler:set_backoff_factor(factor)
  self._backoff_factor = check_backoff(arguments.check("set_backoff_factor", "factor", "number", factor))
end

--- Return the number of updates without overflow until the scale grows.
---@return integer
function GradScaler:get_growth_interval() return self._growth_interval end

--- Set the number of updates without overflow until the scale grows.
function GradScaler:set_growth_interval(interval)
  self._growth_interval = arguments.check("set_growth_interval", "interval", "count", interval)
end

--- Is it enabled?
function GradScaler:is_enabled() return self._enabled end

--- The scale, the factors and the count of updates, with PyTorch's keys; empty when the scaler is not enabled. Call it
--- after update.
---@return table
function GradScaler:state_dict()
  host_updates.settle()
  if not self._enabled then return {} end
  return {
    scale = self._scale, growth_factor = self._growth_factor, backoff_factor = self._backoff_factor,
    growth_interval = self._growth_interval, _growth_tracker = self._growth_tracker,
  }
end

--- Load the result of state_dict.
---@param state table
function GradScaler:load_state_dict(state)
  if not self._enabled then return end
  host_updates.settle()
  arguments.check("load_state_dict", "state", "table", state)
  if next(state) == nil then
    fail "load_state_dict: the state is empty: it was saved from a scaler that is not enabled"
  end
  for _, name in ipairs {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"} do
    if type(state[name]) ~= "number" then
      fail("load_state_dict: %s: expected a number, got %s", name, arguments.describe(state[name]))
    end
    self[name == "_growth_tracker" and name or "_" .. name] = state[name]
  end
  self._found:rescale(self._scale)
end

return class.guard(GradScaler)
