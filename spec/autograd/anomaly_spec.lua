local accelhost = require "accelhost"
local check = require "spec.support.check"
local autograd = accelhost.autograd

describe("anomaly mode", function()
  it("ends a backward at the first gradient that is nan, with the op and its line", function()
    local x = accelhost.tensor({0, 1}, {requires_grad = true})
    local function run()
      local y = x:sqrt() -- the line that is named
      return (y * 0):sum():backward()
    end
    check.raises("backward of sqrt: the gradient of input 1 holds nan; the op was called at "
      .. "spec/autograd/anomaly_spec.lua:9", function() autograd.detect_anomaly(run) end)
    assert.is_nil(x.grad)
    run()
    assert.equal(0, x.grad[1]:item())
  end)

  it("is off again after its function, also after an error", function()
    assert.equal(7, autograd.detect_anomaly(function(n) return n + 3 end, 4))
    check.raises("stop", function() autograd.detect_anomaly(function() error("stop") end) end)
    local x = accelhost.tensor({0}, {requires_grad = true});
    (x:sqrt() * 0):sum():backward()
    assert.is_true(accelhost.isnan(x.grad)[0]:item() ~= 0)
  end)

  it("searches for nan only with the option", function()
    local x = accelhost.tensor({0}, {requires_grad = true})
    autograd.set_detect_anomaly(true, {check_nan = false});
    (x:sqrt() * 0):sum():backward()
    autograd.set_detect_anomaly(false)
    assert.is_true(x.grad:isnan():all():item() ~= 0)
  end)
end)

describe("gradcheck", function()
  local Wrong = autograd.Function:extend "Wrong"
  function Wrong.forward(_, x) return x * x end
  function Wrong.backward(_, grad) return grad end

  it("accepts right derivatives, of both orders", function()
    local x = accelhost.tensor({0.5, -1.5}, {dtype = "float64", requires_grad = true})
    assert.is_true(autograd.gradcheck(function(t) return t:exp() * t end, {x}))
    assert.is_true(autograd.gradgradcheck(function(t) return t:exp() * t end, {x}))
  end)

  it("names the element of a wrong one, or answers false", function()
    local x = accelhost.tensor({0.5, -1.5}, {dtype = "float64", requires_grad = true})
    check.raises("gradcheck: input 1, element 1: the rule returns", function() autograd.gradcheck(Wrong.apply, {x}) end)
    assert.is_false(autograd.gradcheck(Wrong.apply, {x}, {raise_exception = false}))
  end)

  it("asks for float64 and for something to check", function()
    check.raises("input 1: expected float64, got float32", function()
      autograd.gradcheck(accelhost.exp, {accelhost.ones({2}, {requires_grad = true})})
    end)
    check.raises("no input requires grad", function() autograd.gradcheck(accelhost.exp, {accelhost.ones {2}}) end)
  end)
end)
