--- Transforms that compute an image at other places: Resize, RandomResizedCrop, RandomRotation, RandomAffine.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local rng_streams = require "accelhost.data.rng_streams"
local scales = require "accelhost.data.transforms.scales"
local sizes = require "accelhost.data.transforms.sizes"

local fail, signature = arguments.fail, arguments.signature
local geometry = {}

local MODES = "'nearest'|'nearest-exact'|'bilinear'|'bicubic'|'lanczos'|'box'|'hamming'"

local Resize = class.new "Resize"
geometry.Resize = Resize

local read_resize = signature("Resize", {
  {"size: counts"}, {"interpolation: " .. MODES, "bilinear"}, {"max_size: count"}, {"antialias: flag", true},
})

--- The image in another size, as transforms.functional.resize makes it.
--
--   transforms.Resize(14)(image):size(-1)  --> 14
---@param size? integer|integer[] {height, width}, or the shorter side
---@param max_size? integer of the longer side
function Resize:init(...)
  self.size, self.interpolation, self.max_size, self.antialias = read_resize(...)
  if not self.size and not self.max_size then fail("Resize: size: expected a size or a max_size") end
end

function Resize:__call(image)
  return scales.resize(image, {
    size = self.size, interpolation = self.interpolation, max_size = self.max_size, antialias = self.antialias,
  })
end

sizes.print_fields(Resize, "size", "interpolation", "max_size", "antialias")

-- The natural logarithms of two numbers, to float32.
local function logarithms(low, high) return unpack(C.tensor({low, high}, {dtype = "float32"}):log():tolist()) end

--- e to the power of x, to float32.
local function exponential(x) return C.tensor({x}, {dtype = "float32"}):exp():item() end

local RandomResizedCrop = class.new "RandomResizedCrop"
geometry.RandomResizedCrop = RandomResizedCrop

local read_resized = signature("RandomResizedCrop", {
  "size: counts", {"scale: numbers", {0.08, 1}}, {"ratio: numbers", {3 / 4, 4 / 3}},
  {"interpolation: " .. MODES, "bilinear"}, {"antialias: flag", true},
})

--- A part of the image of random area and shape, in one size.
--
--   transforms.RandomResizedCrop(14)(image):size(-1)  --> 14
---@param size integer|integer[] {height, width}
---@param scale? number[]|table least and largest part of the area; default {0.08, 1}
---@param ratio? number[] least and largest width / height; default {3/4, 4/3}
function RandomResizedCrop:init(...)
  local size
  size, self.scale, self.ratio, self.interpolation, self.antialias = read_resized(...)
  self.size = sizes.pair("RandomResizedCrop", "size", size)
  sizes.range("RandomResizedCrop", "scale", self.scale)
  sizes.range("RandomResizedCrop", "ratio", self.ratio)
end

-- Top, left, height and width of a part.
function RandomResizedCrop:_part(rows, columns)
  local low, high = logarithms(self.ratio[1], self.ratio[2])
  for _ = 1, 10 do
    local area = rows * columns * rng_streams.uniform(self.scale[1], self.scale[2])
    local ratio = exponential(rng_streams.uniform(low, high))
    local width, height = sizes.round(math.sqrt(area * ratio)), sizes.round(math.sqrt(area / ratio))
    if width > 0 and width <= columns and height > 0 and height <= rows then
      local top = rng_streams.below(rows - height + 1)
      return top, rng_streams.below(columns - width + 1), height, width
    end
  end
  local width, height = columns, rows
  if columns / rows < self.ratio[1] then
    height = sizes.round(width / self.ratio[1])
  elseif columns / rows > self.ratio[2] then
    width = sizes.round(height * self.ratio[2])
  end
  return math.floor((rows - height) / 2), math.floor((columns - width) / 2), height, width
end

function RandomResizedCrop:__call(image)
  sizes.check("RandomResizedCrop", image)
  local top, left, height, width = self:_part(image:size(-2), image:size(-1))
  return scales.resized_crop(image, top, left, height, width, self.size, self.interpolation, self.antialias)
end

sizes.print_fields(RandomResizedCrop, "size", "scale", "ratio", "interpolation", "antialias")

local RandomRotation = class.new "RandomRotation"
geometry.RandomRotation = RandomRotation

local read_rotation = signature("RandomRotation", {
  "degrees: numbers", {"interpolation: 'nearest'|'bilinear'", "nearest"}, {"expand: flag", false},
  {"center: numbers"}, {"fill: numbers", 0},
})

--- The image turned by a random angle.
--
--   transforms.RandomRotation(10)(image):size(-1)  --> 28
---@param degrees number|number[] from -degrees to degrees, or from the first to the second
---@param center? number[] {x, y} in pixels
function RandomRotation:init(...)
  local degrees
  degrees, self.interpolation, self.expand, self.center, self.fill = read_rotation(...)
  self.degrees = sizes.angles("RandomRotation", "degrees", degrees)
end

function RandomRotation:__call(image)
  sizes.check("RandomRotation", image, 3)
  local angle = rng_streams.uniform(self.degrees[1], self.degrees[2])
  return scales.rotate(image, angle, self.interpolation, self.expand, self.center, self.fill)
end

sizes.print_fields(RandomRotation, "degrees", "interpolation", "expand", "fill")

local RandomAffine = class.new "RandomAffine"
geometry.RandomAffine = RandomAffine

local read_affine = signature("RandomAffine", {
  "degrees: numbers", {"translate: numbers"}, {"scale: numbers"}, {"shear: numbers"},
  {"interpolation: 'nearest'|'bilinear'", "nearest"}, {"fill: numbers", 0}, {"center: numbers"},
})

--- The image turned, shifted, scaled and sheared at random.
--
--   transforms.RandomAffine(10)(image):size(-1)  --> 28
---@param degrees number|number[] from -degrees to degrees, or from the first to the second
---@param translate? number[]|table largest shift along x and y, as parts of width and height
---@param scale? number[] from the first to the second
---@param shear? number|number[] degrees along x as `degrees`, or {x from, to, y from, to}
---@param center? number[] {x, y} in pixels
function RandomAffine:init(...)
  local degrees, shear
  degrees, self.translate, self.scale, shear, self.interpolation, self.fill, self.center = read_affine(...)
  self.degrees = sizes.angles("RandomAffine", "degrees", degrees)
  self.shear = shear and sizes.angles("RandomAffine", "shear", shear, true)
  for i, part in ipairs(type(self.translate) == "table" and self.translate or {self.translate}) do
    if part < 0 or part > 1 then
      fail("RandomAffine: translate: expected numbers from 0 to 1, item %d is %s", i, part)
    end
  end
  if self.translate and (type(self.translate) ~= "table" or #self.translate ~= 2) then
    fail("RandomAffine: translate: expected two numbers")
  end
  if self.scale then
    if type(self.scale) ~= "table" then fail("RandomAffine: scale: expected two numbers") end
    if sizes.range("RandomAffine", "scale", self.scale) <= 0 then
      fail("RandomAffine: scale: expected numbers above 0, got %s", self.scale[1])
    end
  end
end

function RandomAffine:__call(image)
  sizes.check("RandomAffine", image, 3)
  local angle = rng_streams.uniform(self.degrees[1], self.degrees[2])
  local shift, scale, shear = {0, 0}, 1, {0, 0}
  for axis = 1, self.translate and 2 or 0 do
    local most = self.translate[axis] * image:size(-axis)
    shift[axis] = sizes.round(rng_streams.uniform(-most, most))
  end
  if self.scale then scale = rng_streams.uniform(self.scale[1], self.scale[2]) end
  for axis = 1, self.shear and #self.shear / 2 or 0 do
    shear[axis] = rng_streams.uniform(self.shear[2 * axis - 1], self.shear[2 * axis])
  end
  return scales.affine(image, angle, shift, scale, shear, self.interpolation, self.fill, self.center)
end

sizes.print_fields(RandomAffine, "degrees", "translate", "scale", "shear")

return geometry
