--- Further forms of functions: in place, as methods, for several meanings of one name; and those that do nothing to
--- real numbers.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local dims = require "accelhost.util.dims"
local fail, signature = arguments.fail, arguments.signature
local checked, named = arguments.checked, arguments.named

local variants = {}

local scaled = {{"beta: number", 1}, {"alpha: number", 1}}

local function in_place(name, first, second)
  local read = signature(name .. "_", {"input: tensor", first .. ": tensor", second .. ": tensor", unpack(scaled)})
  return function(...)
    local input, a, b, beta, alpha = read(...)
    return input:copy_(input[name](input, a, b, {beta = beta, alpha = alpha}))
  end
end

--- beta * input + alpha * (mat1 @ mat2), written into the input.
---@type fun(input: userdata, mat1: userdata, mat2: userdata, beta?: number|table, alpha?: number): userdata
variants.addmm_ = in_place("addmm", "mat1", "mat2")

--- beta * input + alpha * (batch1 @ batch2), written into the input.
---@type fun(input: userdata, batch1: userdata, batch2: userdata, beta?: number|table, alpha?: number): userdata
variants.baddbmm_ = in_place("baddbmm", "batch1", "batch2")

--- beta * input + alpha * (mat @ vec), written into the input.
---@type fun(input: userdata, mat: userdata, vec: userdata, beta?: number|table, alpha?: number): userdata
variants.addmv_ = in_place("addmv", "mat", "vec")

--- beta * input + alpha * outer(vec1, vec2), written into the input.
---@type fun(input: userdata, vec1: userdata, vec2: userdata, beta?: number|table, alpha?: number): userdata
variants.addr_ = in_place("addr", "vec1", "vec2")

--- beta * input + alpha * the sum of the batch's products, written into the input.
---@type fun(input: userdata, batch1: userdata, batch2: userdata, beta?: number|table, alpha?: number): userdata
variants.addbmm_ = in_place("addbmm", "batch1", "batch2")

--- The input where a condition holds, `other` elsewhere: x:where(condition, other). Shapes broadcast.
---@param input userdata
---@param condition userdata bool
---@param other number|userdata
function variants.where_method(input, condition, other)
  arguments.check("where", "input", "tensor", input)
  arguments.check("where", "condition", "tensor", condition)
  arguments.check("where", "other", "number|flag|tensor", other)
  return C.where(condition, input, other)
end

--- One value where a condition holds, another elsewhere; of a condition alone the places where it does, as
--- nonzero(condition, true).
--
--     accelhost.where(accelhost.tensor {true, false}, 1, 2)  --> tensor([1, 2])
---@param condition userdata bool
---@return userdata|userdata[]
function variants.where(condition, ...)
  if select("#", ...) > 0 or not C.is_tensor(condition) then return C.where(condition, ...) end
  return condition:nonzero(true)
end

--- The logarithm of the gamma function of p dimensions: a constant and the sum of lgamma(input - k/2), k in 0..p - 1.
---@param input userdata above (p - 1) / 2, where it is the logarithm of the function
variants.mvlgamma = checked("mvlgamma", {"input: tensor", "p: count"}, function(input, p)
  if p > 2 ^ 16 then fail("mvlgamma: p: expected at most 65536, got %g", p) end
  local x = input:is_floating_point() and input or input:to "float32"
  local half, size = C.arange(p, {dtype = x.dtype, device = x.device}) / 2, {p}
  for d = 1, x:dim() do size[d + 1] = 1 end
  local shifted = x:unsqueeze(0) - half:reshape(size)
  local each = shifted:lgamma()
  shifted:free()
  local result = each:sum(0) + p * (p - 1) / 4 * math.log(math.pi)
  each:free()
  return result
end)

--- Positions that count through a shape in row-major order, as one tensor of int64 indices for each of its dims.
--
--     accelhost.unravel_index(accelhost.tensor({5}, {dtype = "int64"}), {2, 3})[2]  --> tensor([2])
---@param indices userdata integers
---@return userdata[]
variants.unravel_index = checked("unravel_index", {"indices: tensor", "shape: sizes"}, function(indices, shape)
  if type(shape) == "number" then shape = {shape} end
  if indices:is_floating_point() or indices.dtype == "bool" then
    fail("unravel_index: indices: expected integers, got %s", indices.dtype)
  end
  indices = indices:to "int64"
  local total = dims.product(shape)
  if indices:numel() > 0 and (total == 0 or indices:lt(-total):logical_or(indices:ge(total)):any():item()) then
    fail("unravel_index: indices: expected positions within the %d elements of the shape", total)
  end
  local rest, list = C.where(indices:lt(0), indices + total, indices), {}
  for d = #shape, 1, -1 do
    list[d] = rest:remainder(math.max(shape[d], 1))
    rest = rest:div(math.max(shape[d], 1), "floor")
  end
  return list
end)

--- Views of these sizes along a dim, as split with a table of sizes.
---@return userdata[]
variants.split_with_sizes = checked("split_with_sizes", {
  "input: tensor", "split_sizes: sizes", {"dim: integer", 0},
}, function(input, sizes, dim)
  return input:split(type(sizes) == "number" and {sizes} or sizes, dim)
end)

local read_sum_to_size = signature("sum_to_size", {"input: tensor", "size: sizes"})

--- The sum over the dims that broadcasting added or stretched, down to a size that broadcasts to the input's. Sums of
--- whole numbers are int64.
---@param size integer|integer[] a table, or one number after the other
function variants.sum_to_size(input, size, ...)
  if type(size) == "number" and type((...)) == "number" then
    input, size = read_sum_to_size(input, {size, ...})
  else
    input, size = read_sum_to_size(input, size, ...)
  end
  if type(size) == "number" then size = {size} end
  if #size == 0 then return input:sum() end
  local missing, sums = input:dim() - #size, false
  for d, n in ipairs(size) do sums = sums or missing >= 0 and n ~= input:size(missing + d - 1) end
  if (missing > 0 or sums) and not input:is_floating_point() then input = input:to "int64" end
  return C.sum_to(input, size)
end

local rounding = {"input: tensor", {"decimals: integer", 0}}
local function rounded(what, input, decimals)
  if not input:is_floating_point() then fail("%s: decimals: expected 0 for %s, got %d", what, input.dtype, decimals) end
  local scale = 10 ^ math.abs(decimals)
  if decimals > 0 then return C.round(input * scale) / scale end
  return C.round(input / scale) * scale
end

--- The nearest whole number, halves to the even one; or the nearest number of `decimals` decimals, negative ones
--- counting from the point to the left.
--
--     accelhost.round(accelhost.tensor {1.234, 25}, {decimals = 1})  --> tensor([ 1.2000, 25.0000])
---@param input userdata floating, where decimals are given
variants.round = named("round", rounding, function(what, input, decimals)
  return decimals == 0 and C.round(input) or rounded(what, input, decimals)
end)

--- round, written into the input.
---@return userdata input
variants.round_ = named("round_", rounding, function(what, input, decimals)
  return decimals == 0 and C.round_(input) or input:copy_(rounded(what, input, decimals))
end)

local function itself(name)
  local read = signature(name, {"input: tensor"})
  return function(...) return (read(...)) end
end

--- The real part: the input itself.
---@type fun(input: userdata): userdata
variants.real = itself "real"

--- The complex conjugate: of real numbers the input itself.
---@type fun(input: userdata): userdata
variants.conj = itself "conj"

--- The input itself: no conjugation is ever deferred here.
---@type fun(input: userdata): userdata
variants.resolve_conj = itself "resolve_conj"

--- The input itself: no negation is ever deferred here.
---@type fun(input: userdata): userdata
variants.resolve_neg = itself "resolve_neg"

autocast(variants, "own", "addmm_ baddbmm_ addmv_ addr_ addbmm_")

return variants
