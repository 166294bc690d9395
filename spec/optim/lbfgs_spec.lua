-- L-BFGS against PyTorch.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "optim"
local nn, optim = accelhost.nn, accelhost.optim

local function start()
  return nn.Parameter(accelhost.tensor({-1.2, 1, 0.5}, {dtype = "float64"})),
    nn.Parameter(accelhost.tensor({{2}, {-1}}, {dtype = "float64"}))
end

local function valley(x, y)
  local head, tail = x:narrow(0, 0, 2), x:narrow(0, 1, 2)
  return ((1 - head) ^ 2 + 100 * (tail - head ^ 2) ^ 2):sum() + (y ^ 2):sum()
end

local function closure_of(optimizer, x, y, sign)
  return function()
    optimizer:zero_grad()
    local loss = sign * valley(x, y)
    loss:backward()
    return loss
  end
end

describe("LBFGS", function()
  for number, case in ipairs(fixtures.lbfgs) do
    it("steps as PyTorch does, with as many evaluations: case " .. number, function()
      local x, y = start()
      local optimizer, losses = optim.LBFGS({x, y}, case.options), {}
      for i = 1, 8 do losses[i] = optimizer:step(closure_of(optimizer, x, y, case.sign)):item() end
      -- The valley is steep: a rounding grows tenfold in a few steps.
      check.near(case.losses, losses, 1e-6)
      check.near(case.expected[1], x, 1e-6)
      check.near(case.expected[2], y, 1e-6)
      local state = optimizer:state_dict().state[0]
      assert.same({case.n_iter, case.func_evals}, {state.n_iter, state.func_evals})
    end)
  end

  it("continues with the same bits from a saved state", function()
    local x, y = start()
    local optimizer = optim.LBFGS({x, y}, {max_iter = 3, lr = 0.01})
    for _ = 1, 2 do optimizer:step(closure_of(optimizer, x, y, 1)) end
    local u, v = nn.Parameter(x:detach():clone()), nn.Parameter(y:detach():clone())
    local second = optim.LBFGS({u, v})
    second:load_state_dict(optimizer:state_dict())
    optimizer:step(closure_of(optimizer, x, y, 1))
    second:step(closure_of(second, u, v, 1))
    assert.same(check.flat(x), check.flat(u))
    assert.same(check.flat(y), check.flat(v))
  end)

  it("counts parameters without gradient as flat", function()
    local x, y = start()
    local optimizer = optim.LBFGS({x, y}, {line_search_fn = "strong_wolfe"})
    optimizer:step(function()
      optimizer:zero_grad()
      local loss = (x * x):sum()
      loss:backward()
      return loss
    end)
    check.near({0, 0, 0}, x, 1e-9)
    assert.same({2, -1}, check.flat(y))
  end)

  it("refuses a step without closure, one that returns nothing, and groups", function()
    local x, y = start()
    local optimizer = optim.LBFGS {x}
    check.raises("LBFGS:step: closure: expected a function or something callable, got nil", function()
      optimizer:step()
    end)
    check.raises("LBFGS: step: expected the closure to return the loss, got nil", function()
      optimizer:step(function() end)
    end)
    check.raises("LBFGS: it has one group of parameters", function() optim.LBFGS {{params = {x}}, {params = {y}}} end)
    check.raises("LBFGS: it has one group of parameters", function() optim.LBFGS {{params = {x}, lr = 1}} end)
    check.raises("LBFGS: unknown line_search_fn 'armijo' (known: strong_wolfe)", function()
      optim.LBFGS({x}, {line_search_fn = "armijo"})
    end)
  end)
end)
