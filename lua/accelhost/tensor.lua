--- Tensor: numbers in rows and columns on a device, with methods, fields and operators.
--
-- `+ - * / ^ %` and unary minus work element by element between tensors and numbers; comparisons are methods. t[i] is a
-- slice of dim 0 (from 0), t[{ {0, 3}, 2 }] one of several dims, t[mask] and t[index] pick; the same forms can be
-- assigned to. Dims, indices and slices count from 0, negative ones from the end; Lua tables of sizes count from 1.
--
--   t[1]                --> tensor([4., 5., 6.])
--   t[{ {}, {0, 2} }]   --> tensor([[1., 2.],
--   -->         [4., 5.]])
--   (t * 2 - 1):sum()   --> tensor(36.)
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local dims = require "accelhost.util.dims"
local fail, signature, checked, named = arguments.fail, arguments.signature, arguments.checked, arguments.named
local methods = C.methods

local tensor = {}

local function views_of_size(input, size, dim)
  local total, views, start = input:size(dim), {}, 0
  while start < total or start == 0 do
    local length = math.min(size, total - start)
    views[#views + 1] = input:narrow(dim, start, length)
    start = start + size
  end
  return views
end

local read_bytes = signature("from_string", {"bytes: string", {"size: sizes"}, {"dtype: dtype", "float32"}})

--- A tensor with these bytes, row-major and little-endian: accelhost.from_string(text, {2, 2}, {dtype = "uint8"}).
--
--   accelhost.from_string('\1\2', {dtype = "uint8"})  --> tensor([1, 2], dtype=uint8)
---@param size? integer|integer[] default: all elements in one dim
---@return userdata
function tensor.from_string(...)
  local bytes, size, dtype = read_bytes(...)
  if not size then
    local width = C.empty({0}, {dtype = dtype}):element_size()
    size = #bytes / width
    if size % 1 ~= 0 then fail("from_string: %d bytes are no whole number of %s elements", #bytes, dtype) end
  end
  return C.from_string(bytes, size, dtype)
end

--- Views of `input` of the given size along `dim` (the last may be smaller), or of the given sizes.
--
--   #t:split(2, 1)  --> 2
---@param input userdata [..., n, ...]
---@return userdata[] # a table, counted from 1
tensor.split = named("split", {
  "input: tensor", "split_size_or_sections: sizes", {"dim: integer", 0},
}, function(what, input, sizes, dim)
  dim = dims.wrap(what, dim, input:dim())
  if type(sizes) == "number" then
    if sizes == 0 then fail("split: split_size_or_sections: expected an integer of at least 1, got number 0") end
    return views_of_size(input, sizes, dim)
  end
  local total, views, start = input:size(dim), {}, 0
  for i = 1, #sizes do
    if start + sizes[i] > total then break end
    views[i] = input:narrow(dim, start, sizes[i])
    start = start + sizes[i]
  end
  if start ~= total or #views ~= #sizes then
    fail("split: sizes must sum to %d (dim %d of the input)", total, dim)
  end
  return views
end)

--- At most `chunks` views of equal size along `dim` (the last may be smaller); `chunks` empty ones of an empty dim.
--
--   #t:chunk(2, 1)  --> 2
---@return userdata[]
tensor.chunk = named("chunk", {
  "input: tensor", "chunks: count", {"dim: integer", 0},
}, function(what, input, chunks, dim)
  dim = dims.wrap(what, dim, input:dim())
  local total = input:size(dim)
  if total > 0 then return views_of_size(input, math.ceil(total / chunks), dim) end
  local views = {}
  for i = 1, chunks do views[i] = input:narrow(dim, 0, 0) end
  return views
end)

--- The slices along `dim`, without that dim.
--
--   t:unbind()[2]  --> tensor([4., 5., 6.])
---@return userdata[]
tensor.unbind = named("unbind", {"input: tensor", {"dim: integer", 0}}, function(what, input, dim)
  dim = dims.wrap(what, dim, input:dim())
  local views = {}
  for i = 0, input:size(dim) - 1 do
    views[i + 1] = input:select(dim, i)
  end
  return views
end)

local norm = C.norm

-- The sum of the singular values of matrices in two dims, by default in the only two.
local function nuclear(input, dim, keepdim)
  if not dim and input:dim() == 2 then dim = {0, 1} end
  if type(dim) ~= "table" or #dim ~= 2 then
    C.system.raise(("norm: dim: expected the two dims of the matrices for p = 'nuc', input has %d"):format(input:dim()))
  end
  dim = dims.wrap_all("norm", dim, input:dim())
  local wanted = input.requires_grad and C.autograd.is_grad_enabled()
  local _, S, _, info = C.matrix_svd(input:movedim(dim, {-2, -1}), false, wanted)
  if info:ne(0):any():item() then
    C.system.raise("norm: the singular values did not converge, or the input holds a number that is not finite")
  end
  local result = S:sum(-1)
  return keepdim and result:unsqueeze(math.min(unpack(dim))):unsqueeze(math.max(unpack(dim))) or result
end

--- The p-norm over some dims, of all elements without dims; p = "fro" is 2, "nuc" the sum of a matrix's singular
--- values.
--
--   accelhost.tensor{3, 4}:norm()  --> tensor(5.)
---@param input userdata
---@param p? number|string default 2
---@param ... any dim, keepdim
---@return userdata
function tensor.norm(input, p, ...)
  if p == "nuc" then
    local dim, keepdim = ...
    if type(dim) == "table" and dim[1] == nil then dim, keepdim = dim.dim, dim.keepdim end
    return nuclear(input, dim, keepdim)
  elseif type(p) == "table" and p.p == "nuc" then
    return nuclear(input, p.dim, p.keepdim)
  elseif p == "fro" then
    p = 2
  elseif type(p) == "table" and p.p == "fro" then
    local options = {}
    for name, value in pairs(p) do options[name] = value end
    options.p = 2
    p = options
  elseif type(p) == "string" then
    C.system.raise(("norm: unknown p '%s' (known: numbers, 'fro', 'nuc')"):format(p))
  end
  return norm(input, p, ...)
end

methods.norm = tensor.norm
methods.split = tensor.split
methods.chunk = tensor.chunk
methods.unbind = tensor.unbind
methods.to_string = C.to_string

local ffi_types = {
  float32 = "float *", float64 = "double *", int64 = "int64_t *", int32 = "int32_t *",
  int16 = "int16_t *", int8 = "int8_t *", uint16 = "uint16_t *", uint32 = "uint32_t *", uint64 = "uint64_t *",
  uint8 = "uint8_t *", bool = "uint8_t *", float16 = "uint16_t *", bfloat16 = "uint16_t *",
}

--- Call fn(pointer, n) with an FFI pointer to the elements of a contiguous tensor: a loop there is compiled. The
--- pointer counts from 0, is valid during the call only, and is not bounds-checked. Counts as an in-place write.
---@param fn fun(pointer: ffi.cdata*, n: integer): any
---@return any # the results of fn
methods.with_data = checked("with_data", {"input: tensor", "fn: function"}, function(self, fn)
  local ffi = require "ffi"
  return fn(ffi.cast(ffi_types[self.dtype], C.pointer(self)), self:numel())
end)

local Hook = class.new "Hook"

function Hook:init(handle)
  self.handle = handle
end

--- Remove the hook.
function Hook:remove()
  C.autograd.remove_hook(self.handle)
end

--- Call fn(grad) when this tensor's gradient is computed; its result (if not nil) replaces the gradient.
---@param fn fun(grad: userdata): userdata?
---@return table # has :remove()
methods.register_hook = checked("register_hook", {"input: tensor", "hook: function"}, function(self, fn)
  return Hook(C.autograd.register_hook(self, fn))
end)

-- Sizes as a table or one by one, and options in a trailing table.
local function read_sizes(what, input, ...)
  arguments.check(what, "input", "tensor", input)
  local given, count = {...}, select("#", ...)
  local options = {}
  if count > 1 and arguments.is_options(given[count]) then options, count = given[count], count - 1 end
  local size = count == 1 and type(given[1]) == "table" and given[1] or {unpack(given, 1, count)}
  if count == 0 then fail("%s: 'size' is missing", what) end
  for i = 1, count do
    if given[i] == nil then fail("%s: size %d is nil", what, i) end
  end
  arguments.check(what, "size", "sizes", size)
  arguments.check_names(what, options, {"dtype", "device", "requires_grad"})
  return size, {dtype = options.dtype or input.dtype, device = options.device or input.device,
    requires_grad = options.requires_grad}
end

local function maker(name)
  local what, make = "new_" .. name, C[name]
  return function(self, ...) return make(read_sizes(what, self, ...)) end
end

--- Zeros of the given sizes, with this tensor's dtype and on its device unless others are given.
--
--   labels:new_zeros(2, {dtype = "float32"})  --> tensor([0., 0.])
---@param ... integer|integer[]|table sizes, then {dtype =, device =, requires_grad =}
---@return userdata
methods.new_zeros = maker "zeros"

--- Ones of the given sizes, with this tensor's dtype and on its device unless others are given.
--
--   labels:new_ones(2)  --> tensor([1, 1])
---@param ... integer|integer[]|table sizes, then {dtype =, device =, requires_grad =}
---@return userdata
methods.new_ones = maker "ones"

--- A tensor of the given sizes with arbitrary elements, with this one's dtype and on its device unless others are
--- given.
--
--   labels:new_empty({2, 3}):size(1)  --> 3
---@param ... integer|integer[]|table sizes, then {dtype =, device =, requires_grad =}
---@return userdata
methods.new_empty = maker "empty"

--- A tensor of this one's dtype on its device, filled with a value.
---@return userdata
methods.new_full = checked("new_full", {
  "input: tensor", "size: sizes", "fill_value: number|flag", {"dtype: dtype"}, {"device: device"},
  {"requires_grad: flag", false},
}, function(input, size, value, dtype, device, requires_grad)
  return C.full(size, value, {dtype = dtype or input.dtype, device = device or input.device,
    requires_grad = requires_grad})
end)

return tensor
