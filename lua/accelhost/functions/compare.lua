--- Comparing tensors: as a whole and within a tolerance; elementwise functions whose two forms differ.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local fail, signature, checked = arguments.fail, arguments.signature, arguments.checked

local compare = {}

--- Have both the same shape and the same elements? nan equals nothing.
--
--     accelhost.equal(accelhost.tensor {1, 2}, accelhost.tensor {1, 2})  --> true
---@return boolean
compare.equal = checked("equal", {"input: tensor", "other: tensor"}, function(input, other)
  return C.same_shape(input, other) and C.eq(input, other):all():item()
end)

local tolerances = {
  "input: tensor", "other: tensor", {"rtol: nonnegative", 1e-5}, {"atol: nonnegative", 1e-8},
  {"equal_nan: flag", false},
}

local function close(input, other, rtol, atol, equal_nan)
  return C.autograd.no_grad(function()
    if input.dtype == "bool" and other.dtype == "bool" then input, other = input:to("uint8"), other:to("uint8") end
    local room = other:abs() * rtol + atol
    local result = C.eq(input, other):logical_or((input - other):abs():le(room):logical_and(other:isfinite()))
    if equal_nan then result = result:logical_or(input:isnan():logical_and(other:isnan())) end
    return result
  end)
end

--- Is |input - other| <= atol + rtol * |other|? A bool tensor. The shapes broadcast; an infinity is close to itself,
--- nan to nan only with `equal_nan`.
--
--     accelhost.isclose(accelhost.tensor {1, 2}, accelhost.tensor {1, 2.1})  --> tensor([ true, false])
---@param other userdata of the same dtype
compare.isclose = checked("isclose", tolerances, function(input, other, rtol, atol, equal_nan)
  if input.dtype ~= other.dtype then fail("isclose: dtypes differ: %s and %s", input.dtype, other.dtype) end
  return close(input, other, rtol, atol, equal_nan)
end)

local read_allclose = signature("allclose", tolerances)

--- Is |input - other| <= atol + rtol * |other| everywhere? The shapes broadcast.
--
--     accelhost.allclose(accelhost.tensor {1}, accelhost.tensor {1.001}, {rtol = 1e-2})  --> true
---@return boolean
function compare.allclose(...)
  return close(read_allclose(...)):all():item()
end

--- The n-th derivative of digamma. Whole numbers yield float32.
--
--     accelhost.polygamma(1, accelhost.ones(1))  --> tensor([1.6449])
---@param n integer 0 or more
compare.polygamma = checked("polygamma", {"n: size", "input: tensor"}, function(n, input)
  return C.polygamma(input, n)
end)

--- Raise a float64 tensor to a power in place; other dtypes could not hold the result.
---@param input userdata float64
---@return userdata input
compare.float_power_ = checked("float_power_", {"input: tensor", "exponent: number|tensor"}, function(input, exponent)
  if input.dtype ~= "float64" then fail("float_power_: input: expected float64, got %s", input.dtype) end
  return input:pow_(exponent)
end)

return compare
