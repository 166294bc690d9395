--- What the host does in a step that is captured as a graph and has to do again before each replay: counters, rates,
--- scales. The device's part is the graph's; who has a part on the host notes it here while a step is captured.
local tape = {}

local actions -- of the step that is captured now

--- Is a step captured now, so that the host's part in it has to be noted?
---@return boolean
function tape.is_recording()
  return actions ~= nil
end

--- Note a part that has been done once: what does it again before a replay, and what takes it back should the capture
--- fail.
---@param again function
---@param undo? function
function tape.note(again, undo)
  actions[#actions + 1] = {again = again, undo = undo}
end

--- Do something now and again before each replay; what it does in turn is not noted by itself.
---@param undo function takes it back
---@param fn function
---@param ... any its arguments
function tape.both(undo, fn, ...)
  local own, arguments, count = actions, {...}, select("#", ...)
  tape.note(function() fn(unpack(arguments, 1, count)) end, undo)
  actions = nil
  local fine, problem = pcall(fn, ...)
  actions = own
  if not fine then error(problem, 0) end
end

--- Run fn and note meanwhile.
---@param fn function
---@param ... any its arguments
---@return table actions
---@return any # what pcall(fn, ...) gives
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
---@param recorded table as record gave it
function tape.replay(recorded)
  for i = 1, #recorded do recorded[i].again() end
end

--- Take all back, the last first.
---@param recorded table
function tape.undo(recorded)
  for i = #recorded, 1, -1 do
    if recorded[i].undo then recorded[i].undo() end
  end
end

return tape
