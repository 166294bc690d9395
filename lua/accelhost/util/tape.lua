--- The host's work of a step that is captured as a graph, which is repeated before each replay: counters, rates,
--- scales. The device's work is the graph's; a module with work on the host records it here during the capture.
--
-- A decision of the device in a replay (a GradScaler's skipped step) is read later: the host works as if no step were
-- skipped, and reverts that in `settle`, at the latest before the next replay.
local tape = {}

local actions -- of the step that is captured now
local unless  -- returns whether the device skipped the actions that are noted now
local open    -- the actions of the last replay, until the device is asked

--- Is a step captured now, so that the host's part in it has to be noted?
---@return boolean
function tape.is_recording()
  return actions ~= nil
end

--- The step that is captured now, to compare with; nil when none is.
---@return table?
function tape.current()
  return actions
end

--- Note a part that has been done once: a function that repeats it before a replay, and one that undoes the last time,
--- when the capture failed or the device left it out.
---@param again function
---@param undo? function
function tape.note(again, undo)
  actions[#actions + 1] = {again = again, undo = undo, unless = unless}
end

--- Note a function to call once the device has reported the actions that it skipped.
---@param settled function
function tape.note_settled(settled)
  actions[#actions + 1] = {settled = settled}
  actions.asks = true
end

--- Run fn; the actions that it notes are undone after a replay for which left_out() is true.
---@param left_out function asks the device
---@param fn function
---@param ... any its arguments
---@return any # the results of fn
function tape.unless(left_out, fn, ...)
  local outer = unless
  unless = left_out
  local function back(fine, ...)
    unless = outer
    if not fine then error((...), 0) end
    return ...
  end
  return back(pcall(fn, ...))
end

--- Run fn now and again before each replay; actions within it are not noted separately.
---@param save function returns a function that undoes all that fn does after this
---@param fn function
---@param ... any its arguments
function tape.both(save, fn, ...)
  local own, arguments, count = actions, {...}, select("#", ...)
  local left_out, undo = unless, save()
  tape.note(function()
    if left_out then undo = save() end
    fn(unpack(arguments, 1, count))
  end, function() undo() end)
  actions = nil
  local fine, problem = pcall(fn, ...)
  actions = own
  if not fine then error(problem, 0) end
end

--- Run fn and note meanwhile.
---@param fn function
---@param ... any its arguments
---@return table actions
---@return any # the results of pcall(fn, ...)
function tape.record(fn, ...)
  local own = {}
  actions = own
  local function stop(...)
    actions = nil
    return own, ...
  end
  return stop(pcall(fn, ...))
end

--- Do all again, in order.
---@param recorded table as record returned it
function tape.replay(recorded)
  for i = 1, #recorded do
    if recorded[i].again then recorded[i].again() end
  end
end

--- Undo all entries, the last first.
---@param recorded table
function tape.undo(recorded)
  for i = #recorded, 1, -1 do
    if recorded[i].undo then recorded[i].undo() end
  end
end

--- A replay of this was begun.
---@param recorded table
function tape.begun(recorded)
  if recorded.asks then open = recorded end
end

--- Ask the device, once, which actions it skipped in the last replay, and undo the host's part of them. Waits for that
--- replay.
function tape.settle()
  local last = open
  if not last then return end
  local left_out = {} -- all answers first: when the device reports an error instead, the next call asks again
  for i = 1, #last do left_out[i] = last[i].unless and last[i].unless() end
  open = nil
  for i = #last, 1, -1 do
    if left_out[i] and last[i].undo then last[i].undo() end
  end
  for i = 1, #last do
    if last[i].settled then last[i].settled() end
  end
end

return tape
