--- The transforms that a loader applies to images in memory while it gathers them: steps that move pixels, a lookup
--- table for the bytes of each channel, and a part of the result to erase.
local C = require "accelhost._C"

local plan = {}

local STEPS, CHANNELS = 12, 4 -- limits of data/grid.h and data/erase.h

-- The transforms of nested Composes, one after the other; nil when something else than an object is among them.
local function flat(transform, list)
  list = list or {}
  if type(transform) ~= "table" then return nil end
  if not transform.is_compose then
    list[#list + 1] = transform
    return list
  end
  for _, item in ipairs(transform.transforms) do
    if not flat(item, list) then return nil end
  end
  return list
end

-- The bytes that represent a filling in each channel, nil when none do. After ToTensor only 0 does.
local function bytes_of(fill, channels, is_float)
  local bytes = {}
  for c = 1, channels do
    local value = type(fill) == "table" and (fill[c] or #fill == 1 and fill[1]) or fill
    if type(value) ~= "number" or value % 1 ~= 0 or value < 0 or value > (is_float and 0 or 255) then return nil end
    bytes[c] = value
  end
  return type(fill) == "table" and #fill > 1 and #fill ~= channels and nil or bytes
end

-- Append a transform's steps to those of the grid; false when they cannot be among them.
local function add_steps(grid, steps, state)
  for _, step in ipairs(steps) do
    local empty = step.kind == "pad" and step.left + step.top + step.right + step.bottom == 0
    if step.kind == "pad" and step.mode == "constant" and not empty then
      if state.normalized or state.channels > CHANNELS then return false end
      step.fill = bytes_of(step.fill, state.channels, state.count > 0)
      if not step.fill then return false end
    else
      step.fill = nil
    end
    if not empty then grid[#grid + 1] = step end
  end
  return #grid <= STEPS and not (state.erase and #steps > 0)
end

-- Floats to erase, once; the filling is that of the last of the transforms behind.
local function add_erasing(state, transform)
  if state.count == 0 or state.erase or state.channels > CHANNELS then return false end
  state.erase, state.filling = transform:erasing(state.channels, state.rows, state.columns)
  return state.erase ~= nil
end

-- One transform more; false when the loader cannot do it.
local function add(state, grid, pointwise, transform)
  if transform.pointwise and not transform.is_compose then
    if state.count == 0 and not transform.starts_from_bytes then return false end
    state.normalized = state.count > 0
    state.count = state.count + 1
    pointwise[state.count] = transform
    if state.filling then state.filling = transform(state.filling) end
    return true
  end
  if transform.erasing then return add_erasing(state, transform) end
  if not transform.steps then return false end
  local steps, rows, columns = transform:steps(state.rows, state.columns)
  if not steps then return false end
  state.rows, state.columns = rows, columns
  return add_steps(grid, steps, state)
end

local function table_of(pointwise, channels)
  local bytes = C.arange(256, {dtype = "uint8", device = "cpu"}):view(1, 1, 256):expand(channels, 1, 256):contiguous()
  for _, transform in ipairs(pointwise) do bytes = transform(bytes) end
  return bytes:contiguous():view(channels, 256)
end

--- Return the plan by which a loader transforms uint8 images [channels, rows, columns] of this size, nil when it
--- cannot.
---@param rows integer
---@param columns integer
---@return {table: userdata|false, grid: table?, erase: table?, rows: integer, columns: integer}? plan table: float32
--- [channels, 256], false where the bytes are unchanged; grid: the steps, where there are any
function plan.of(transform, channels, rows, columns)
  local list = flat(transform)
  if not list then return nil end
  local state = {channels = channels, rows = rows, columns = columns, count = 0}
  local grid, pointwise = {channels = channels, rows = rows, columns = columns}, {}
  for _, item in ipairs(list) do
    if not add(state, grid, pointwise, item) then return nil end
  end
  local values = #pointwise > 0 and table_of(pointwise, channels)
  if values and values.dtype ~= "float32" then return nil end
  if state.erase then state.erase.value = state.filling:contiguous():view(-1):tolist() end
  return {table = values, grid = (#grid > 0 or state.erase) and grid or nil, erase = state.erase, rows = state.rows,
    columns = state.columns}
end

return plan
