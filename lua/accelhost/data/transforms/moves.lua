--- Functions that move an image's pixels unchanged: flip, pad, crop. torchvision's names (transforms.functional).
---@param image userdata [..., rows, columns]
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local sizes = require "accelhost.data.transforms.sizes"

local fail, named = arguments.fail, arguments.named
local moves = {}

--- The image mirrored left to right.
--
--     y = data.transforms.functional.hflip(image)
function moves.hflip(image)
  sizes.check("transforms.hflip", image)
  return image:flip(-1)
end

--- The image mirrored top to bottom.
--
--   transforms.functional.vflip(image):size(-1)  --> 28
function moves.vflip(image)
  sizes.check("transforms.vflip", image)
  return image:flip(-2)
end

-- The source position of position p of an axis of n.
local edges = {
  edge = function(p, n) return math.max(0, math.min(p, n - 1)) end,
  reflect = function(p, n)
    p = math.abs(p)
    return p < n and p or 2 * (n - 1) - p
  end,
  symmetric = function(p, n)
    p = p < 0 and -p - 1 or p
    return p < n and p or 2 * n - 1 - p
  end,
}

local function edge_axis(image, dim, before, after, mode)
  if before == 0 and after == 0 then return image end
  local n, at = image:size(dim), {}
  local widest = mode == "edge" and (n > 0 and math.huge or 0) or mode == "reflect" and n - 1 or n
  if before > widest or after > widest then
    fail("transforms.pad: padding_mode '%s': an edge of %d does not fit %d pixels", mode, math.max(before, after), n)
  end
  for p = -before, n + after - 1 do at[#at + 1] = edges[mode](p, n) end
  return image:index_select(dim, C.tensor(at, {dtype = "int64", device = image.device}))
end

local function constant(image, left, top, right, bottom, fill)
  local shape = image:shape()
  local rows, columns = shape[#shape - 1], shape[#shape]
  shape[#shape - 1], shape[#shape] = rows + top + bottom, columns + left + right
  local result
  if type(fill) == "table" then
    if #shape < 3 or shape[#shape - 2] ~= #fill then
      fail("transforms.pad: fill: %d values for an image of shape %s", #fill, arguments.shape_text(image))
    end
    local values = C.tensor(fill, {dtype = "float64", device = image.device}):to(image.dtype):view(#fill, 1, 1)
    result = values:expand(unpack(shape)):clone()
  elseif fill == 0 then
    result = image:new_zeros(shape)
  else
    -- A filling that the dtype does not hold is cut as a tensor of it would be.
    local value = C.tensor(fill, {dtype = "float64", device = image.device}):to(image.dtype)
    result = image:new_zeros(shape):add(value)
  end
  local inner = result:narrow(-2, top, rows):narrow(-1, left, columns)
  inner:copy_(image)
  return result
end

--- The image with an edge around it: of one value (of one for each channel), the nearest pixels, or mirrored ones
--- without (reflect) or with (symmetric) the border itself. A negative edge cuts where the mode is constant.
--
--     y = data.transforms.functional.pad(image, 4, {padding_mode = "reflect"})
---@param padding integer|integer[] all, {left and right, top and bottom} or {left, top, right, bottom}
moves.pad = named("transforms.pad", {
  "image: tensor", "padding: integers", {"fill: number|numbers", 0},
  {"padding_mode: 'constant'|'edge'|'reflect'|'symmetric'", "constant"},
}, function(what, image, padding, fill, mode)
  sizes.check(what, image)
  local left, top, right, bottom = sizes.padding(what, padding)
  if type(fill) == "table" and #fill == 1 then fill = fill[1] end
  if mode ~= "constant" then
    if type(fill) == "table" then fail("transforms.pad: padding_mode '%s' needs one fill value", mode) end
    if math.min(left, top, right, bottom) < 0 then
      fail("transforms.pad: a negative edge needs padding_mode 'constant'")
    end
    return edge_axis(edge_axis(image, image:dim() - 2, top, bottom, mode), image:dim() - 1, left, right, mode)
  end
  local rows, columns = image:size(-2), image:size(-1)
  local cut_rows = math.max(0, -top) + math.max(0, -bottom)
  local cut_columns = math.max(0, -left) + math.max(0, -right)
  if cut_rows > rows or cut_columns > columns then fail("transforms.pad: the negative edges cut more than there is") end
  image = image:narrow(-2, math.max(0, -top), rows - cut_rows):narrow(-1, math.max(0, -left), columns - cut_columns)
  left, top, right, bottom = math.max(0, left), math.max(0, top), math.max(0, right), math.max(0, bottom)
  if left + top + right + bottom == 0 then return image end
  return constant(image, left, top, right, bottom, fill)
end)

--- The part of the image that begins at (top, left); 0 where it reaches beyond the image.
--
--     y = data.transforms.functional.crop(image, 0, 0, 24, 24)
moves.crop = named("transforms.crop", {
  "image: tensor", "top: integer", "left: integer", "height: size", "width: size",
}, function(what, image, top, left, height, width)
  sizes.check(what, image)
  local bottom, right = top + height - image:size(-2), left + width - image:size(-1)
  return moves.pad(image, {-left, -top, right, bottom})
end)

local function center(size, wanted)
  local before = wanted > size and math.floor((wanted - size) / 2) or 0
  local after = wanted > size and math.floor((wanted - size + 1) / 2) or 0
  return before, after, sizes.round((size + before + after - wanted) / 2)
end

--- Edges and first pixel of a crop of `wanted` from the middle of `size` pixels.
---@param wanted integer
---@return integer before
---@return integer after
---@return integer at
moves.center = center

--- The middle of the image, with an edge of 0 where the image is smaller.
--
--   transforms.functional.center_crop(image, 20):size(-1)  --> 20
---@param output_size integer|integer[] {height, width}
moves.center_crop = named("transforms.center_crop", {
  "image: tensor", "output_size: counts",
}, function(what, image, size)
  sizes.check(what, image)
  size = sizes.pair(what, "output_size", size)
  local top, bottom, row = center(image:size(-2), size[1])
  local left, right, column = center(image:size(-1), size[2])
  return moves.pad(image, {left, top, right, bottom}):narrow(-2, row, size[1]):narrow(-1, column, size[2])
end)

return moves
