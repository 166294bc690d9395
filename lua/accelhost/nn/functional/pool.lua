--- Pooling over volumes and by other measures, made of pooling over images: a volume is pooled plane by plane, then
-- along its depth.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local tuple = require("accelhost.nn.functional.sizes").tuple

local fail, shape_text, signature, named = arguments.fail, arguments.shape_text, arguments.signature, arguments.named
local F = {}

local function plane(values) return {values[2], values[3]} end

-- (N, C, D, H, W) of an input with or without a batch.
local function volume_sizes(what, input)
  local dims = input:dim()
  if dims ~= 4 and dims ~= 5 then
    fail("%s: expected input (N, C, D, H, W) or (C, D, H, W), got %s", what, shape_text(input))
  end
  return dims == 5 and input:size(0) or 1, input:size(-4), input:size(-3), input:size(-2), input:size(-1)
end

-- The sizes of a result: without a batch where the input had none.
local function result_sizes(input, ...)
  local sizes = {...}
  if input:dim() == 4 then table.remove(sizes, 1) end
  return sizes
end

--- The largest value of each window of [N, C, D, H, W] or [C, D, H, W]; padding counts as -inf. Options are numbers or
-- tables of three; stride defaults to kernel_size.
--
--   F.max_pool3d(accelhost.ones(1, 1, 2, 2, 2), 2):sum()  --> tensor(1.)
---@return userdata
---@return userdata? indices with return_indices: the position of each maximum in its volume, counted from 0
F.max_pool3d = named("max_pool3d", {
  "input: tensor", "kernel_size: counts", {"stride: counts"}, {"padding: sizes", 0}, {"dilation: counts", 1},
  {"ceil_mode: flag", false}, {"return_indices: flag", false},
}, function(what, input, kernel, stride, padding, dilation, ceil_mode, return_indices)
  kernel = tuple(what, "kernel_size", kernel, 3)
  stride = tuple(what, "stride", stride or kernel, 3)
  padding, dilation = tuple(what, "padding", padding, 3), tuple(what, "dilation", dilation, 3)
  local n, c, d, h, w = volume_sizes(what, input)
  local values, places = C.max_pool2d(input:reshape(n, c * d, h, w), plane(kernel), plane(stride), plane(padding),
    plane(dilation), ceil_mode, return_indices)
  local oh, ow = values:size(2), values:size(3)
  local deepest, deep = C.max_pool2d(values:reshape(n, c, d, oh * ow), {kernel[1], 1}, {stride[1], 1}, {padding[1], 0},
    {dilation[1], 1}, ceil_mode, return_indices)
  local sizes = result_sizes(input, n, c, deepest:size(2), oh, ow)
  if not return_indices then return deepest:reshape(sizes) end
  local flat = deep:reshape(n, c, deep:size(2) * deep:size(3))
  local indices = places:reshape(n, c, d * oh * ow):gather(2, flat) + C.floor_divide(flat, oh * ow) * (h * w)
  return deepest:reshape(sizes), indices:reshape(sizes)
end)

--- The mean of each window of [N, C, D, H, W] or [C, D, H, W]; padding counts as 0 unless count_include_pad is false. A
-- divisor_override divides the sums instead of the number of elements.
--
--   F.avg_pool3d(accelhost.ones(1, 1, 2, 2, 2), 2):sum()  --> tensor(1.)
F.avg_pool3d = named("avg_pool3d", {
  "input: tensor", "kernel_size: counts", {"stride: counts"}, {"padding: sizes", 0}, {"ceil_mode: flag", false},
  {"count_include_pad: flag", true}, {"divisor_override: integer"},
}, function(what, input, kernel, stride, padding, ceil_mode, count_padding, divisor)
  if divisor == 0 then fail("avg_pool3d: divisor_override must not be 0") end
  kernel = tuple(what, "kernel_size", kernel, 3)
  stride, padding = tuple(what, "stride", stride or kernel, 3), tuple(what, "padding", padding, 3)
  local n, c, d, h, w = volume_sizes(what, input)
  local one = divisor and 1
  local means = C.avg_pool2d(input:reshape(n, c * d, h, w), plane(kernel), plane(stride), plane(padding), ceil_mode,
    count_padding, one)
  local oh, ow = means:size(2), means:size(3)
  means = C.avg_pool2d(means:reshape(n, c, d, oh * ow), {kernel[1], 1}, {stride[1], 1}, {padding[1], 0}, ceil_mode,
    count_padding, one)
  if divisor then means = means / divisor end
  return means:reshape(result_sizes(input, n, c, means:size(2), oh, ow))
end)

-- The three sizes of an adaptive pool's result; false keeps the input's.
local function open_sizes(what, size, ...)
  size = arguments.copy(tuple(what, "output_size", size, 3))
  for i = 1, 3 do size[i] = size[i] or (select(i, ...)) end
  return size
end

--- The means of output_size windows of [N, C, D, H, W] or [C, D, H, W]; false keeps the input's size.
--
--   F.adaptive_avg_pool3d(images:unsqueeze(2), 1):size(-1)  --> 1
F.adaptive_avg_pool3d = named("adaptive_avg_pool3d", {
  "input: tensor", "output_size: open_sizes",
}, function(what, input, size)
  local n, c, d, h, w = volume_sizes(what, input)
  size = open_sizes(what, size, d, h, w)
  if size[2] * size[3] == 0 then return input:new_zeros(result_sizes(input, n, c, unpack(size))) end
  local means = C.adaptive_avg_pool2d(input:reshape(n, c * d, h, w), plane(size))
  means = C.adaptive_avg_pool2d(means:reshape(n, c, d, size[2] * size[3]), {size[1], size[2] * size[3]})
  return means:reshape(result_sizes(input, n, c, unpack(size)))
end)

--- The largest value of each of output_size windows of [N, C, D, H, W] or [C, D, H, W]; with return_indices also its
--- place in the volume.
--
--   F.adaptive_max_pool3d(images:unsqueeze(2), 1):size(-1)  --> 1
---@return userdata
---@return userdata? indices with return_indices, int64
F.adaptive_max_pool3d = named("adaptive_max_pool3d", {
  "input: tensor", "output_size: open_sizes", {"return_indices: flag", false},
}, function(what, input, size, return_indices)
  local n, c, d, h, w = volume_sizes(what, input)
  size = open_sizes(what, size, d, h, w)
  if size[2] * size[3] == 0 then
    local sizes = result_sizes(input, n, c, unpack(size))
    return input:new_zeros(sizes), return_indices and input:new_zeros(sizes, {dtype = "int64"}) or nil
  end
  local values, places = C.adaptive_max_pool2d(input:reshape(n, c * d, h, w), plane(size), true)
  local pixels = size[2] * size[3]
  local deepest, deep = C.adaptive_max_pool2d(values:reshape(n, c, d, pixels), {size[1], pixels}, true)
  local sizes = result_sizes(input, n, c, unpack(size))
  if not return_indices then return deepest:reshape(sizes) end
  local flat = deep:reshape(n, c, size[1] * pixels)
  local indices = places:reshape(n, c, d * pixels):gather(2, flat) + C.floor_divide(flat, pixels) * (h * w)
  return deepest:reshape(sizes), indices:reshape(sizes)
end)

local averages = {C.avg_pool1d, C.avg_pool2d, F.avg_pool3d}

local function power_class(dims)
  local what = "lp_pool" .. dims .. "d"
  local read = signature(what, {
    "input: tensor", "norm_type: number", "kernel_size: counts", {"stride: counts"}, {"ceil_mode: flag", false},
  })
  return function(...)
    local input, p, kernel, stride, ceil_mode = read(...)
    kernel = tuple(what, "kernel_size", kernel, dims)
    stride = tuple(what, "stride", stride or kernel, dims)
    local volume = 1
    for d = 1, dims do volume = volume * kernel[d] end
    if dims == 1 then kernel, stride = kernel[1], stride[1] end
    local means = averages[dims](input:pow(p), kernel, stride, 0, ceil_mode)
    return (C.sign(means) * C.relu(C.abs(means)) * volume):pow(1 / p)
  end
end

--- (sum of x^norm_type over each window)^(1 / norm_type), of [N, C, L].
--
--   F.lp_pool1d(accelhost.tensor{{3, 4}}:unsqueeze(1), 2, 2)  --> tensor([[[5.]]])
F.lp_pool1d = power_class(1)
--- (sum of x^norm_type over each window)^(1 / norm_type), of [N, C, H, W].
--
--   F.lp_pool2d(images, 2, 2):size(-1)  --> 14
F.lp_pool2d = power_class(2)
--- (sum of x^norm_type over each window)^(1 / norm_type), of [N, C, D, H, W].
--
--   F.lp_pool3d(accelhost.ones(1, 1, 2, 2, 2), 2, 2):size(-1)  --> 1
F.lp_pool3d = power_class(3)

autocast(F, "float32", "max_pool3d avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d", "own")

return F
