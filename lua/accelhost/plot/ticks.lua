-- Ticks of an axis: their positions and labels.
local ticks = {}

local function power(n) return 10 ^ n end

local function fixed(value, digits) return ("%%.%df"):format(digits):format(value) end

-- The smallest of 1, 2 and 5 times a power of ten that is not below a step.
local function nice(step)
  local base = power(math.floor(math.log10(step)))
  for _, factor in ipairs {1, 2, 5} do
    if step <= base * factor * 1.0000001 then return base * factor end
  end
  return base * 10
end

local function plain_text(value, step)
  local most = math.max(math.abs(value), step)
  if most >= 1e6 or step < 1e-5 then
    local text = ("%.3g"):format(math.abs(value) < step * 1e-6 and 0 or value)
    return (text:gsub("e([+-])0*(%d)", function(sign, digits) return "e" .. (sign == "-" and "-" or "") .. digits end))
  end
  return (fixed(value, math.max(0, -math.floor(math.log10(step) + 1e-9))):gsub("^%-(0%.?0*)$", "%1"))
end

--- Ticks of a linear axis.
---@param high number above low
---@param most integer approximate largest number
---@return {at: number, text: string}[]
function ticks.linear(low, high, most)
  local step = nice((high - low) / math.max(1, most))
  local list = {}
  for i = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) do
    list[#list + 1] = {at = i * step, text = plain_text(i * step, step)}
  end
  return list
end

local function power_text(factor, n)
  return n >= -4 and n <= 5 and fixed(factor * power(n), math.max(0, -n)) or ("%de%d"):format(factor, n)
end

-- Ticks at some factors of every n-th power of ten.
local function powers(low, high, each, factors)
  local list = {}
  for n = math.floor(low / each) * each, math.floor(high), each do
    for _, factor in ipairs(factors) do
      local at = n + math.log10(factor)
      if at >= low - 1e-9 and at <= high + 1e-9 then list[#list + 1] = {at = at, text = power_text(factor, n)} end
    end
  end
  return list
end

--- Ticks of an axis of logarithms (to base 10).
---@param low number a logarithm
---@return {at: number, text: string}[] at: logarithms
function ticks.log(low, high, most)
  for _, factors in ipairs {{1, 2, 5}, {1, 3}} do
    local list = powers(low, high, 1, factors)
    if #list >= 2 and #list <= most then return list end
  end
  if high - low >= 1 then return powers(low, high, math.max(1, math.ceil((high - low) / most)), {1}) end
  local found = {}
  for _, tick in ipairs(ticks.linear(power(low), power(high), most)) do
    if tick.at > 0 then found[#found + 1] = {at = math.log10(tick.at), text = tick.text} end
  end
  return found
end

-- Steps of seconds that read well, and the unit of their labels.
local times = {
  {1, 1, "s"}, {2, 1, "s"}, {5, 1, "s"}, {10, 1, "s"}, {20, 1, "s"}, {30, 1, "s"}, {60, 60, "min"}, {120, 60, "min"},
  {300, 60, "min"}, {600, 60, "min"}, {1200, 60, "min"}, {1800, 60, "min"}, {3600, 3600, "h"}, {7200, 3600, "h"},
  {14400, 3600, "h"}, {21600, 3600, "h"}, {43200, 3600, "h"}, {86400, 86400, "d"}, {172800, 86400, "d"},
}

--- Ticks of an axis of seconds.
---@return {at: number, text: string}[]
function ticks.time(low, high, most)
  local wanted = (high - low) / math.max(1, most)
  local step, unit, name = nice(wanted), 1, "s"
  if wanted > 86400 then
    step, unit, name = nice(wanted / 86400) * 86400, 86400, "d"
  elseif wanted > 0.5 then
    for _, row in ipairs(times) do
      if row[1] >= wanted then
        step, unit, name = unpack(row)
        break
      end
    end
  end
  local list = {}
  for i = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) do
    local text = i == 0 and "0" or plain_text(i * step / unit, step / unit) .. " " .. name
    list[#list + 1] = {at = i * step, text = text}
  end
  return list
end

return ticks
