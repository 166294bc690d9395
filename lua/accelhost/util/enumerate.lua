--- Counting the items of a loop.
local arguments = require "accelhost.util.arguments"

local read = arguments.signature("enumerate", {"iterable: callable|dataset", {"start: integer", 0}})

local function counted(i, first, ...)
  if first == nil then return nil end
  return i, first, ...
end

--- For loops over batches (or samples of a data set) with their number, which counts from 0 as in Python.
--
--   for i, inputs, labels in accelhost.enumerate(loader) do print(i, inputs, labels) end
---@param iterable table|function a loader, accelhost.progress(loader), a data set, or an iterator function
---@return function iterator
return function(...)
  local iterable, start = read(...)
  local i, last = start - 1, nil
  local samples = type(iterable) ~= "function" and type(iterable.get) == "function"
  return function()
    i = i + 1
    if samples then
      if i - start >= iterable:len() then return nil end
      return i, iterable:get(i - start)
    end
    local function step(first, ...)
      last = first
      return counted(i, first, ...)
    end
    return step(iterable(nil, last))
  end
end
