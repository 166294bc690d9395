--- Warm-up schedules, as the Trainer uses them: factors of the initial rate by step, as LambdaLR schedulers.
--
--   local scheduler = optim.get_linear_schedule_with_warmup(optimizer, 100, 1000)
--   local scheduler = optim.get_scheduler("cosine", optimizer, {num_warmup_steps = 100, num_training_steps = 1000})
--
-- One scheduler:step() per optimizer:step(). With warm-up the first step has the rate 0.
local arguments = require "accelhost.util.arguments"
local GreedyLR = require "accelhost.optim.greedy"
local lr_scheduler = require "accelhost.optim.lr_scheduler"

local fail, signature, checked = arguments.fail, arguments.signature, arguments.checked
local cos, pi, max, sqrt = math.cos, math.pi, math.max, math.sqrt
local schedules = {}

local function initial_lr(optimizer)
  return lr_scheduler.LRScheduler.check_optimizer(lr_scheduler.LambdaLR, optimizer).defaults.lr
end

local function lambda(optimizer, fn, last_epoch)
  return lr_scheduler.LambdaLR(optimizer, fn, last_epoch)
end

--- fn after a linear rise from 0 over `warmup` steps; fn gets the step and its part of the rest, from 0 to 1.
local function with_warmup(warmup, total, fn)
  return function(step)
    if step < warmup then return step / max(1, warmup) end
    return fn(step, (step - warmup) / max(1, total - warmup))
  end
end

--- The rate unchanged.
--
--   local schedule = optim.get_constant_schedule(optimizer)
--   schedule:get_last_lr()[1]  --> 0.1
schedules.get_constant_schedule = checked("get_constant_schedule", {
  "optimizer", {"last_epoch: integer", -1},
}, function(optimizer, last_epoch)
  return lambda(optimizer, function() return 1 end, last_epoch)
end)

--- Linear warm-up, then constant.
--
--   local schedule = optim.get_constant_schedule_with_warmup(optimizer, {num_warmup_steps = 10})
--   schedule:get_last_lr()[1]  --> 0
schedules.get_constant_schedule_with_warmup = checked("get_constant_schedule_with_warmup", {
  "optimizer", "num_warmup_steps: nonnegative", {"last_epoch: integer", -1},
}, function(optimizer, warmup, last_epoch)
  return lambda(optimizer, function(step) return step < warmup and step / max(1, warmup) or 1 end, last_epoch)
end)

--- Linear warm-up, then linear to 0.
--
--   local schedule = optim.get_linear_schedule_with_warmup(optimizer,
--     {num_warmup_steps = 10, num_training_steps = 100})
schedules.get_linear_schedule_with_warmup = checked("get_linear_schedule_with_warmup", {
  "optimizer", "num_warmup_steps: nonnegative", "num_training_steps: nonnegative", {"last_epoch: integer", -1},
}, function(optimizer, warmup, total, last_epoch)
  return lambda(optimizer, with_warmup(warmup, total, function(step)
    return max(0, (total - step) / max(1, total - warmup))
  end), last_epoch)
end)

--- Linear warm-up, then num_cycles cosine waves (half a wave: down to 0).
--
--   local schedule = optim.get_cosine_schedule_with_warmup(optimizer,
--     {num_warmup_steps = 10, num_training_steps = 100})
schedules.get_cosine_schedule_with_warmup = checked("get_cosine_schedule_with_warmup", {
  "optimizer", "num_warmup_steps: nonnegative", "num_training_steps: nonnegative", {"num_cycles: number", 0.5},
  {"last_epoch: integer", -1},
}, function(optimizer, warmup, total, cycles, last_epoch)
  return lambda(optimizer, with_warmup(warmup, total, function(_, part)
    return max(0, 0.5 * (1 + cos(pi * cycles * 2 * part)))
  end), last_epoch)
end)

local read_restarts = signature("get_cosine_with_hard_restarts_schedule_with_warmup",
  {"optimizer", "num_warmup_steps: nonnegative", "num_training_steps: nonnegative", {"num_cycles: number", 1},
  {"last_epoch: integer", -1}})
--- Linear warm-up, then num_cycles times from the full rate to 0.
--
--   local schedule = optim.get_cosine_with_hard_restarts_schedule_with_warmup(optimizer,
--     {num_warmup_steps = 10, num_training_steps = 100, num_cycles = 2})
function schedules.get_cosine_with_hard_restarts_schedule_with_warmup(...)
  local optimizer, warmup, total, cycles, last_epoch = read_restarts(...)
  return lambda(optimizer, with_warmup(warmup, total, function(_, part)
    if part >= 1 then return 0 end
    return max(0, 0.5 * (1 + cos(pi * ((cycles * part) % 1))))
  end), last_epoch)
end

--- Linear warm-up, then a polynomial down to lr_end.
--
--   local schedule = optim.get_polynomial_decay_schedule_with_warmup(optimizer,
--     {num_warmup_steps = 10, num_training_steps = 100})
schedules.get_polynomial_decay_schedule_with_warmup = checked("get_polynomial_decay_schedule_with_warmup", {
  "optimizer", "num_warmup_steps: nonnegative", "num_training_steps: nonnegative", {"lr_end: number", 1e-7},
  {"power: number", 1}, {"last_epoch: integer", -1},
}, function(optimizer, warmup, total, lr_end, power, last_epoch)
  local base = initial_lr(optimizer)
  if base <= lr_end then fail("polynomial schedule: lr_end %g must be below the initial lr %g", lr_end, base) end
  return lambda(optimizer, function(step)
    if step < warmup then return step / max(1, warmup) end
    if step > total then return lr_end / base end
    return ((base - lr_end) * (1 - (step - warmup) / (total - warmup)) ^ power + lr_end) / base
  end, last_epoch)
end)

--- Linear warm-up, then 1 / sqrt(step).
--
--   local schedule = optim.get_inverse_sqrt_schedule(optimizer, {num_warmup_steps = 10})
schedules.get_inverse_sqrt_schedule = checked("get_inverse_sqrt_schedule", {
  "optimizer", "num_warmup_steps: nonnegative", {"timescale: positive"}, {"last_epoch: integer", -1},
}, function(optimizer, warmup, timescale, last_epoch)
  if timescale == nil then timescale = warmup ~= 0 and warmup or 10000 end
  local shift = timescale - warmup
  return lambda(optimizer, function(step)
    if step < warmup then return step / max(1, warmup) end
    return 1 / sqrt((step + shift) / timescale)
  end, last_epoch)
end)

--- The lowest rate as a part of the initial one, from whichever of the two was given.
local function lowest_rate(name, optimizer, min_lr, rate)
  if (min_lr == nil) == (rate == nil) then
    fail("%s: pass min_lr or min_lr_rate%s", name, rate ~= nil and ", not both" or "")
  end
  return rate or min_lr / initial_lr(optimizer)
end

--- As cosine, but down to min_lr (or min_lr_rate times the initial rate).
--
--   local schedule = optim.get_cosine_with_min_lr_schedule_with_warmup(optimizer,
--     {num_warmup_steps = 10, num_training_steps = 100, min_lr = 0.01})
schedules.get_cosine_with_min_lr_schedule_with_warmup = checked("get_cosine_with_min_lr_schedule_with_warmup", {
  "optimizer", "num_warmup_steps: nonnegative", "num_training_steps: nonnegative", {"num_cycles: number", 0.5},
  {"last_epoch: integer", -1}, {"min_lr: number"}, {"min_lr_rate: number"},
}, function(optimizer, warmup, total, cycles, last_epoch, min_lr, rate)
  rate = lowest_rate("cosine_with_min_lr", optimizer, min_lr, rate)
  return lambda(optimizer, with_warmup(warmup, total, function(_, part)
    local factor = 0.5 * (1 + cos(pi * cycles * 2 * part))
    return max(0, factor * (1 - rate) + rate)
  end), last_epoch)
end)

local read_warmup_rate = signature("get_cosine_with_min_lr_schedule_with_warmup_lr_rate", {
  "optimizer", "num_warmup_steps: nonnegative", "num_training_steps: nonnegative", {"num_cycles: number", 0.5},
  {"last_epoch: integer", -1}, {"min_lr: number"},
  {"min_lr_rate: number"}, {"warmup_lr_rate: number"},
})
--- As cosine_with_min_lr, but every step counts as done already, so that none has rate 0, and the warm-up starts at
--- warmup_lr_rate times the initial rate (default: 1 / num_warmup_steps).
--
--   local schedule = optim.get_cosine_with_min_lr_schedule_with_warmup_lr_rate(optimizer,
--     {num_warmup_steps = 10, num_training_steps = 100, min_lr = 0.01})
function schedules.get_cosine_with_min_lr_schedule_with_warmup_lr_rate(...)
  local optimizer, warmup, total, cycles, last_epoch, min_lr, rate, start = read_warmup_rate(...)
  rate = lowest_rate("cosine_warmup_with_min_lr", optimizer, min_lr, rate)
  return lambda(optimizer, function(step)
    if step < warmup then
      if start == nil then return (step + 1) / max(1, warmup) end
      return start + (1 - start) * step / max(1, warmup - 1)
    end
    local part = (step - warmup + 1) / max(1, total - warmup)
    return max(0, 0.5 * (1 + cos(pi * cycles * 2 * part)) * (1 - rate) + rate)
  end, last_epoch)
end

--- From 0 to 1 along a part of the way.
local rises = {
  linear = function(part) return part end,
  cosine = function(part) return 0.5 * (1 - cos(pi * part)) end,
  ["1-sqrt"] = function(part) return 1 - sqrt(1 - part) end,
}
local falls = {
  linear = function(part) return 1 - part end,
  cosine = function(part, cycles) return 0.5 * (1 + cos(pi * cycles * 2 * part)) end,
  ["1-sqrt"] = function(part) return 1 - sqrt(part) end,
}

--- Warm-up, stable, decay. Shapes are linear, cosine or 1-sqrt.
--
--   local schedule = optim.get_wsd_schedule(optimizer,
--     {num_warmup_steps = 10, num_decay_steps = 20, num_training_steps = 100})
schedules.get_wsd_schedule = checked("get_wsd_schedule", {
  "optimizer", "num_warmup_steps: nonnegative", "num_decay_steps: nonnegative", {"num_training_steps: nonnegative"},
  {"num_stable_steps: nonnegative"}, {"warmup_type", "linear"}, {"decay_type", "cosine"}, {"min_lr_ratio: number", 0},
  {"num_cycles: number", 0.5}, {"last_epoch: integer", -1},
}, function(optimizer, warmup, decay, total, stable, warmup_type, decay_type, ratio, cycles, last_epoch)
  if (total == nil) == (stable == nil) then
    fail("warmup_stable_decay: pass num_training_steps or num_stable_steps, not both")
  end
  stable = stable or total - warmup - decay
  local rise, fall = rises[warmup_type], falls[decay_type]
  for _, shape in ipairs {warmup_type, decay_type} do
    if not rises[shape] then
      fail("warmup_stable_decay: unknown shape '%s' (known: linear, cosine, 1-sqrt)", tostring(shape))
    end
  end
  return lambda(optimizer, function(step)
    if step < warmup then return max(0, rise(step / max(1, warmup)) * (1 - ratio) + ratio) end
    if step < warmup + stable then return 1 end
    if step < warmup + stable + decay then
      local part = (step - warmup - stable) / max(1, decay)
      return max(0, fall(part, cycles) * (1 - ratio) + ratio)
    end
    return ratio
  end, last_epoch)
end)

-- name -> the options its function needs besides the optimizer, in its order
local by_name = {
  constant = {"get_constant_schedule"},
  constant_with_warmup = {"get_constant_schedule_with_warmup", "num_warmup_steps"},
  linear = {"get_linear_schedule_with_warmup", "num_warmup_steps", "num_training_steps"},
  cosine = {"get_cosine_schedule_with_warmup", "num_warmup_steps", "num_training_steps"},
  cosine_with_restarts = {"get_cosine_with_hard_restarts_schedule_with_warmup", "num_warmup_steps",
    "num_training_steps"},
  polynomial = {"get_polynomial_decay_schedule_with_warmup", "num_warmup_steps", "num_training_steps"},
  inverse_sqrt = {"get_inverse_sqrt_schedule", "num_warmup_steps"},
  cosine_with_min_lr = {"get_cosine_with_min_lr_schedule_with_warmup", "num_warmup_steps", "num_training_steps"},
  cosine_warmup_with_min_lr = {
    "get_cosine_with_min_lr_schedule_with_warmup_lr_rate", "num_warmup_steps", "num_training_steps",
  },
  warmup_stable_decay = {"get_wsd_schedule", "num_warmup_steps", "num_training_steps"},
}

--- A schedule by the name the Trainer knows it by: constant, constant_with_warmup, linear, cosine,
-- cosine_with_restarts, polynomial, inverse_sqrt, cosine_with_min_lr, cosine_warmup_with_min_lr, warmup_stable_decay,
-- reduce_lr_on_plateau, greedy.
--
--   local schedule = optim.get_scheduler("linear", optimizer, {num_warmup_steps = 0, num_training_steps = 100})
--   schedule:get_last_lr()[1]  --> 0.1
---@param name string
---@param options table? {num_warmup_steps, num_training_steps, scheduler_specific_kwargs = {...}}
---@return LRScheduler
schedules.get_scheduler = checked("get_scheduler", {
  "name", "optimizer", {"num_warmup_steps"}, {"num_training_steps"}, {"scheduler_specific_kwargs"},
}, function(name, optimizer, warmup, total, extra)
  local options = {}
  for key, value in pairs(extra or {}) do options[key] = value end
  if name == "reduce_lr_on_plateau" then return lr_scheduler.ReduceLROnPlateau(optimizer, options) end
  if name == "greedy" then return GreedyLR(optimizer, options) end
  local entry = by_name[name]
  if not entry then
    local known = {"reduce_lr_on_plateau", "greedy"}
    for key in pairs(by_name) do known[#known + 1] = key end
    table.sort(known)
    fail("get_scheduler: unknown schedule '%s' (known: %s)", tostring(name), table.concat(known, ", "))
  end
  local given = {num_warmup_steps = warmup, num_training_steps = total}
  for i = 2, #entry do
    local key = entry[i]
    if given[key] == nil then fail("get_scheduler: '%s' needs %s", name, key) end
    if options[key] == nil and not (key == "num_training_steps" and options.num_stable_steps) then
      options[key] = given[key]
    end
  end
  return schedules[entry[1]](optimizer, options)
end)

return schedules
