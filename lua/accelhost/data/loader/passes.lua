--- The stack of running passes of loaders, which may be nested and left by break.
---@param pass table
---@param loader table
local passes = {}

--- Metatable of the iterators of loader:batches(); loader.lua adds __call.
passes.Batches = {}

-- Passes in the order of their last step, innermost on top. Held weakly: a pass whose `for` is not known and that was
-- left by break is only found here until its last batch is collected, or until a pass below it steps. `depth` counts
-- them: compiled code of this LuaJIT may see an old length of a table that shrinks.
local running, depth = {}, 0

-- batch value -> {length =, valid =}
local noted = setmetatable({}, {__mode = "k"})

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
  loader.batch_length, loader.uneven, loader.valid_length = pass.length, pass.uneven, pass.valid
  loader.epoch = pass.epoch
end

--- Make `pass` the innermost one: those above it have been left by break, and so have older passes of a loader that
--- begins again.
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

-- The pass on top has been left.
local function drop()
  local pass = running[depth].pass
  running[depth] = nil
  depth = depth - 1
  pass.loader.active = false
  pass.loader.end_of_dataloader = false
  passes.show(top())
end

--- `pass` is over.
function passes.leave(pass)
  passes.enter(pass)
  drop()
end

--- Note the values of the batch that a pass hands out.
function passes.note(pass, ...)
  local entry = {length = pass.length, valid = pass.valid}
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    local kind = type(value)
    if kind == "userdata" or kind == "table" then noted[value] = entry end
  end
end

--- Return the numbers of rows and of valid rows of a batch that a loader has yielded.
---@param value any one of the batch's values
---@return {length: integer, valid: integer}?
function passes.batch_of(value) return noted[value] end

-- Detection of passes that were left by break: a `for` keeps its iterator in hidden locals of its function while it
-- runs.

local DEEPEST = 200 -- levels of the stack that are searched; below them a loop may still run

--- The coroutine that begins a pass, held weakly; nil for the main program.
---@return {coroutine: thread}?
function passes.thread()
  local thread = coroutine.running()
  return thread and setmetatable({coroutine = thread}, {__mode = "v"}) or nil
end

-- Call fn(generator) for each generator of the `for` at a level of a stack, the innermost last, until fn returns true.
local function each_generator(thread, level, fn)
  local i = 1
  while true do
    local name, value
    if thread then
      name, value = debug.getlocal(thread, level, i)
    else
      name, value = debug.getlocal(level + 1, i)
    end
    if not name then return false end
    if name == "(for generator)" and fn(value) then return true end
    i = i + 1
  end
end

--- Return the generator of the `for` that has just called this loader: the loader, its iterator, or a function or
--- object around it (a progress bar, enumerate); nil when no `for` runs the pass.
---@param iterator? table the object of loader:batches() that was called
function passes.holder(loader, iterator)
  local called = {}
  for level = 2, 8 do
    local info = debug.getinfo(level, "f")
    if not info then return nil end
    local holder
    each_generator(nil, level, function(generator)
      local meta = getmetatable(generator)
      if generator == loader or generator == iterator then
        holder = generator
      elseif meta ~= passes.Batches then
        local call = type(meta) == "table" and rawget(meta, "__call") or generator
        if type(call) == "function" and called[call] then holder = generator end
      end
    end)
    if holder then return holder end
    called[info.func] = true
  end
end

local function is_iterated(pass)
  local holder, thread = pass.holder, pass.thread
  if holder == nil then return true end
  if thread then
    thread = thread.coroutine
    if not thread then return false end -- it was collected
  end
  local function is_it(generator) return generator == holder end
  local elsewhere = thread and thread ~= coroutine.running()
  if elsewhere and coroutine.status(thread) == "dead" then return false end
  for level = elsewhere and 0 or 2, DEEPEST do
    local info
    if elsewhere then info = debug.getinfo(thread, level, "f") else info = debug.getinfo(level, "f") end
    if not info then break end
    if level == DEEPEST or each_generator(elsewhere and thread or nil, level, is_it) then return true end
  end
  -- The main program's stack cannot be seen from within a coroutine.
  return thread == nil and coroutine.running() ~= nil
end

-- Has the script dropped the iterator of a pass? Only the collector knows, and a full collection costs milliseconds:
-- one is made only where the pass has not advanced since the last check, or where `loop_begins`.
local function is_dropped(pass, loop_begins)
  local iterator, before = pass.iterator, pass.rounds_before
  pass.rounds_before = pass.rounds
  if iterator and iterator[1] and (loop_begins or before == pass.rounds) then collectgarbage() end
  return iterator ~= nil and iterator[1] == nil
end

--- Has a pass that is not at its end been left, its `for` or the iterator of loader:batches()?
---@param loop_begins boolean does a loop begin around it?
function passes.is_left(pass, loop_begins)
  pass.left = pass.left or not is_iterated(pass) or pass.holder == nil and is_dropped(pass, loop_begins)
  return pass.left
end

--- The innermost pass that runs: those above it that were left by break are dropped.
---@return table?
function passes.innermost()
  local pass = top()
  while pass and not is_iterated(pass) do
    drop()
    pass = top()
  end
  return pass
end

--- Does the present code run inside another loader's `for`?
function passes.is_within_another(loader)
  for i = 1, depth do
    local pass = running[i].pass
    if pass and pass.loader ~= loader and pass.holder ~= nil and is_iterated(pass) then return true end
  end
  return false
end

--- Does no other loader's pass run around those of this one? All processes return the same, whenever their collectors
--- find passes that were left.
function passes.is_outermost(loader)
  local first = depth == 1 and running[1].pass
  if first and first.loader == loader then return true end
  passes.innermost()
  for i = 1, depth do
    local pass = running[i].pass
    if pass and pass.loader == loader then return true end
    if pass and not pass.within and not passes.is_left(pass, true) then return false end
  end
  return true
end

--- The run continues from here (load_state): no training loop runs inside a pass of loader:batches() begun before.
function passes.mark_outside_loops()
  for i = 1, depth do
    local pass = running[i].pass
    if pass and pass.holder == nil then pass.within = true end
  end
end

--- Would dropping passes that were left by break change anything? Not where only one is known and every row of its
--- batch counts.
function passes.matters()
  local pass = top()
  return pass ~= nil and (depth > 1 or pass.last or pass.valid ~= pass.length)
end

--- The pass on top, left by break or not.
---@return table?
function passes.top() return top() end

return passes
