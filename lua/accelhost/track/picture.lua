-- Tensors of any order of dims as images: uint8, channels first, several as one grid.
local arguments = require "accelhost.util.arguments"
local image_grid = require "accelhost.util.image_grid"

local fail = arguments.fail

local COLUMNS = 8 -- of a grid

-- The letters of a layout, each once, and as many as the image has dims.
local function read_layout(what, image, layout)
  local places = {}
  layout = layout:upper()
  for i = 1, #layout do
    local letter = layout:sub(i, i)
    if not ("NCHW"):find(letter, 1, true) or places[letter] then
      fail("%s: dataformats: expected letters of N, C, H and W, each once, got '%s'", what, layout)
    end
    places[letter] = i - 1
  end
  if not places.H or not places.W then fail("%s: dataformats: '%s' lacks H or W", what, layout) end
  if image:dim() ~= #layout then
    fail("%s: expected an image of %d dims (%s), got shape %s", what, #layout, layout, arguments.shape_text(image))
  end
  return places
end

-- [images, channels, rows, columns]
local function in_order(image, places)
  local order = {}
  for letter in ("NCHW"):gmatch "." do
    if places[letter] then order[#order + 1] = places[letter] end
  end
  image = image:permute(order)
  if not places.C then image = image:unsqueeze(places.N and 1 or 0) end
  return places.N and image or image:unsqueeze(0)
end

--- A uint8 image [channels, rows, columns] of 3 or 4 channels. Floats from 0 to 1 become 0 to 255, others are cut off;
--- gray becomes RGB; several images become a grid of 8 columns.
---@param image userdata
---@param layout string "CHW", "HW", "NHWC", ...
---@return userdata
return function(what, image, layout)
  local places = read_layout(what, image, layout)
  local images = in_order(image:detach():to("cpu"), places)
  if images:numel() == 0 then fail("%s: the image is empty (shape %s)", what, arguments.shape_text(image)) end
  if images.dtype ~= "uint8" then images = images:to("float32"):mul(255):clamp(0, 255):to("uint8") end
  local channels = images:size(1)
  if channels == 1 then images = images:expand({-1, 3, -1, -1}) end
  if channels == 2 or channels > 4 then fail("%s: expected 1, 3 or 4 channels, got %d", what, channels) end
  if not places.N then return images:select(0, 0):contiguous() end
  return image_grid(images, COLUMNS, 0, 0)
end
