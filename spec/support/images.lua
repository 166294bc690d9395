--- Images for specs of transforms: the one of scripts/fixtures/transforms.py, and comparing with its results.
local accelhost = require "accelhost"
local fixtures = require("spec.support.fixtures").read "transforms"

local images = {}

--- The fixtures' image, uint8 [channels, rows, columns].
---@param channels? integer default 3
---@param rows? integer default 7
---@param columns? integer default 6
---@return userdata
function images.bytes(channels, rows, columns)
  local values = {}
  for c = 0, (channels or 3) - 1 do
    for y = 0, (rows or 7) - 1 do
      for x = 0, (columns or 6) - 1 do
        values[#values + 1] = (37 * c + 11 * y + 23 * x + 5 * x * y + 3 * c * x) % 256
      end
    end
  end
  return accelhost.tensor(values, {dtype = "uint8"}):view(channels or 3, rows or 7, columns or 6)
end

--- The same from 0 to 1.
---@return userdata
function images.floats(...) return images.bytes(...):to("float32"):div(255) end

--- Raise unless `found` is the image that torchvision made: to the number, or to `tolerance`.
---@param name string the fixture
---@param found userdata
---@param tolerance? number default 0
function images.check(name, found, tolerance)
  local fixture = assert(fixtures[name], "no fixture " .. name)
  local expected = accelhost.tensor(fixture[2], {dtype = "float64"}):view(unpack(fixture[1]))
  local function shape(t) return table.concat(t:shape(), " ") end
  assert(shape(found) == shape(expected), ("%s: shape (%s), expected (%s)"):format(name, shape(found), shape(expected)))
  local far = found:to("float64"):sub(expected):abs():max():item()
  assert(far <= (tolerance or 0), ("%s: differs by %g"):format(name, far))
end

return images
