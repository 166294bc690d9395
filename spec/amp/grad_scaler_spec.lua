--- GradScaler. Numbers of scripts/fixtures/amp.py.
local accelhost = require "accelhost"
local fixture = require("spec.support.fixtures").load "amp"

local nn, optim, GradScaler = accelhost.nn, accelhost.optim, accelhost.amp.GradScaler

local function weight_and_optimizer(values)
  local weight = nn.Parameter(accelhost.tensor(values or {1, 1, 1}))
  return weight, optim.SGD({weight}, {lr = 1})
end

-- One iteration; is the gradient finite?
local function iterate(scaler, weight, optimizer, finite)
  optimizer:zero_grad()
  scaler:scale((weight * (finite and 0.5 or math.huge)):sum()):backward()
  scaler:step(optimizer)
  scaler:update()
end

describe("a GradScaler", function()
  it("grows, shrinks and leaves out steps as PyTorch's", function()
    local weight, optimizer = weight_and_optimizer()
    local scaler = GradScaler("cpu", {init_scale = 16, growth_factor = 4, backoff_factor = 0.25, growth_interval = 2})
    for i, row in ipairs(fixture.scaler) do
      iterate(scaler, weight, optimizer, row[1] == 1)
      local state = scaler:state_dict()
      assert.same({i, row[2], row[3], row[4]}, {i, state.scale, state._growth_tracker, weight[0]:item()})
    end
  end)

  it("has PyTorch's defaults and state", function()
    local scaler = GradScaler()
    assert.same({scale = 65536, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2000, _growth_tracker = 0},
      scaler:state_dict())
    local weight, optimizer = weight_and_optimizer()
    iterate(scaler, weight, optimizer, true)
    local other = GradScaler {init_scale = 4, growth_interval = 7}
    other:load_state_dict(scaler:state_dict())
    assert.same(scaler:state_dict(), other:state_dict())
    assert.same({65536, 2, 0.5, 2000, true}, {other:get_scale(), other:get_growth_factor(), other:get_backoff_factor(),
      other:get_growth_interval(), other:is_enabled()})
    other:set_growth_factor(3)
    other:set_backoff_factor(0.1)
    other:set_growth_interval(5)
    assert.same({3, 0.1, 5}, {other:get_growth_factor(), other:get_backoff_factor(), other:get_growth_interval()})
    assert.equal("GradScaler(scale=65536)", tostring(other))
  end)

  it("keeps the scale as a float32, and does not let it overflow", function()
    local weight, optimizer = weight_and_optimizer {1e-30}
    local scaler = GradScaler {init_scale = 0.1, growth_factor = 1.1, growth_interval = 1}
    assert.equal(accelhost.tensor{0.1}:item(), scaler:get_scale())
    scaler:update(2 ^ 127)
    iterate(scaler, weight, optimizer, true)
    assert.equal(accelhost.tensor{2 ^ 127 * 1.1}:item(), scaler:get_scale())
    scaler:set_growth_factor(4)
    iterate(scaler, weight, optimizer, true)
    assert.equal(accelhost.tensor{2 ^ 127 * 1.1}:item(), scaler:get_scale())
    scaler:update(accelhost.tensor(8))
    assert.equal(8, scaler:get_scale())
  end)

  it("scales tensors in tables, and half losses to float32", function()
    local scaler = GradScaler {init_scale = 8}
    local scaled = scaler:scale {accelhost.tensor(2), {loss = accelhost.tensor(3, {dtype = "float16"})}}
    assert.same({16, 24, "float32"}, {scaled[1]:item(), scaled[2].loss:item(), scaled[2].loss.dtype})
  end)

  it("unscales once, before clipping or within step, in every dtype but float16", function()
    for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
      local scaler = GradScaler {init_scale = 4}
      local weight = nn.Parameter(accelhost.ones(20000):to(dtype))
      local optimizer = optim.SGD({weight}, {lr = 1})
      scaler:scale((weight * 0.5):sum()):backward()
      scaler:unscale_(optimizer)
      assert.equal(0.5, weight.grad[19999]:item())
      scaler:step(optimizer)
      assert.equal(0.5, weight[7]:item())
      scaler:update()
    end
    local weight = nn.Parameter(accelhost.ones(3):to "float16")
    local optimizer = optim.SGD({weight}, {lr = 1})
    weight:sum():backward()
    assert.error_matches(function() GradScaler():unscale_(optimizer) end, "unscale_: a gradient is float16")
  end)

  it("finds a single inf or nan wherever it is", function()
    for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
      for _, at in ipairs {0, 8191, 8192, 299999} do
        for _, value in ipairs {math.huge, -math.huge, 0 / 0} do
          local weight = nn.Parameter(accelhost.ones(300000):to(dtype))
          local optimizer = optim.SGD({weight}, {lr = 1})
          weight:sum():backward()
          weight.grad[at] = value
          local scaler = GradScaler {init_scale = 2}
          scaler:step(optimizer)
          scaler:update()
          assert.same({1, 1}, {weight[5]:item(), scaler:get_scale()})
        end
      end
    end
  end)

  it("decides for each of several optimizers and updates once for all", function()
    local first, one = weight_and_optimizer()
    local second, two = weight_and_optimizer()
    local scaler = GradScaler {init_scale = 8, growth_interval = 1}
    scaler:scale(first:sum() + second:sum()):backward()
    second.grad:fill_(math.huge)
    scaler:step(one)
    scaler:step(two)
    scaler:update()
    assert.same({0, 1, 4}, {first[0]:item(), second[0]:item(), scaler:get_scale()})
  end)

  it("does nothing when it is not enabled", function()
    local weight, optimizer = weight_and_optimizer()
    local scaler = GradScaler {enabled = false}
    local loss = weight:sum()
    assert.equal(loss, scaler:scale(loss))
    loss:backward()
    scaler:unscale_(optimizer)
    scaler:step(optimizer)
    scaler:update()
    scaler:load_state_dict {}
    assert.same({0, 1}, {weight[0]:item(), scaler:get_scale()})
    assert.same({}, scaler:state_dict())
    assert.is_false(scaler:is_enabled())
  end)

  it("refuses calls in another order", function()
    local weight, optimizer = weight_and_optimizer()
    local scaler = GradScaler()
    assert.error_matches(function() scaler:update() end, "update: no step or unscale_ since the last update")
    assert.error_matches(function() scaler:step(optimizer) end, "step: no parameter of the optimizer has a gradient")
    scaler = GradScaler()
    scaler:scale(weight:sum()):backward()
    scaler:unscale_(optimizer)
    assert.error_matches(function() scaler:unscale_(optimizer) end, "have been unscaled since the last update")
    scaler:step(optimizer)
    assert.error_matches(function() scaler:unscale_(optimizer) end, "unscale_: step has been called")
    assert.error_matches(function() scaler:step(optimizer) end, "step: it has been called")
    assert.error_matches(function() GradScaler():step(optimizer, function() end) end, "step: a closure")
  end)

  it("refuses invalid arguments", function()
    assert.error_matches(function() GradScaler {growth_factor = 1} end, "growth_factor: expected a number above 1")
    assert.error_matches(function() GradScaler {backoff_factor = 1} end, "backoff_factor: expected a number below 1")
    assert.error_matches(function() GradScaler():scale(3) end, "scale: expected a tensor or a table of them, got")
    assert.error_matches(function() GradScaler():step(3) end, "step: expected an optimizer, got number 3")
    assert.error_matches(function() GradScaler():load_state_dict {} end, "load_state_dict: the state is empty")
    assert.error_matches(function() GradScaler():load_state_dict {scale = 2} end, "growth_factor: expected a number")
  end)
end)
