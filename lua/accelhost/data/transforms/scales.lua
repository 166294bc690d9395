--- Functions that compute an image at other places: resize, rotate, affine. torchvision's names
--- (transforms.functional). They compute on the CPU, without gradients.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local moves = require "accelhost.data.transforms.moves"
local sizes = require "accelhost.data.transforms.sizes"
local values = require "accelhost.data.transforms.values"

local fail, named = arguments.fail, arguments.named
local scales = {}

local MODES = "'nearest'|'nearest-exact'|'bilinear'|'bicubic'|'lanczos'|'box'|'hamming'"

-- fn of a contiguous image on the CPU in one of the dtypes (the last one, where the image's is none of them), its
-- result as the image was.
local function computed(image, dtypes, fn)
  local dtype
  for _, known in ipairs(dtypes) do dtype = dtype or known == image.dtype and known end
  local plain = image:detach():cpu():to(dtype or dtypes[#dtypes])
  local result = fn(plain:contiguous())
  if result.dtype ~= image.dtype then
    if not values.is_float(image.dtype) then result = result:round() end
    if image.dtype == "uint8" then result = result:clamp(0, 255) end
    result = result:to(image.dtype)
  end
  return result:to(image.device)
end

-- Rows and columns of an image of this size with another size.
local function target(what, rows, columns, size, most)
  local short, long = math.min(rows, columns), math.max(rows, columns)
  local new_short, new_long
  if type(size) == "table" and #size == 2 then
    if most then fail("%s: max_size: a size of both sides leaves nothing to limit", what) end
    return size[1], size[2]
  elseif not size then
    if not most then fail("%s: size: expected a size or a max_size", what) end
    new_short, new_long = math.floor(most * short / long), most
  else
    if type(size) == "table" and #size ~= 1 then fail("%s: size: expected one or two integers", what) end
    new_short = type(size) == "table" and size[1] or size
    new_long = math.floor(new_short * long / short)
    if most and most <= new_short then
      fail("%s: max_size: expected more than the shorter side's %d, got %d", what, new_short, most)
    end
    if most and new_long > most then new_short, new_long = math.floor(most * new_short / new_long), most end
  end
  if columns <= rows then return new_long, new_short end
  return new_short, new_long
end

--- The image in another size. A size of one integer is that of the shorter side; the other follows, up to `max_size`.
--
--     y = data.transforms.functional.resize(image, {16, 16})
---@param image userdata [..., rows, columns]
---@param size? integer|integer[] {height, width}, or the shorter side
---@param interpolation? string|table "nearest", "nearest-exact", "bilinear" (default), "bicubic", "lanczos", "box" or
--- "hamming"; the last three with antialias alone
---@param max_size? integer of the longer side
---@param antialias? boolean sum over all pixels that fall together where the image shrinks; default true
scales.resize = named("transforms.resize", {
  "image: tensor", {"size: counts"}, {"interpolation: " .. MODES, "bilinear"}, {"max_size: count"},
  {"antialias: flag", true},
}, function(what, image, size, mode, most, antialias)
  sizes.check(what, image)
  local rows, columns = image:size(-2), image:size(-1)
  if rows < 1 or columns < 1 then fail("transforms.resize: an image of shape %s", arguments.shape_text(image)) end
  local height, width = target(what, rows, columns, size, most)
  if height < 1 or width < 1 then fail("transforms.resize: a size of (%d, %d)", height, width) end
  if height == rows and width == columns then return image end
  return computed(image, {"uint8", "float64", "float32"}, function(plain)
    return C.data.resize(plain, height, width, mode, antialias)
  end)
end)

--- The part of the image that begins at (top, left), in another size.
--
--   transforms.functional.resized_crop(image, 0, 0, 10, 10, 14):size(-1)  --> 14
---@param image userdata [..., rows, columns]
---@param top integer
---@param left integer
---@param size integer|integer[]
---@param interpolation? string default "bilinear"
---@param antialias? boolean default true
function scales.resized_crop(image, top, left, height, width, size, interpolation, antialias)
  return scales.resize(moves.crop(image, top, left, height, width), {
    size = size, interpolation = interpolation, antialias = antialias,
  })
end

-- The map from output to input places, from the middle of the image: the inverse of scale, shears and turn around
-- `center`, then a shift.
local function inverse_matrix(center, angle, translate, scale, shear)
  local turn, sx, sy = math.rad(angle), math.rad(shear[1]), math.rad(shear[2])
  local cx, cy = center[1], center[2]
  local a = math.cos(turn - sy) / math.cos(sy)
  local b = -(a * math.tan(sx) + math.sin(turn))
  local c = math.sin(turn - sy) / math.cos(sy)
  local d = math.cos(turn) - c * math.tan(sx)
  local m = {d / scale, -b / scale, 0, -c / scale, a / scale, 0}
  local x, y = cx + translate[1], cy + translate[2]
  m[3] = cx - m[1] * x - m[2] * y
  m[6] = cy - m[4] * x - m[5] * y
  return m
end

-- Rows and columns that hold all of an image after the map.
local function whole_size(m, rows, columns)
  local low, high = {math.huge, math.huge}, {-math.huge, -math.huge}
  for _, x in ipairs {-columns / 2, columns / 2} do
    for _, y in ipairs {-rows / 2, rows / 2} do
      for axis = 1, 2 do
        local at = m[3 * axis - 2] * x + m[3 * axis - 1] * y + m[3 * axis] + (axis == 1 and columns or rows) / 2
        low[axis], high[axis] = math.min(low[axis], at), math.max(high[axis], at)
      end
    end
  end
  local function cut(x) return (x < 0 and math.ceil or math.floor)(x * 1e4) * 1e-4 end
  local function extent(axis) return math.ceil(cut(high[axis])) - math.floor(cut(low[axis])) end
  return extent(2), extent(1)
end

local function warped(what, image, matrix, rows, columns, mode, fill)
  sizes.check(what, image, 3)
  if type(fill) == "number" then fill = {fill} end
  if fill and #fill ~= 1 and #fill ~= image:size(-3) then
    fail("%s: fill: %d values for an image of %d channels", what, #fill, image:size(-3))
  end
  local shape = image:shape()
  local result = shape
  result[#shape - 1], result[#shape] = rows, columns
  if image:numel() == 0 then return image:new_zeros(result) end
  return computed(image, {"float32"}, function(plain)
    local planes = plain:view(-1, plain:size(-3), plain:size(-2), plain:size(-1))
    return C.data.warp(planes, matrix, rows, columns, mode == "bilinear", fill):view(unpack(result))
  end)
end

-- A center in pixels, from the middle of the image.
local function from_middle(what, center, image)
  if not center then return {0, 0} end
  if #center ~= 2 then fail("%s: center: expected x and y, got %d numbers", what, #center) end
  return {center[1] - image:size(-1) / 2, center[2] - image:size(-2) / 2}
end

--- The image turned counter-clockwise.
--
--     y = data.transforms.functional.rotate(image, 30)
---@param image userdata [..., channels, rows, columns]
---@param angle number degrees
---@param expand? boolean make the result as large as the turned image; default false
---@param center? number[] {x, y} in pixels; default: the middle
---@param fill? number|number[] the value outside, one or one for each channel; without one 0, and pixels at the
--- border are not blended with it
scales.rotate = named("transforms.rotate", {
  "image: tensor", "angle: number", {"interpolation: 'nearest'|'bilinear'", "nearest"}, {"expand: flag", false},
  {"center: numbers"}, {"fill: numbers"},
}, function(what, image, angle, mode, expand, center, fill)
  sizes.check(what, image, 3)
  angle = angle % 360
  local rows, columns = image:size(-2), image:size(-1)
  if not center then
    if angle == 0 then return image:clone() end
    if angle == 180 then return image:flip {-2, -1} end
    if (angle == 90 or angle == 270) and (expand or rows == columns) then
      return image:flip(angle == 90 and -1 or -2):transpose(-2, -1)
    end
  end
  local matrix = inverse_matrix(from_middle(what, center, image), -angle, {0, 0}, 1, {0, 0})
  if expand then rows, columns = whole_size(matrix, rows, columns) end
  return warped(what, image, matrix, rows, columns, mode, fill)
end)

--- The image sheared, scaled, turned and shifted, its middle (or `center`) kept in place by all but the shift.
--
--     y = data.transforms.functional.affine(image, 20, {1, -1}, 1.2, {10, 5})
---@param image userdata [..., channels, rows, columns]
---@param angle number degrees, clockwise
---@param translate number[] {x, y} in pixels
---@param shear number|number[] degrees along x, or {x, y}
---@param fill? number|number[] the value outside, as for rotate
---@param center? number[] {x, y} in pixels
scales.affine = named("transforms.affine", {
  "image: tensor", "angle: number", "translate: numbers", "scale: positive", "shear: numbers",
  {"interpolation: 'nearest'|'bilinear'", "nearest"}, {"fill: numbers"}, {"center: numbers"},
}, function(what, image, angle, translate, scale, shear, mode, fill, center)
  sizes.check(what, image, 3)
  if type(shear) == "number" then shear = {shear, 0} end
  if #shear == 1 then shear = {shear[1], shear[1]} end
  if type(translate) ~= "table" or #translate ~= 2 then fail("transforms.affine: translate: expected {x, y}") end
  if #shear ~= 2 then fail("transforms.affine: shear: expected one or two angles, got %d", #shear) end
  local matrix = inverse_matrix(from_middle(what, center, image), angle, translate, scale, shear)
  return warped(what, image, matrix, image:size(-2), image:size(-1), mode, fill)
end)

return scales
