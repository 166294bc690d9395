--- The operations of AutoAugment, RandAugment and TrivialAugmentWide, by torchvision's names and magnitudes.
local C = require "accelhost._C"
local colors = require "accelhost.data.transforms.colors"
local scales = require "accelhost.data.transforms.scales"
local sizes = require "accelhost.data.transforms.sizes"
local values = require "accelhost.data.transforms.values"

local operations = {}

local function truncated(x) return x < 0 and math.ceil(x) or math.floor(x) end

-- Shear the image by a factor along x and y, its corner kept in place.
local function sheared(image, x, y, mode, fill)
  local angles = {math.deg(math.atan(x)), math.deg(math.atan(y))}
  return scales.affine(image, 0, {0, 0}, 1, angles, {interpolation = mode, fill = fill, center = {0, 0}})
end

local function shifted(image, x, y, mode, fill)
  return scales.affine(image, 0, {truncated(x), truncated(y)}, 1, {0, 0}, {interpolation = mode, fill = fill})
end

-- Name -> the image after the operation of a magnitude.
local known = {
  Identity = function(image) return image end,
  ShearX = function(image, x, ...) return sheared(image, x, 0, ...) end,
  ShearY = function(image, y, ...) return sheared(image, 0, y, ...) end,
  TranslateX = function(image, x, ...) return shifted(image, x, 0, ...) end,
  TranslateY = function(image, y, ...) return shifted(image, 0, y, ...) end,
  Rotate = function(image, angle, mode, fill)
    return scales.rotate(image, angle, {interpolation = mode, fill = fill})
  end,
  Brightness = function(image, x) return colors.adjust_brightness(image, 1 + x) end,
  Color = function(image, x) return colors.adjust_saturation(image, 1 + x) end,
  Contrast = function(image, x) return colors.adjust_contrast(image, 1 + x) end,
  Sharpness = function(image, x) return colors.adjust_sharpness(image, 1 + x) end,
  Posterize = function(image, bits) return colors.posterize(image, bits) end,
  Solarize = function(image, x) return colors.solarize(image, values.largest(image.dtype) * x) end,
  AutoContrast = function(image) return colors.autocontrast(image) end,
  Equalize = function(image) return colors.equalize(image) end,
  Invert = function(image) return colors.invert(image) end,
}

--- Return the image after one operation.
---@param name string "ShearX", "Posterize", ...
---@param magnitude number
---@param mode string "nearest" or "bilinear"
---@param fill? number|number[] the value outside of a moved image
---@return userdata
function operations.apply(image, name, magnitude, mode, fill) return known[name](image, magnitude, mode, fill) end

--- Groups of operations, each in the order in which torchvision draws them.
operations.MOVES = {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"}
operations.FACTORS = {"Brightness", "Color", "Contrast", "Sharpness"}
operations.VALUES = {"Posterize", "Solarize", "AutoContrast", "Equalize"}

-- Operation -> the first and the last of its magnitudes, `extent` pixels where it shifts; nil where it has none.
local ranges = {
  Solarize = function() return 1, 0 end,
  Rotate = function(most) return 0, most.angle end,
}
for _, name in ipairs {"ShearX", "ShearY"} do ranges[name] = function(most) return 0, most.shear end end
for _, name in ipairs(operations.FACTORS) do ranges[name] = function(most) return 0, most.factor end end
for _, name in ipairs {"TranslateX", "TranslateY"} do
  ranges[name] = function(most, extent) return 0, most.pixels or most.shift * extent end
end

local signed = {}
for _, names in ipairs {operations.MOVES, operations.FACTORS} do
  for _, name in ipairs(names) do signed[name] = true end
end

--- Does a random sign belong to the operation?
function operations.is_signed(name) return signed[name] == true end

--- Does the operation have magnitudes?
function operations.has_magnitude(name) return ranges[name] ~= nil or name == "Posterize" end

--- Return magnitude `at` (from 0) of `bins` magnitudes, 0 of an operation without one.
---@param name string
---@param most {shear: number, shift: number?, pixels: number?, angle: number, factor: number, most_bits: integer?,
--- bits: integer} the largest ones; of bits: those that Posterize removes
---@param at integer
---@param rows integer of the image
---@param columns integer
---@return number
function operations.magnitude(name, most, bins, at, rows, columns)
  if name == "Posterize" then return sizes.round((most.most_bits or 8) - at / ((bins - 1) / most.bits)) end
  if not ranges[name] then return 0 end
  local low, high = ranges[name](most, name == "TranslateX" and columns or rows)
  return C.linspace(low, high, bins, {dtype = "float32", device = "cpu"}):select(0, at):item()
end

--- Return the operations of lists, one after the other.
---@param ... string[]
---@return string[]
function operations.space(...)
  local list = {}
  for _, names in ipairs {...} do
    for _, name in ipairs(names) do list[#list + 1] = name end
  end
  return list
end

return operations
