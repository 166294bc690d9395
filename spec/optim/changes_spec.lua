-- Changes of a script to parameters, state and groups between two steps.
local C = require "accelhost._C"
local accelhost = require "accelhost"
local optim = require "accelhost.optim"
local optimizers = require "spec.cases.optimizers"
local check = require "spec.support.check"

local nn, flat = accelhost.nn, check.flat
local names = optimizers.fused()

local function make(name, param) return optim[name]({param}, optimizers.train(name)) end

local function parameter(values, dtype)
  local param = C.tensor(values, {dtype = dtype or "float32"})
  param.requires_grad = true
  return param
end

local function step(optimizer, param, factor)
  param.grad = C.autograd.no_grad(function() return param:detach() * (factor or 0.5) end)
  optimizer:step()
end

describe("An optimizer whose parameter changed between two steps", function()
  for _, name in ipairs(names) do
    for _, dtype in ipairs {"float64", "float16", "bfloat16"} do
      it(("casts its state with the parameter: %s, %s"):format(name, dtype), function()
        local model = nn.Linear(64, 64, {bias = false})
        local param = model.weight
        local optimizer = make(name, param)
        step(optimizer, param)
        local before = {}
        for key, value in pairs(optimizer.state[param]) do before[key] = value:to(dtype) end
        model:to(dtype)
        param.grad = C.zeros(param:shape(), {dtype = dtype})
        optimizer:step()
        local counters = {step = true}
        for _, key in ipairs((select(2, C.optim.states(name)))) do counters[key] = true end
        for key in pairs(before) do
          assert.equal(counters[key] and "float32" or dtype, optimizer.state[param][key].dtype)
        end
        step(optimizer, param)
        -- In float16 an eps of 1e-8 is zero.
        assert.is_true(dtype == "float16" or param:isfinite():all():item())
      end)
    end

    it("refuses a parameter of another shape, and leaves everything as it was: " .. name, function()
      local first, second = parameter {1, 2}, parameter {3, 4}
      local optimizer = optim[name]({first, second}, optimizers.train(name))
      first.grad, second.grad = C.ones {2}, C.ones {2}
      optimizer:step()
      second.grad = nil
      second.data = C.ones {300, 300}
      second.grad = C.ones {300, 300}
      local before = flat(first)
      check.raises(name .. ": parameter 2 has shape (300, 300), its ", function() optimizer:step() end)
      assert.same(before, flat(first))
    end)
  end

  it("continues in float64 as a run that was cast from the start by the same values", function()
    local one, two = parameter {1, -2, 3}, parameter({1, -2, 3}, "float64")
    local a, b = optim.AdamW({one}, {lr = 0.1}), optim.AdamW({two}, {lr = 0.1})
    step(a, one)
    one.grad = nil
    one.data = one:detach():to "float64"
    b:load_state_dict(a:state_dict())
    two.data = one:detach():clone()
    for _ = 1, 3 do
      step(a, one)
      step(b, two)
    end
    assert.same(flat(two), flat(one))
  end)

  it("refuses a gradient that no longer has its shape or dtype", function()
    local param = parameter {1, 2}
    local optimizer = optim.SGD({param}, {lr = 0.1})
    param.grad = C.ones {2}
    param.data = C.ones {3}
    check.raises("SGD: parameter 1 has shape (3,), its gradient (2,)", function() optimizer:step() end)
    param.data = C.ones({2}, {dtype = "float64"})
    check.raises("SGD: parameter 1 is float64, its gradient float32", function() optimizer:step() end)
  end)
end)

describe("The state table of an optimizer", function()
  it("can be emptied, which resets the optimizer", function()
    local param, other = parameter {1, 2}, parameter {1, 2}
    local optimizer, fresh = optim.AdamW {param}, optim.AdamW {other}
    step(optimizer, param)
    other.data = param:detach():clone()
    optimizer.state = {}
    step(optimizer, param, 3)
    step(fresh, other, 3)
    assert.same(flat(other), flat(param))
    assert.equal(1, optimizer.state[param].step:item())
  end)

  it("can lose one buffer, which starts from the next gradient", function()
    local param = parameter {1}
    local optimizer = optim.SGD({param}, {lr = 0, momentum = 0.5, dampening = 0.5})
    for _ = 1, 2 do
      param.grad = C.tensor {1}
      optimizer:step()
    end
    optimizer.state[param].momentum_buffer = nil
    param.grad = C.tensor {4}
    optimizer:step()
    assert.same({4}, flat(optimizer.state[param].momentum_buffer))
  end)

  it("accepts other tensors and a number as the step", function()
    local param = parameter {1}
    local optimizer = optim.Adam {param}
    step(optimizer, param)
    optimizer.state[param].exp_avg = C.tensor({0}, {dtype = "float64"})
    optimizer.state[param].step = 10
    param.grad = C.tensor {0}
    optimizer:step()
    assert.equal(11, optimizer.state[param].step:item())
    assert.same({0}, flat(optimizer.state[param].exp_avg))
    assert.equal("float32", optimizer.state[param].exp_avg.dtype)
  end)

  it("refuses values that cannot be state", function()
    local param = parameter {1, 2}
    local optimizer = optim.Adam {param}
    local function refused(text, key, value)
      optimizer.state = {}
      step(optimizer, param)
      optimizer.state[param][key] = value
      check.raises(text, function() step(optimizer, param) end)
    end
    refused("Adam: state 'exp_avg' of parameter 1: expected a tensor, got 'x'", "exp_avg", "x")
    refused("Adam: parameter 1 has shape (2,), its exp_avg_sq (3,)", "exp_avg_sq", C.zeros {3})
    refused("Adam: state 'step' of parameter 1: expected a number or a tensor, got 'ten'", "step", "ten")
    refused("Adam: the step counter of parameter 1 has shape (2,), expected one element", "step",
      C.zeros({2}, {device = "cpu"}))
    optimizer.state = {[param] = 3}
    check.raises("Adam: the state of parameter 1: expected a table, got number 3", function()
      step(optimizer, param)
    end)
  end)

  it("is refused when loaded with another shape, and nothing changes", function()
    local param, other = parameter {1, 2}, parameter {1, 2, 3}
    local optimizer, saved = optim.AdamW({param}, {lr = 0.5}), optim.AdamW({other}, {lr = 0.25})
    step(optimizer, param)
    step(saved, other)
    local before = optimizer.state[param]
    check.raises("AdamW: load_state_dict: state 'exp_avg' of parameter 1: expected shape (2,), got (3,)", function()
      optimizer:load_state_dict(saved:state_dict())
    end)
    assert.equal(before, optimizer.state[param])
    assert.equal(0.5, optimizer.param_groups[1].lr)
  end)

  it("is refused when loaded with a step or options that are none", function()
    local param = parameter {1}
    local optimizer = optim.AdamW {param}
    step(optimizer, param)
    local function refused(text, change)
      local state = optimizer:state_dict()
      change(state)
      check.raises(text, function() optimizer:load_state_dict(state) end)
    end
    refused("state 'step' of parameter 1: expected a number or a tensor with one element, got shape (2,)",
      function(state) state.state[0].step = C.zeros {2} end)
    refused("state 'step' of parameter 1: expected a number or a tensor with one element, got 'ten'",
      function(state) state.state[0].step = "ten" end)
    refused("state of parameter 1: expected a table, got number 1", function(state) state.state[0] = 1 end)
    refused("AdamW: lr: expected a number of at least 0 or a tensor, got number -1",
      function(state) state.param_groups[1].lr = -1 end)
    refused("group 1: expected a table with a list `params`", function(state) state.param_groups[1].params = nil end)
  end)
end)

describe("A parameter group", function()
  local wrong = {lr = "high", weight_decay = "none", eps = false, amsgrad = 1, maximize = "yes", betas = 0.9}

  for name, value in pairs(wrong) do
    it("refuses at the step a wrong value for " .. name, function()
      local param = parameter {1}
      local optimizer = optim.Adam {param}
      optimizer.param_groups[1][name] = value
      check.raises("Adam: " .. name .. ": expected ", function() step(optimizer, param) end)
    end)

    it("refuses at the step a missing " .. name, function()
      local param = parameter {1}
      local optimizer = optim.Adam {param}
      optimizer.param_groups[1][name] = nil
      check.raises("Adam: " .. name .. ": expected ", function() step(optimizer, param) end)
    end)
  end

  it("accepts tensors with one element as numbers, and no others", function()
    local param = parameter {1}
    local optimizer = optim.SGD({param}, {lr = C.tensor(0.5)})
    param.grad = C.tensor {1}
    optimizer:step()
    assert.same({0.5}, flat(param))
    optimizer.param_groups[1].lr = C.zeros {0}
    check.raises("SGD: lr: expected a number, got", function() optimizer:step() end)
    optimizer.param_groups[1].lr = 0.5
    optimizer.param_groups[1].params[2] = "weight"
    check.raises("SGD: parameter 2: expected a tensor, got string", function() optimizer:step() end)
  end)
end)
