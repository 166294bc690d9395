--- The positions of a parameter's values along an axis from 0 to 1, and the axis' ticks.
local kinds = require "accelhost.util.kinds"
local plot_ticks = require "accelhost.plot.ticks"
local show = require "accelhost.sweep.report.show"

local scale = {}

local is_finite = kinds.is_finite

-- By choice: each in the middle of its share.
local function categorical(values)
  local places, ticks, count = {}, {}, #values
  for i, text in ipairs(values) do
    places[text] = (i - 0.5) / count
    ticks[i] = {at = places[text], text = text}
  end
  return {
    kind = "categorical", ticks = ticks,
    place = function(value) return value ~= nil and places[show.value(value)] or nil end,
  }
end

-- Texts of the choices, and of other values that trials had.
local function choices_of(parameter, trials)
  local list, seen = {}, {}
  local function put(value)
    local text = value ~= nil and show.value(value)
    if text and not seen[text] then seen[text], list[#list + 1] = true, text end
  end
  for _, choice in ipairs(parameter.choices or {}) do put(choice) end
  for _, trial in ipairs(trials) do put(trial.params[parameter.name]) end
  return list
end

--- An axis of numbers.
---@param log? boolean
---@param most? integer approximate number of ticks, default 5
---@return table {place, ticks, low, high, log}
function scale.of_range(low, high, log, most)
  log = log and low > 0
  local from, to = log and math.log10(low) or low, log and math.log10(high) or high
  if to - from <= 1e-12 * math.max(math.abs(from), math.abs(to)) then
    local room = from == 0 and 1 or math.abs(from) * 0.1
    from, to = from - room, to + room
  end
  local ticks = {}
  for i, tick in ipairs((log and plot_ticks.log or plot_ticks.linear)(from, to, most or 5)) do
    ticks[i] = {at = (tick.at - from) / (to - from), text = tick.text}
  end
  return {
    kind = "number", low = low, high = high, log = log, ticks = ticks,
    place = function(value)
      if not is_finite(value) or (log and value <= 0) then return nil end
      return ((log and math.log10(value) or value) - from) / (to - from)
    end,
  }
end

--- The axis of a parameter: its range, widened to the values of trials (queued configurations may be outside).
---@param parameter table {name, kind, low, high, log, choices}
---@param trials table[]
---@return table {kind, place, ticks}
function scale.of(parameter, trials)
  if parameter.kind == "categorical" then return categorical(choices_of(parameter, trials)) end
  local low, high = parameter.low, parameter.high
  low, high = is_finite(low) and low or nil, is_finite(high) and high or nil
  for _, trial in ipairs(trials) do
    local value = trial.params[parameter.name]
    if is_finite(value) and (not parameter.log or value > 0) then
      low, high = math.min(low or value, value), math.max(high or value, value)
    end
  end
  if not low then low, high = parameter.log and 1 or 0, parameter.log and 10 or 1 end
  return scale.of_range(low, high or low, parameter.log)
end

--- A place as the whole number from 0 to 1000 in which pictures are drawn; values outside are at the edge.
---@param place number
function scale.thousandth(place)
  return math.floor(math.max(0, math.min(1, place)) * 1000 + 0.5)
end

return scale
