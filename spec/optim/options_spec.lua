-- Every option of every optimizer and scheduler has an effect or is refused.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local optimizers = require "spec.cases.optimizers"
local options = require "spec.support.options"
local schedulers = require "spec.cases.schedulers"
local optim = accelhost.optim

local hints = {foreach = "chooses between PyTorch's implementations", fused = "chooses between them too",
  capturable = "refused when true", differentiable = "refused when true"}

-- Seven steps of a parameter whose gradients change sign and size.
local function steps_of(name, matrix)
  local shape = matrix and {1, 3} or {3}
  return function(given)
    local param = accelhost.nn.Parameter(accelhost.tensor({1, -2, 3}, {dtype = "float64"}):reshape(shape))
    local optimizer = optim[name]({param}, given)
    for step = 1, 7 do
      local values = {step, step == 2 and 3 or -3 / step, step == 4 and -5 or 0.1}
      param.grad = accelhost.tensor(values, {dtype = "float64"}):reshape(shape)
      optimizer:step()
    end
    local mean = optimizer.state[param] and optimizer.state[param].ax
    return table.concat(check.flat(param), " ") .. (mean and table.concat(check.flat(mean), " ") or "")
  end
end

-- The value of a row that is tested for an option.
local function value_of(row, option)
  local value = row.values and row.values[option]
  if value ~= nil then return value end
  return (row.options[option] or {})[1]
end

describe("The options", function()
  for _, row in ipairs(optimizers) do
    if not row.closure then
      local plan = {observe = steps_of(row.name, not row.fused), inert = hints, ignore = {"params"}, with = row.with}
      plan.values = setmetatable({}, {__index = function(_, option) return value_of(row, option) end})
      plan.observe {}
      options.walk(row.name, plan)
    end
  end
end)

local metrics = {4, 4, 3, 3.9, 3.8, 2.5, 3.99}

-- The rates and momenta of seven epochs.
local function rates_of(name)
  return function(given)
    local optimizer = optim.SGD({accelhost.nn.Parameter(accelhost.ones(1))}, {lr = 0.1, momentum = 0.6})
    local group = optimizer.param_groups[1]
    group.initial_lr = 0.1
    if name == "OneCycleLR" then group.max_lr, group.min_lr, group.base_momentum, group.max_momentum = 1, 0, 0, 1 end
    local scheduler = (name == "SWALR" and optim.swa_utils or optim.lr_scheduler)[name](optimizer, given)
    local rates = {group.lr, group.momentum}
    for epoch = 1, 7 do
      optimizer:step()
      if name == "ReduceLROnPlateau" then
        scheduler:step(metrics[epoch])
      else
        scheduler:step()
      end
      rates[#rates + 1] = group.lr
      rates[#rates + 1] = group.momentum
    end
    return table.concat(rates, " ")
  end
end

describe("The options", function()
  for _, row in ipairs(schedulers) do
    local name, plan = row.name, {observe = rates_of(row.name), ignore = {"optimizer"}, with = row.with}
    plan.base, plan.values = {}, {}
    for option, values in pairs(row.options) do plan.values[option] = values[1] end
    for option, value in pairs(row.values or {}) do plan.values[option] = value end
    for _, pair in ipairs(row.required) do
      plan.base[pair[1]], plan.values[pair[1]] = pair[2][1], pair[2][2]
    end
    for option, value in pairs(row.base or {}) do plan.base[option] = value end
    plan.observe(plan.base)
    if row.last_epoch == false then
      plan.inert = {last_epoch = "the rates follow from those in force"}
    else
      plan.values.last_epoch = row.last_epoch or 2
    end
    if name == "OneCycleLR" then
      plan.ignore = {"optimizer", "epochs", "steps_per_epoch", "last_epoch"}
      it("of OneCycleLR heeds epochs times steps_per_epoch as total_steps", function()
        local seen = {}
        for _, product in ipairs {{3, 3}, {3, 4}, {4, 3}} do
          seen[#seen + 1] = plan.observe {max_lr = 1, epochs = product[1], steps_per_epoch = product[2]}
        end
        assert.equal(plan.observe(plan.base), seen[1])
        assert.is_not.equal(seen[1], seen[2])
        assert.equal(seen[2], seen[3])
      end)
    end
    options.walk(name, plan)
  end
end)

-- Factors of a schedule by step.
local function factors_of(name)
  return function(given)
    local optimizer = optim.SGD({accelhost.nn.Parameter(accelhost.ones(1))}, {lr = 0.1})
    optimizer.param_groups[1].initial_lr = 0.1
    local scheduler = optim[name](optimizer, given)
    local rates = {optimizer.param_groups[1].lr}
    for _ = 1, 20 do
      optimizer:step()
      scheduler:step()
      rates[#rates + 1] = optimizer.param_groups[1].lr
    end
    return table.concat(rates, " ")
  end
end

local usual = {num_warmup_steps = 4, num_training_steps = 15}
local changed = {num_warmup_steps = 6, num_training_steps = 12, last_epoch = 3, num_cycles = 2}
local schedules = {
  get_constant_schedule = {base = {}, inert = {last_epoch = "the rate is constant"}},
  get_constant_schedule_with_warmup = {base = {num_warmup_steps = 4}},
  get_linear_schedule_with_warmup = {},
  get_cosine_schedule_with_warmup = {},
  get_cosine_with_hard_restarts_schedule_with_warmup = {},
  get_polynomial_decay_schedule_with_warmup = {values = {lr_end = 0.01, power = 2}},
  get_inverse_sqrt_schedule = {base = {num_warmup_steps = 4}, values = {timescale = 9}},
  get_cosine_with_min_lr_schedule_with_warmup = {base = {num_warmup_steps = 4, num_training_steps = 15, min_lr = 0.01},
    values = {min_lr = 0.02}, ignore = {"optimizer", "min_lr_rate"}},
  get_cosine_with_min_lr_schedule_with_warmup_lr_rate = {
    base = {num_warmup_steps = 4, num_training_steps = 15, min_lr_rate = 0.1},
    values = {min_lr_rate = 0.2, warmup_lr_rate = 0.01}, ignore = {"optimizer", "min_lr"}},
  get_wsd_schedule = {base = {num_warmup_steps = 4, num_decay_steps = 5, num_training_steps = 15},
    values = {num_decay_steps = 3, warmup_type = "cosine", decay_type = "linear", min_lr_ratio = 0.2},
    ignore = {"optimizer", "num_stable_steps"}},
}

describe("The options", function()
  for name, plan in pairs(schedules) do
    plan.base, plan.values, plan.ignore = plan.base or usual, plan.values or {}, plan.ignore or {"optimizer"}
    for option, value in pairs(changed) do
      if plan.values[option] == nil then plan.values[option] = value end
    end
    plan.observe = factors_of(name)
    plan.observe(plan.base)
    options.walk(name, plan)
  end
end)

describe("An optimizer refuses, as PyTorch does,", function()
  local params = {accelhost.nn.Parameter(accelhost.ones(2))}
  local rate = accelhost.tensor(0.5)
  for message, call in pairs {
    ["ASGD: lambd: expected a number of at least 0"] = function() optim.ASGD(params, {lambd = -1}) end,
    ["ASGD: alpha: expected a number of at least 0"] = function() optim.ASGD(params, {alpha = -1}) end,
    ["Adam: lr: expected a number with foreach = true, got a tensor"] = function()
      optim.Adam(params, {lr = rate, foreach = true})
    end,
    ["AdamW: lr: expected a number with foreach = true, got a tensor"] = function()
      optim.AdamW(params, {lr = rate, foreach = true})
    end,
    ["SGD: expected foreach or fused, got both"] = function()
      optim.SGD(params, {lr = 1, foreach = true, fused = true})
    end,
    ["Adam: lr: expected a number of at least 0, got a tensor of -0.5"] = function()
      optim.Adam(params, {lr = -rate})
    end,
  } do
    it(message, function() check.raises(message, call) end)
  end

  it("nothing that PyTorch accepts", function()
    assert.equal(0.5, optim.Adam(params, {lr = rate}).param_groups[1].lr:item())
    assert.equal(0.5, optim.SGD(params, {lr = rate, foreach = true}).param_groups[1].lr:item())
    assert.equal(0, optim.ASGD(params, {lambd = 0, alpha = 0}).param_groups[1].alpha)
  end)
end)
