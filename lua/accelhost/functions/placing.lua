--- Write values by position: scatters that reduce, scatters into a part of a copy, index_put. A result is
--- a copy of the input; the names that end in _ write it back.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local dims = require "accelhost.util.dims"
local fail, signature, shape_text = arguments.fail, arguments.signature, arguments.shape_text
local checked, named = arguments.checked, arguments.named

local placing = {}

-- Make a function whose result is written into the input, of which backward may need the earlier value.
local function in_place(what, parameters, fn)
  return named(what, parameters, function(_, input, ...)
    return input:copy_(fn(what, C.autograd.is_grad_enabled() and input:clone() or input, ...))
  end)
end

-- Return the neutral element of a fold that leaves out the input, a number or a tensor of the index's shape: the
-- largest int64 is no Lua number.
local function neutral(input, index, how)
  if how == "sum" or how == "mean" then return 0 end
  if how == "prod" then return 1 end
  if input:is_floating_point() then return how == "amax" and -math.huge or math.huge end
  if input.dtype == "bool" then return how == "amax" and 0 or 1 end
  local least = C.full_like(index, C.dtype.iinfo(input.dtype).min, {dtype = input.dtype})
  return how == "amax" and least or least:bitwise_not()
end

local function mean_of(sum, count)
  count = count:clamp_min(1)
  if sum:is_floating_point() then return sum / count end
  return sum:div(count:to(sum.dtype), "floor")
end

-- index and src of one shape, dim counted from 0.
local function fold(input, dim, index, src, how, include)
  local start = input
  if not include then start = input:scatter(dim, index, neutral(input, index, how)) end
  if how == "sum" then return start:scatter_add(dim, index, src) end
  if how == "mean" then
    local counts = C.full_like(input, include and 1 or 0, {dtype = "int64"})
    counts = counts:scatter_add(dim, index, C.ones_like(index, {dtype = "int64"}))
    return mean_of(start:scatter_add(dim, index, src), counts:to(input:is_floating_point() and input.dtype or "int64"))
  end
  return C.scatter_fold(start, dim, index, src, how)
end

local function scatter_reduce(what, input, dim, index, src, reduce, include)
  dim = dims.wrap(what, dim, input:dim())
  if input.dtype ~= src.dtype then fail("%s: src is %s but input is %s", what, src.dtype, input.dtype) end
  if index:dim() == 0 and input:dim() == 1 then index = index:unsqueeze(0) end
  if src:dim() == 0 and input:dim() == 1 then src = src:unsqueeze(0) end
  if index:dim() ~= input:dim() or src:dim() ~= input:dim() then
    fail("%s: expected as many dims of index %s and src %s as of input %s", what, shape_text(index), shape_text(src),
      shape_text(input))
  end
  for d = 0, index:dim() - 1 do
    if index:size(d) > src:size(d) then
      fail("%s: index %s is larger than src %s", what, shape_text(index), shape_text(src))
    end
    src = src:narrow(d, 0, index:size(d))
  end
  return fold(input, dim, index, src, reduce, include)
end

local folding = {
  "input: tensor", "dim: integer", "index: tensor", "src: tensor", "reduce: 'sum'|'prod'|'mean'|'amax'|'amin'",
  {"include_self: flag", true},
}

--- The input with the values of src folded into the places that `index` names along a dim: out[index[i]] is the sum,
--- product, mean, maximum or minimum of the values written there, and of the input's value unless `include_self` is
--- false. Integer means round down.
--
--     accelhost.zeros(2):scatter_reduce(0, accelhost.tensor({0, 0, 1}, {dtype = "int64"}),
--       accelhost.tensor {1, 2, 3}, "amax")  --> tensor([2., 3.])
---@param index userdata int64 or int32, not larger than src
---@param src userdata of the input's dtype
placing.scatter_reduce = named("scatter_reduce", folding, scatter_reduce)

--- scatter_reduce, written into the input.
---@return userdata input
placing.scatter_reduce_ = in_place("scatter_reduce_", folding, scatter_reduce)

local function index_reduce(what, input, dim, index, source, reduce, include)
  dim = dims.wrap(what, dim, input:dim())
  if index:dim() > 1 then fail("%s: index: expected at most 1 dim, got %s", what, shape_text(index)) end
  local size, shape = {}, source:shape()
  for d = 1, source:dim() do size[d] = d == dim + 1 and index:numel() or 1 end
  local fits = source:dim() == input:dim() and (input:dim() == 0 or shape[dim + 1] == index:numel())
  for d = 0, input:dim() - 1 do fits = fits and (d == dim or shape[d + 1] == input:size(d)) end
  if not fits then
    fail("%s: source %s does not fit %d indices on dim %d of %s", what, shape_text(source), index:numel(), dim,
      shape_text(input))
  end
  return scatter_reduce(what, input, dim, index:reshape(size):expand(shape), source, reduce, include)
end

local by_index = {
  "input: tensor", "dim: integer", "index: tensor", "source: tensor", "reduce: 'prod'|'mean'|'amax'|'amin'",
  {"include_self: flag", true},
}

--- The input with slice i of source folded into the slice index[i] along a dim, as scatter_reduce folds values.
---@param index userdata 1-d
placing.index_reduce = named("index_reduce", by_index, index_reduce)

--- index_reduce, written into the input.
---@param index userdata 1-d
---@return userdata input
placing.index_reduce_ = in_place("index_reduce_", by_index, index_reduce)

-- A copy of the input whose part has the values of src.
local function with_part(what, input, src, part)
  local copy = input:clone():contiguous()
  local view = part(copy)
  if not C.same_shape(view, src) then
    fail("%s: src %s does not have the shape %s of the part", what, shape_text(src), shape_text(view))
  end
  view:copy_(src)
  return copy
end

--- A copy of the input whose slice `index` along a dim is src.
--
--     accelhost.zeros(2, 2):select_scatter(accelhost.ones(2), 0, 1)  --> tensor([[0., 0.], [1., 1.]])
---@param src userdata of the slice's shape
placing.select_scatter = named("select_scatter", {
  "input: tensor", "src: tensor", "dim: integer", "index: integer",
}, function(what, input, src, dim, index)
  return with_part(what, input, src, function(copy) return copy:select(dim, index) end)
end)

--- A copy of the input whose entries start, start + step, .. before `end_` along a dim are src.
---@param src userdata of the slice's shape
---@param start? integer default 0
---@param end_? integer default the size of the dim
placing.slice_scatter = named("slice_scatter", {
  "input: tensor", "src: tensor", {"dim: integer", 0}, {"start: integer"}, {"end_: integer"}, {"step: count", 1},
}, function(what, input, src, dim, start, to, step)
  return with_part(what, input, src, function(copy) return C.slice(copy, dim, start, to, step) end)
end)

--- A copy of the input whose diagonal is src.
---@param src userdata of the diagonal's shape
placing.diagonal_scatter = named("diagonal_scatter", {
  "input: tensor", "src: tensor", {"offset: integer", 0}, {"dim1: integer", 0}, {"dim2: integer", 1},
}, function(what, input, src, offset, dim1, dim2)
  return with_part(what, input, src, function(copy) return copy:diagonal(offset, dim1, dim2) end)
end)

--- Write a value into the main diagonal, in place; with `wrap` a tall matrix has it again after each square and a row.
---@param input userdata of at least 2 dims; of more than 2, all of one size
---@return userdata input
placing.fill_diagonal_ = checked("fill_diagonal_", {
  "input: tensor", "fill_value: number", {"wrap: flag", false},
}, function(input, value, wrap)
  local count, shape, stride = input:dim(), input:shape(), 0
  if count < 2 then fail("fill_diagonal_: input: expected at least 2 dims, got %s", shape_text(input)) end
  local least = math.min(unpack(shape))
  for d = 1, count do
    if count > 2 and shape[d] ~= shape[1] then
      fail("fill_diagonal_: the sizes of %s differ", shape_text(input))
    end
    stride = stride + input:stride()[d]
  end
  C.as_strided(input, {least}, {stride}, input:storage_offset()):fill_(value)
  if wrap and count == 2 then
    local step = shape[2] + 1
    local from = step
    while shape[2] > 0 and from * shape[2] < input:numel() do
      local rows = math.min(shape[2], shape[1] - from)
      if rows > 0 then
        C.as_strided(input, {rows}, {stride}, input:storage_offset() + from * input:stride()[1]):fill_(value)
      end
      from = from + step
    end
  end
  return input
end)

-- Several index tensors as one that counts through the dims that they cover together.
local function joined_index(what, input, indices)
  if #indices == 0 then fail("%s: indices: expected at least one tensor", what) end
  local list = {}
  for _, index in ipairs(indices) do
    if index.dtype == "bool" then
      local places = index:nonzero()
      for d = 0, index:dim() - 1 do list[#list + 1] = places:select(1, d) end
    else
      list[#list + 1] = index:to "int64"
    end
  end
  if #list > input:dim() then
    fail("%s: indices for %d dims of a tensor %s", what, #list, shape_text(input))
  end
  local linear
  for k, index in ipairs(list) do
    local size = input:size(k - 1)
    local outside = index:lt(-size):logical_or(index:ge(size))
    if outside:any():item() then
      fail("%s: index %d is outside %d..%d (dim %d of %s)", what, index:masked_select(outside)[0]:item(), -size,
        size - 1, k - 1, shape_text(input))
    end
    index = C.where(index:lt(0), index + size, index)
    linear = linear and linear * size + index or index
  end
  return linear, #list
end

local function index_put(what, input, indices, values, accumulate)
  if C.is_tensor(indices) then return C.index_put(input, indices, values, accumulate) end
  if #indices == 1 then return C.index_put(input, indices[1], values, accumulate) end
  local linear, covered = joined_index(what, input, indices)
  local shape = input:shape()
  local flat = input:reshape(dims.concat({dims.product(shape, 1, covered)}, {unpack(shape, covered + 1)}))
  return C.index_put(flat, linear, values, accumulate):reshape(shape)
end

local putting = {
  "input: tensor", "indices: tensors", "values: number|flag|tensor", {"accumulate: flag", false},
}

--- The input with `values` where the index tensors point: one tensor for dim 0, or a table of tensors for the first
--- dims, which broadcast and index together. With `accumulate` the values are added. bool tensors are masks.
--
--     local at = accelhost.arange(2)
--     accelhost.zeros(2, 2):index_put({at, at}, 1)  --> tensor([[1., 0.], [0., 1.]])
placing.index_put = named("index_put", putting, index_put)

--- index_put, written into the input.
---@return userdata input
placing.index_put_ = named("index_put_", putting, function(what, input, indices, values, accumulate)
  if type(indices) == "table" and #indices == 1 then indices = indices[1] end
  if C.is_tensor(indices) then return C.index_put_(input, indices, values, accumulate) end
  return input:copy_(index_put(what, input, indices, values, accumulate))
end)

local function put(what, input, index, source, accumulate)
  if input.dtype ~= source.dtype then fail("%s: source is %s but input is %s", what, source.dtype, input.dtype) end
  if index:numel() ~= source:numel() then
    fail("%s: %d values for %d positions", what, source:numel(), index:numel())
  end
  return C.index_put(input:reshape(-1), index:reshape(-1), source:reshape(-1), accumulate):reshape(input:shape())
end

local flat_putting = {"input: tensor", "index: tensor", "source: tensor", {"accumulate: flag", false}}

--- The input with the values of source at positions that count through all its elements.
---@param index userdata int64
---@param source userdata of as many elements
---@param accumulate? boolean|table default false; add instead
placing.put = named("put", flat_putting, put)

--- put, written into the input.
---@param index userdata int64
---@param source userdata of as many elements
---@param accumulate? boolean|table default false; add instead
---@return userdata input
placing.put_ = in_place("put_", flat_putting, put)

--- The positions of all elements other than 0, in order: rows of a matrix (n, dims), or with `as_tuple` a table of one
--- tensor for each dim, with which the tensor can be indexed.
--
--     accelhost.tensor {0, 5, 0, 7}:nonzero()  --> tensor([[1], [3]])
---@return userdata|userdata[] int64
placing.nonzero = checked("nonzero", {"input: tensor", {"as_tuple: flag", false}}, function(input, as_tuple)
  if not as_tuple then return C.nonzero(input) end
  local places, list = C.nonzero(input:dim() == 0 and input:reshape(1) or input), {}
  for d = 0, places:size(1) - 1 do list[d + 1] = places:select(1, d) end
  return list
end)

local read_argwhere = signature("argwhere", {"input: tensor"})

--- The positions of all elements other than 0, as rows.
---@return userdata int64 (n, dims)
function placing.argwhere(...) return C.nonzero(read_argwhere(...)) end

return placing
