-- The series of a plot: for each name the curves of the runs, along the requested axis, smoothed or not.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local series = {}

local fail = arguments.raise

local function all_keys(runs)
  local found = {}
  for _, run in ipairs(runs) do
    for key, curve in pairs(run.curves) do
      if #curve.value > 0 then found[key] = true end
    end
  end
  return arguments.sorted_keys(found)
end

local function pattern_of(word)
  return "^" .. word:gsub("%p", "%%%0"):gsub("%%%*", ".*") .. "$"
end

--- The names to be drawn: those of a list "loss,valid/*", in its order, or all.
---@param runs table[] of accelhost.track.curves
---@param list string
---@param axis string
function series.keys(runs, list, axis)
  local known, keys, taken = all_keys(runs), {}, {}
  if list == "" then
    for _, key in ipairs(known) do
      if key ~= "epoch" or axis ~= "epoch" then keys[#keys + 1] = key end
    end
    return keys
  end
  for word in list:gmatch "[^,]+" do
    local pattern, found = pattern_of(word), false
    for _, key in ipairs(known) do
      if key:find(pattern) then
        found = true
        if not taken[key] then keys[#keys + 1] = key end
        taken[key] = true
      end
    end
    if not found then
      local near = C.system.nearest(word, known)
      fail("--keys: no run has '%s'%s; there are: %s", word, near and (" (did you mean '%s'?)"):format(near) or "",
        table.concat(known, ", "))
    end
  end
  return keys
end

-- The last epoch that a run reported at or before each step.
local function epochs_of(run, curve)
  local logged = run.curves.epoch
  if not logged or #logged.value == 0 then fail("--x epoch: %s logs no 'epoch'", run.name) end
  local xs, place = {}, 1
  for i, step in ipairs(curve.step) do
    if logged.step[place] > step then place = 1 end
    while place < #logged.step and logged.step[place + 1] <= step do place = place + 1 end
    xs[i] = logged.value[place]
  end
  return xs
end

local function first_time(run)
  local first = math.huge
  for _, curve in pairs(run.curves) do
    for _, time in ipairs(curve.wall_time) do first = math.min(first, time) end
  end
  return first
end

local function times_of(run, curve)
  run.first_time = run.first_time or first_time(run)
  local xs = {}
  for i, time in ipairs(curve.wall_time) do xs[i] = time - run.first_time end
  return xs
end

local axes = {step = function(_, curve) return curve.step end, time = times_of, epoch = epochs_of}

local function is_finite(value) return value - value == 0 end

-- An average in which each value counts `weight` times less with each that follows, and that is not pulled to 0 at
-- the beginning, as TensorBoard's.
local function smoothed(values, weight)
  local result, last, count = {}, 0, 0
  for i, value in ipairs(values) do
    if is_finite(value) then
      last, count = last * weight + (1 - weight) * value, count + 1
      result[i] = last / (1 - weight ^ count)
    else
      result[i] = value
    end
  end
  return result
end

local function logarithms(values)
  local result = {}
  for i, value in ipairs(values) do result[i] = value > 0 and math.log10(value) or 0 / 0 end
  return result
end

local function summary(curve)
  local found = {count = #curve.value, last = curve.value[#curve.value]}
  for i, value in ipairs(curve.value) do
    local step, finite = curve.step[i], is_finite(value)
    if finite and not (found.min and value >= found.min) then found.min, found.min_step = value, step end
    if finite and not (found.max and value <= found.max) then found.max, found.max_step = value, step end
  end
  return found
end

--- The curves of a name: {run (its place), x, y, raw, summary} for each run that has it. y is smoothed, raw is not, nil
--- where nothing is smoothed.
---@param runs table[]
---@param options {axis: string, smooth: number, log: boolean}
function series.of(runs, key, options)
  local list = {}
  for place, run in ipairs(runs) do
    local curve = run.curves[key]
    if curve and #curve.value > 0 then
      local own = {run = place, x = axes[options.axis](run, curve), y = curve.value, summary = summary(curve)}
      if options.smooth > 0 then own.raw, own.y = own.y, smoothed(own.y, options.smooth) end
      if options.log then
        own.y = logarithms(own.y)
        own.raw = own.raw and logarithms(own.raw)
      end
      list[#list + 1] = own
    end
  end
  return list
end

--- Least and greatest finite values of lists, nil without any.
---@param lists number[][]
---@return number?, number?
function series.range(lists)
  local low, high
  for _, list in ipairs(lists) do
    for _, value in ipairs(list) do
      if is_finite(value) then low, high = math.min(low or value, value), math.max(high or value, value) end
    end
  end
  return low, high
end

return series
