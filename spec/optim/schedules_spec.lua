local C = require "accelhost._C"
local check = require "spec.support.check"
local optim = require "accelhost.optim"

local function adamw(lr)
  return optim.AdamW({C.zeros({1}, {requires_grad = true})}, {lr = lr or 2})
end

--- The rates of the first `count` steps.
local function rates(name, options, count, lr)
  local optimizer = adamw(lr)
  local scheduler = optim[name](optimizer, options)
  local list = {}
  for i = 1, count do
    list[i] = optimizer.param_groups[1].lr
    optimizer:step()
    scheduler:step()
  end
  return list
end

local half = math.sqrt(0.5)

-- Base rate 2; written out from the formulas: warm-up t/W, then the schedule's own curve.
local cases = {
  {"get_constant_schedule", {}, {2, 2, 2}},
  {"get_constant_schedule_with_warmup", {num_warmup_steps = 4}, {0, 0.5, 1, 1.5, 2, 2}},
  {"get_linear_schedule_with_warmup", {num_warmup_steps = 2, num_training_steps = 6}, {0, 1, 2, 1.5, 1, 0.5, 0, 0}},
  {"get_linear_schedule_with_warmup", {num_warmup_steps = 0, num_training_steps = 4}, {2, 1.5, 1, 0.5, 0}},
  {"get_cosine_schedule_with_warmup", {num_warmup_steps = 2, num_training_steps = 6},
    {0, 1, 2, 1 + half, 1, 1 - half, 0}},
  {"get_cosine_schedule_with_warmup", {num_warmup_steps = 0, num_training_steps = 4, num_cycles = 1},
    {2, 1, 0, 1, 2}},
  {"get_cosine_with_hard_restarts_schedule_with_warmup",
    {num_warmup_steps = 1, num_training_steps = 9, num_cycles = 2},
    {0, 2, 1 + half, 1, 1 - half, 2, 1 + half, 1, 1 - half, 0, 0}},
  {"get_polynomial_decay_schedule_with_warmup",
    {num_warmup_steps = 2, num_training_steps = 6, lr_end = 0.4, power = 2},
    {0, 1, 2, 0.4 + 1.6 * 0.5625, 0.4 + 1.6 * 0.25, 0.4 + 1.6 * 0.0625, 0.4, 0.4}},
  {"get_inverse_sqrt_schedule", {num_warmup_steps = 4}, {0, 0.5, 1, 1.5, 2, 2 / math.sqrt(1.25)}},
  {"get_inverse_sqrt_schedule", {num_warmup_steps = 1, timescale = 4}, {0, 2, 2 / math.sqrt(1.25)}},
  {"get_cosine_with_min_lr_schedule_with_warmup", {num_warmup_steps = 2, num_training_steps = 6, min_lr = 0.5},
    {0, 1, 2, 0.5 + 0.75 * (1 + half), 1.25, 0.5 + 0.75 * (1 - half), 0.5}},
  {"get_cosine_with_min_lr_schedule_with_warmup_lr_rate",
    {num_warmup_steps = 2, num_training_steps = 4, min_lr_rate = 0.5}, {1, 2, 1.5, 1}},
  {"get_cosine_with_min_lr_schedule_with_warmup_lr_rate",
    {num_warmup_steps = 3, num_training_steps = 5, min_lr = 0, warmup_lr_rate = 0.5}, {1, 1.5, 2, 1, 0}},
  {"get_cosine_with_min_lr_schedule_with_warmup",
    {num_warmup_steps = 0, num_training_steps = 2, min_lr_rate = 0.5}, {2, 1.5, 1}},
  {"get_wsd_schedule", {num_warmup_steps = 2, num_stable_steps = 2, num_decay_steps = 4},
    {0, 1, 2, 2, 2, 1 + half, 1, 1 - half, 0, 0}},
  {"get_wsd_schedule",
    {num_warmup_steps = 2, num_training_steps = 8, num_decay_steps = 4, decay_type = "linear", min_lr_ratio = 0.5},
    {1, 1.5, 2, 2, 2, 1.75, 1.5, 1.25, 1}},
  {"get_wsd_schedule",
    {num_warmup_steps = 4, num_stable_steps = 0, num_decay_steps = 4, warmup_type = "cosine", decay_type = "1-sqrt"},
    {0, 1 - half, 1, 1 + half, 2, 1, 2 - 2 * half, 2 - 2 * math.sqrt(0.75), 0}},
}

describe("A warm-up schedule", function()
  for number, case in ipairs(cases) do
    it("follows its formula: " .. case[1] .. " case " .. number, function()
      check.near(case[3], rates(case[1], case[2], #case[3]), 1e-12)
    end)
  end

  it("accepts its arguments by position, too", function()
    local optimizer = adamw()
    local scheduler = optim.get_linear_schedule_with_warmup(optimizer, 0, 4)
    optimizer:step()
    scheduler:step()
    assert.equal(1.5, optimizer.param_groups[1].lr)
  end)

  it("is found by name", function()
    local names = {"constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial",
      "inverse_sqrt"}
    for _, name in ipairs(names) do
      local optimizer = adamw()
      local scheduler = optim.get_scheduler(name, optimizer, {num_warmup_steps = 2, num_training_steps = 10})
      if name ~= "constant" then
        assert.equal(0, optimizer.param_groups[1].lr)
        optimizer:step()
        scheduler:step()
        assert.equal(1, optimizer.param_groups[1].lr)
      end
    end
    local optimizer = adamw()
    optim.get_scheduler("warmup_stable_decay", optimizer, {num_warmup_steps = 2, num_training_steps = 10,
      scheduler_specific_kwargs = {num_decay_steps = 4}})
    optim.get_scheduler("cosine_with_min_lr", adamw(), {num_warmup_steps = 2, num_training_steps = 10,
      scheduler_specific_kwargs = {min_lr = 0.1}})
    local plateau = optim.get_scheduler("reduce_lr_on_plateau", optimizer,
      {scheduler_specific_kwargs = {patience = 3}})
    assert.equal(3, plateau.patience)
  end)

  it("refuses unknown names and missing numbers", function()
    check.raises("get_scheduler: unknown schedule 'cos' (known: constant,", function()
      optim.get_scheduler("cos", adamw())
    end)
    check.raises("get_scheduler: 'linear' needs num_warmup_steps", function()
      optim.get_scheduler("linear", adamw(), {num_training_steps = 3})
    end)
    check.raises("get_scheduler: 'linear' needs num_training_steps", function()
      optim.get_scheduler("linear", adamw(), {num_warmup_steps = 3})
    end)
    check.raises("lr_end 3 must be below the initial lr 2", function()
      optim.get_polynomial_decay_schedule_with_warmup(adamw(), 0, 3, {lr_end = 3})
    end)
    check.raises("pass min_lr or min_lr_rate", function()
      optim.get_cosine_with_min_lr_schedule_with_warmup(adamw(), 0, 3)
    end)
    check.raises("pass num_training_steps or num_stable_steps", function() optim.get_wsd_schedule(adamw(), 0, 3) end)
    check.raises("unknown shape 'square'", function()
      optim.get_wsd_schedule(adamw(), 0, 3, {num_stable_steps = 1, decay_type = "square"})
    end)
  end)
end)
