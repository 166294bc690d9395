--- Sorted and distinct values: also where values fall among borders, and differences and areas along a dim.
---@param x? userdata|table 1-d, or of y's shape
---@param dx? number default 1
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local dims = require "accelhost.util.dims"
local fail, signature, shape_text = arguments.fail, arguments.signature, arguments.shape_text
local checked, named = arguments.checked, arguments.named

local order = {}

local read_msort = signature("msort", {"input: tensor"})

--- Sorted in rising order along dim 0.
function order.msort(...)
  local values = C.sort(read_msort(...), 0)
  return values
end

-- The results that were asked for, in order.
local function chosen(values, return_inverse, inverse, return_counts, counts)
  if return_inverse and return_counts then return values, inverse, counts end
  if return_inverse then return values, inverse end
  if return_counts then return values, counts end
  return values
end

-- Slices along a dim as rows.
local function rows_of(input, dim)
  local moved = input:movedim(dim, 0)
  return moved:reshape(moved:size(0), moved:size(0) > 0 and -1 or 0), moved:shape()
end

-- Does each row differ from the one before?
local function differing(rows)
  local n = rows:size(0)
  local new = C.ones({n}, {dtype = "bool", device = rows.device})
  if n > 1 then
    new:narrow(0, 1, n - 1):copy_(rows:narrow(0, 1, n - 1):ne(rows:narrow(0, 0, n - 1)):any(1))
  end
  return new
end

local function counts_of(firsts, n)
  if n == 0 then return firsts end
  local last = C.full({1}, n, {dtype = "int64", device = firsts.device})
  return C.cat({firsts:narrow(0, 1, firsts:numel() - 1), last}, 0) - firsts
end

-- The distinct ones among neighbouring slices.
local function consecutive(input, dim)
  local rows, shape = rows_of(input, dim)
  if rows:size(1) == 0 and rows:size(0) > 0 then fail("unique: slices of %s are empty", shape_text(input)) end
  local new = differing(rows)
  local firsts = new:nonzero():reshape(-1)
  shape[1] = firsts:numel()
  local values = rows:index_select(0, firsts):reshape(shape):movedim(0, dim)
  return values, new:to("int64"):cumsum(0) - 1, counts_of(firsts, rows:size(0))
end

--- The values without those that equal the one before: of all elements in order, or of the slices along a dim.
--
--     accelhost.tensor {1, 1, 2, 1}:unique_consecutive()  --> tensor([1., 2., 1.])
---@param return_inverse? boolean|table default false; also return the position of each element in the result
---@param return_counts? boolean default false; also return the number of occurrences of each value
---@return userdata values
---@return userdata? inverse
---@return userdata? counts
order.unique_consecutive = named("unique_consecutive", {
  "input: tensor", {"return_inverse: flag", false}, {"return_counts: flag", false}, {"dim: integer"},
}, function(what, input, return_inverse, return_counts, dim)
  dim = dim and dims.wrap(what, dim, input:dim())
  local x = dim and input:dim() > 0 and input or input:reshape(-1)
  local values, inverse, counts = consecutive(x:detach(), dim or 0)
  if not dim then inverse = inverse:reshape(input:shape()) end
  return chosen(values, return_inverse, inverse, return_counts, counts)
end)

-- The order of rows: by the first column, ties by the second, ..
local function lexicographic(rows)
  local at = C.arange(rows:size(0), {device = rows.device})
  for column = rows:size(1) - 1, 0, -1 do
    at = at:index_select(0, C.argsort(rows:select(1, column):index_select(0, at), 0, false, true))
  end
  return at
end

--- The distinct values in rising order: of all elements, or the distinct slices along a dim.
--
--     accelhost.tensor {3, 1, 3}:unique()  --> tensor([1., 3.])
---@param sorted? boolean|table always true here
---@param return_inverse? boolean default false; also return the position of each element in the result
---@param return_counts? boolean default false; also return the number of occurrences of each value
---@return userdata values
---@return userdata? inverse
---@return userdata? counts
order.unique = named("unique", {
  "input: tensor", {"sorted: flag", true}, {"return_inverse: flag", false}, {"return_counts: flag", false},
  {"dim: integer"},
}, function(what, input, sorted, return_inverse, return_counts, dim)
  if not dim or input:dim() == 0 then return C.unique(input, sorted, return_inverse, return_counts) end
  dim = dims.wrap(what, dim, input:dim())
  local x = input:detach()
  local at = lexicographic((rows_of(x, dim)))
  local values, group, counts = consecutive(x:index_select(dim, at), dim)
  local inverse = C.empty_like(group, {dtype = "int64"}):index_copy_(0, at, group)
  return chosen(values, return_inverse, inverse, return_counts, counts)
end)

-- PyTorch has two words for one thing; they must not contradict each other.
local function from_the_right(what, right, side)
  if right and side == "left" then fail("%s: side = 'left' contradicts right = true", what) end
  return right or side == "right"
end

--- The place at which each value would be inserted into a sorted sequence: before its equals, after them with `right`.
--
--     accelhost.searchsorted(accelhost.tensor {1, 3, 5}, 3)  --> tensor(1)
---@param sorted_sequence userdata (..., n), rising; 1-d, or of the input's other dims
---@param out_int32? boolean|table default false; the result's dtype is int32 instead of int64
---@param side? "left"|"right" the same in words
---@param sorter? userdata int64, the order (of argsort) in which the sequence is sorted
order.searchsorted = named("searchsorted", {
  "sorted_sequence: tensor", "input: number|tensor", {"out_int32: flag", false}, {"right: flag", false},
  {"side: 'left'|'right'"}, {"sorter: tensor"},
}, function(what, sequence, input, out_int32, right, side, sorter)
  if sorter then
    if not C.same_shape(sorter, sequence) then
      fail("searchsorted: sorter %s must have the shape %s of the sequence", shape_text(sorter), shape_text(sequence))
    end
    sequence = sequence:gather(-1, sorter)
  end
  return C.searchsorted(sequence, input, out_int32, from_the_right(what, right, side))
end)

--- The bucket of each value between rising boundaries: i where boundaries[i - 1] < value <= boundaries[i], or with
--- `right` where boundaries[i - 1] <= value < boundaries[i].
--
--     accelhost.bucketize(accelhost.tensor {0, 3}, accelhost.tensor {1, 3})  --> tensor([0, 1])
---@param boundaries userdata 1-d
order.bucketize = checked("bucketize", {
  "input: number|tensor", "boundaries: tensor", {"out_int32: flag", false}, {"right: flag", false},
}, function(input, boundaries, out_int32, right)
  if boundaries:dim() ~= 1 then
    fail("bucketize: boundaries: expected 1 dim, got shape %s", shape_text(boundaries))
  end
  return C.searchsorted(boundaries, input, out_int32, right)
end)

-- The distinct tests in order, without nan, which equals nothing; on a device, where their number would have to be
-- waited for, all of them.
local function sorted_tests(tests)
  if tests.device ~= "cpu" then return (C.sort(tests:reshape(-1))) end
  local distinct = C.unique(tests)
  if not distinct:is_floating_point() then return distinct end
  return distinct:narrow(0, 0, distinct:eq(distinct):sum():item())
end

-- A number as a tensor that can be compared with this one's elements.
local function comparable(number, tensor)
  local dtype = tensor.dtype
  if not tensor:is_floating_point() then dtype = number == math.floor(number) and "int64" or "float64" end
  return C.full({}, number, {dtype = dtype, device = tensor.device})
end

--- Is each element among the test elements? bool, of the elements' shape.
--
--     accelhost.isin(accelhost.tensor {1, 2, 3}, accelhost.tensor {2, 3})  --> tensor([false,  true,  true])
---@param assume_unique? boolean|table makes no difference here
---@param invert? boolean default false; is it not among them?
order.isin = checked("isin", {
  "elements: number|tensor", "test_elements: number|tensor", {"assume_unique: flag", false}, {"invert: flag", false},
}, function(elements, tests, _, invert)
  if not C.is_tensor(elements) and not C.is_tensor(tests) then fail("isin: expected at least one tensor") end
  if not C.is_tensor(elements) then elements = comparable(elements, tests) end
  if not C.is_tensor(tests) then tests = comparable(tests, elements) end
  local dtype = C.dtype.promote_types(elements.dtype, tests.dtype)
  tests = tests:detach():to(dtype)
  local sorted = sorted_tests(tests)
  local found
  if sorted:numel() == 0 then
    found = C.zeros(elements:shape(), {dtype = "bool", device = elements.device})
  else
    local x = elements:detach():to(dtype)
    local at = C.searchsorted(sorted, x):clamp_max(sorted:numel() - 1)
    found = sorted:take(at):eq(x)
  end
  return invert and found:logical_not() or found
end)

--- The number of values in each of `bins` equal parts of min..max (of the values' own range when both are equal, as by
--- default). Values outside of them and nan are not counted; max itself falls into the last bin.
--
--     accelhost.tensor {1, 2, 2, 4}:histc(3)  --> tensor([1., 2., 1.])
---@param input userdata floating
---@return userdata (bins) of the input's dtype
order.histc = checked("histc", {
  "input: tensor", {"bins: count", 100}, {"min: number", 0}, {"max: number", 0},
}, function(input, bins, low, high)
  if not input:is_floating_point() then fail("histc: input: expected a floating dtype, got %s", input.dtype) end
  local x = input:detach():reshape(-1):to "float64"
  if low == high and x:numel() > 0 then low, high = x:amin():item(), x:amax():item() end
  if low == high then low, high = low - 1, high + 1 end
  if not (low < high) or low == -math.huge or high == math.huge then
    fail("histc: the range %g..%g is not finite or empty", low, high)
  end
  local above, below = x:ge(low), x:le(high)
  local inside = above:logical_and_(below)
  local kept = x:masked_select(inside)
  for _, tensor in ipairs {x, above, below} do tensor:free() end
  local places = kept:sub_(low):div_(high - low):mul_(bins)
  local at = places:to("int64"):clamp_max_(bins - 1)
  places:free()
  local counts = C.bincount(at, {minlength = bins})
  at:free()
  return counts:to(input.dtype)
end)

--- The differences of neighbours along a dim, n times; of bool where neighbours differ.
--
--     accelhost.tensor {1, 4, 9}:diff()  --> tensor([3., 5.])
---@param prepend? userdata values before the input, of as many dims
---@param append? userdata values after it
order.diff = named("diff", {
  "input: tensor", {"n: size", 1}, {"dim: integer", -1}, {"prepend: tensor"}, {"append: tensor"},
}, function(what, input, n, dim, before, after)
  if input:dim() == 0 then fail("diff: input: expected at least 1 dim, got a 0-dim tensor") end
  dim = dims.wrap(what, dim, input:dim())
  if n == 0 then return input:clone() end
  local x = input
  if before or after then
    local parts = {}
    for _, part in ipairs {before or false, input, after or false} do
      if part then parts[#parts + 1] = part end
    end
    x = C.cat(parts, dim)
  end
  for _ = 1, math.min(n, x:size(dim)) do
    local size = x:size(dim)
    local left, right = x:narrow(dim, 0, math.max(size - 1, 0)), x:narrow(dim, math.min(1, size), math.max(size - 1, 0))
    x = x.dtype == "bool" and right:logical_xor(left) or right - left
  end
  return x
end)

-- Sums of neighbours along a dim.
local function neighbours(y, dim)
  local n = y:size(dim)
  return y:narrow(dim, math.min(1, n), math.max(n - 1, 0)) + y:narrow(dim, 0, math.max(n - 1, 0))
end

-- The distances of neighbours along a dim (a number or a tensor), and the dim.
local function steps_along(what, y, x, dx, dim)
  if x and dx then fail("%s: expected x or dx, not both", what) end
  if y:dim() == 0 then fail("%s: y: expected at least 1 dim, got a 0-dim tensor", what) end
  dim = dims.wrap(what, dim, y:dim())
  local n = y:size(dim)
  if n > 0 and (y.dtype == "bool" or x and x.dtype == "bool") then fail("%s: expected numbers, got bool", what) end
  if not x then return dx or 1, dim end
  if x:dim() == 1 then
    local shape = {}
    for d = 1, y:dim() do shape[d] = d == dim + 1 and x:numel() or 1 end
    x = x:reshape(shape)
  end
  if x:dim() ~= y:dim() or x:size(dim) ~= n then
    fail("%s: x %s does not fit dim %d of y %s", what, shape_text(x), dim, shape_text(y))
  end
  return order.diff(x, 1, dim), dim
end

local under = {"y: tensor", {"x: tensor"}, {"dx: number"}, {"dim: integer", -1}}

local function trapezoid(what)
  local read = signature(what, under)
  return function(...)
    local y, x, dx, given = read(...)
    local steps, dim = steps_along(what, y, x, dx, given)
    if y:size(dim) == 0 then return y:detach():sum {dim = dim, dtype = y.dtype} end
    if x then return (neighbours(y, dim) * steps):sum(dim) / 2 end
    return (y:sum(dim) - (y:select(dim, 0) + y:select(dim, -1)) * 0.5) * steps
  end
end

--- The area under y along a dim by the trapezoidal rule, at the places x, or at places dx apart. Whole numbers yield
--- float32, and are multiplied and summed as whole numbers if x is passed.
--
--     accelhost.trapezoid(accelhost.tensor {1, 2, 3})  --> tensor(4.)
order.trapezoid = trapezoid "trapezoid"

--- The same as trapezoid.
order.trapz = trapezoid "trapz"

--- The area under y up to each place along a dim.
order.cumulative_trapezoid = named("cumulative_trapezoid", under, function(what, y, x, dx, given)
  local steps, dim = steps_along(what, y, x, dx, given)
  local sums = neighbours(y, dim)
  if C.is_tensor(steps) then return (sums * steps):cumsum(dim) / 2 end
  return ((sums:is_floating_point() and sums or sums:to "float32") * (steps / 2)):cumsum(dim)
end)

return order
