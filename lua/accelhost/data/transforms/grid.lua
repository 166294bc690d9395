--- Transforms that move pixels unchanged: Pad, CenterCrop, RandomCrop and flips.
--
-- Each can express its work as steps (`steps(rows, columns)`), so that a loader over images in memory transforms a
-- whole batch in the pass that gathers it; the results are the same, number for number.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local rng_streams = require "accelhost.data.rng_streams"
local moves = require "accelhost.data.transforms.moves"
local sizes = require "accelhost.data.transforms.sizes"

local fail, signature = arguments.fail, arguments.signature
local grid = {}

local MODES = "'constant'|'edge'|'reflect'|'symmetric'"

local Pad = class.new "Pad"
grid.Pad = Pad

local read_pad = signature("Pad", {
  "padding: integers", {"fill: number|numbers", 0}, {"padding_mode: " .. MODES, "constant"},
})

--- An edge around the image, as transforms.functional.pad makes it.
--
--   transforms.Pad(2)(image):size(-1)  --> 32
---@param padding integer|integer[] all, {left and right, top and bottom} or {left, top, right, bottom}
---@param fill? number|number[]|table one value, or one for each channel; default 0
function Pad:init(...)
  self.padding, self.fill, self.padding_mode = read_pad(...)
  sizes.padding("Pad", self.padding)
end

function Pad:__call(image) return moves.pad(image, self.padding, self.fill, self.padding_mode) end

sizes.print_fields(Pad, "padding", "fill", "padding_mode")

local function pad_step(left, top, right, bottom, fill, mode)
  return {kind = "pad", left = left, top = top, right = right, bottom = bottom, fill = fill, mode = mode}
end

--- Return its steps on an image of this size, and the size after them.
---@param rows integer
---@param columns integer
---@return table[]? steps nil when it cannot be expressed in steps
---@return integer? rows
---@return integer? columns
function Pad:steps(rows, columns)
  local left, top, right, bottom = sizes.padding("Pad", self.padding)
  if math.min(left, top, right, bottom) < 0 then return nil end
  return {pad_step(left, top, right, bottom, self.fill, self.padding_mode)}, rows + top + bottom,
    columns + left + right
end

local CenterCrop = class.new "CenterCrop"
grid.CenterCrop = CenterCrop

local read_center = signature("CenterCrop", {"size: counts"})

--- The middle of the image, with an edge of 0 where the image is smaller.
--
--   transforms.CenterCrop(20)(image):size(-1)  --> 20
---@param size integer|integer[] {height, width}
function CenterCrop:init(...)
  self.size = sizes.pair("CenterCrop", "size", read_center(...))
end

function CenterCrop:__call(image) return moves.center_crop(image, self.size) end
sizes.print_fields(CenterCrop, "size")

function CenterCrop:steps(rows, columns)
  local height, width = self.size[1], self.size[2]
  local top, bottom, row = moves.center(rows, height)
  local left, right, column = moves.center(columns, width)
  return {
    pad_step(left, top, right, bottom, 0, "constant"),
    {kind = "crop", top = row, left = column, height = height, width = width},
  }, height, width
end

local RandomCrop = class.new "RandomCrop"
grid.RandomCrop = RandomCrop

local read_crop = signature("RandomCrop", {
  "size: counts", {"padding: integers"}, {"pad_if_needed: flag", false}, {"fill: number|numbers", 0},
  {"padding_mode: " .. MODES, "constant"},
})

--- A part of the image at a random place.
--
--   transforms.RandomCrop(32, {padding = 4})
---@param size integer|integer[] {height, width}
---@param padding? integer|integer[]|table an edge that is added around the image first, as in Pad
---@param pad_if_needed? boolean widen an image that is too small, on both sides; default false
---@param fill? number|number[] of the edge, default 0
function RandomCrop:init(...)
  local size
  size, self.padding, self.pad_if_needed, self.fill, self.padding_mode = read_crop(...)
  self.size = sizes.pair("RandomCrop", "size", size)
  if self.padding then
    local left, top, right, bottom = sizes.padding("RandomCrop", self.padding)
    if math.min(left, top, right, bottom) < 0 then fail("RandomCrop: padding: expected integers of at least 0") end
  end
end

-- The edges around an image, and its size with them.
function RandomCrop:_edges(rows, columns)
  local left, top, right, bottom = sizes.padding("RandomCrop", self.padding or 0)
  local height, width = self.size[1], self.size[2]
  rows, columns = rows + top + bottom, columns + left + right
  if self.pad_if_needed and rows < height then
    local more = height - rows
    top, bottom, rows = top + more, bottom + more, rows + 2 * more
  end
  if self.pad_if_needed and columns < width then
    local more = width - columns
    left, right, columns = left + more, right + more, columns + 2 * more
  end
  if rows < height or columns < width then
    fail("RandomCrop: a crop of (%d, %d) is larger than the %simage of (%d, %d)", height, width,
      self.padding and "padded " or "", rows, columns)
  end
  return left, top, right, bottom, rows, columns
end

function RandomCrop:__call(image)
  sizes.check("RandomCrop", image)
  local left, top, right, bottom, rows, columns = self:_edges(image:size(-2), image:size(-1))
  local height, width = self.size[1], self.size[2]
  local row = rows > height and rng_streams.below(rows - height + 1) or 0
  local column = columns > width and rng_streams.below(columns - width + 1) or 0
  if left + top + right + bottom > 0 then
    image = moves.pad(image, {left, top, right, bottom}, self.fill, self.padding_mode)
  end
  return image:narrow(-2, row, height):narrow(-1, column, width)
end

function RandomCrop:steps(rows, columns)
  local left, top, right, bottom = self:_edges(rows, columns)
  local height, width = self.size[1], self.size[2]
  return {
    pad_step(left, top, right, bottom, self.fill, self.padding_mode),
    {kind = "random_crop", height = height, width = width},
  }, height, width
end

sizes.print_fields(RandomCrop, "size", "padding", "pad_if_needed", "fill", "padding_mode")

-- A flip along one axis (0: of the rows), by this function.
local function flip(name, axis, flip_image)
  local Flip = class.new(name)
  local read = signature(name, {{"p: probability", 0.5}})

  function Flip:init(...) self.p = read(...) end

  function Flip:__call(image)
    sizes.check(name, image)
    return rng_streams.chance(self.p) and flip_image(image) or image
  end

  --- One step; the size stays.
  function Flip:steps(rows, columns) return {{kind = "flip", axis = axis, p = self.p}}, rows, columns end

  sizes.print_fields(Flip, "p")
  return Flip
end

--- The image mirrored left to right with probability p (default 0.5).
--
--   transforms.RandomHorizontalFlip()(image):size(-1)  --> 28
grid.RandomHorizontalFlip = flip("RandomHorizontalFlip", 1, moves.hflip)

--- The image mirrored top to bottom with probability p (default 0.5).
--
--   transforms.RandomVerticalFlip()(image):size(-1)  --> 28
grid.RandomVerticalFlip = flip("RandomVerticalFlip", 0, moves.vflip)

return grid
