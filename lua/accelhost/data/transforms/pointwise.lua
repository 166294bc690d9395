--- Transforms of each value by itself: ToTensor, ConvertImageDtype, Normalize, and Compose.
--
-- The data sets turn them into a table of 256 float32 values per channel, so that a loader transforms a whole batch in
-- the pass that gathers it; the values are the same to the bit.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local functional = require "accelhost.data.transforms.values"
local sizes = require "accelhost.data.transforms.sizes"

local fail, describe = arguments.fail, arguments.describe
local transforms = {}

local ToTensor = class.new "ToTensor"
ToTensor.pointwise = true
ToTensor.starts_from_bytes = true

--- uint8 [rows, columns] or [channels, rows, columns] to float32 [channels, rows, columns], divided by 255. Tensors of
--- other dtypes only become float32.
--
--   transforms.ToTensor()(image):size(-1)  --> 28
---@param image userdata
---@return userdata
function ToTensor:__call(image)
  if not C.is_tensor(image) then fail("ToTensor: expected a tensor, got %s", describe(image)) end
  local count = image:dim()
  if count ~= 2 and count ~= 3 then
    fail("ToTensor: expected [rows, columns] or [channels, rows, columns], got %d dimensions", count)
  end
  local result = image:to("float32")
  if image.dtype == "uint8" then result = result:div(255) end
  return count == 2 and result:unsqueeze(0) or result
end
transforms.ToTensor = ToTensor

---@class Normalize
local Normalize = class.new "Normalize"
Normalize.pointwise = true

local read_normalize = arguments.signature("Normalize", {"mean: numbers", "std: numbers"})

local function channel_values(value, name)
  if type(value) == "number" then return {value} end
  if #value == 0 then fail("Normalize: %s: expected one number per channel, got none", name) end
  return value
end

--- (image - mean) / std per channel.
--
--   transforms.Normalize(0.1307, 0.3081)
function Normalize:init(...)
  local mean, std = read_normalize(...)
  self.mean = channel_values(mean, "mean")
  self.std = channel_values(std, "std")
  if #self.mean ~= #self.std then fail("Normalize: %d means but %d stds", #self.mean, #self.std) end
  for i = 1, #self.std do
    if self.std[i] == 0 then fail("Normalize: std[%d] is 0", i) end
  end
end

---@param image userdata float [..., channels, rows, columns]
---@return userdata
function Normalize:__call(image) return functional.normalize(image, self.mean, self.std) end

sizes.print_fields(Normalize, "mean", "std")
transforms.Normalize = Normalize

local Compose = class.new "Compose"
Compose.is_compose = true

local read_compose = arguments.signature("Compose", {"transforms: callables"})

--- Transforms one after the other. Labels after the image reach those that accept them (MixUp, CutMix).
--
--   transforms.Compose{transforms.ToTensor(), transforms.Normalize(0.1307, 0.3081)}
---@param transforms table of callables
function Compose:init(...)
  local list = read_compose(...)
  self.transforms = list
end

-- Return the first value of a call and its other values, `rest` where there are none.
local function with_rest(rest, image, ...)
  if select("#", ...) == 0 then return image, rest end
  return image, {n = select("#", ...), ...}
end

-- Further values, such as labels, are passed on; a transform that returns one value leaves them.
function Compose:__call(image, ...)
  if select("#", ...) == 0 then
    for i = 1, #self.transforms do image = self.transforms[i](image) end
    return image
  end
  local rest = {n = select("#", ...), ...}
  for i = 1, #self.transforms do
    image, rest = with_rest(rest, self.transforms[i](image, unpack(rest, 1, rest.n)))
  end
  return image, unpack(rest, 1, rest.n)
end

function Compose:__tostring()
  local names = {}
  for i = 1, #self.transforms do names[i] = "\n    " .. tostring(self.transforms[i]) end
  return "Compose(" .. table.concat(names) .. "\n)"
end
transforms.Compose = Compose

local Lambda = class.new "Lambda"

local read_lambda = arguments.signature("Lambda", {"lambd: callable"})

--- A function of your own; it runs once per image.
--
--   transforms.Lambda(function(picture) return picture:float() end)(image).dtype  --> float32
function Lambda:init(...)
  self.lambda = read_lambda(...)
end

function Lambda:__call(image) return self.lambda(image) end
transforms.Lambda = Lambda

local ConvertImageDtype = class.new "ConvertImageDtype"
ConvertImageDtype.pointwise = true
transforms.ConvertImageDtype = ConvertImageDtype

local read_convert = arguments.signature("ConvertImageDtype", {{"dtype: dtype", "float32"}})

--- The image in another dtype, its values scaled from one's range to the other's: 0 to 1 of floats, 0 to the largest
--- number of integers.
--
--   transforms.ConvertImageDtype "float32"
function ConvertImageDtype:init(...)
  self.dtype = read_convert(...)
  self.starts_from_bytes = self.dtype == "float32"
end

function ConvertImageDtype:__call(image) return functional.to_dtype(image, self.dtype, true) end
sizes.print_fields(ConvertImageDtype, "dtype")

local ToDtype = class.new "ToDtype"
ToDtype.pointwise = true
transforms.ToDtype = ToDtype

local read_dtype = arguments.signature("ToDtype", {"dtype: dtype", {"scale: flag", false}})

--- The image in another dtype; with `scale` its values are scaled too, as by ConvertImageDtype.
--
--   transforms.ToDtype("float32", {scale = true})
function ToDtype:init(...)
  self.dtype, self.scale = read_dtype(...)
  self.starts_from_bytes = self.dtype == "float32"
end

function ToDtype:__call(image) return functional.to_dtype(image, self.dtype, self.scale) end
sizes.print_fields(ToDtype, "dtype", "scale")

local ToImage = class.new "ToImage"
transforms.ToImage = ToImage

--- The image as [channels, rows, columns]; its values stay.
--
--   transforms.ToImage()(image):size(-1)  --> 28
---@param image userdata [rows, columns] or [..., channels, rows, columns]
---@return userdata
function ToImage:__call(image) -- luacheck: ignore self
  if not C.is_tensor(image) or image:dim() < 2 then
    fail("ToImage: expected an image tensor, got %s", describe(image))
  end
  return image:dim() == 2 and image:unsqueeze(0) or image
end

function ToImage:steps(rows, columns) return {}, rows, columns end -- luacheck: ignore self

return transforms
