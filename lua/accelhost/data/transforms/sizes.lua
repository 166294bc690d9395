--- Shared by transforms: checks of their arguments and the sizes of images.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe
local sizes = {}

--- Raise unless `image` is a tensor of at least `least` dimensions (2: rows and columns, 3: channels before them).
---@param least? integer default 2
function sizes.check(what, image, least)
  least = least or 2
  if not C.is_tensor(image) or image:dim() < least then
    fail("%s: expected an image tensor [..., %srows, columns], got %s", what, least == 3 and "channels, " or "",
      describe(image))
  end
end

--- A size as {height, width}: of an integer, a table of it, or a table of both.
---@param value integer|integer[]
---@return integer[]
function sizes.pair(what, name, value)
  if type(value) == "number" then return {value, value} end
  if #value == 1 then return {value[1], value[1]} end
  if #value ~= 2 then fail("%s: %s: expected one or two integers (height, width), got %d", what, name, #value) end
  return {value[1], value[2]}
end

--- Two numbers, low and high: of a table of two.
---@param value number[]
---@return number low
---@return number high
function sizes.range(what, name, value)
  if #value ~= 2 or value[1] > value[2] then
    fail("%s: %s: expected two numbers, low and high, got {%s}", what, name, table.concat(value, ", "))
  end
  return value[1], value[2]
end

--- Angles: -value to value of a number, the numbers themselves of a table of 2 or 4.
---@param value number|number[]
---@param four? boolean may there be four?
---@return number[]
function sizes.angles(what, name, value, four)
  if type(value) == "number" then
    if value < 0 then fail("%s: %s: one number must not be negative, got %s", what, name, value) end
    return {-value, value}
  end
  if #value ~= 2 and not (four and #value == 4) then
    fail("%s: %s: expected a number or a table of 2%s, got %d", what, name, four and " or 4" or "", #value)
  end
  return value
end

--- An edge as left, top, right, bottom: of one integer, two (left and right, top and bottom) or four.
---@param value integer|integer[]
---@return integer left
---@return integer top
---@return integer right
---@return integer bottom
function sizes.padding(what, value)
  if type(value) == "number" then return value, value, value, value end
  if #value == 1 then return value[1], value[1], value[1], value[1] end
  if #value == 2 then return value[1], value[2], value[1], value[2] end
  if #value ~= 4 then fail("%s: padding: expected 1, 2 or 4 integers, got %d", what, #value) end
  return value[1], value[2], value[3], value[4]
end

--- Rounded half to even, as Python's round.
---@param x number
---@return integer
function sizes.round(x)
  local whole = math.floor(x)
  local rest = x - whole
  if rest > 0.5 or (rest == 0.5 and whole % 2 == 1) then return whole + 1 end
  return whole
end

--- A value for messages and prints: {1, 2} of a table.
function sizes.text(value)
  if type(value) ~= "table" then return tostring(value) end
  local items = {}
  for i = 1, #value do items[i] = tostring(value[i]) end
  return "{" .. table.concat(items, ", ") .. "}"
end

--- Print the objects of a class with these fields: "Resize(size={28, 28}, max_size=nil)".
---@param ... string
function sizes.print_fields(cls, ...)
  local names = {...}
  function cls:extra_repr()
    local parts = {}
    for i, name in ipairs(names) do parts[i] = name .. "=" .. sizes.text(self[name]) end
    return table.concat(parts, ", ")
  end
end

return sizes
