--- Create tensors from others, from numbers and tables, and at random; and functions that query a tensor.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autograd = require "accelhost.autograd"
local fail, signature, checked = arguments.fail, arguments.signature, arguments.checked

local create = {}

local making = {{"dtype: dtype"}, {"device: device"}, {"requires_grad: flag", false}}

-- A number, or the one in a 0-dim tensor.
local function number_of(name, value)
  if not C.is_tensor(value) then return value end
  if value:dim() > 0 then fail("logspace: %s: expected a number, got shape %s", name, arguments.shape_text(value)) end
  return value:item()
end

--- `steps` powers of a base whose exponents are evenly spaced from start to end_, both included. In a dtype of integers
--- the fractions of start and end_ are cut, then those of the powers.
--
--     accelhost.logspace(0, 2, 3)  --> tensor([  1.,  10., 100.])
create.logspace = checked("logspace", {
  "start: number|tensor", "end_: number|tensor", "steps: size", {"base: number", 10}, {"dtype: dtype", "float32"},
  {"device: device"}, {"requires_grad: flag", false},
}, function(start, to, steps, base, dtype, device, requires_grad)
  start, to = number_of("start", start), number_of("end_", to)
  if dtype:find "int" then start, to = math.modf(start), math.modf(to) end
  local powers = C.pow(base, C.linspace(start, to, steps, {dtype = "float64"})):to(dtype)
  powers = device and powers:to(device) or powers
  return requires_grad and powers:requires_grad_() or powers
end)

--- The data as a tensor: a tensor itself where dtype and device are right, else as accelhost.tensor makes it.
create.as_tensor = checked("as_tensor", {
  "data: any", {"dtype: dtype"}, {"device: device"},
}, function(data, dtype, device)
  if not C.is_tensor(data) then return C.tensor(data, {dtype = dtype, device = device}) end
  return data:to {dtype = dtype or data.dtype, device = device or data.device}
end)

--- A 0-dim tensor of a number, float32 unless a dtype is given.
create.scalar_tensor = checked("scalar_tensor", {
  "s: number|flag", unpack(making),
}, function(value, dtype, device, requires_grad)
  if type(value) == "boolean" then value = value and 1 or 0 end
  return C.full({}, value, {dtype = dtype or "float32", device = device, requires_grad = requires_grad})
end)

--- The tensor in another dtype, as `to`; without a dtype the name of its dtype.
--
--     a:type "int64"  --> tensor([1, 2, 3])
--     a:type()        --> float32
---@return userdata|string
create.type = checked("type", {"input: tensor", {"dtype: dtype"}}, function(input, dtype)
  return dtype and input:to(dtype) or input.dtype
end)

--- A tensor of the data with this one's dtype, on its device. A copy.
create.new_tensor = checked("new_tensor", {
  "input: tensor", "data: any", unpack(making),
}, function(input, data, dtype, device, requires_grad)
  return C.tensor(data, {dtype = dtype or input.dtype, device = device or input.device,
    requires_grad = requires_grad})
end)

--- Random whole numbers of low .. high - 1 in the shape of a tensor; of 0 .. low - 1 without high.
---@param dtype? string default the input's
---@param device? string default the input's
create.randint_like = checked("randint_like", {
  "input: tensor", "low: integer", {"high: integer"}, {"dtype: dtype"}, {"device: device"},
  {"requires_grad: flag", false}, {"generator: generator"},
  {"memory_format: 'channels_last'|'channels_last_3d'|'contiguous_format'|'preserve_format'", "preserve_format"},
}, function(input, low, high, dtype, device, requires_grad, generator, format)
  if not high then low, high = 0, low end
  local sizes, last = input:shape(), format == "channels_last"
  if last and #sizes ~= 4 then
    fail('randint_like: memory_format "channels_last": expected a tensor of 4 dims, got %d', #sizes)
  end
  -- The numbers are drawn in the order of memory, as by rand_like.
  local result = C.randint(low, high, last and {sizes[1], sizes[3], sizes[4], sizes[2]} or sizes,
    {dtype = dtype or input.dtype, device = device or input.device, generator = generator})
  if last then result = result:permute(0, 3, 1, 2):contiguous {memory_format = format} end
  result.requires_grad = requires_grad
  return result
end)

-- A result that does not depend on mean and std, with a history in which their gradients are 0, as in PyTorch.
local Constant = autograd.Function:extend "normal"

function Constant.forward(ctx, result, mean, std)
  ctx.mean, ctx.std = mean, std
  return result
end

function Constant.backward(ctx)
  local wanted = ctx.needs_input_grad
  return nil, wanted[2] and C.zeros_like(ctx.mean) or nil, wanted[3] and C.zeros_like(ctx.std) or nil
end

-- Tensors of two shapes: both are broadcast, or one is viewed in the other's shape if they have equal numbers of
-- elements.
local function broadcast_normal(mean, std)
  local sizes, count = {}, math.max(mean:dim(), std:dim())
  local fits = true
  for d = 1, count do
    local a, b = d - count + mean:dim(), d - count + std:dim()
    a, b = a > 0 and mean:size(a - 1) or 1, b > 0 and std:size(b - 1) or 1
    fits = fits and (a == b or a == 1 or b == 1)
    sizes[d] = a == 1 and b or a
  end
  if not fits then
    if mean:numel() ~= std:numel() then fail("normal: mean has %d elements, std %d", mean:numel(), std:numel()) end
    return C.empty_like(mean:detach()), mean, std:reshape(mean:shape())
  end
  return C.empty(sizes, {dtype = mean.dtype, device = mean.device}), mean:expand(sizes), std:expand(sizes)
end

--- Random numbers of the normal distribution: of a mean and a deviation that are tensors of as many elements, or one
--- of them a number; of two numbers, in a size.
--
--     accelhost.normal(0, 1, {2, 3}):shape()  --> {2, 3}
---@param size? integer|integer[]|table for two numbers
---@param dtype? string for two numbers, default "float32"
---@param device? string for two numbers
create.normal = checked("normal", {
  "mean: number|tensor", {"std: number|tensor", 1}, {"size: sizes"}, {"dtype: dtype", "float32"}, {"device: device"},
  {"requires_grad: flag", false}, {"generator: generator"},
}, function(mean, std, size, dtype, device, requires_grad, generator)
  local like = C.is_tensor(mean) and mean or C.is_tensor(std) and std
  if like and size then fail("normal: size: the tensors have one already") end
  if not like and not size then fail("normal: size: expected one for two numbers") end
  local negative = C.is_tensor(std) and std:lt(0):any():item() or not C.is_tensor(std) and std < 0
  if negative then fail("normal: std: expected deviations of at least 0") end
  local options = {dtype = dtype, device = device}
  local result = like and C.empty_like(like:detach()) or C.empty(size, options)
  if C.is_tensor(mean) and C.is_tensor(std) and not C.same_shape(mean, std) then
    result, mean, std = broadcast_normal(mean, std)
  end
  if C.is_tensor(std) then
    result:normal_(0, 1, {generator = generator}):mul_(std:detach():reshape(result:shape()))
    result:add_(C.is_tensor(mean) and mean:detach() or mean)
  else
    result:normal_(C.is_tensor(mean) and 0 or mean, std, {generator = generator})
    if C.is_tensor(mean) then result:add_(mean:detach()) end
  end
  if like and C.autograd.is_grad_enabled() then result = (Constant.apply(result, mean, std)) end
  return requires_grad and result:requires_grad_() or result
end)

-- Functions that only query: {name, the property of a tensor}.
local read_numel = signature("numel", {"input: tensor"})

--- The number of elements.
---@return integer
function create.numel(...) return read_numel(...):numel() end

local read_is_floating_point = signature("is_floating_point", {"input: tensor"})

--- Is the dtype a floating one?
---@return boolean
function create.is_floating_point(...) return read_is_floating_point(...):is_floating_point() end

local read_is_complex = signature("is_complex", {"input: tensor"})

--- Is the dtype a complex one? There are none here, so it is false.
---@return boolean
function create.is_complex(...)
  read_is_complex(...)
  return false
end

local read_is_signed = signature("is_signed", {"input: tensor"})

--- Does the dtype hold negative numbers?
---@return boolean
function create.is_signed(...)
  local dtype = read_is_signed(...).dtype
  return dtype ~= "uint8" and dtype ~= "bool"
end

--- Is the one element of the tensor other than 0?
---@param input userdata of one element
---@return boolean
create.is_nonzero = checked("is_nonzero", {"input: tensor"}, function(input)
  if input:numel() ~= 1 then
    fail("is_nonzero: expected a tensor with one element, got shape %s", arguments.shape_text(input))
  end
  return input:ne(0):reshape({}):item()
end)

local read_is_same_size = signature("is_same_size", {"input: tensor", "other: tensor"})

--- Have both the same shape?
---@return boolean
function create.is_same_size(...) return C.same_shape(read_is_same_size(...)) end

local read_isreal = signature("isreal", {"input: tensor"})

--- Is each element a real number? Always true: bool of the input's shape.
function create.isreal(...) return C.ones_like(read_isreal(...), {dtype = "bool"}) end

--- The input itself. Not for bool.
create.positive = checked("positive", {"input: tensor"}, function(input)
  if input.dtype == "bool" then fail("positive: not defined for bool") end
  return input
end)

local read_apply = signature("apply_", {"input: tensor", "callable: callable"})

--- Refused: it would call a function once for each element. Use ops on the whole tensor, or t:with_data for a loop.
function create.apply_(...)
  read_apply(...)
  fail("apply_: a function is not called for each element here: use ops on the whole tensor, or t:with_data(fn) for a "
    .. "compiled loop over its memory")
end

local read_map = signature("map_", {"input: tensor", "tensor: tensor", "callable: callable"})

--- Refused, as apply_.
function create.map_(...)
  read_map(...)
  fail("map_: a function is not called for each element here: use ops on the whole tensors, or t:with_data(fn) for a "
    .. "compiled loop over its memory")
end

return create
