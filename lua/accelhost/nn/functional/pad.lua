--- Padding: constant edges, and edges copied from the input itself.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail
local F = {}

-- mode -> the widest edge of n places.
local widest = {
  reflect = function(n) return n - 1 end,
  replicate = function() return math.huge end,
  circular = function(n) return n end,
}

local function check_edge(input, dim, left, right, mode)
  local n = input:size(dim)
  local most = n > 0 and widest[mode](n) or -1
  if math.max(left, right) > most then
    fail("pad: mode '%s' can add at most %d to dim %d of size %d, got %d", mode, math.max(most, 0), dim, n,
      math.max(left, right))
  end
  if n + left + right < 0 then fail("pad: %d and %d cut more than dim %d of size %d has", left, right, dim, n) end
end

local read = arguments.signature("pad", {"input: tensor", "pad: integers",
  {"mode: 'constant'|'reflect'|'replicate'|'circular'", "constant"}, {"value: number", 0}})

--- Pad the last dims: pad = {left, right, top, bottom, ...}, last dim first; negative numbers cut. Modes other than
-- "constant" pad the last one (of 2 or 3 dims), two (of 3 or 4) or three dims (of 4 or 5).
--
--   F.pad(a, {1, 2})  --> tensor([0., 1., 2., 3., 0., 0.])
--   F.pad(images, {1, 1, 2, 2}, {mode = "reflect"}):size(2)  --> 32
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
  if widened and C.autocast.is_enabled "cpu" and input.dtype:find "16$" and input.device == "cpu" then
    input = input:to "float32"
  end
  local before, after = {}, {}
  for d = 1, dims do
    local i = 2 * (dims - d) + 1
    before[d], after[d] = pad[i] or 0, pad[i + 1] or 0
    if mode ~= "constant" and (before[d] ~= 0 or after[d] ~= 0) then
      check_edge(input, d - 1, before[d], after[d], mode)
    end
  end
  if mode == "constant" then return C.constant_pad(input, before, after, value) end
  if mode == "circular" then -- cropped elements are no part of the circle
    for d = 1, dims do
      if before[d] < 0 or after[d] < 0 then
        local first, last = math.max(-before[d], 0), math.max(-after[d], 0)
        input = input:narrow(d - 1, first, input:size(d - 1) - first - last)
        before[d], after[d] = math.max(before[d], 0), math.max(after[d], 0)
        check_edge(input, d - 1, before[d], after[d], mode)
      end
    end
  end
  return C.edge_pad(input, before, after, mode)
end

return F
