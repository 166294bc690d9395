--- The constraints of the parameters and values of distributions: a text for messages, the number of dims of an item,
--- and a test that returns a bool tensor.
local C = require "accelhost._C"
local linalg = require "accelhost.linalg"

local constraints = {}

local function define(name, text, dims, check)
  constraints[name] = {text = text, dims = dims, check = check}
end

define("real", "numbers other than nan", 0, function(x) return x:eq(x) end)
define("real_vector", "vectors without nan", 1, function(x) return x:eq(x):all(-1) end)
define("positive", "numbers above 0", 0, function(x) return x:gt(0) end)
define("nonnegative", "numbers of at least 0", 0, function(x) return x:ge(0) end)
define("unit_interval", "numbers from 0 to 1", 0, function(x) return x:ge(0):logical_and(x:le(1)) end)
define("boolean", "0 or 1", 0, function(x) return x:eq(0):logical_or(x:eq(1)) end)
define("positive_vector", "vectors of numbers above 0", 1, function(x) return x:gt(0):all(-1) end)
define("simplex", "vectors of numbers from 0 that sum to 1", 1, function(x)
  return x:ge(0):all(-1):logical_and((x:sum(-1) - 1):abs():lt(1e-6))
end)
define("one_hot", "vectors of one 1 and zeros", 1, function(x)
  return x:eq(0):logical_or(x:eq(1)):all(-1):logical_and(x:sum(-1):eq(1))
end)
define("lower_cholesky", "lower triangular matrices with a diagonal above 0", 2, function(x)
  local diagonal = x:diagonal(0, -2, -1):gt(0):all(-1)
  return x:tril():eq(x):flatten(-2):all(-1):logical_and(diagonal)
end)
define("positive_definite", "symmetric positive definite matrices", 2, function(x)
  local symmetric = (x - x:transpose(-2, -1)):abs():flatten(-2):le(1e-6):all(-1)
  if not symmetric:all():item() then return symmetric end
  local _, info = linalg.cholesky_ex(x)
  return info:eq(0)
end)

--- Whole numbers from low to high.
function constraints.integer_interval(low, high)
  return {text = ("whole numbers from %d to %d"):format(low, high), dims = 0, check = function(x)
    return x:ge(low):logical_and(x:le(high)):logical_and((x % 1):eq(0))
  end}
end

--- Numbers from low to high, which are tensors.
function constraints.interval(low, high)
  return {text = "numbers from low to high", dims = 0, check = function(x) return x:ge(low):logical_and(x:le(high)) end}
end

--- A constraint of items of `count` more dims.
function constraints.independent(base, count)
  return {text = base.text, dims = base.dims + count, check = function(x)
    local valid = base.check(x)
    for _ = 1, count do valid = valid:all(-1) end
    return valid
  end}
end

--- Do all items fit?
---@param constraint table
---@param value Tensor
function constraints.holds(constraint, value)
  return C.autograd.no_grad(function() return constraint.check(value):all():item() end)
end

return constraints
