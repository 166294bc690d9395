--- Images in files: read_image, decode_image, make_grid, save_image and write_png.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local image_grid = require "accelhost.util.image_grid"

local fail, signature, checked = arguments.fail, arguments.signature, arguments.checked
local native = C.data
local image_files = {}

local MODES = "'unchanged'|'gray'|'gray_alpha'|'rgb'|'rgb_alpha'"

local read_read = signature("read_image", {"path: string", {"mode: " .. MODES, "unchanged"}})

--- An image file, PNG or JPEG, as uint8 [channels, rows, columns]. Palettes become colours,
--- 16 bits a value become 8, and CMYK becomes rgb.
--
--   | local image = data.read_image("cat.jpg", {mode = "rgb"})
---@param mode? string|table "gray", "gray_alpha", "rgb" or "rgb_alpha" (1 to 4 channels); default: the file's
---@return userdata
function image_files.read_image(...)
  return native.read_image(read_read(...))
end

--- An image from the bytes of a file, as read_image returns it: a string, or a uint8 tensor of one dimension.
--
--   | local image = data.decode_image(io.open("cat.jpg", "rb"):read "*a")
---@param mode? string|table as for read_image
---@return userdata
image_files.decode_image = checked("decode_image", {
  "input: string|tensor", {"mode: " .. MODES, "unchanged"},
}, function(input, mode)
  if C.is_tensor(input) then
    if input.dtype ~= "uint8" or input:dim() ~= 1 then
      fail("decode_image: input: expected a uint8 tensor of one dimension, got %s %s", input.dtype,
        arguments.shape_text(input))
    end
    input = C.to_string(input:cpu():contiguous())
  end
  return native.decode_image(input, mode)
end)

-- Images [n, channels, rows, columns] of one image (2 or 3 dims), of several, or of a table; gray ones become RGB.
local function batch_of(images)
  if type(images) == "table" then images = C.stack(images) end
  local dims = images:dim()
  if dims < 2 or dims > 4 or images:numel() == 0 then
    fail("make_grid: tensor: expected an image (channels, rows, columns) or several (n, channels, rows, columns), got "
      .. "shape %s", arguments.shape_text(images))
  end
  images = images:detach()
  if dims == 2 then images = images:unsqueeze(0) end
  if dims < 4 then images = images:unsqueeze(0) end
  return images:size(1) == 1 and images:expand({-1, 3, -1, -1}) or images
end

-- Values from low to high become 0 to 1; others are cut off.
local function normalized(images, range)
  local low, high = range and range[1] or images:min():item(), range and range[2] or images:max():item()
  return (images:clamp(low, high) - low) / math.max(high - low, 1e-5)
end

--- Several images as one picture, with torchvision's numbers: in rows of `nrow`, with a border around each. One image
--- gets no border.
--
--   | local picture = data.make_grid(accelhost.rand(16, 1, 28, 28), {nrow = 4})
---@param tensor userdata|userdata[] images [n, channels, rows, columns], one image, or a table of images of one shape;
---gray images become RGB
---@param normalize? boolean shift and scale the values to the range from 0 to 1
---@param value_range? number[] {low, high} of normalize; default: the smallest and the largest value
---@param scale_each? boolean normalize each image by its own values
---@param pad_value? number value of the border
---@return userdata [channels, rows, columns]
image_files.make_grid = checked("make_grid", {
  "tensor: tensor|tensor_list", {"nrow: count", 8}, {"padding: size", 2}, {"normalize: flag", false},
  {"value_range: numbers"}, {"scale_each: flag", false}, {"pad_value: number", 0},
}, function(given, columns, padding, normalize, range, scale_each, pad_value)
  if range and (type(range) ~= "table" or #range ~= 2) then
    fail("make_grid: value_range: expected a table of two numbers, as {-1, 1}, got %s", arguments.describe(range))
  end
  local images = batch_of(given)
  if normalize and scale_each then
    local each = {}
    for i = 0, images:size(0) - 1 do each[i + 1] = normalized(images[i], range) end
    images = C.stack(each)
  elseif normalize then
    images = normalized(images, range)
  end
  if images:size(0) == 1 then return images[0] end
  return image_grid(images, columns, padding, pad_value)
end)

--- Write an image as a PNG file, which is complete or not there. Needs libpng's plugin.
--
--   | data.write_png(data.read_image("cat.jpg"), "cat.png")
---@param input userdata uint8 [channels, rows, columns] of 1 to 4 channels, as read_image returns it
---@param filename string
image_files.write_png = checked("write_png", {"input: tensor", "filename: string"}, function(image, path)
  if image.dtype ~= "uint8" or image:dim() ~= 3 then
    fail("write_png: input: expected a uint8 tensor (channels, rows, columns), got %s %s; save_image writes floats "
      .. "from 0 to 1", image.dtype, arguments.shape_text(image))
  end
  C.io.write_text(path, native.encode_png(image:cpu():contiguous()))
end)

--- Write images as a PNG file: one image, or several as make_grid lays them out. Floats from 0 to 1 become bytes, other
--- values are cut off; uint8 images are written with their values.
--
--   | data.save_image(accelhost.rand(16, 1, 28, 28), "runs/digits.png", {nrow = 4})
---@param tensor userdata|userdata[] as of make_grid, which has the other options too
---@param fp string name of the file, which ends in .png; its folder exists
image_files.save_image = checked("save_image", {
  "tensor: tensor|tensor_list", "fp: string", {"nrow: count", 8}, {"padding: size", 2}, {"normalize: flag", false},
  {"value_range: numbers"}, {"scale_each: flag", false}, {"pad_value: number", 0},
}, function(given, path, columns, padding, normalize, range, scale_each, pad_value)
  if not path:lower():find "%.png$" then
    fail("save_image: fp: expected the name of a .png file, got '%s'", path)
  end
  local picture = image_files.make_grid(given, columns, padding, normalize, range, scale_each, pad_value)
  if picture.dtype ~= "uint8" then picture = (picture:to "float32" * 255 + 0.5):clamp(0, 255):to "uint8" end
  image_files.write_png(picture, path)
end)

return image_files
