local accelhost = require "accelhost"
local nan, inf = 0 / 0, math.huge

local function leaf(value) return accelhost.tensor(value, {requires_grad = true}) end

-- The gradients that x, a minimum and a maximum get from clamp, for a gradient of 1 or the one given.
local function shares(x, low, high, gradient)
  local input, min, max = leaf(x), low and leaf(low), high and leaf(high)
  input:clamp({min = min, max = max}):backward(accelhost.tensor(gradient or 1))
  return {input.grad:item(), min and min.grad:item(), max and max.grad:item()}
end

describe("clamp between tensors", function()
  it("passes the gradient to the operand that decided, and halves of it at a bound", function()
    assert.same({0, 1, 0}, shares(-1, 0, 2))
    assert.same({0.5, 0.5, 0}, shares(0, 0, 2))
    assert.same({1, 0, 0}, shares(1, 0, 2))
    assert.same({0.5, 0, 0.5}, shares(2, 0, 2))
    assert.same({0, 0, 1}, shares(3, 0, 2))
    assert.same({0.5, 0.5}, shares(0, 0))
    assert.same({0.5, nil, 0.5}, shares(0, nil, 0))
  end)

  it("lets bounds that are equal share with no input", function()
    assert.same({0, 1, 0}, shares(0, 1, 1))
    assert.same({1, 0, 0}, shares(1, 1, 1))
    assert.same({0, 0, 1}, shares(2, 1, 1))
  end)

  it("passes all to the upper one of bounds in the wrong order", function()
    for _, x in ipairs {0, 1, 1.5, 2, 3} do assert.same({0, 0, 1}, shares(x, 2, 1)) end
  end)

  it("passes an infinite gradient to its operand alone, zeros to the others", function()
    assert.same({0, inf, 0}, shares(-1, 0, 2, inf))
    assert.same({0, inf}, shares(-1, 0, nil, inf))
    assert.same({inf, 0}, shares(1, 0, nil, inf))
  end)

  it("passes the gradient where nothing can be compared", function()
    assert.same({1, 0, 0}, shares(nan, 0, 1))
    assert.same({1, 0, 0}, shares(0, nan, 1))
    assert.same({1, 1}, shares(0, nan))
  end)
end)

describe("maximum and minimum", function()
  it("pass the gradient to both where nothing can be compared", function()
    for _, name in ipairs {"maximum", "minimum"} do
      local a, b = leaf {nan, 1, 2, 2}, leaf {1, nan, 2, 3}
      accelhost[name](a, b):sum():backward()
      local low, high = name == "minimum" and 1 or 0, name == "maximum" and 1 or 0
      assert.same({1, 1, 0.5, low}, a.grad:tolist())
      assert.same({1, 1, 0.5, high}, b.grad:tolist())
    end
  end)
end)

describe("a power of 0", function()
  it("has the derivative 0 for any incoming gradient", function()
    local base, exponent = leaf {inf, 0}, leaf {0, 2}
    local power = base ^ exponent
    power:backward(accelhost.tensor {inf, inf})
    assert.equal(0, base.grad[0]:item())
    assert.equal(0, exponent.grad[1]:item())
  end)
end)

describe("mish of halves", function()
  it("hands on gradients that times x would be beyond a half", function()
    local x = accelhost.tensor({1440}, {dtype = "float16", requires_grad = true})
    local y = accelhost.nn.functional.mish(x)
    assert.equal("float16", y.dtype)
    y:backward(accelhost.tensor({1749}, {dtype = "float16"}))
    assert.same({1749}, x.grad:tolist())
  end)
end)
