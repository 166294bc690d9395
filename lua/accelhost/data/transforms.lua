--- Transforms of images, with torchvision's names and numbers.
--
-- An image is a uint8 tensor [rows, columns] or [channels, rows, columns]. Pointwise transforms (ToTensor, Normalize
-- and Compose of them) are turned into a table of 256 float32 values per channel by the data sets, so that a loader
-- transforms a whole batch in the pass that gathers it; the values are the same to the bit.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local namespace = require "accelhost.util.namespace"

local fail, describe = arguments.fail, arguments.describe
local transforms = {}

---@class ToTensor
local ToTensor = class.new "ToTensor"
ToTensor.pointwise = true
ToTensor.starts_from_bytes = true

--- uint8 [rows, columns] or [channels, rows, columns] to float32 [channels, rows, columns], divided by 255. Tensors of
--- other dtypes only become float32.
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

function ToTensor:__tostring() return "ToTensor()" end -- luacheck: ignore self
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
---@param mean number|number[]
---@param std number|number[]
function Normalize:init(...)
  local mean, std = read_normalize(...)
  self.mean = channel_values(mean, "mean")
  self.std = channel_values(std, "std")
  if #self.mean ~= #self.std then fail("Normalize: %d means but %d stds", #self.mean, #self.std) end
  for i = 1, #self.std do
    if self.std[i] == 0 then fail("Normalize: std[%d] is 0", i) end
  end
end

---@param image userdata float [channels, rows, columns]
---@return userdata
function Normalize:__call(image)
  if not C.is_tensor(image) or image:dim() ~= 3 or image.dtype == "uint8" then
    fail("Normalize: expected a float tensor [channels, rows, columns]; put ToTensor before it")
  end
  local channels = #self.mean
  if channels ~= 1 and image:size(0) ~= channels then
    fail("Normalize: %d means for an image of %d channels", channels, image:size(0))
  end
  local mean = C.tensor(self.mean, {dtype = image.dtype, device = image.device}):view(channels, 1, 1)
  local std = C.tensor(self.std, {dtype = image.dtype, device = image.device}):view(channels, 1, 1)
  return image:sub(mean):div(std)
end

function Normalize:__tostring()
  return ("Normalize(mean={%s}, std={%s})"):format(table.concat(self.mean, ", "), table.concat(self.std, ", "))
end
transforms.Normalize = Normalize

---@class Compose
local Compose = class.new "Compose"

local read_compose = arguments.signature("Compose", {"transforms: callables"})

--- Transforms one after the other.
--
--   transforms.Compose{transforms.ToTensor(), transforms.Normalize(0.1307, 0.3081)}
---@param transforms table of callables
function Compose:init(...)
  local list = read_compose(...)
  self.transforms = list
  self.pointwise = #list > 0
  for i = 1, #list do
    self.pointwise = self.pointwise and type(list[i]) == "table" and list[i].pointwise == true
  end
  self.starts_from_bytes = self.pointwise and list[1].starts_from_bytes
end

function Compose:__call(image)
  for i = 1, #self.transforms do image = self.transforms[i](image) end
  return image
end

function Compose:__tostring()
  local names = {}
  for i = 1, #self.transforms do names[i] = "\n    " .. tostring(self.transforms[i]) end
  return "Compose(" .. table.concat(names) .. "\n)"
end
transforms.Compose = Compose

---@class Lambda
local Lambda = class.new "Lambda"

local read_lambda = arguments.signature("Lambda", {"lambd: callable"})

--- A function of your own; it runs once per image.
---@param lambd function
function Lambda:init(...)
  self.lambda = read_lambda(...)
end

function Lambda:__call(image) return self.lambda(image) end
function Lambda:__tostring() return "Lambda()" end -- luacheck: ignore self
transforms.Lambda = Lambda

--- The table of a pointwise transform: what each byte of each channel becomes. nil when it is not pointwise.
---@param transform any
---@param channels integer
---@return userdata? # float32 [channels, 256]
function transforms.table_of(transform, channels)
  if type(transform) ~= "table" or not transform.pointwise or not transform.starts_from_bytes then return nil end
  local bytes = C.arange(256, {dtype = "uint8", device = "cpu"}):view(1, 1, 256):expand(channels, 1, 256):contiguous()
  return transform(bytes):contiguous():view(channels, 256)
end

return namespace.new("data.transforms", transforms)
