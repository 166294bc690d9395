local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local run = require "spec.support.run"
local fixtures = require("spec.support.fixtures").load "optim"
local optim = require "accelhost.optim"

local lr_scheduler = optim.lr_scheduler

local function parameter()
  return C.zeros({1}, {requires_grad = true})
end

local function sgd(lrs)
  local groups = {}
  for i, lr in ipairs(lrs or fixtures.base_lrs) do groups[i] = {params = {parameter()}, lr = lr} end
  return optim.SGD(groups, {lr = 0.1, momentum = 0.9})
end

local function copy(options)
  local result = {}
  for key, value in pairs(options) do result[key] = value end
  return result
end

local function rates(optimizer)
  local lrs = {}
  for i, group in ipairs(optimizer.param_groups) do lrs[i] = group.lr end
  return lrs
end

--- Step through the expected rows.
local function follow(optimizer, scheduler, rows, metrics, momenta)
  for i, row in ipairs(rows) do
    check.near(row, rates(optimizer), 1e-12, "epoch " .. i - 1)
    if momenta then check.near(momenta[i], optimizer.param_groups[1].momentum, 1e-12, "momentum " .. i - 1) end
    optimizer:step()
    scheduler:step(metrics and metrics[i])
  end
end

describe("A scheduler", function()
  for number, case in ipairs(fixtures.schedulers) do
    it("sets PyTorch's rates: " .. case.name .. " case " .. number, function()
      local optimizer = sgd()
      local scheduler = lr_scheduler[case.name](optimizer, copy(case.options))
      follow(optimizer, scheduler, case.lrs, case.metrics, case.momenta)
    end)

    it("continues after loading its state: " .. case.name .. " case " .. number, function()
      local optimizer = sgd()
      local scheduler = lr_scheduler[case.name](optimizer, copy(case.options))
      for i = 1, 5 do
        optimizer:step()
        scheduler:step(case.metrics and case.metrics[i])
      end
      local saved, saved_optimizer = scheduler:state_dict(), optimizer:state_dict()
      local second = sgd()
      local resumed = lr_scheduler[case.name](second, copy(case.options))
      second:load_state_dict(saved_optimizer)
      resumed:load_state_dict(saved)
      assert.same(scheduler:get_last_lr(), resumed:get_last_lr())
      local rest, metrics, momenta = {}, case.metrics and {}, case.momenta and {}
      for i = 6, #case.lrs do
        rest[#rest + 1] = case.lrs[i]
        if metrics then metrics[#metrics + 1] = case.metrics[i] end
        if momenta then momenta[#momenta + 1] = case.momenta[i] end
      end
      follow(second, resumed, rest, metrics, momenta)
    end)
  end

  it("accepts functions: LambdaLR, one per group, sets the rates at once", function()
    local optimizer = sgd()
    local scheduler = lr_scheduler.LambdaLR(optimizer,
      {function(e) return 0.9 ^ e end, function(e) return 1 / (e + 1) end})
    follow(optimizer, scheduler, fixtures.lambda)
    local other = sgd()
    lr_scheduler.LambdaLR(other, function() return 0 end)
    assert.same({0, 0}, rates(other))
  end)

  it("accepts functions: MultiplicativeLR", function()
    local optimizer = sgd()
    follow(optimizer, lr_scheduler.MultiplicativeLR(optimizer, function(e) return e % 2 == 1 and 0.95 or 1 end),
      fixtures.multiplicative)
  end)

  it("follows another at its milestone: SequentialLR", function()
    local optimizer = sgd()
    follow(optimizer, lr_scheduler.SequentialLR(optimizer, {
      lr_scheduler.LinearLR(optimizer, {start_factor = 0.1, total_iters = 3}),
      lr_scheduler.ExponentialLR(optimizer, 0.9),
      lr_scheduler.ConstantLR(optimizer, {factor = 0.5, total_iters = 2}),
    }, {4, 8}), fixtures.sequential)
  end)

  it("works with others at once: ChainedScheduler", function()
    local optimizer = sgd()
    local scheduler = lr_scheduler.ChainedScheduler {
      lr_scheduler.ConstantLR(optimizer, {factor = 0.1, total_iters = 2}),
      lr_scheduler.ExponentialLR(optimizer, {gamma = 0.9}),
    }
    follow(optimizer, scheduler, fixtures.chained)
    assert.same(rates(optimizer), scheduler:get_last_lr())
  end)

  it("saves its parts: SequentialLR", function()
    local function make(optimizer)
      return lr_scheduler.SequentialLR(optimizer, {
        lr_scheduler.LinearLR(optimizer, {start_factor = 0.1, total_iters = 3}),
        lr_scheduler.ExponentialLR(optimizer, 0.9),
      }, {4})
    end
    local one, two = sgd(), sgd()
    local first, second = make(one), make(two)
    for _ = 1, 6 do
      one:step()
      first:step()
    end
    two:load_state_dict(one:state_dict())
    second:load_state_dict(first:state_dict())
    for _ = 1, 3 do
      first:step()
      second:step()
      assert.same(rates(one), rates(two))
    end
  end)

  it("accepts fractions of epochs: CosineAnnealingWarmRestarts", function()
    local optimizer = sgd()
    local scheduler = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, {T_0 = 2, T_mult = 2})
    for i, row in ipairs(fixtures.fractional) do
      optimizer:step()
      scheduler:step((i - 1) * 0.7)
      check.near(row, rates(optimizer), 1e-12, "row " .. i)
    end
  end)

  it("moves betas where there is no momentum", function()
    local optimizer = optim.AdamW({parameter()}, {lr = 1e-3})
    local scheduler = lr_scheduler.OneCycleLR(optimizer, {max_lr = 0.1, total_steps = 4})
    assert.same({0.95, 0.999}, optimizer.param_groups[1].betas)
    optimizer:step()
    scheduler:step()
    assert.is_true(optimizer.param_groups[1].betas[1] < 0.95)
    assert.equal(0.9, optimizer.defaults.betas[1])
  end)

  it("accepts a metric as a tensor", function()
    local optimizer = sgd()
    local scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, {patience = 0})
    scheduler:step(C.tensor(1))
    scheduler:step(C.tensor(1))
    check.near({0.01, 0.002}, rates(optimizer), 1e-12)
  end)

  it("finds the optimizer behind a prepared one", function()
    local optimizer = sgd()
    local prepared = accelhost.Accelerator():prepare(optimizer)
    assert.is_true(prepared ~= optimizer)
    assert.equal(optimizer, lr_scheduler.StepLR(prepared, 1).optimizer)
  end)

  it("resumes from an epoch when the groups know their initial rates", function()
    local optimizer = sgd()
    check.raises("StepLR: group 1 has no initial_lr", function()
      lr_scheduler.StepLR(optimizer, {step_size = 2, last_epoch = 3})
    end)
    for _, group in ipairs(optimizer.param_groups) do group.initial_lr = group.lr end
    -- The first step of a chainable form keeps the rates, which the optimizer's state restored.
    lr_scheduler.CosineAnnealingLR(optimizer, {T_max = 10, last_epoch = 4})
    check.near({0.1, 0.02}, rates(optimizer), 1e-12)
  end)

  -- Rates of PyTorch 2.15, from a rate of 0.05 whose initial one was 0.1, with last_epoch = 3 and four steps.
  local resumed = {
    {"StepLR", {step_size = 2}, {0.005, 0.005, 0.0005, 0.0005, 0.00005}},
    {"ExponentialLR", {gamma = 0.5}, {0.05, 0.025, 0.0125, 0.00625, 0.003125}},
    {"LinearLR", {start_factor = 0.5, total_iters = 8},
      {0.05, 0.05416666666666667, 0.058333333333333334, 0.0625, 0.06666666666666667}},
    {"PolynomialLR", {total_iters = 8}, {0.05, 0.0375, 0.025, 0.0125, 0}},
    {"CosineAnnealingLR", {T_max = 8}, {0.05, 0.030865828381745515, 0.014644660940672627, 0.0038060233744356634, 0}},
    {"MultiplicativeLR", {lr_lambda = function() return 0.5 end}, {0.05, 0.025, 0.0125, 0.00625, 0.003125}},
  }
  for _, case in ipairs(resumed) do
    it("resumes as PyTorch 2 does: " .. case[1], function()
      local optimizer = optim.SGD({parameter()}, {lr = 0.1})
      local group = optimizer.param_groups[1]
      group.initial_lr, group.lr = 0.1, 0.05
      case[2].last_epoch = 3
      local scheduler = lr_scheduler[case[1]](optimizer, case[2])
      local got = {group.lr}
      for i = 1, 4 do
        optimizer:step()
        scheduler:step()
        got[i + 1] = group.lr
      end
      check.near(case[3], got, 1e-15)
    end)
  end

  -- Rates of PyTorch 2.15: half the rate for two steps, then the named one from step 3 (or 0).
  local followed = {
    {"MultiplicativeLR", {lr_lambda = function() return 0.9 end}, 3,
      {0.05, 0.05, 0.1, 0.09, 0.081, 0.0729, 0.06561}},
    {"PolynomialLR", {total_iters = 4}, 3, {0.05, 0.05, 0.1, 0.1, 0.075, 0.05, 0.025}},
    {"CosineAnnealingWarmRestarts", {T_0 = 2, T_mult = 2}, 3,
      {0.05, 0.05, 0.1, 0.1, 0.05, 0.1, 0.08535533905932738}},
    {"ExponentialLR", {gamma = 0.9}, 0, {0.1, 0.09, 0.081, 0.0729, 0.06561, 0.059049, 0.0531441}},
  }
  for _, case in ipairs(followed) do
    it("starts at a milestone as PyTorch 2 does: " .. case[1], function()
      local optimizer = optim.SGD({parameter()}, {lr = 0.1})
      local first = lr_scheduler.ConstantLR(optimizer, {factor = 0.5, total_iters = 2})
      local scheduler = lr_scheduler.SequentialLR(optimizer,
        {first, lr_scheduler[case[1]](optimizer, case[2])}, {case[3]})
      local got = {optimizer.param_groups[1].lr}
      for i = 2, 7 do
        optimizer:step()
        scheduler:step()
        got[i] = optimizer.param_groups[1].lr
      end
      check.near(case[4], got, 1e-15)
    end)
  end

  it("does not warn of a skipped value when the optimizer was written in a script", function()
    local result = run.script [[
      local accelhost = require "accelhost"
      local Own = accelhost.optim.Optimizer:extend "Own"
      function Own:init(params) self:setup(params, {lr = 1}) end
      function Own:step() end
      local optimizer = Own {accelhost.nn.Parameter(accelhost.ones(1))}
      local scheduler = accelhost.optim.lr_scheduler.StepLR(optimizer, 1)
      optimizer:step()
      scheduler:step()
    ]]
    assert.equal("", result.output)
  end)

  it("can be written in a script", function()
    local Half = lr_scheduler.LRScheduler:extend("Half", {"floor"})
    function Half:init(optimizer, floor)
      self.floor = floor
      self:setup(optimizer)
    end
    function Half:get_lr()
      return self:each_group(function(_, base) return math.max(base / 2 ^ self.last_epoch, self.floor) end)
    end
    local optimizer = sgd {1, 0.5}
    local scheduler = Half(optimizer, 0.3)
    assert.same({1, 0.5}, rates(optimizer))
    optimizer:step()
    scheduler:step()
    assert.same({0.5, 0.3}, rates(optimizer))
    assert.equal(0.3, scheduler:state_dict().floor)
    assert.is_true(lr_scheduler.is_scheduler(scheduler))
  end)
end)

describe("A scheduler refuses", function()
  it("other values than optimizers", function()
    check.raises("StepLR: optimizer: expected an optimizer, got number 3", function() lr_scheduler.StepLR(3, 1) end)
  end)

  it("unknown options", function()
    check.raises("StepLR: unknown option 'gama' (known: optimizer, step_size, gamma, last_epoch)", function()
      lr_scheduler.StepLR(sgd(), {step_size = 1, gama = 2})
    end)
    check.raises("StepLR: 'step_size' is missing", function() lr_scheduler.StepLR(sgd()) end)
  end)

  it("options out of range", function()
    check.raises("LinearLR: start_factor", function() lr_scheduler.LinearLR(sgd(), {start_factor = 0}) end)
    check.raises("ConstantLR: factor", function() lr_scheduler.ConstantLR(sgd(), {factor = 2}) end)
    check.raises("CosineAnnealingWarmRestarts: T_0", function()
      lr_scheduler.CosineAnnealingWarmRestarts(sgd(), {T_0 = 1.5})
    end)
    check.raises("OneCycleLR: unknown anneal_strategy 'cosine' (known: cos, linear)", function()
      lr_scheduler.OneCycleLR(sgd(), {max_lr = 1, total_steps = 3, anneal_strategy = "cosine"})
    end)
    check.raises("OneCycleLR: pass total_steps", function() lr_scheduler.OneCycleLR(sgd(), {max_lr = 1}) end)
    check.raises("max_lr: expected 2 values, one per parameter group, got 3", function()
      lr_scheduler.OneCycleLR(sgd(), {max_lr = {1, 2, 3}, total_steps = 3})
    end)
    check.raises("cycle_momentum needs an optimizer with momentum", function()
      lr_scheduler.CyclicLR(optim.Adagrad {parameter()}, 0.1, 1)
    end)
    check.raises("ReduceLROnPlateau: unknown mode 'low'", function()
      lr_scheduler.ReduceLROnPlateau(sgd(), "low")
    end)
    check.raises("LambdaLR: lr_lambda: expected a function", function()
      lr_scheduler.LambdaLR(sgd(), 2)
    end)
  end)

  it("steps past the end of one cycle", function()
    local optimizer = sgd()
    local scheduler = lr_scheduler.OneCycleLR(optimizer, {max_lr = 1, total_steps = 2})
    optimizer:step()
    scheduler:step()
    scheduler:step()
    check.raises("OneCycleLR: step 4, but total_steps is 2", function() scheduler:step() end)
  end)

  it("a plateau without metric, schedulers of different optimizers, wrong milestones", function()
    check.raises("expected the metric, a number, got nil", function()
      lr_scheduler.ReduceLROnPlateau(sgd()):step()
    end)
    local a, b = sgd(), sgd()
    check.raises("ChainedScheduler: item 2: the scheduler belongs to another optimizer", function()
      lr_scheduler.ChainedScheduler {lr_scheduler.StepLR(a, 1), lr_scheduler.StepLR(b, 1)}
    end)
    check.raises("ChainedScheduler: item 1: a ReduceLROnPlateau wants a metric", function()
      lr_scheduler.ChainedScheduler {lr_scheduler.ReduceLROnPlateau(a)}
    end)
    check.raises("SequentialLR: item 1: the scheduler belongs to another optimizer", function()
      lr_scheduler.SequentialLR(b, {lr_scheduler.StepLR(a, 1)}, {})
    end)
    check.raises("expected 0 milestones for 1 schedulers, got 1", function()
      lr_scheduler.SequentialLR(a, {lr_scheduler.StepLR(a, 1)}, {3})
    end)
  end)
end)
