--- Tensor methods that are easier said in Lua: several results, callbacks, compiled loops.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local methods = C.methods

local tensor = {}

local function dim_of(input, dim, name)
  local count = input:dim()
  dim = dim or 0
  if dim < -count or dim >= count then
    C.system.raise(("%s: dim %d is out of range (expected %d..%d)"):format(name, dim, -count, count - 1))
  end
  return dim < 0 and dim + count or dim
end

--- Views of `input` of the given size along `dim` (the last may be smaller), or of the given sizes.
---@param input userdata [..., n, ...]
---@param sizes integer|integer[]
---@param dim? integer default 0
---@return userdata[] # a table, counted from 1
function tensor.split(input, sizes, dim)
  dim = dim_of(input, dim, "split")
  local total, views, start = input:size(dim), {}, 0
  if type(sizes) == "number" then
    if sizes < 1 then C.system.raise("split: expected a positive size, got " .. sizes) end
    while start < total or start == 0 do
      local length = math.min(sizes, total - start)
      views[#views + 1] = input:narrow(dim, start, length)
      start = start + sizes
    end
    return views
  end
  for i = 1, #sizes do
    if start + sizes[i] > total then break end
    views[i] = input:narrow(dim, start, sizes[i])
    start = start + sizes[i]
  end
  if start ~= total or #views ~= #sizes then
    C.system.raise(("split: sizes must sum to %d (dim %d of the input)"):format(total, dim))
  end
  return views
end

--- At most `chunks` views of equal size along `dim` (the last may be smaller).
---@param input userdata
---@param chunks integer
---@param dim? integer default 0
---@return userdata[]
function tensor.chunk(input, chunks, dim)
  if chunks < 1 then C.system.raise("chunk: expected at least 1 chunk, got " .. chunks) end
  dim = dim_of(input, dim, "chunk")
  return tensor.split(input, math.max(1, math.ceil(input:size(dim) / chunks)), dim)
end

--- The slices along `dim`, without that dim.
---@param input userdata
---@param dim? integer default 0
---@return userdata[]
function tensor.unbind(input, dim)
  dim = dim_of(input, dim, "unbind")
  local views = {}
  for i = 0, input:size(dim) - 1 do
    views[i + 1] = input:select(dim, i)
  end
  return views
end

--- Have both the same shape and the same elements?
---@param input userdata
---@param other userdata
---@return boolean
function tensor.equal(input, other)
  return C.same_shape(input, other) and C.eq(input, other):all():item()
end

--- Is |input - other| <= atol + rtol * |other| everywhere? The shapes broadcast.
--- Usage: accelhost.allclose(a, b, {rtol = 1e-3})
---@param input userdata
---@param other userdata
---@param options? {rtol?: number, atol?: number, equal_nan?: boolean} defaults 1e-5, 1e-8, false
---@return boolean
function tensor.allclose(input, other, options)
  options = options or {}
  arguments.check_names("allclose", options, {"rtol", "atol", "equal_nan"})
  return C.autograd.no_grad(function()
    local room = other:abs() * (options.rtol or 1e-5) + (options.atol or 1e-8)
    local close = C.eq(input, other):logical_or((input - other):abs():le(room):logical_and(other:isfinite()))
    if options.equal_nan then close = close:logical_or(input:isnan():logical_and(other:isnan())) end
    return close:all():item()
  end)
end

methods.equal = tensor.equal
methods.allclose = tensor.allclose
methods.split = tensor.split
methods.chunk = tensor.chunk
methods.unbind = tensor.unbind
methods.repeat_ = methods["repeat"] -- a new tensor; Lua keeps the word `repeat` for itself

local ffi_types = {
  float32 = "float *", float64 = "double *", int64 = "int64_t *", int32 = "int32_t *",
  uint8 = "uint8_t *", bool = "uint8_t *", float16 = "uint16_t *", bfloat16 = "uint16_t *",
}

--- Call fn(pointer, n) with an FFI pointer to the elements of a contiguous tensor: a loop there is compiled. The
--- pointer counts from 0, is valid during the call only, and is not bounds-checked. Counts as an in-place write.
---@param self userdata
---@param fn fun(pointer: ffi.cdata*, n: integer): any
---@return any # what fn returns
function methods.with_data(self, fn)
  local ffi = require "ffi"
  return fn(ffi.cast(ffi_types[self.dtype], C.pointer(self)), self:numel())
end

local Hook = class.new "Hook"

function Hook:init(handle)
  self.handle = handle
end

--- Take the hook off again.
function Hook:remove()
  C.autograd.remove_hook(self.handle)
end

--- Call fn(grad) when this tensor's gradient is computed; what it returns (if not nil) replaces the gradient.
---@param self userdata
---@param fn fun(grad: userdata): userdata?
---@return table # has :remove()
function methods.register_hook(self, fn)
  return Hook(C.autograd.register_hook(self, fn))
end

--- Make this tensor a leaf without history.
---@param self userdata
---@return userdata self
function methods.detach_(self)
  if not self.is_leaf then C.system.raise("detach_: only leaves can be detached in place; use detach()") end
  self.requires_grad = false
  return self
end

--- New tensors with this one's dtype, on its device.
for _, name in ipairs {"zeros", "ones", "empty"} do
  methods["new_" .. name] = function(self, ...)
    local size = type((...)) == "table" and (...) or {...}
    return C[name](size, {dtype = self.dtype, device = self.device})
  end
end

--- A tensor of this one's dtype on its device, filled with a value.
---@param self userdata
---@param size integer[]
---@param value number
---@return userdata
function methods.new_full(self, size, value)
  return C.full(size, value, {dtype = self.dtype, device = self.device})
end

return tensor
