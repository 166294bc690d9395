--- Convolutions: over rows, images and volumes, with padding by number or by name.

-- Those over volumes are separate kernels on CUDA devices. Elsewhere they are made of those over images: the frames
-- that a kernel covers in depth become channels, so that one image convolution does the work.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local edges = require "accelhost.nn.functional.edges"
local pad = require("accelhost.nn.functional.pad").pad
local tuple = require("accelhost.nn.functional.sizes").tuple

local fail, shape_text, signature, named = arguments.fail, arguments.shape_text, arguments.signature, arguments.named
local F = {}

local function kernel_of(weight, dims)
  local kernel = {}
  for d = 1, dims do kernel[d] = weight:size(1 + d) end
  return kernel
end

local function check_same(what, padding, stride)
  for _, step in ipairs(stride) do
    if padding == "same" and step ~= 1 then fail("%s: padding 'same' needs stride 1", what) end
  end
end

-- Convolutions of the op table accept padding by name, too. Other calls are passed on directly.

local function by_name(name, dims)
  local op = C[name]
  local read = signature(name, {
    "input: tensor", "weight: tensor", {"bias: tensor"}, {"stride: counts", 1},
    {"padding: sizes|'same'|'valid'", 0}, {"dilation: counts", 1}, {"groups: count", 1},
  })
  return function(...)
    local given = select("#", ...)
    local last = given > 0 and select(given, ...)
    local has_names = type(last) == "table" and type(last.padding) == "string"
    if not has_names and type((select(5, ...))) ~= "string" then return op(...) end
    local input, weight, bias, stride, padding, dilation, groups = read(...)
    if weight:dim() ~= dims + 2 then return op(input, weight) end -- whose error has the expected dims
    stride, dilation = tuple(name, "stride", stride, dims), tuple(name, "dilation", dilation, dims)
    check_same(name, padding, stride)
    local pads, around = edges.place(padding, kernel_of(weight, dims), dilation, true)
    if around then input = pad(input, around) end
    if dims == 1 then stride, pads, dilation = stride[1], pads[1], dilation[1] end
    return op(input, weight, bias, stride, pads, dilation, groups)
  end
end

--- Cross-correlation over [N, C, L] or [C, L] with weight [out, C / groups, k]. padding = "same" keeps the length (for
--- stride 1; of an odd sum the larger half is after the input), "valid" pads nothing.
--
--   F.conv1d(a:view(1, 1, 3), accelhost.ones(1, 1, 2))  --> tensor([[[3., 5.]]])
F.conv1d = by_name("conv1d", 1)

--- Cross-correlation over [N, C, H, W] or [C, H, W] with weight [out, C / groups, kH, kW]; padding = "same" and "valid"
--- as in conv1d.
--
--   F.conv2d(images, accelhost.ones(4, 1, 3, 3), {padding = "same"}):size(-1)  --> 28
F.conv2d = by_name("conv2d", 2)

-- Volumes.

local volume_text = "input (N, C, D, H, W) or (C, D, H, W)"

local function check_volume(what, input, weight, bias, o)
  if input:dim() ~= 5 and input:dim() ~= 4 or weight:dim() ~= 5 then
    fail("%s: expected %s and weight %s, got %s and %s", what, volume_text, o.weight_text, shape_text(input),
      shape_text(weight))
  end
  if input:size(-4) ~= o.channels_in() or weight:size(0) % o.groups ~= 0 then
    fail("%s: input %s does not fit weight %s with groups = %d", what, shape_text(input), shape_text(weight), o.groups)
  end
  if input.dtype ~= weight.dtype or bias and bias.dtype ~= weight.dtype then
    fail("%s: dtypes differ: input is %s, weight is %s%s", what, input.dtype, weight.dtype,
      bias and ", bias is " .. bias.dtype or "")
  end
  if bias and (bias:dim() ~= 1 or bias:size(0) ~= o.channels_out()) then
    fail("%s: bias %s does not fit weight %s", what, shape_text(bias), shape_text(weight))
  end
end

local function plane(values) return {values[2], values[3]} end

local function has_kernel(input) return C.device.computes(input.device, "conv_volume") end

-- [N, C, D, H, W] as frames [N, D, C, H, W], with zeros for the padding in depth.
local function frames_of(input, padding)
  local frames = input:transpose(1, 2)
  if padding == 0 then return frames end
  local sizes = frames:shape()
  sizes[2] = padding
  local zeros = input:new_zeros(sizes)
  return C.cat({zeros, frames, zeros}, 1)
end

--- Cross-correlation of volumes: input [N, C, D, H, W] or [C, D, H, W], weight [out, C / groups, kD, kH, kW]. Options
-- are numbers or tables of three; padding = "same" and "valid" as in conv1d.
--
--   F.conv3d(accelhost.ones(1, 1, 3, 3, 3), accelhost.ones(1, 1, 3, 3, 3)):sum()  --> tensor(27.)
---@return userdata # [N, out, D', H', W'], sizes (size + 2 padding - dilation (k - 1) - 1) / stride + 1
F.conv3d = named("conv3d", {
  "input: tensor", "weight: tensor", {"bias: tensor"}, {"stride: counts", 1}, {"padding: sizes|'same'|'valid'", 0},
  {"dilation: counts", 1}, {"groups: count", 1},
}, function(what, input, weight, bias, stride, padding, dilation, groups)
  check_volume(what, input, weight, bias, {
    weight_text = "(out, in / groups, kD, kH, kW)", groups = groups,
    channels_in = function() return weight:size(1) * groups end, channels_out = function() return weight:size(0) end,
  })
  if input:dim() == 4 then
    return F.conv3d(input:unsqueeze(0), weight, bias, stride, padding, dilation, groups):squeeze(0)
  end
  stride, dilation = tuple(what, "stride", stride, 3), tuple(what, "dilation", dilation, 3)
  if type(padding) ~= "string" then padding = tuple(what, "padding", padding, 3) end
  check_same(what, padding, stride)
  local kernel = kernel_of(weight, 3)
  local pads, around = edges.place(padding, kernel, dilation, true)
  if around then input = pad(input, around) end
  if has_kernel(input) then return C.conv_volume(input, weight, bias, stride, pads, dilation, groups) end
  local frames, parts = frames_of(input, pads[1]), {}
  local reach = dilation[1] * (kernel[1] - 1) + 1
  local depth = math.floor((frames:size(1) - reach) / stride[1]) + 1
  if depth < 1 or kernel[1] < 1 then
    fail("conv3d: the kernel of weight %s is larger than the padded input %s", shape_text(weight), shape_text(input))
  end
  for k = 0, kernel[1] - 1 do
    local first = k * dilation[1]
    parts[k + 1] = C.slice(frames, 1, first, first + (depth - 1) * stride[1] + 1, stride[1])
  end
  local batch, channels = input:size(0), weight:size(0)
  local stacked = C.stack(parts, 3):reshape(batch * depth, input:size(1) * kernel[1], input:size(3), input:size(4))
  local flat = weight:reshape(channels, weight:size(1) * kernel[1], kernel[2], kernel[3])
  local result = C.conv2d(stacked, flat, bias, plane(stride), plane(pads),
    plane(dilation), groups)
  return result:reshape(batch, depth, channels, result:size(2), result:size(3)):transpose(1, 2):contiguous()
end)

local read_transpose3d = signature("conv_transpose3d", {
  "input: tensor", "weight: tensor", {"bias: tensor"}, {"stride: counts", 1}, {"padding: sizes", 0},
  {"output_padding: sizes", 0}, {"groups: count", 1}, {"dilation: counts", 1},
})

-- Add up the frames of [N, D, out, kD, H, W] at their places: [N, out, D', H, W], without the padding.
local function spread(frames, stride, dilation, padding, more)
  local sizes, places = frames:shape(), {}
  local batch, depth, channels, kernel = sizes[1], sizes[2], sizes[3], sizes[4]
  for d = 0, depth - 1 do
    for k = 0, kernel - 1 do places[#places + 1] = d * stride + k * dilation end
  end
  local length = (depth - 1) * stride + dilation * (kernel - 1) + 1 + more
  if length - 2 * padding < 1 then fail("conv_transpose3d: the result has no depth") end
  local index = C.tensor(places, {dtype = "int64", device = frames.device})
  local flat = frames:permute(0, 2, 1, 3, 4, 5):reshape(batch, channels, depth * kernel, sizes[5], sizes[6])
  local room = frames:new_zeros {batch, channels, length, sizes[5], sizes[6]}
  return room:index_add(2, index, flat):narrow(2, padding, length - 2 * padding)
end

-- The gradient of a volume that conv_volume maps to the input. An output padding of a stride or more adds zeros to the
-- input.
local function transpose_by_kernel(input, weight, bias, kernel, stride, padding, more, groups, dilation)
  local sizes, around = {input:size(0), weight:size(1) * groups}, {}
  for d = 1, 3 do
    local size = (input:size(1 + d) - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[d] - 1) + more[d] + 1
    if size < 1 then fail("conv_transpose3d: the result of input %s has no size", shape_text(input)) end
    sizes[2 + d] = size
    around[7 - 2 * d], around[8 - 2 * d] = 0, math.floor(more[d] / stride[d])
  end
  if around[2] + around[4] + around[6] > 0 then input = pad(input, around) end
  local result = C.conv_volume_grad_input(input, weight, sizes, stride, padding, dilation, groups)
  return bias and result + bias:view(-1, 1, 1, 1) or result
end

--- The transpose (gradient) of conv3d with respect to its input: input [N, C, D, H, W] or [C, D, H, W], weight
-- [C, out / groups, kD, kH, kW]. output_padding adds to one side of the result.
--
--   F.conv_transpose3d(accelhost.ones(1, 1, 2, 2, 2), accelhost.ones(1, 1, 2, 2, 2)):sum()  --> tensor(64.)
---@return userdata # [N, out, D', H', W'], sizes (size - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1
function F.conv_transpose3d(...)
  local what = "conv_transpose3d"
  local input, weight, bias, stride, padding, more, groups, dilation = read_transpose3d(...)
  check_volume(what, input, weight, bias, {
    weight_text = "(in, out / groups, kD, kH, kW)", groups = groups, channels_in = function() return weight:size(0) end,
    channels_out = function() return weight:size(1) * groups end,
  })
  if input:dim() == 4 then
    return F.conv_transpose3d(input:unsqueeze(0), weight, bias, stride, padding, more, groups, dilation):squeeze(0)
  end
  stride, padding = tuple(what, "stride", stride, 3), tuple(what, "padding", padding, 3)
  more, dilation = tuple(what, "output_padding", more, 3), tuple(what, "dilation", dilation, 3)
  for d = 1, 3 do
    if more[d] >= stride[d] and more[d] >= dilation[d] then
      fail("%s: output_padding must be below stride or dilation", what)
    end
  end
  local kernel = kernel_of(weight, 3)
  if has_kernel(input) then
    return transpose_by_kernel(input, weight, bias, kernel, stride, padding, more, groups, dilation)
  end
  local batch, depth, channels = input:size(0), input:size(2), weight:size(1) * groups
  local frames = input:transpose(1, 2):reshape(batch * depth, input:size(1), input:size(3), input:size(4))
  local flat = weight:reshape(weight:size(0), weight:size(1) * kernel[1], kernel[2], kernel[3])
  local images = C.conv_transpose2d(frames, flat, nil,
    plane(stride), plane(padding), plane(more), groups, plane(dilation))
  -- Overlapping frames and the bias are added in float32: rounded once.
  local dtype, half = images.dtype, images.dtype:find "16$"
  if half then images = images:to "float32" end
  images = images:reshape(batch, depth, channels, kernel[1], images:size(2), images:size(3))
  local result = spread(images, stride[1], dilation[1], padding[1], more[1])
  result = bias and result + bias:view(-1, 1, 1, 1) or result:contiguous()
  return half and result:to(dtype) or result
end

autocast(F, "lower", "conv3d conv_transpose3d")

return F
