--- Which pass of which loader is running, where passes are nested and left by break.
local passes = {}

-- Passes in the order of their last step, innermost on top. Held weakly: a pass left by break is only found here until
-- its last batch is collected, or until a pass below it goes on. `depth` counts them: compiled code of this LuaJIT may
-- see an old length of a table that shrinks.
local running, depth = {}, 0

local function top()
  while depth > 0 do
    local pass = running[depth].pass
    if pass then return pass end
    running[depth] = nil
    depth = depth - 1
  end
end

--- Show where a pass is in its loader's fields.
---@param pass table?
function passes.show(pass)
  if not pass then return end
  local loader = pass.loader
  loader.active = true
  loader.end_of_dataloader = pass.last
  loader.remainder = pass.remainder
  loader.batch_length, loader.uneven = pass.length, pass.uneven
  loader.epoch = pass.epoch
end

--- Make `pass` the innermost one: those above it have been left by break, and so have older passes of a loader that
--- begins anew.
---@param pass table
function passes.enter(pass)
  local before = top()
  if before == pass then return end
  if before then before.loader.active = false end
  local place
  for i = 1, depth do
    if running[i].pass == pass then place = i end
  end
  if place then
    for i = depth, place + 1, -1 do running[i] = nil end
    depth = place
    return
  end
  local kept = 0
  for i = 1, depth do
    local entry = running[i]
    running[i] = nil
    if entry.pass and entry.pass.loader ~= pass.loader then
      kept = kept + 1
      running[kept] = entry
    end
  end
  depth = kept + 1
  running[depth] = setmetatable({pass = pass}, {__mode = "v"})
end

--- `pass` is over.
---@param pass table
function passes.leave(pass)
  passes.enter(pass)
  running[depth] = nil
  depth = depth - 1
  pass.loader.active = false
  pass.loader.end_of_dataloader = false
  passes.show(top())
end

return passes
