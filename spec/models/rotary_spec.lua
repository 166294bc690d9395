-- Rotations of heads by one op: as by products and a sum.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"

local function by_ops(x, cos, sin)
  local half = x:size(-1) / 2
  local swapped = C.cat({x:narrow(-1, half, half), x:narrow(-1, 0, half)}, -1)
  return (x:to(cos.dtype) * cos + swapped:to(cos.dtype) * sin):to(x.dtype)
end

-- Heads behind tokens in memory, and angles of each token.
local function inputs(dtype, batch, heads, tokens, width)
  accelhost.manual_seed(batch + 10 * heads + tokens)
  local angles = dtype == "float64" and "float64" or "float32"
  return accelhost.randn(batch, tokens, heads, width):to(dtype):transpose(1, 2),
    accelhost.randn(tokens, width):to(angles), accelhost.randn(tokens, width):to(angles)
end

describe("rotary", function()
  for dtype, bound in pairs {float32 = 1e-6, float64 = 1e-14, bfloat16 = 0.02, float16 = 0.002} do
    it("rotates heads by the angles of their tokens: " .. dtype, function()
      for _, size in ipairs {{1, 3, 1, 64}, {2, 3, 5, 6}, {1, 1, 700, 34}, {3, 2, 1, 2}} do
        local x, cos, sin = inputs(dtype, unpack(size))
        local found = C.rotary(x, cos, sin)
        assert.equal(dtype, found.dtype)
        assert.is_true(found:is_contiguous())
        local difference = (by_ops(x, cos, sin):double() - found:double()):abs():max():item()
        assert.is_true(difference <= bound * 4)
      end
    end)
  end

  it("reads angles of each text, angles of all heads and tensors with gaps between numbers", function()
    local x = inputs("float32", 2, 3, 5, 8)
    local cos, sin = accelhost.randn(2, 1, 5, 8), accelhost.randn(2, 1, 5, 8)
    check.near(check.flat(by_ops(x, cos, sin)), C.rotary(x, cos, sin), 1e-6)
    cos, sin = accelhost.randn(8), accelhost.randn(3, 1, 8)
    check.near(check.flat(by_ops(x, cos, sin)), C.rotary(x, cos, sin), 1e-6)
    local wide, turned = accelhost.randn(2, 3, 5, 16), accelhost.randn(8, 5):t()
    local gaps = wide:as_strided({2, 3, 5, 8}, {240, 80, 16, 2})
    check.near(check.flat(by_ops(gaps, turned, sin)), C.rotary(gaps, turned, sin), 1e-6)
  end)

  it("returns an empty tensor of an empty one", function()
    assert.equal(0, C.rotary(accelhost.zeros(2, 0, 4), accelhost.zeros(4), accelhost.zeros(4)):numel())
  end)

  it("has first and second derivatives of heads, cosines and sines", function()
    local x, cos, sin = inputs("float64", 2, 2, 3, 4)
    local leaves = {x:contiguous():requires_grad_(), cos:requires_grad_(), sin:requires_grad_()}
    local function fn(a, b, c) return C.rotary(a:transpose(1, 2):contiguous():transpose(1, 2), b, c) end
    gradcheck.gradcheck(fn, leaves)
    gradcheck.gradgradcheck(fn, leaves)
  end)

  it("holds only the angles for the gradient of heads", function()
    if accelhost.get_default_device() ~= "cpu" then return end
    local x, cos, sin = inputs("float32", 1, 4, 1024, 256)
    local leaf = accelhost.zeros(1):requires_grad_()
    collectgarbage()
    local before = C.system.memory_stats().live
    local turned = C.rotary(x + leaf, cos, sin)
    collectgarbage()
    local held = (C.system.memory_stats().live - before) / (4 * x:numel())
    assert.is_true(held > 0.9 and held < 1.5)
    turned:sum():backward()
    assert.is_true(leaf.grad:item() ~= 0)
  end)

  it("reports wrong arguments", function()
    local x = accelhost.zeros(2, 3, 4)
    check.raises("rotary: expected an input with an even last dim, got (3,)", function()
      C.rotary(accelhost.zeros(3), accelhost.zeros(3), accelhost.zeros(3))
    end)
    for _, cos in ipairs {accelhost.zeros(3, 2), accelhost.zeros(2, 4), accelhost.zeros(1, 2, 3, 4)} do
      check.raises("rotary: expected float32 cos and sin that broadcast to the input's (2, 3, 4), got float32 "
        .. ("(%s) and float32 (4,)"):format(table.concat(cos:shape(), ", ")), function()
        C.rotary(x, cos, accelhost.zeros(4))
      end)
    end
    check.raises("rotary: expected float32 cos and sin that broadcast to the input's (2, 3, 4), got float32 (4,) and "
      .. "float64 (4,)", function() C.rotary(x:bfloat16(), accelhost.zeros(4), accelhost.zeros(4):double()) end)
  end)
end)
