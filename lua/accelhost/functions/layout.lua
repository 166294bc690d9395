--- Turning, mirroring, diagonals: windows over a dim, and the in-place forms of views.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local dims = require "accelhost.util.dims"
local fail, signature, shape_text = arguments.fail, arguments.signature, arguments.shape_text
local checked, named = arguments.checked, arguments.named

local layout = {}

local function expect_dims(what, input, least, most)
  local count = input:dim()
  if count < least or count > (most or count) then
    local wanted = most == least and ("%d"):format(least) or most and ("%d or %d"):format(least, most)
      or ("at least %d"):format(least)
    fail("%s: input: expected %s dim%s, got shape %s", what, wanted, wanted:find "1$" and "" or "s", shape_text(input))
  end
end

--- Turned by 90 degrees k times, from the first of the two dims towards the second.
--
--     accelhost.arange(4):view(2, 2):rot90()  --> tensor([[1, 3], [0, 2]])
---@param input userdata of at least 2 dims
---@param dims? integer[] default {0, 1}
layout.rot90 = named("rot90", {
  "input: tensor", {"k: integer", 1}, {"dims: integers", {0, 1}},
}, function(what, input, k, plane)
  expect_dims(what, input, 2)
  plane = dims.wrap_all(what, plane, input:dim())
  if #plane ~= 2 then fail("rot90: dims: expected 2 of them, got %d", #plane) end
  local a, b = plane[1], plane[2]
  k = k % 4
  if k == 0 then return input:clone() end
  if k == 2 then return input:flip {a, b} end
  local flipped = input:flip(k == 1 and b or a)
  local result = flipped:transpose(a, b)
  flipped:free()
  return result
end)

--- Mirrored from left to right: along dim 1. A copy.
---@param input userdata of at least 2 dims
layout.fliplr = named("fliplr", {"input: tensor"}, function(what, input)
  expect_dims(what, input, 2)
  return input:flip(1)
end)

--- Mirrored upside down: along dim 0. A copy.
---@param input userdata of at least 1 dim
layout.flipud = named("flipud", {"input: tensor"}, function(what, input)
  expect_dims(what, input, 1)
  return input:flip(0)
end)

local read_ravel = signature("ravel", {"input: tensor"})

--- All elements in one dim: a view where that is possible.
function layout.ravel(...) return read_ravel(...):reshape(-1) end

--- Matrices of zeros with the last dim of the input along their diagonals. The two new dims are dim1 and dim2 of the
--- result; an offset above 0 means above the diagonal.
--
--     accelhost.tensor {1, 2}:diag_embed()  --> tensor([[1., 0.], [0., 2.]])
---@param input userdata (..., n)
layout.diag_embed = named("diag_embed", {
  "input: tensor", {"offset: integer", 0}, {"dim1: integer", -2}, {"dim2: integer", -1},
}, function(what, input, offset, dim1, dim2)
  expect_dims(what, input, 1)
  local count = input:dim() + 1
  dim1, dim2 = dims.wrap(what, dim1, count), dims.wrap(what, dim2, count)
  if dim1 == dim2 then fail("diag_embed: dim1 and dim2 are both %d", dim1) end
  local shape, size, at = input:shape(), {}, 0
  local n = shape[#shape] + math.abs(offset)
  for d = 0, count - 1 do
    if d == dim1 or d == dim2 then
      size[d + 1] = n
    else
      at = at + 1
      size[d + 1] = shape[at]
    end
  end
  return C.diagonal_backward(input, size, offset, dim1, dim2)
end)

--- Of a vector the matrix with it along a diagonal, of a matrix that diagonal (a copy).
--
--     accelhost.eye(2):diag()  --> tensor([1., 1.])
---@param input userdata of 1 or 2 dims
---@param diagonal? integer|table default 0; above 0 means above the main diagonal
layout.diag = named("diag", {"input: tensor", {"diagonal: integer", 0}}, function(what, input, diagonal)
  expect_dims(what, input, 1, 2)
  if input:dim() == 1 then
    local n = input:size(0) + math.abs(diagonal)
    return C.diagonal_backward(input, {n, n}, diagonal, 0, 1)
  end
  return input:diagonal(diagonal):clone()
end)

--- The matrix with all elements, in order, along a diagonal.
layout.diagflat = checked("diagflat", {"input: tensor", {"offset: integer", 0}}, function(input, offset)
  return layout.diag_embed(input:reshape(-1), offset)
end)

--- The sum of a matrix's diagonal.
--
--     accelhost.eye(3):trace()  --> tensor(3.)
---@param input userdata 2 dims
---@return userdata 0-dim
layout.trace = named("trace", {"input: tensor"}, function(what, input)
  expect_dims(what, input, 2, 2)
  return input:diagonal():sum()
end)

--- All windows of `size` entries, `step` apart, along a dim: a view, the entries of a window being its last dim.
--
--     accelhost.arange(5):unfold(0, 3, 2)  --> tensor([[0, 1, 2], [2, 3, 4]])
---@param step integer at least 1
layout.unfold = checked("tensor:unfold", {
  "input: tensor", "dimension: integer", "size: size", "step: count",
}, function(input, dim, size, step)
  dim = dims.wrap("unfold", dim, input:dim())
  local shape, stride = input:shape(), input:stride()
  local n = shape[dim + 1] or 1
  if size > n then fail("unfold: size %d is larger than dim %d of %s", size, dim, shape_text(input)) end
  local along = stride[dim + 1] or 1
  if input:dim() > 0 then
    shape[dim + 1] = math.floor((n - size) / step) + 1
    stride[dim + 1] = along * step
  end
  shape[#shape + 1], stride[#stride + 1] = size, along
  return C.as_strided(input, shape, stride, input:storage_offset())
end)

--- The elements at distances of `stride` in the input's memory, from `storage_offset` on (by default where the input
--- begins), all of them inside it. A view; gradients of elements that are seen several times add up.
--
--     accelhost.arange(4):as_strided({2, 2}, {1, 1})  --> tensor([[0, 1], [1, 2]])
---@param stride integer|integer[] in elements
layout.as_strided = checked("as_strided", {
  "input: tensor", "size: sizes", "stride: sizes", {"storage_offset: size"},
}, function(input, size, stride, offset)
  return C.as_strided(input, size, stride, offset)
end)

local indices = {
  "row: size", "col: size", {"offset: integer", 0}, {"dtype: dtype", "int64"}, {"device: device"},
}

-- Rows and columns where a triangle of ones is.
local function triangle(row, col, offset, dtype, device, triangle_of)
  local where = triangle_of(C.ones({row, col}, {dtype = "uint8", device = device}), offset):nonzero()
  return where:t():contiguous():to(dtype)
end

--- The positions of the lower triangle of a row x col matrix, row by row: (2, n), rows above columns.
--
--     accelhost.tril_indices(2, 2)  --> tensor([[0, 1, 1], [0, 0, 1]])
layout.tril_indices = checked("tril_indices", indices, function(row, col, offset, dtype, device)
  return triangle(row, col, offset, dtype, device, C.tril)
end)

--- The positions of the upper triangle of a row x col matrix, row by row: (2, n), rows above columns.
layout.triu_indices = checked("triu_indices", indices, function(row, col, offset, dtype, device)
  return triangle(row, col, offset, dtype, device, C.triu)
end)

--- The powers N - 1 .. 0 of each element as a row; 0 .. N - 1 with `increasing`.
--
--     accelhost.vander(accelhost.tensor {2, 3}, {increasing = true})  --> tensor([[1., 2.], [1., 3.]])
---@param x userdata 1-d
---@param N? integer|table default the number of elements
layout.vander = checked("vander", {
  "x: tensor", {"N: size"}, {"increasing: flag", false},
}, function(x, count, increasing)
  if x:dim() ~= 1 then fail("vander: x: expected 1 dim, got shape %s", shape_text(x)) end
  local exponents = C.arange(count or x:numel(), {device = x.device})
  if not increasing then exponents = exponents:flip(0) end
  return x:unsqueeze(-1):pow(exponents)
end)

-- Make a function by which a tensor becomes a view of itself. A gradient's history could not follow.
local function becoming(what, parameters, view)
  local read = signature(what, {"input: tensor", unpack(parameters)})
  return function(...)
    local input, first, second = read(...)
    if input.requires_grad then
      fail("%s: input requires grad, and a tensor with a gradient keeps its shape; use x = x:%s(...)", what,
        (what:gsub("_$", "")))
    end
    C.set_data(input, view(input, first, second))
    return input
  end
end

--- Drop dims of size 1 in place. A tensor that requires grad refuses.
---@param dim? integer|integer[] all dims by default
---@return userdata input
layout.squeeze_ = becoming("squeeze_", {{"dim: integer|integers"}}, function(input, dim)
  return C.squeeze(input, dim)
end)

--- Insert a dim of size 1 in place. A tensor that requires grad refuses.
---@return userdata input
layout.unsqueeze_ = becoming("unsqueeze_", {"dim: integer"}, function(input, dim) return C.unsqueeze(input, dim) end)

--- Transpose a matrix in place. A tensor that requires grad refuses.
---@param input userdata of at most 2 dims
---@return userdata input
layout.t_ = becoming("t_", {}, function(input) return C.t(input) end)

--- Swap two dims in place. A tensor that requires grad refuses.
layout.transpose_ = becoming("transpose_", {"dim0: integer", "dim1: integer"}, C.transpose)

--- Swap two dims in place, as transpose_.
layout.swapdims_ = becoming("swapdims_", {"dim0: integer", "dim1: integer"}, C.transpose)

--- Swap two dims in place, as transpose_.
layout.swapaxes_ = becoming("swapaxes_", {"axis0: integer", "axis1: integer"}, C.transpose)

autocast(layout, "float32", "trace", "none")

return layout
