--- Padding: constant edges, and edges taken from the input itself.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail
local F = {}

--- A constant edge on one side of a dim, or the side cut when n < 0.
local function constant_side(input, dim, side, n, value)
  if n < 0 then return input:narrow(dim, side == 0 and -n or 0, input:size(dim) + n) end
  if n == 0 then return input end
  local sizes = {}
  for d = 0, input:dim() - 1 do sizes[d + 1] = input:size(d) end
  sizes[dim + 1] = n
  local edge = input:new_full(sizes, value)
  return C.cat(side == 0 and {edge, input} or {input, edge}, dim)
end

-- mode -> the position in 0..n-1 that stands at position p of the padded dim, and the widest edge.
local modes = {
  reflect = {
    at = function(p, n)
      p = math.abs(p)
      return p < n and p or 2 * (n - 1) - p
    end,
    widest = function(n) return n - 1 end,
  },
  replicate = {
    at = function(p, n) return math.max(0, math.min(p, n - 1)) end,
    widest = function() return math.huge end,
  },
  circular = {
    at = function(p, n) return p % n end,
    widest = function(n) return n end,
  },
}

--- One dim, both sides: a row of positions, picked at once.
local function picked(input, dim, left, right, mode)
  local n, rule, index = input:size(dim), modes[mode], {}
  local widest = n > 0 and rule.widest(n) or -1
  if math.max(left, right) > widest then
    fail("pad: mode '%s' can add at most %d to dim %d of size %d, got %d", mode, math.max(widest, 0), dim, n,
      math.max(left, right))
  end
  if n + left + right < 0 then fail("pad: %d and %d cut more than dim %d of size %d has", left, right, dim, n) end
  for p = -left, n - 1 + right do index[#index + 1] = rule.at(p, n) end
  local places = C.tensor(index, {dtype = "int64", device = input.device})
  return input:index_select(dim, places)
end

local read = arguments.signature("pad", {"input: tensor", "pad: integers",
  {"mode: 'constant'|'reflect'|'replicate'|'circular'", "constant"}, {"value: number", 0}})

--- Pad the last dims: pad = {left, right, top, bottom, ...}, last dim first; negative numbers cut. Modes other than
-- "constant" pad the last one (of 2 or 3 dims), two (of 3 or 4) or three dims (of 4 or 5).
--
--   F.pad(a, {1, 2})  --> tensor([0., 1., 2., 3., 0., 0.])
--   F.pad(images, {1, 1, 2, 2}, {mode = "reflect"}):size(2)  --> 32
---@param ... any input, pad, mode ("constant", "reflect", "replicate", "circular"), value
---@return userdata # always a new tensor
function F.pad(...)
  local input, pad, mode, value = read(...)
  local dims = input:dim()
  if #pad % 2 ~= 0 or #pad / 2 > dims then
    fail("pad: expected up to %d pairs of numbers, got %d numbers", dims, #pad)
  end
  if mode ~= "constant" and (#pad == 0 or dims - #pad / 2 < 1 or dims - #pad / 2 > 2) then
    fail("pad: mode '%s' pads all but the first or the first two dims, got %d numbers for %d dims", mode, #pad, dims)
  end
  -- Under autocast PyTorch computes these modes in float32, but for volumes that are reflected.
  local widened = mode == "replicate" or mode == "reflect" and #pad < 6
  if widened and input.dtype:find "16$" and C.autocast.is_enabled() then input = input:to "float32" end
  local padded = input
  for i = 1, #pad, 2 do
    local dim = dims - (i + 1) / 2
    if mode == "constant" then
      padded = constant_side(constant_side(padded, dim, 0, pad[i], value), dim, 1, pad[i + 1], value)
    elseif pad[i] ~= 0 or pad[i + 1] ~= 0 then
      padded = picked(padded, dim, pad[i], pad[i + 1], mode)
    end
  end
  return C.same_storage(padded, input) and padded:clone() or padded
end

return F
