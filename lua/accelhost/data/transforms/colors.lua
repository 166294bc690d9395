--- Functions of an image's colours. torchvision's names (transforms.functional); bytes are cut, not rounded, as there.
---@param image userdata [..., channels, rows, columns]
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local moves = require "accelhost.data.transforms.moves"
local sizes = require "accelhost.data.transforms.sizes"
local values = require "accelhost.data.transforms.values"

local fail = arguments.fail
local colors = {}

-- Return the number of channels, 1 or 3.
local function channels_of(what, image)
  sizes.check(what, image, 3)
  local channels = image:size(-3)
  if channels ~= 1 and channels ~= 3 then fail("%s: expected 1 or 3 channels, got %d", what, channels) end
  return channels
end

local function factor_of(what, factor)
  if type(factor) ~= "number" or factor < 0 then
    fail("%s: factor: expected a number of at least 0, got %s", what, arguments.describe(factor))
  end
  return factor
end

-- A computed image in the range and dtype of the one it was made of.
local function as(image, result)
  return result:clamp(0, values.largest(image.dtype)):to(image.dtype)
end

-- Brightness as the eye sees it, [..., 1, rows, columns], as numbers that are not yet cut to the dtype.
local function gray(image)
  if image:size(-3) == 1 then return values.is_float(image.dtype) and image or image:to("float32") end
  local red, green, blue = image:narrow(-3, 0, 1), image:narrow(-3, 1, 1), image:narrow(-3, 2, 1)
  return red:mul(0.2989):add(green, {alpha = 0.587}):add(blue, {alpha = 0.114})
end

local function cut_gray(image)
  local result = gray(image)
  return values.is_float(image.dtype) and result or result:floor()
end

-- image * ratio + other * (1 - ratio), rounded as in torchvision
local function blend(image, other, ratio) return as(image, image:mul(ratio):add(other, {alpha = 1 - ratio})) end

--- The image in gray: 0.2989 red + 0.587 green + 0.114 blue.
--
--     y = data.transforms.functional.rgb_to_grayscale(image)
---@param image userdata [..., 3 or 1, rows, columns]
---@param num_output_channels? integer|table 1 (default) or 3
colors.rgb_to_grayscale = arguments.named("transforms.rgb_to_grayscale", {
  "image: tensor", {"num_output_channels: count", 1},
}, function(what, image, count)
  if count ~= 1 and count ~= 3 then
    fail("transforms.rgb_to_grayscale: num_output_channels: expected 1 or 3, got %d", count)
  end
  channels_of(what, image)
  local result = gray(image):to(image.dtype)
  if count == 1 then return result:clone() end
  local shape = result:shape()
  shape[#shape - 2] = 3
  return result:expand(unpack(shape)):contiguous()
end)

--- The image's values times a factor.
--
--   transforms.functional.adjust_brightness(image, 0.5):size(-1)  --> 28
---@param brightness_factor number 0: black, 1: unchanged
function colors.adjust_brightness(image, brightness_factor)
  channels_of("transforms.adjust_brightness", image)
  return as(image, image:mul(factor_of("transforms.adjust_brightness", brightness_factor)))
end

--- The image blended with its mean gray.
--
--   transforms.functional.adjust_contrast(image, 0.5):size(-1)  --> 28
---@param contrast_factor number 0: gray, 1: unchanged
function colors.adjust_contrast(image, contrast_factor)
  channels_of("transforms.adjust_contrast", image)
  factor_of("transforms.adjust_contrast", contrast_factor)
  return blend(image, cut_gray(image):mean({-3, -2, -1}, true), contrast_factor)
end

--- The image blended with itself in gray.
--
--   transforms.functional.adjust_saturation(accelhost.zeros(3, 4, 4), 2):size(-1)  --> 4
---@param saturation_factor number 0: gray, 1: unchanged
function colors.adjust_saturation(image, saturation_factor)
  local channels = channels_of("transforms.adjust_saturation", image)
  factor_of("transforms.adjust_saturation", saturation_factor)
  return channels == 1 and image or blend(image, cut_gray(image), saturation_factor)
end

-- Hue, saturation and value of float channels.
local function to_hsv(red, green, blue)
  local most = red:maximum(green):maximum(blue)
  local range = most:sub(red:minimum(green):minimum(blue))
  local flat = range:eq(0)
  local saturation = range:div(most:masked_fill(flat, 1))
  local divisor = range:masked_fill(flat, 1)
  local r, g, b = most:sub(red):div(divisor), most:sub(green):div(divisor), most:sub(blue):div(divisor)
  local is_red = most:eq(red)
  local is_green = most:eq(green):logical_and(is_red:logical_not())
  local is_blue = is_red:logical_or(is_green):logical_not()
  local hue = b:sub(g):mul(is_red):add(r:add(2):sub(b):mul(is_green)):add(g:add(4):sub(r):mul(is_blue))
  return hue:mul(1 / 6):add(1):fmod(1), saturation, most
end

-- The number, among value, p, q and t, of each channel in each sixth of the circle.
local SIXTHS = {{1, 3, 2, 2, 4, 1}, {4, 1, 1, 3, 2, 2}, {2, 2, 4, 1, 1, 3}}

local function from_hsv(hue, saturation, value)
  local h6 = hue:mul(6)
  local sixth = h6:floor()
  local part = saturation:mul(h6:sub(sixth))
  local white = saturation:neg():add(1)
  local parts = {
    value, white:mul(value):clamp(0, 1), part:neg():add(1):mul(value):clamp(0, 1),
    part:add(white):mul(value):clamp(0, 1),
  }
  sixth = sixth:remainder(6)
  local channels = {}
  for c, row in ipairs(SIXTHS) do
    for i = 1, 6 do
      local chosen = parts[row[i]]
      channels[c] = channels[c] and C.where(sixth:eq(i - 1), chosen, channels[c]) or chosen
    end
  end
  return C.cat(channels, -3)
end

--- The image's colours turned around the circle of hues.
--
--   transforms.functional.adjust_hue(accelhost.zeros(3, 4, 4), 0.1):size(-1)  --> 4
---@param hue_factor number -0.5 to 0.5, in circles
function colors.adjust_hue(image, hue_factor)
  if type(hue_factor) ~= "number" or hue_factor < -0.5 or hue_factor > 0.5 then
    fail("transforms.adjust_hue: hue_factor: expected a number from -0.5 to 0.5, got %s",
      arguments.describe(hue_factor))
  end
  if channels_of("transforms.adjust_hue", image) == 1 or image:numel() == 0 then return image end
  local floats = values.to_dtype(image, "float32", true)
  local hue, saturation, value = to_hsv(floats:narrow(-3, 0, 1), floats:narrow(-3, 1, 1), floats:narrow(-3, 2, 1))
  return values.to_dtype(from_hsv(hue:add(hue_factor):remainder(1), saturation, value), image.dtype, true)
end

-- Each pixel as a weighted sum of its neighbours along one dim, without the border.
local function slide(image, dim, weights)
  local length, sum = image:size(dim) - #weights + 1, nil
  for i, weight in ipairs(weights) do
    local term = image:narrow(dim, i - 1, length):mul(weight)
    sum = sum and sum:add(term) or term
  end
  return sum
end

-- The image as floats to compute with.
local function floats_of(image) return values.is_float(image.dtype) and image or image:to("float32") end

--- The image blended with a smoothed one.
--
--   transforms.functional.adjust_sharpness(image, 2):size(-1)  --> 28
---@param sharpness_factor number 0: smoothed, 1: unchanged, 2: sharper
function colors.adjust_sharpness(image, sharpness_factor)
  channels_of("transforms.adjust_sharpness", image)
  factor_of("transforms.adjust_sharpness", sharpness_factor)
  local rows, columns = image:size(-2), image:size(-1)
  if image:numel() == 0 or rows <= 2 or columns <= 2 then return image end
  local result = floats_of(image):clone()
  local inner = result:narrow(-2, 1, rows - 2):narrow(-1, 1, columns - 2)
  local smooth = slide(slide(result, -1, {1, 1, 1}), -2, {1, 1, 1}):add(inner:mul(4)):div(13)
  if not values.is_float(image.dtype) then smooth = smooth:round() end
  inner:add_(smooth:sub(inner):mul(1 - sharpness_factor))
  return as(image, result)
end

--- 255 (of floats: 1) minus the image.
--
--   transforms.functional.invert(image):size(-1)  --> 28
---@param image userdata
function colors.invert(image)
  sizes.check("transforms.invert", image)
  return image:neg():add(values.largest(image.dtype)):to(image.dtype)
end

--- The image with the values from a threshold on inverted.
--
--   transforms.functional.solarize(image, 128):size(-1)  --> 28
---@param image userdata
---@param threshold number
function colors.solarize(image, threshold)
  sizes.check("transforms.solarize", image)
  if type(threshold) ~= "number" or threshold > values.largest(image.dtype) then
    fail("transforms.solarize: threshold: expected a number up to %d, got %s", values.largest(image.dtype),
      arguments.describe(threshold))
  end
  return C.where(image:ge(threshold), colors.invert(image), image)
end

--- The image with fewer bits for each value.
--
--   transforms.functional.posterize(image, 4):size(-1)  --> 28
---@param image userdata uint8, or float from 0 to 1
---@param bits integer 0 to 8
function colors.posterize(image, bits)
  sizes.check("transforms.posterize", image)
  if type(bits) ~= "number" or bits % 1 ~= 0 or bits < 0 or bits > 8 then
    fail("transforms.posterize: bits: expected an integer from 0 to 8, got %s", arguments.describe(bits))
  end
  local levels = 2 ^ bits
  if values.is_float(image.dtype) then return image:mul(levels):floor():clamp(0, levels - 1):mul(1 / levels) end
  if image.dtype ~= "uint8" then fail("transforms.posterize: expected bytes or floats, got %s", image.dtype) end
  return image:bitwise_and(256 - 2 ^ (8 - bits))
end

--- The image's values spread to the whole range, in each channel.
--
--   transforms.functional.autocontrast(image):size(-1)  --> 28
function colors.autocontrast(image)
  channels_of("transforms.autocontrast", image)
  if image:numel() == 0 then return image end
  local plain = floats_of(image)
  local least, most = plain:amin({-2, -1}, true), plain:amax({-2, -1}, true)
  local flat = most:eq(least)
  local scale = most:sub(least):mul(1 / values.largest(image.dtype)):masked_fill(flat, 1)
  return as(image, plain:sub(least:masked_fill(flat, 0)):div(scale))
end

-- The number of bytes below each of the 256 values in the planes [..., pixels], spread over 0 to 255 in steps of
-- `step` bytes: torchvision's lookup table, which is Pillow's.
local function equalized(flat, step)
  local shape = flat:shape()
  shape[#shape] = 256
  local counts = C.zeros(shape, {dtype = "int64", device = flat.device})
  counts:scatter_add_(-1, flat, C.ones(1, {dtype = "int64", device = flat.device}):expand(flat:shape()))
  local below = counts:cumsum(-1):narrow(-1, 0, 255)
  local places = below:add(step:div(2, "floor")):div(step:clamp(1), "floor"):clamp(0, 255)
  return C.cat({places:narrow(-1, 0, 1):mul(0), places}, -1):gather(-1, flat)
end

--- The image's values changed so that each channel's histogram is flat.
--
--   transforms.functional.equalize(image):size(-1)  --> 28
function colors.equalize(image)
  channels_of("transforms.equalize", image)
  if image:numel() == 0 then return image end
  local bytes = values.to_dtype(image, "uint8", true)
  local flat = bytes:flatten(-2):to("int64")
  local brightest = flat:eq(flat:amax(-1, true)):sum(-1, true)
  local step = brightest:neg():add(flat:size(-1)):div(255, "floor")
  local result = C.where(step:eq(0), flat, equalized(flat, step)):to("uint8"):view(unpack(image:shape()))
  return values.to_dtype(result, image.dtype, true)
end

-- The weights of a Gaussian bell.
local function bell(size, sigma)
  local weights, total, limit = {}, 0, (size - 1) / (2 * math.sqrt(2))
  for i = 1, size do
    local x = size > 1 and (-limit + 2 * limit * (i - 1) / (size - 1)) / sigma or 0
    weights[i] = math.exp(-x * x)
    total = total + weights[i]
  end
  for i = 1, size do weights[i] = weights[i] / total end
  return weights
end

--- Kernel sizes as {width, height}; raises unless they are odd.
---@param value integer|integer[]
---@return integer[]
function colors.kernel_sizes(what, value)
  local pair = sizes.pair(what, "kernel_size", value)
  for i = 1, 2 do
    if pair[i] % 2 == 0 then fail("%s: kernel_size: expected odd integers, got %d", what, pair[i]) end
  end
  return pair
end

--- The image blurred by a Gaussian bell.
--
--     y = data.transforms.functional.gaussian_blur(image, 3, 0.8)
---@param image userdata [..., rows, columns]
---@param kernel_size integer|integer[] odd; {width, height}
---@param sigma? number|number[]|table its deviation in pixels; {x, y}; default kernel_size * 0.15 + 0.35
colors.gaussian_blur = arguments.named("transforms.gaussian_blur", {
  "image: tensor", "kernel_size: counts", {"sigma: positive|numbers"},
}, function(what, image, kernel, sigma)
  sizes.check(what, image)
  kernel = colors.kernel_sizes(what, kernel)
  sigma = sigma or {kernel[1] * 0.15 + 0.35, kernel[2] * 0.15 + 0.35}
  sigma = sizes.pair(what, "sigma", sigma)
  if sigma[1] <= 0 or sigma[2] <= 0 then fail("transforms.gaussian_blur: sigma: expected numbers above 0") end
  if image:numel() == 0 then return image end
  local padded = moves.pad(floats_of(image), {(kernel[1] - 1) / 2, (kernel[2] - 1) / 2}, {padding_mode = "reflect"})
  local result = slide(slide(padded, -1, bell(kernel[1], sigma[1])), -2, bell(kernel[2], sigma[2]))
  return values.is_float(image.dtype) and result or result:round():to(image.dtype)
end)

return colors
