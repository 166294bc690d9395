--- Functions of an image's values: normalize, to_dtype. torchvision's names (transforms.functional).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local sizes = require "accelhost.data.transforms.sizes"

local fail, checked = arguments.fail, arguments.checked
local values = {}

local FLOATS = {float16 = true, bfloat16 = true, float32 = true, float64 = true}
local LARGEST = {uint8 = 2 ^ 8 - 1, int32 = 2 ^ 31 - 1, int64 = 2 ^ 63 - 1}

--- Is it a dtype of real numbers?
function values.is_float(dtype) return FLOATS[dtype] == true end

--- The value of full brightness: 1 of floats, the largest of integers.
---@return number
function values.largest(dtype) return LARGEST[dtype] or 1 end

--- (image - mean) / std per channel.
--
--   transforms.functional.normalize(image:float(), 0.5, 0.5):size(-1)  --> 28
---@param image userdata float [..., channels, rows, columns]
---@param mean number|number[] one for all channels, or one for each
---@param inplace? boolean|table change the image itself; default false
---@return userdata
values.normalize = checked("transforms.normalize", {
  "image: tensor", "mean: numbers", "std: numbers", {"inplace: flag", false},
}, function(image, mean, std, inplace)
  if image:dim() < 3 or not FLOATS[image.dtype] then
    fail("Normalize: expected a float tensor [channels, rows, columns]; insert ToTensor before it")
  end
  if type(mean) == "number" then mean = {mean} end
  if type(std) == "number" then std = {std} end
  for _, list in ipairs {mean, std} do
    if #list ~= 1 and image:size(-3) ~= #list then
      fail("Normalize: expected 1 number, or %d for the channels of an image %s, got %d", image:size(-3),
        arguments.shape_text(image), #list)
    end
  end
  local shift = C.tensor(mean, {dtype = image.dtype, device = image.device}):view(#mean, 1, 1)
  local scale = C.tensor(std, {dtype = image.dtype, device = image.device}):view(#std, 1, 1)
  if inplace then return image:sub_(shift):div_(scale) end
  return image:sub(shift):div(scale)
end)

-- Integers of one range as those of another.
local function rescale(image, dtype)
  local from, to = LARGEST[image.dtype], LARGEST[dtype]
  if to == from then return image end
  if to < from then return image:div((from + 1) / (to + 1), "floor"):to(dtype) end
  return image:to(dtype):mul((to + 1) / (from + 1))
end

--- The image in another dtype. With `scale` its values are scaled from one dtype's range to the other's: 0 to 1 of
--- floats, 0 to the largest number of integers.
--
--     y = data.transforms.functional.to_dtype(image, "float32", {scale = true})
---@return userdata
values.to_dtype = checked("transforms.to_dtype", {
  "image: tensor", {"dtype: dtype", "float32"}, {"scale: flag", false},
}, function(image, dtype, scale)
  if image.dtype == dtype or not scale or image.dtype == "bool" or dtype == "bool" then return image:to(dtype) end
  if FLOATS[image.dtype] then
    if FLOATS[dtype] then return image:to(dtype) end
    local exact = dtype == "int32" or dtype == "int64"
    if dtype == "int64" or exact and image.dtype == "float32" then
      fail("transforms.to_dtype: %s to %s would lose precision", image.dtype, dtype)
    end
    return image:mul(LARGEST[dtype] + 1 - 1e-3):to(dtype)
  end
  if FLOATS[dtype] then return image:to(dtype):div(LARGEST[image.dtype]) end
  return rescale(image, dtype)
end)

--- The image without the part that begins at (i, j), where the values are v.
--
--   transforms.functional.erase(image, 2, 2, 5, 5, 0):size(-1)  --> 28
---@param image userdata [..., channels, rows, columns]
---@param i integer first row
---@param j integer first column
---@param h integer
---@param w integer
---@param v number|userdata the replacement: a number or a tensor that broadcasts to the part
---@param inplace? boolean change the image itself; default false
---@return userdata
function values.erase(image, i, j, h, w, v, inplace)
  sizes.check("transforms.erase", image)
  local result = inplace and image or image:clone()
  local part = result:narrow(-2, i, h):narrow(-1, j, w)
  if C.is_tensor(v) then part:copy_(v:to(image.dtype)) else part:fill_(v) end
  return result
end

return values
