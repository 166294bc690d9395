--- accelhost.data.transforms.functional: the transforms as functions of an image.
local namespace = require "accelhost.util.namespace"

-- File -> the names that it defines.
local files = {
  moves = {"hflip", "vflip", "pad", "crop", "center_crop"},
  values = {"normalize", "to_dtype", "erase"},
  scales = {"resize", "resized_crop", "rotate", "affine"},
  colors = {
    "rgb_to_grayscale", "adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_hue", "adjust_sharpness",
    "invert", "solarize", "posterize", "autocontrast", "equalize", "gaussian_blur",
  },
}

local lazy = {}
for file, names in pairs(files) do namespace.add(lazy, "accelhost.data.transforms." .. file, names) end

return namespace.new("data.transforms.functional", {}, lazy)
