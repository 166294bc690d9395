--- Layers that change the size of images: also those that split images into windows.
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local Module = require("accelhost.nn.module").Module
local repr = require "accelhost.nn.repr"

local resize = {}

--- A class whose parameters become fields.
local function class(name, parameters, forward, extra_repr)
  local Class = Module:extend(name)
  local set = arguments.setter(name, parameters)
  function Class:init(...) set(self, ...) end
  Class.forward = forward
  Class.extra_repr = extra_repr
  resize[name] = Class
  return Class
end

local function floats(value)
  if type(value) == "number" then return repr.float(value) end
  local parts = {}
  for i = 1, #value do parts[i] = repr.float(value[i]) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

local function upsample_repr(self)
  local size = self.scale_factor and "scale_factor=" .. floats(self.scale_factor) or "size=" .. repr.value(self.size)
  return size .. ", mode='" .. self.mode .. "'"
end

local size, scale_factor = {"size: counts"}, {"scale_factor: number|numbers"}

--- nn.functional.interpolate as a layer.
--
--   nn.Upsample{scale_factor = 2, mode = "bilinear"}(images):shape()  --> {2, 1, 56, 56}
class("Upsample", {
  size, scale_factor, {"mode: 'nearest'|'linear'|'bilinear'|'bicubic'|'trilinear'|'area'|'nearest-exact'", "nearest"},
  {"align_corners: flag"}, {"recompute_scale_factor: flag"},
}, function(self, input)
  return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners,
    self.recompute_scale_factor)
end, upsample_repr)

--- Upsample in one mode of (N, C, H, W).
local function fixed(name, mode, align_corners)
  local Class = class(name, {size, scale_factor}, function(self, input)
    return F.interpolate(input, self.size, self.scale_factor, self.mode, align_corners)
  end, upsample_repr)
  local init = Class.init
  function Class:init(...)
    init(self, ...)
    self.mode = mode
  end
end

--- Upsample in mode "nearest".
--
--   nn.UpsamplingNearest2d{scale_factor = 2}(images):size(-1)  --> 56
fixed("UpsamplingNearest2d", "nearest")

--- Upsample in mode "bilinear" with align_corners.
--
--   nn.UpsamplingBilinear2d{size = {14, 14}}(images):size(-1)  --> 14
fixed("UpsamplingBilinear2d", "bilinear", true)

local window = {{"dilation: counts", 1}, {"padding: sizes", 0}, {"stride: counts", 1}}

local function shown(...)
  local names = {...}
  return function(self)
    local parts = {}
    for i, name in ipairs(names) do parts[i] = name .. "=" .. repr.value(self[name]) end
    return table.concat(parts, ", ")
  end
end

--- The windows of images as columns: nn.functional.unfold.
--
--   nn.Unfold(7, {stride = 7})(images):shape()  --> {2, 49, 16}
class("Unfold", {"kernel_size: counts", unpack(window)}, function(self, input)
  return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
end, shown("kernel_size", "dilation", "padding", "stride"))

--- The sums of windows as images: nn.functional.fold.
--
--   nn.Fold(28, 7, {stride = 7})(nn.Unfold(7, {stride = 7})(images)):equal(images)  --> true
class("Fold", {"output_size: counts", "kernel_size: counts", unpack(window)}, function(self, input)
  return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)
end, shown("output_size", "kernel_size", "dilation", "padding", "stride"))

--- Channels into space: nn.functional.pixel_shuffle.
--
--   nn.PixelShuffle(2)(accelhost.zeros(1, 8, 3, 3)):shape()  --> {1, 2, 6, 6}
class("PixelShuffle", {"upscale_factor: count"}, function(self, input)
  return F.pixel_shuffle(input, self.upscale_factor)
end, shown "upscale_factor")

--- Space into channels: nn.functional.pixel_unshuffle.
--
--   nn.PixelUnshuffle(2)(images):shape()  --> {2, 4, 14, 14}
class("PixelUnshuffle", {"downscale_factor: count"}, function(self, input)
  return F.pixel_unshuffle(input, self.downscale_factor)
end, shown "downscale_factor")

--- Channels of groups in turn: nn.functional.channel_shuffle.
--
--   nn.ChannelShuffle(2)(accelhost.arange(4):view(1, 4, 1, 1)):flatten()  --> tensor([0, 2, 1, 3])
class("ChannelShuffle", {"groups: count"}, function(self, input)
  return F.channel_shuffle(input, self.groups)
end, shown "groups")

return resize
