--- The host's part of a step that is captured as a graph, which is repeated before each replay: counters, rates,
--- scales. The device's part is in the graph; a module that updates state on the host adds the update here during the
--- capture.
--
-- A decision of the device in a replay (a GradScaler's skipped step) is read later: the host works as if no step were
-- skipped, and reverts the updates of skipped steps in `settle`, at the latest before the next replay.
local host_updates = {}

local updates    -- of the step that is being captured
local is_skipped -- returns whether the device skipped the updates that are being added
local unsettled  -- the updates of the last replay, until the device's decisions have been read

--- Is a step being captured, so that updates on the host have to be added?
function host_updates.is_recording()
  return updates ~= nil
end

--- The step that is being captured, to compare with; nil when none is.
---@return table?
function host_updates.current()
  return updates
end

--- Add an update that has been made once: a function that repeats it before a replay, and one that reverts the last
--- time, after a failed capture or where the device skipped it.
---@param redo function
---@param undo? function
function host_updates.add(redo, undo)
  updates[#updates + 1] = {redo = redo, undo = undo, is_skipped = is_skipped}
end

--- Add a function to call once the device's decisions of a replay have been read.
---@param settled function
function host_updates.after_settle(settled)
  updates[#updates + 1] = {settled = settled}
  updates.has_decisions = true
end

--- Run fn; the updates that it adds are reverted after a replay for which skipped() is true.
---@param skipped function reads the device's decision
---@param ... any its arguments
---@return any # the results of fn
function host_updates.unless_skipped(skipped, fn, ...)
  local outer = is_skipped
  is_skipped = skipped
  local function restore(fine, ...)
    is_skipped = outer
    if not fine then error((...), 0) end
    return ...
  end
  return restore(pcall(fn, ...))
end

--- Run fn now and before each replay; updates within it are not added separately.
---@param save function returns a function that reverts all later effects of fn
---@param ... any its arguments
function host_updates.call_each_replay(save, fn, ...)
  local own, arguments, count = updates, {...}, select("#", ...)
  local skipped, undo = is_skipped, save()
  host_updates.add(function()
    if skipped then undo = save() end
    fn(unpack(arguments, 1, count))
  end, function() undo() end)
  updates = nil
  local fine, problem = pcall(fn, ...)
  updates = own
  if not fine then error(problem, 0) end
end

--- Run fn and collect the updates that it adds.
---@param ... any its arguments
---@return table updates
---@return any # the results of pcall(fn, ...)
function host_updates.record(fn, ...)
  local own = {}
  updates = own
  local function stop(...)
    updates = nil
    return own, ...
  end
  return stop(pcall(fn, ...))
end

--- Repeat all updates, in order.
---@param recorded table returned by record
function host_updates.replay(recorded)
  for i = 1, #recorded do
    if recorded[i].redo then recorded[i].redo() end
  end
end

--- Revert all updates, the last first.
---@param recorded table
function host_updates.undo(recorded)
  for i = #recorded, 1, -1 do
    if recorded[i].undo then recorded[i].undo() end
  end
end

--- Mark the updates as part of a replay that the device has begun.
---@param recorded table
function host_updates.mark_replayed(recorded)
  if recorded.has_decisions then unsettled = recorded end
end

--- Read, once, the device's decisions of the last replay, and revert the updates that it skipped. Waits for the
--- replay.
function host_updates.settle()
  local last = unsettled
  if not last then return end
  local skipped = {} -- all decisions first: when the device reports an error instead, the next call reads them again
  for i = 1, #last do skipped[i] = last[i].is_skipped and last[i].is_skipped() end
  unsettled = nil
  for i = #last, 1, -1 do
    if skipped[i] and last[i].undo then last[i].undo() end
  end
  for i = 1, #last do
    if last[i].settled then last[i].settled() end
  end
end

return host_updates
