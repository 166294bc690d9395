--- The number of roundings of a result in fp16 or bf16: its error against float64, as a root mean square relative to
--- the result's, in units of the dtype's epsilon. One rounding has about 0.2, two 0.28.
local accelhost = require "accelhost"

local F = accelhost.nn.functional
local eps = {bfloat16 = 2 ^ -7, float16 = 2 ^ -10}

local function error_of(got, wanted, dtype)
  local off = (got:detach():double() - wanted:detach()):square():mean() / wanted:detach():square():mean()
  return off:sqrt():item() / eps[dtype]
end

-- name, shapes of the inputs, function, the most for the result and for each gradient
local cases = {
  {"group_norm", {{8, 8, 10, 10}, {8}, {8}}, function(x, w, b) return F.group_norm(x, 2, w, b) end, 0.28,
    {0.34, 0.5, 0.3}},
  {"hardswish", {{1000}}, F.hardswish, 0.24, {0.25}},
  {"addbmm", {{10, 10}, {5, 10, 10}, {5, 10, 10}}, function(x, a, b)
    return accelhost.addbmm(x, a, b, {alpha = 0.6, beta = 0.2})
  end, 0.24, {0.25, 0.25, 0.25}},
  {"conv_transpose3d", {{2, 4, 5, 5, 5}, {4, 3, 3, 3, 3}, {3}}, function(x, w, b)
    return F.conv_transpose3d(x, w, b, 1)
  end, 0.34, {0.25, 0.25, 0.3}},
}

describe("half precision", function()
  for dtype in pairs(eps) do
    for _, case in ipairs(cases) do
      local name, shapes, fn, most, most_of_grads = unpack(case)
      it(("is rounded once or twice in %s: %s"):format(dtype, name), function()
        accelhost.manual_seed(0)
        local inputs, exact = {}, {}
        for i, shape in ipairs(shapes) do
          inputs[i] = accelhost.randn(shape, {dtype = "float64"}):to(dtype):requires_grad_()
          exact[i] = inputs[i]:detach():double():requires_grad_()
        end
        local got, wanted = fn(unpack(inputs)), fn(unpack(exact))
        local off = error_of(got, wanted, dtype)
        assert.is_true(off < most, ("result: %g"):format(off))
        local weights = accelhost.randn(wanted:shape(), {dtype = "float64"}):to(dtype)
        local grads = accelhost.autograd.grad({got}, inputs, {grad_outputs = {weights}})
        local wanted_grads = accelhost.autograd.grad({wanted}, exact, {grad_outputs = {weights:double()}})
        for i, bound in ipairs(most_of_grads) do
          off = error_of(grads[i], wanted_grads[i], dtype)
          assert.is_true(off < bound, ("gradient %d: %g"):format(i, off))
        end
      end)
    end
  end
end)
