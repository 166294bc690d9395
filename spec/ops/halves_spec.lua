--- Elementwise ops of float16 and bfloat16, most of them for every number of the dtype.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local F = accelhost.nn.functional
local inf, nan = 1 / 0, 0 / 0

-- Every number of a dtype of 16 bits.
local function all_of(dtype)
  local bits = accelhost.arange(-32768, 32768, {device = "cpu"}):to "int16" -- devices have no int16
  return bits:view(dtype):to(accelhost.get_default_device())
end

describe("arithmetic of halves", function()
  for _, dtype in ipairs {"float16", "bfloat16"} do
    it("is that of float32, rounded to " .. dtype .. ", of any layout", function()
      accelhost.manual_seed(4)
      for _, n in ipairs {1, 15, 16, 17, 50, 600} do
        local x, y = accelhost.randn(3, n):mul(100):to(dtype), accelhost.randn(3, n):to(dtype)
        x[0][0], x[1][n - 1], x[2][0], y[1][0], y[2][n - 1], y[0][n - 1] = nan, inf, 0, nan, 0, 3e38
        local one = y[0][n > 1 and 1 or 0]
        for _, name in ipairs {"add", "sub", "mul", "div", "maximum", "minimum"} do
          local function wide(a) return type(a) == "number" and a or a:float() end
          local function joined(a, b) return accelhost[name](wide(a), wide(b)):to(dtype) end
          for _, pair in ipairs {{x, y}, {x, one}, {one, x}, {x:t(), y:t()}, {x, y[1]}, {x:narrow(1, n - 1, 1), y},
              {x, 2.3}, {-0.7, y}, {x:t(), 3}, {y, accelhost.tensor(1.1)}} do
            local a, b = unpack(pair)
            if type(a) == "number" and name:find "imum" then a = y end
            local wanted, got = joined(a, b), accelhost[name](a, b)
            check.near(check.flat(wanted), got, 0)
            check.near(check.flat(1 / wanted:float()), 1 / got:float(), 0)
          end
        end
        for _, name in ipairs {"square", "reciprocal", "sqrt", "rsqrt"} do
          for _, a in ipairs {x, x:t(), y:narrow(1, n - 1, 1)} do
            local wanted, got = accelhost[name](a:float()):to(dtype), accelhost[name](a)
            check.near(check.flat(wanted), got, 0)
            check.near(check.flat(1 / wanted:float()), 1 / got:float(), 0)
          end
        end
        local into = x:clone()
        check.near(check.flat((x:float() + y:float()):to(dtype)), into:add_(y), 0)
        check.near(check.flat((y:float() * into:float()):to(dtype)), into:mul_(y), 0)
      end
    end)
  end
end)

describe("signs of halves", function()
  for _, dtype in ipairs {"float16", "bfloat16"} do
    it("are changed as those of float32 for every " .. dtype, function()
      local x = all_of(dtype)
      local other = x:roll(12345, 0)
      for _, case in ipairs {{"neg"}, {"abs"}, {"copysign", other}} do
        local name, second = unpack(case)
        local function changed(from, with) return with and from[name](from, with) or from[name](from) end
        local wide, got = changed(x:float(), second and second:float()), changed(x, second)
        check.near(check.flat(wide), got, 0)
        check.near(check.flat(1 / wide), 1 / got:float(), 0)
        local every = accelhost.stack({x, x}, 1):select(1, 0)
        check.near(check.flat(got), changed(every, second), 0)
      end
    end)
  end
end)

describe("relu of halves", function()
  for _, dtype in ipairs {"float16", "bfloat16"} do
    it("is that of float32 for every " .. dtype .. ", as is its gradient", function()
      local x = all_of(dtype)
      local half, wide = x:clone():requires_grad_(), x:float():requires_grad_()
      local a, b = half:relu(), wide:relu()
      check.near(check.flat(b), a, 0)
      check.near(check.flat(1 / b), 1 / a:float(), 0) -- the signs of zeros
      a:backward(accelhost.ones_like(a))
      b:backward(accelhost.ones_like(b))
      check.near(check.flat(wide.grad), half.grad, 0)
      local every = accelhost.stack({x, x}, 1):select(1, 0)
      check.near(check.flat(a), every:relu(), 0)
      check.near(check.flat(a), every:clone():relu_(), 0)
    end)
  end
end)

describe("functions of halves", function()
  local functions = {
    exp = function(x) return x:exp() end,
    exp2 = function(x) return x:exp2() end,
    log10 = function(x) return x:log10() end,
    erfc = function(x) return x:erfc() end,
    ["the second power"] = function(x) return x:pow(2) end,
    ["the third power"] = function(x) return x:pow(3) end,
    ["the power 0.5"] = function(x) return x:pow(0.5) end,
    ["the power -0.5"] = function(x) return x:pow(-0.5) end,
    ["the power -1"] = function(x) return x:pow(-1) end,
    ["the power -2"] = function(x) return x:pow(-2) end,
  }
  for _, dtype in ipairs {"float16", "bfloat16"} do
    for name, apply in pairs(functions) do
      it("are those of float64, rounded, for every " .. dtype .. ": " .. name, function()
        local x = all_of(dtype)
        local got, wanted = apply(x), apply(x:double()):to(dtype)
        assert.is_true(got:isnan():equal(wanted:isnan()))
        -- the last finite number and infinity are neighbours
        local most = dtype == "float16" and 65504 or 3.3895e38
        local a, b = got:double():clamp(-most, most):nan_to_num(), wanted:double():clamp(-most, most):nan_to_num()
        local step = dtype == "float16" and 2 ^ -10 or 2 ^ -7
        local tiny = dtype == "float16" and 2 ^ -24 or 2 ^ -124
        assert.is_true(((a - b):abs() - b:abs() * step):max():item() <= tiny)
        check.near(check.flat(got), apply(accelhost.stack({x, x}, 1):select(1, 0)), 0)
      end)
    end
  end
end)

describe("gelu of bfloat16", function()
  for _, formula in ipairs {"none", "tanh"} do
    it("is that of float64, rounded, for every number, as is its gradient: " .. formula, function()
      local x = all_of("bfloat16")
      local half, wide = x:clone():requires_grad_(), x:double():requires_grad_()
      local a, b = F.gelu(half, {approximate = formula}), F.gelu(wide, {approximate = formula})
      local finite = x:isfinite():logical_and(x:double():abs():lt(1e10)) -- the squares are finite
      local wanted, got = b:detach():masked_select(finite), a:detach():double():masked_select(finite)
      local near = got - wanted
      assert.is_true((near:abs() - wanted:abs() * 2 ^ -8):max():item() < 1e-6)
      local g = accelhost.linspace(-2, 2, 65536):to "bfloat16"
      a:backward(g)
      b:backward(g:double())
      local slope = (half.grad:double() - wide.grad):masked_select(finite)
      assert.is_true((slope:abs() - wide.grad:masked_select(finite):abs() * 2 ^ -8):max():item() < 2e-4)
      assert.same(check.flat(x:isnan()), check.flat(half.grad:isnan():logical_and(x:isnan())))
    end)
  end

  it("reads one gradient for all, and strided inputs", function()
    local x = accelhost.randn(6, 70):to "bfloat16"
    local whole, part = x:clone():requires_grad_(), x:t():requires_grad_()
    F.gelu(whole):sum():backward()
    F.gelu(part):sum():backward()
    check.near(check.flat(whole.grad:t()), part.grad, 0)
  end)
end)

describe("dropout of halves", function()
  for _, dtype in ipairs {"float16", "bfloat16"} do
    it("is the product with the mask in float32, rounded to " .. dtype .. ", as is its gradient", function()
      local x = accelhost.cat {accelhost.randn(1000), accelhost.tensor {inf, -inf, nan}}:to(dtype)
      local leaf, g = x:clone():requires_grad_(), accelhost.randn(1003):to(dtype)
      accelhost.manual_seed(7)
      local keep = F.dropout(accelhost.ones(1003), 0.3, true):ne(0)
      accelhost.manual_seed(7)
      local y = F.dropout(leaf, 0.3, true)
      local factor = keep:float() * accelhost.tensor(1 / 0.7):to(dtype):float()
      check.near(check.flat((x:float() * factor):to(dtype)), y, 0)
      y:backward(g)
      check.near(check.flat((g:float() * factor):to(dtype)), leaf.grad, 0)
    end)
  end
end)
