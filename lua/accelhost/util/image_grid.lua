--- Several images as one: rows of images with a border between and around them, laid out as by torchvision's make_grid.
local C = require "accelhost._C"

--- The picture of images [n, channels, rows, columns], in their dtype and on their device.
---@param images userdata
---@param columns integer images in a row at most
---@param padding integer pixels around each image
---@param pad_value number value of these pixels, and of places without an image
---@return userdata [channels, rows, columns]
return function(images, columns, padding, pad_value)
  local count, channels, height, width = unpack(images:shape())
  local across = math.min(count, columns)
  local down = math.ceil(count / across)
  local sizes = {channels, down * (height + padding) + padding, across * (width + padding) + padding}
  local picture = C.full(sizes, pad_value, {dtype = images.dtype, device = images.device})
  for i = 0, count - 1 do
    local top = math.floor(i / across) * (height + padding) + padding
    local left = i % across * (width + padding) + padding
    picture:narrow(1, top, height):narrow(2, left, width):copy_(images:select(0, i))
  end
  return picture
end
