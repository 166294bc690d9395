-- Histograms as TensorBoard keeps them.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail
local histogram = {}

-- The edges "tensorflow": powers of 1.1 from 1e-12 to 1e20, on both sides of 0.
local usual

local function usual_edges()
  if usual then return usual end
  local powers, value = {}, 1e-12
  while value < 1e20 do
    powers[#powers + 1] = value
    value = value * 1.1
  end
  local edges = {}
  for i = #powers, 1, -1 do edges[#edges + 1] = -powers[i] end
  edges[#edges + 1] = 0
  for i = 1, #powers do edges[#edges + 1] = powers[i] end
  usual = edges
  return edges
end

local function even_edges(least, most, bins)
  if least == most then least, most = least - 0.5, most + 0.5 end
  local edges = {}
  for i = 0, bins do edges[i + 1] = i == bins and most or least + (most - least) * i / bins end
  return edges
end

local function edges_of(what, bins, least, most)
  if bins == "tensorflow" then return usual_edges() end
  if type(bins) == "number" then
    if not (least > -math.huge and most < math.huge) then
      fail("%s: bins = %d: the values reach from %g to %g", what, bins, least, most)
    end
    return even_edges(least, most, bins)
  end
  for i = 2, #bins do
    if not (bins[i] > bins[i - 1]) then fail("%s: bins: edge %d is not above the one before", what, i) end
  end
  if #bins < 2 then fail("%s: bins: expected at least 2 edges, got %d", what, #bins) end
  return bins
end

-- Count the values between each edge and the next; the last edge belongs to the last bin.
local function count(values, edges)
  local limits = C.tensor(edges, {dtype = "float64"})
  local inside = values:ge(edges[1]):logical_and(values:le(edges[#edges]))
  values = values:masked_select(inside)
  local places = C.searchsorted(limits, values, {right = true}):sub(1):clamp_(0, #edges - 2)
  return C.bincount(places, {minlength = #edges - 1}):tolist()
end

-- Merge neighbouring bins, so that there are about `most`.
local function thin(counts, edges, most)
  local each = math.floor(#counts / most)
  local fewer, limits = {}, {}
  for i = 1, #counts, each do
    local sum = 0
    for k = i, math.min(i + each - 1, #counts) do sum = sum + counts[k] end
    fewer[#fewer + 1], limits[#limits + 1] = sum, edges[i]
  end
  limits[#limits + 1] = edges[#edges]
  return fewer, limits
end

-- Without the empty bins at both ends. The format has right edges only, so the first bin is empty.
local function trim(counts, edges)
  local first, last
  for i, n in ipairs(counts) do
    if n > 0 then first, last = first or i, i end
  end
  if not first then return {0}, {edges[1]} end
  local kept, limits = {0}, {edges[first]}
  for i = first, last do kept[#kept + 1], limits[#limits + 1] = counts[i], edges[i + 1] end
  return kept, limits
end

--- The histogram of a tensor's values.
---@param values userdata of any dtype and shape
---@param bins string|integer|number[] "tensorflow", a number of bins of one width, or edges
---@param max_bins? integer
---@return table # {min, max, num, sum, sum_squares, limits, counts}
function histogram.of(what, values, bins, max_bins)
  values = values:detach():to("cpu"):to("float64"):reshape(-1)
  if values:numel() == 0 then fail("%s: values: there are none", what) end
  local least, most = values:min():item(), values:max():item()
  local edges = edges_of(what, bins, least, most)
  local counts = count(values, edges)
  if max_bins and #counts > max_bins then counts, edges = thin(counts, edges, max_bins) end
  counts, edges = trim(counts, edges)
  return {
    min = least, max = most, num = values:numel(), sum = values:sum():item(),
    sum_squares = values:mul(values):sum():item(), limits = edges, counts = counts,
  }
end

return histogram
