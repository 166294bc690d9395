--- Medians and quantiles: with other order statistics, sums that pass over nan, and covariances.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local dims = require "accelhost.util.dims"
local fail, signature, shape_text = arguments.fail, arguments.signature, arguments.shape_text
local checked, named = arguments.checked, arguments.named

local statistics = {}

local function expect_numbers(what, input)
  if input.dtype == "bool" then fail("%s: not defined for bool", what) end
end

local function expect_floats(what, input)
  if not input:is_floating_point() then fail("%s: input: expected a floating dtype, got %s", what, input.dtype) end
end

-- The size of a dim that must have entries. A 0-dim tensor has one.
local function size_along(what, input, dim)
  local n = input:dim() == 0 and 1 or input:size(dim)
  if n == 0 then fail("%s: dim %d of %s has no entries", what, dim, shape_text(input)) end
  return n
end

local function nan_mask(input)
  return input:is_floating_point() and input:isnan() or C.zeros_like(input, {dtype = "bool"})
end

-- The entry of rank `place` in each line (a number, or int64 with as many along the dim as wanted): value and index.
local function entry_at(input, place, dim)
  if type(place) == "number" then
    local size = input:shape()
    size[dim + 1] = 1
    place = C.full(size, place, {dtype = "int64", device = input.device})
  end
  local index = C.argrank(input:detach(), place, dim)
  return input:gather(dim, index), index
end

-- The same for one rank, the dim dropped unless kept.
local function pick(input, place, dim, keepdim)
  local value, index = entry_at(input, place, dim)
  if not keepdim then value, index = value:squeeze(dim), index:squeeze(dim) end
  return value, index
end

-- Lines of a 0-dim tensor: itself, and place 0.
local function alone(input)
  return input:clone(), C.zeros({}, {dtype = "int64", device = input.device})
end

local reducing = {"input: tensor", {"dim: integer"}, {"keepdim: flag", false}}

-- The middle entry of each line, the lower of two; a nan in the line is the result, or does not count with `skip`.
local function median_along(what, input, dim, keepdim, skip)
  dim = dims.wrap(what, dim, input:dim())
  local n = size_along(what, input, dim)
  if input:dim() == 0 then return alone(input) end
  local nans = nan_mask(input:detach()):sum(dim, true)
  local place
  if skip then
    place = (nans * -1 + (n - 1)):clamp_min(0):div(2, "floor")
  else
    place = C.where(nans:gt(0), nans * -1 + n, math.floor((n - 1) / 2))
  end
  return pick(input, place, dim, keepdim)
end

-- Without dim one value, whose equals share the gradient.
local function median_of_all(input, skip)
  if input:numel() == 0 then
    if not input:is_floating_point() then fail("median: there is no median of no elements of %s", input.dtype) end
    return C.full({}, 0 / 0, {dtype = input.dtype, device = input.device})
  end
  local flat = input:reshape(-1)
  local values = flat:detach()
  local greatest = input:is_floating_point() and C.amax(values) or nil -- nan where one is among the values
  local number = greatest and greatest:item()
  local has_nan, value = number ~= number
  if has_nan and not skip then
    value = greatest
  elseif has_nan then
    value = (median_along("median", values, 0, false, skip))
  else
    value = (pick(values, math.floor((values:numel() - 1) / 2), 0, false))
  end
  if not (input.requires_grad and C.autograd.is_grad_enabled()) then return value end
  if nan_mask(value):item() then return flat:masked_select(nan_mask(values)):mean() end
  return flat:masked_select(values:eq(value)):amax()
end

-- Make a median, which leaves out nans with `skip`.
local function median(what, skip)
  local read = signature(what, reducing)
  return function(...)
    local input, dim, keepdim = read(...)
    expect_numbers(what, input)
    if dim then return median_along(what, input, dim, keepdim, skip) end
    return median_of_all(input, skip)
  end
end

--- The middle of the values, the lower one of two: of all elements one value; with a dim the values along it and where
--- they are. A nan among the values is the result.
--
--     accelhost.tensor {3, 1, 2}:median()  --> tensor(2.)
---@return userdata values
---@return userdata? indices int64
statistics.median = median("median", false)

--- The median of the values that are not nan.
---@return userdata values
---@return userdata? indices int64
statistics.nanmedian = median("nanmedian", true)

--- The k-th smallest value along a dim, k counting from 1 as in PyTorch, and where it is. nan counts as the largest.
--
--     accelhost.tensor {3, 1, 2}:kthvalue(1)  --> tensor(1.), tensor(1)
---@param k integer 1 is the smallest
---@return userdata values
---@return userdata indices int64
statistics.kthvalue = named("kthvalue", {
  "input: tensor", "k: count", {"dim: integer", -1}, {"keepdim: flag", false},
}, function(what, input, k, dim, keepdim)
  expect_numbers(what, input)
  dim = dims.wrap(what, dim, input:dim())
  local n = size_along(what, input, dim)
  if k > n then fail("kthvalue: k is %d, but dim %d of %s has %d entries", k, dim, shape_text(input), n) end
  if input:dim() == 0 then return alone(input) end
  return pick(input, k - 1, dim, keepdim)
end)

--- The most frequent value along a dim, the smallest of several, and the last place where it is.
--
--     accelhost.tensor {5, 3, 5}:mode()  --> tensor(5.), tensor(2)
---@return userdata values
---@return userdata indices int64
statistics.mode = named("mode", {
  "input: tensor", {"dim: integer", -1}, {"keepdim: flag", false},
}, function(what, input, dim, keepdim)
  dim = dims.wrap(what, dim, input:dim())
  local n = size_along(what, input, dim)
  if input:dim() == 0 then return alone(input) end
  local sorted, order = C.sort(input:detach(), dim, false, true)
  local size = input:shape()
  for d = 1, #size do size[d] = d == dim + 1 and n or 1 end
  local at = C.arange(n, {device = input.device}):reshape(size):expand(input:shape())
  local first = C.zeros_like(at, {dtype = "int64"})
  if n > 1 then
    local new = sorted:narrow(dim, 1, n - 1):ne(sorted:narrow(dim, 0, n - 1))
    first:narrow(dim, 1, n - 1):copy_(C.where(new, at:narrow(dim, 1, n - 1), 0))
  end
  local run = at - (C.cummax(first, dim))
  local index = order:gather(dim, run:argmax(dim, true))
  local value = input:gather(dim, index)
  if keepdim then return value, index end
  return value:squeeze(dim), index:squeeze(dim)
end)

local interpolations = "'linear'|'lower'|'higher'|'midpoint'|'nearest'"
local quantiles = {
  "input: tensor", "q: number|tensor", {"dim: integer"}, {"keepdim: flag", false},
  {"interpolation: " .. interpolations, "linear"},
}

-- Between the entries of ranks floor(rank) and ceil(rank) in each line.
local function between(input, rank, dim, how)
  local below, above = rank:floor(), rank:ceil()
  if how == "lower" then above = below elseif how == "higher" then below = above end
  if how == "nearest" then
    below = rank:round()
    above = below
  end
  if how == "lower" or how == "higher" or how == "nearest" then
    return (entry_at(input, below:to "int64", dim))
  end
  local count = rank:size(dim)
  local both = entry_at(input, C.cat({below, above}, dim):to "int64", dim)
  local fraction = how == "midpoint" and C.full_like(rank, 0.5) or rank - below
  return C.lerp(both:narrow(dim, 0, count), both:narrow(dim, count, count), fraction:to(input.dtype))
end

local function check_chances(what, input, q)
  if not C.is_tensor(q) then q = C.full({}, q, {dtype = input.dtype, device = input.device}) end
  if q.dtype ~= input.dtype then fail("%s: q is %s but input is %s", what, q.dtype, input.dtype) end
  if q:dim() > 1 then fail("%s: q: expected at most 1 dim, got shape %s", what, shape_text(q)) end
  if not q:ge(0):logical_and(q:le(1)):all():item() then fail("%s: q: expected values in 0..1", what) end
  return q
end

local function quantile(what, skip, input, q, dim, keepdim, how)
  if input.dtype ~= "float32" and input.dtype ~= "float64" then
    fail("%s: input: expected float32 or float64, got %s", what, input.dtype)
  end
  if input:numel() == 0 then fail("%s: input: expected some elements, got shape %s", what, shape_text(input)) end
  q = check_chances(what, input, q)
  local kept = input:shape()
  local x
  if dim then
    dim = dims.wrap(what, dim, input:dim())
    if #kept > 0 then kept[dim + 1] = 1 end
    x = input:dim() == 0 and input:reshape(1) or input:movedim(dim, -1)
  else
    for d = 1, #kept do kept[d] = 1 end
    x = input:reshape(-1)
  end
  local n = x:size(-1)
  local nans = nan_mask(x:detach()):sum(-1, true)
  -- Ranks q * (n - 1), one for each q in the last dim; of a line with nan the last, which is nan.
  local last = (skip and (nans * -1 + (n - 1)):clamp_min(0) or C.full_like(nans, n - 1)):to(input.dtype)
  local rank = last * q:reshape(-1)
  if not skip then rank = C.where(nans:gt(0), n - 1, rank) end
  local result = between(x, rank, -1, how):movedim(-1, 0) -- (q, lines)
  if keepdim then
    result = result:reshape {result:size(0), unpack(kept)}
  elseif not dim or input:dim() == 0 then
    result = result:reshape(result:size(0))
  end
  return q:dim() == 0 and result:squeeze(0) or result
end

local read_quantile = signature("quantile", quantiles)

--- The q-quantile, the value below which a fraction q of the values is: of all elements, or along a dim. Between two
--- values the result is interpolated. For a 1-d q the quantiles are dim 0 of the result. A nan among the values is the
--- result.
--
--     accelhost.tensor {1, 2, 3, 4}:quantile(0.5)  --> tensor(2.5000)
---@param input userdata float32 or float64
---@param q number|userdata in 0..1
function statistics.quantile(...) return quantile("quantile", false, read_quantile(...)) end

local read_nanquantile = signature("nanquantile", quantiles)

--- The quantile of the values that are not nan.
---@param input userdata float32 or float64
---@param q number|userdata in 0..1
function statistics.nanquantile(...) return quantile("nanquantile", true, read_nanquantile(...)) end

local summing = {"input: tensor", {"dim: integer|integers"}, {"keepdim: flag", false}, {"dtype: dtype"}}

--- The mean of the values that are not nan; nan where there are none.
---@param input userdata floating
statistics.nanmean = named("nanmean", summing, function(what, input, dim, keepdim, dtype)
  expect_floats(what, input)
  local count = C.sum(input:detach():isnan():logical_not(), dim, keepdim)
  return C.nansum(input, dim, keepdim, dtype) / count
end)

--- The smallest and the largest value, of all elements or along a dim. A nan among the values is both.
---@return userdata min
---@return userdata max
statistics.aminmax = checked("aminmax", {
  "input: tensor", {"dim: integer"}, {"keepdim: flag", false},
}, function(input, dim, keepdim)
  return C.amin(input, dim, keepdim), C.amax(input, dim, keepdim)
end)

local function check_weights(name, weights, n, dtypes)
  if weights:dim() ~= 1 or weights:numel() ~= n then
    fail("cov: %s: expected shape (%d,), got %s", name, n, shape_text(weights))
  end
  if dtypes ~= (weights:is_floating_point() and "float" or "integer") then
    fail("cov: %s: expected %s weights, got %s", name, dtypes, weights.dtype)
  end
  if weights:lt(0):any():item() then fail("cov: %s: expected weights of at least 0", name) end
end

--- The covariance matrix of variables in rows and observations in columns; of a vector its variance.
--
--     accelhost.tensor({{1, 2}, {2, 4}}):cov()  --> tensor([[0.5000, 1.0000], [1.0000, 2.0000]])
---@param input userdata (variables, n) or (n)
---@param correction? integer|table default 1: divide by n - 1
---@param fweights? userdata (n) integers, repetitions of each observation
---@param aweights? userdata (n) floats, weight of each observation
---@return userdata (variables, variables), 0-dim of one variable
statistics.cov = named("cov", {
  "input: tensor", {"correction: integer", 1}, {"fweights: tensor"}, {"aweights: tensor"},
}, function(what, input, correction, fweights, aweights)
  expect_numbers(what, input)
  if input:dim() > 2 then fail("cov: input: expected at most 2 dims, got shape %s", shape_text(input)) end
  local x = input:dim() < 2 and input:reshape(1, -1) or input
  if not x:is_floating_point() then x = x:to "float32" end
  local n, weights = x:size(1), nil
  if fweights then
    check_weights("fweights", fweights, n, "integer")
    weights = fweights
  end
  if aweights then
    check_weights("aweights", aweights, n, "float")
    weights = weights and weights * aweights or aweights
  end
  local total = weights and weights:sum():to(x.dtype) or C.full({}, n, {dtype = x.dtype, device = x.device})
  local mean = weights and (x * weights):sum(1, true) / total or x:mean(1, true)
  local norm = total - correction
  if weights and aweights and correction ~= 0 then
    norm = total - (weights * aweights):sum():to(x.dtype) * correction / total
  end
  local away = x - mean
  local product = C.matmul(away, (weights and away * weights or away):t())
  local result = product / norm:clamp_min(0)
  product:free()
  away:free()
  return result:numel() == 1 and result:reshape {} or result
end)

--- The matrix of Pearson's correlation coefficients of variables in rows, within -1..1.
---@param input userdata (variables, n) or (n)
statistics.corrcoef = named("corrcoef", {"input: tensor"}, function(what, input)
  expect_numbers(what, input)
  local cov = statistics.cov(input)
  if cov:dim() == 0 then return cov / cov end
  local deviation = cov:diagonal():sqrt()
  return (cov / deviation:unsqueeze(1) / deviation:unsqueeze(0)):clamp(-1, 1)
end)

autocast(statistics, "float32", "quantile nanquantile", "none")

return statistics
