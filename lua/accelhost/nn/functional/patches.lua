--- Windows of images as columns: and pixels moved between space and channels.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, shape_text, checked, named = arguments.fail, arguments.shape_text, arguments.checked, arguments.named
local F = {}

local function pair(name, what, value)
  if type(value) == "number" then return {value, value} end
  if #value ~= 2 then fail("%s: %s: expected one or two integers, got %d", name, what, #value) end
  return value
end

--- The windows of (N, C, H, W) as columns: (N, C * kernel area, windows), in the order of a convolution's weights and
--- positions; without N also. Padding is zeros.
--     columns = F.unfold(images, 3, {padding = 1})  --> [2, 9, 784]
F.unfold = named("unfold", {
  "input: tensor", "kernel_size: counts", {"dilation: counts", 1}, {"padding: sizes", 0}, {"stride: counts", 1},
}, function(what, input, kernel, dilation, padding, stride)
  if input:dim() ~= 3 and input:dim() ~= 4 then
    fail("unfold: input: expected (N, C, H, W) or (C, H, W), got %s", shape_text(input))
  end
  return C.im2col(input, pair(what, "kernel_size", kernel), pair(what, "dilation", dilation),
    pair(what, "padding", padding), pair(what, "stride", stride))
end)

--- The sum of windows, columns as unfold returns them (N, C * kernel area, windows), into images (N, C, H, W) of
--- output_size (H, W); without N also. Where windows overlap, they add up.
--     y = F.fold(accelhost.ones(2, 9, 784), {28, 28}, 3, {padding = 1})  --> [2, 1, 28, 28]
F.fold = named("fold", {
  "input: tensor", "output_size: counts", "kernel_size: counts", {"dilation: counts", 1}, {"padding: sizes", 0},
  {"stride: counts", 1},
}, function(what, input, size, kernel, dilation, padding, stride)
  return C.col2im(input, pair(what, "output_size", size), pair(what, "kernel_size", kernel),
    pair(what, "dilation", dilation), pair(what, "padding", padding), pair(what, "stride", stride))
end)

-- The leading sizes, then channels, height and width.
local function image_sizes(name, input)
  if input:dim() < 3 then fail("%s: expected an input of at least 3 dims, got %s", name, shape_text(input)) end
  local sizes = input:shape()
  local count = #sizes
  return {unpack(sizes, 1, count - 3)}, sizes[count - 2], sizes[count - 1], sizes[count]
end

local function with(lead, ...)
  local sizes = {unpack(lead)}
  for i = 1, select("#", ...) do sizes[#sizes + 1] = (select(i, ...)) end
  return sizes
end

-- Permute the dims that follow `lead` leading ones, counted from 1 there.
local function permuted(x, lead, order)
  local dims = {}
  for d = 1, lead do dims[d] = d - 1 end
  for _, d in ipairs(order) do dims[#dims + 1] = lead + d - 1 end
  return x:permute(dims)
end

--- Channels into space: (..., C r r, H, W) to (..., C, H r, W r), r = upscale_factor.
--     y = F.pixel_shuffle(accelhost.ones(2, 4, 3, 3), 2)  --> [2, 1, 6, 6]
F.pixel_shuffle = named("pixel_shuffle", {"input: tensor", "upscale_factor: count"}, function(what, input, r)
  local lead, c, h, w = image_sizes(what, input)
  if c % (r * r) ~= 0 then
    fail("pixel_shuffle: the %d channels of %s are not a multiple of %d", c, shape_text(input), r * r)
  end
  c = c / (r * r)
  local parts = input:reshape(with(lead, c, r, r, h, w))
  return permuted(parts, #lead, {1, 4, 2, 5, 3}):reshape(with(lead, c, h * r, w * r))
end)

--- Space into channels: (..., C, H r, W r) to (..., C r r, H, W), r = downscale_factor.
--     y = F.pixel_unshuffle(images, 2)  --> [2, 4, 14, 14]
F.pixel_unshuffle = named("pixel_unshuffle", {"input: tensor", "downscale_factor: count"}, function(what, input, r)
  local lead, c, h, w = image_sizes(what, input)
  if h % r ~= 0 or w % r ~= 0 then
    fail("pixel_unshuffle: height and width of %s are not multiples of %d", shape_text(input), r)
  end
  h, w = h / r, w / r
  local parts = input:reshape(with(lead, c, h, r, w, r))
  return permuted(parts, #lead, {1, 3, 5, 2, 4}):reshape(with(lead, c * r * r, h, w))
end)

--- The channels of (N, C, ...) in `groups` groups, one from each in turn.
--     y = F.channel_shuffle(accelhost.ones(2, 4, 3, 3), 2)  --> [2, 4, 3, 3]
F.channel_shuffle = checked("channel_shuffle", {"input: tensor", "groups: count"}, function(input, groups)
  if input:dim() < 3 then
    fail("channel_shuffle: expected an input of at least 3 dims, got %s", shape_text(input))
  end
  local sizes = input:shape()
  local n, c = sizes[1], sizes[2]
  if c % groups ~= 0 then
    fail("channel_shuffle: the %d channels of %s do not make %d groups", c, shape_text(input), groups)
  end
  return input:reshape(n, groups, c / groups, unpack(sizes, 3)):transpose(1, 2):reshape(sizes)
end)
F.native_channel_shuffle = F.channel_shuffle

return F
