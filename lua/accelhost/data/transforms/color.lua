--- Transforms of an image's colours, and of a part of it: ColorJitter, Grayscale, GaussianBlur, RandomErasing and more.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local colors = require "accelhost.data.transforms.colors"
local rng_streams = require "accelhost.data.rng_streams"
local sizes = require "accelhost.data.transforms.sizes"
local values = require "accelhost.data.transforms.values"

local fail, signature = arguments.fail, arguments.signature
local color = {}

local Grayscale = class.new "Grayscale"
color.Grayscale = Grayscale

local read_gray = signature("Grayscale", {{"num_output_channels: count", 1}})

--- The image in gray.
--
--   transforms.Grayscale()(accelhost.zeros(3, 4, 4)):size(-1)  --> 4
---@param num_output_channels? integer 1 (default) or 3
function Grayscale:init(...)
  self.num_output_channels = read_gray(...)
end

function Grayscale:__call(image) return colors.rgb_to_grayscale(image, self.num_output_channels) end
sizes.print_fields(Grayscale, "num_output_channels")

-- A transform that happens with probability p, which may follow an argument of its function.
local function maybe(name, parameters, p, apply)
  local Maybe = class.new(name)
  parameters[#parameters + 1] = {"p: probability", p}
  local set = arguments.setter(name, parameters)

  function Maybe:init(...) set(self, ...) end

  function Maybe:__call(image)
    sizes.check(name, image, 3)
    return rng_streams.chance(self.p) and apply(image, self) or image
  end

  sizes.print_fields(Maybe, "p")
  return Maybe
end

--- The image in gray, in as many channels, with probability p (default 0.1).
--
--   transforms.RandomGrayscale()(accelhost.zeros(3, 4, 4)):size(-1)  --> 4
color.RandomGrayscale = maybe("RandomGrayscale", {}, 0.1, function(image)
  return colors.rgb_to_grayscale(image, image:size(-3))
end)

--- The image inverted with probability p (default 0.5).
--
--   transforms.RandomInvert(1)(image):size(-1)  --> 28
color.RandomInvert = maybe("RandomInvert", {}, 0.5, colors.invert)

--- The image with `bits` bits for each value with probability p (default 0.5).
--
--   transforms.RandomPosterize(4)(image):size(-1)  --> 28
color.RandomPosterize = maybe("RandomPosterize", {"bits: size"}, 0.5, function(image, self)
  return colors.posterize(image, self.bits)
end)

--- The image with the values from `threshold` on inverted with probability p (default 0.5).
--
--   transforms.RandomSolarize(128)(image):size(-1)  --> 28
color.RandomSolarize = maybe("RandomSolarize", {"threshold: number"}, 0.5, function(image, self)
  return colors.solarize(image, self.threshold)
end)

--- The image sharpened by `sharpness_factor` with probability p (default 0.5).
--
--   transforms.RandomAdjustSharpness(2)(image):size(-1)  --> 28
color.RandomAdjustSharpness = maybe("RandomAdjustSharpness", {"sharpness_factor: nonnegative"}, 0.5,
  function(image, self) return colors.adjust_sharpness(image, self.sharpness_factor) end)

--- The image's values spread to the whole range with probability p (default 0.5).
--
--   transforms.RandomAutocontrast()(image):size(-1)  --> 28
color.RandomAutocontrast = maybe("RandomAutocontrast", {}, 0.5, colors.autocontrast)

--- The image's histogram made flat, in each channel, with probability p (default 0.5).
--
--   transforms.RandomEqualize()(image):size(-1)  --> 28
color.RandomEqualize = maybe("RandomEqualize", {}, 0.5, colors.equalize)

local ColorJitter = class.new "ColorJitter"
color.ColorJitter = ColorJitter

-- The order in which PyTorch numbers and draws them.
local PARTS = {"brightness", "contrast", "saturation", "hue"}

-- The range of a factor; nil where it changes nothing.
local function factors(name, value, center, least, most)
  if value == nil then return nil end
  local low, high
  if type(value) == "number" then
    if value < 0 then fail("ColorJitter: %s: one number must not be negative, got %s", name, value) end
    low, high = center - value, center + value
    if center == 1 then low = math.max(low, 0) end
  else
    low, high = sizes.range("ColorJitter", name, value)
  end
  if low < least or high > most then
    fail("ColorJitter: %s: expected numbers from %s to %s, got %s to %s", name, least, most, low, high)
  end
  return (low ~= center or high ~= center) and {low, high} or nil
end

local read_jitter = signature("ColorJitter", {
  {"brightness: numbers"}, {"contrast: numbers"}, {"saturation: numbers"}, {"hue: numbers"},
})

--- Brightness, contrast, saturation and hue changed at random, in a random order.
--
--   transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
---@param brightness? number|number[]|table factor from 1 - x to 1 + x, or from the first to the second
---@param hue? number|number[] from -x to x, or from the first to the second, within -0.5 to 0.5
function ColorJitter:init(...)
  local given = {read_jitter(...)}
  for i, name in ipairs(PARTS) do
    local hue = name == "hue"
    self[name] = factors(name, given[i], hue and 0 or 1, hue and -0.5 or 0, hue and 0.5 or math.huge)
  end
end

function ColorJitter:__call(image)
  sizes.check("ColorJitter", image, 3)
  local order, drawn = rng_streams.shuffled(4), {}
  for i, name in ipairs(PARTS) do drawn[i] = self[name] and rng_streams.uniform(self[name][1], self[name][2]) end
  for _, part in ipairs(order) do
    local factor = drawn[part + 1]
    if factor then image = colors["adjust_" .. PARTS[part + 1]](image, factor) end
  end
  return image
end

sizes.print_fields(ColorJitter, unpack(PARTS))

local GaussianBlur = class.new "GaussianBlur"
color.GaussianBlur = GaussianBlur

local read_blur = signature("GaussianBlur", {"kernel_size: counts", {"sigma: positive|numbers", {0.1, 2}}})

--- The image blurred by a Gaussian bell of random width.
--
--   transforms.GaussianBlur(3)(image):size(-1)  --> 28
---@param kernel_size integer|integer[] odd; {width, height}
---@param sigma? number|number[]|table deviation in pixels, or from the first to the second; default {0.1, 2}
function GaussianBlur:init(...)
  local kernel, sigma = read_blur(...)
  self.kernel_size = colors.kernel_sizes("GaussianBlur", kernel)
  self.sigma = sizes.pair("GaussianBlur", "sigma", sigma)
  if sizes.range("GaussianBlur", "sigma", self.sigma) <= 0 then
    fail("GaussianBlur: sigma: expected numbers above 0, got %s", sizes.text(self.sigma))
  end
end

function GaussianBlur:__call(image)
  sizes.check("GaussianBlur", image)
  local sigma = rng_streams.uniform(self.sigma[1], self.sigma[2])
  return colors.gaussian_blur(image, self.kernel_size, sigma)
end

sizes.print_fields(GaussianBlur, "kernel_size", "sigma")

local RandomErasing = class.new "RandomErasing"
color.RandomErasing = RandomErasing

local read_erasing = signature("RandomErasing", {
  {"p: probability", 0.5}, {"scale: numbers", {0.02, 0.33}}, {"ratio: numbers", {0.3, 3.3}},
  {"value: 'random'|numbers", 0}, {"inplace: flag", false},
})

--- The image without a part of random area and shape, with probability p.
--
--   transforms.RandomErasing(1)(image:float()):size(-1)  --> 28
---@param scale? number[] least and largest part of the area; default {0.02, 0.33}
---@param ratio? number[] least and largest height / width; default {0.3, 3.3}
---@param value? number|number[]|string the replacement: one value, one for each channel, or "random" (normal noise)
---@param inplace? boolean change the image itself; default false
function RandomErasing:init(...)
  self.p, self.scale, self.ratio, self.value, self.inplace = read_erasing(...)
  local low, high = sizes.range("RandomErasing", "scale", self.scale)
  if low < 0 or high > 1 then
    fail("RandomErasing: scale: expected numbers from 0 to 1, got %s", sizes.text(self.scale))
  end
  if sizes.range("RandomErasing", "ratio", self.ratio) <= 0 then
    fail("RandomErasing: ratio: expected numbers above 0")
  end
end

function RandomErasing:_log_ratio() return C.tensor(self.ratio, {dtype = "float32"}):log():tolist() end

--- Return the parameters by which a loader erases float images of this size (data/transforms/plan.lua); nil when it
--- cannot.
---@param rows integer
---@param columns integer
---@return {p: number, channels: integer, rows: integer, columns: integer, scale: number[], log_ratio: number[]}?
---@return userdata? filling [channels, 1, 1]
function RandomErasing:erasing(channels, rows, columns)
  if self.value == "random" or type(self.value) == "table" and #self.value ~= 1 and #self.value ~= channels then
    return nil
  end
  return {p = self.p, channels = channels, rows = rows, columns = columns, scale = self.scale,
    log_ratio = self:_log_ratio()}, self:_filling(channels):expand(channels, 1, 1)
end

-- Return the filling of a part of this size.
function RandomErasing:_filling(channels, height, width)
  if self.value == "random" then
    return rng_streams.tensors(function() return C.randn(channels, height, width) end)
  end
  local list = type(self.value) == "table" and self.value or {self.value}
  if #list ~= 1 and #list ~= channels then
    fail("RandomErasing: value: %d values for an image of %d channels", #list, channels)
  end
  return C.tensor(list, {dtype = "float32"}):view(#list, 1, 1)
end

function RandomErasing:__call(image)
  sizes.check("RandomErasing", image, 3)
  if not rng_streams.chance(self.p) then return image end
  local channels, rows, columns = image:size(-3), image:size(-2), image:size(-1)
  local bounds = self:_log_ratio()
  for _ = 1, 10 do
    local area = rows * columns * rng_streams.uniform(self.scale[1], self.scale[2])
    local ratio = C.data.exp(rng_streams.uniform(bounds[1], bounds[2]))
    local height, width = sizes.round(math.sqrt(area * ratio)), sizes.round(math.sqrt(area / ratio))
    if height < rows and width < columns then
      local filling = self:_filling(channels, height, width):to {device = image.device}
      local top = rng_streams.below(rows - height + 1)
      return values.erase(image, top, rng_streams.below(columns - width + 1), height, width, filling, self.inplace)
    end
  end
  return image
end

sizes.print_fields(RandomErasing, "p", "scale", "ratio", "value", "inplace")

return color
