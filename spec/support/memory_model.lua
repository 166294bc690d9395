--- Outcomes of small programs of several threads under the weak memory order of C11 (and so of aarch64), by exhaustive
--- search. A location has the history of its stores; a thread has a view: for each location the newest store that it
--- knows. A load may read any store that is not older than the view. A release store carries the thread's view, which
--- an acquire load of it joins; sequentially consistent accesses have one total order. A read-modify-write reads the
--- newest store and continues its release sequence. Stores to one location are ordered as they are made, and no load
--- reads a store that is made after it, so outcomes that need either are not found.
---
--- A thread is a list of steps, built by load, store, add, exchange and when:
---     {store("data", 1), store("flag", 1, "release")}, {load("a", "flag", "acquire"), load("b", "data")}
local M = {}

--- Load a location into a register. Orders: nil (plain or relaxed), "acquire", "seq_cst".
function M.load(register, location, order)
  return {kind = "load", register = register, location = location, order = order}
end
--- Store a number, or the function of the thread's registers. Orders: nil, "release", "seq_cst".
function M.store(location, value, order)
  return {kind = "store", location = location, value = value, order = order}
end
--- Add to a location; the value before it goes into the register. Orders: nil, "acq_rel", "seq_cst".
function M.add(register, location, value, order)
  return {kind = "add", register = register, location = location, value = value, order = order}
end
--- Run the steps after this one only where the condition of the registers holds.
function M.when(condition)
  return {kind = "when", condition = condition}
end

local function joined(a, b)
  local out = {}
  for k, v in pairs(a) do out[k] = v end
  for k, v in pairs(b) do out[k] = math.max(out[k] or 0, v) end
  return out
end

local function with(t, key, value)
  local out = {}
  for k, v in pairs(t) do out[k] = v end
  out[key] = value
  return out
end

local function appended(list, item)
  local out = {}
  for i = 1, #list do out[i] = list[i] end
  out[#out + 1] = item
  return out
end

local acquires = {acquire = true, acq_rel = true, seq_cst = true}
local releases = {release = true, acq_rel = true, seq_cst = true}

-- The state after a load of store `at`; `view` of the thread is updated.
local function read(state, i, step, at)
  local thread, stored = state.thread[i], state.history[step.location][at]
  local view = with(thread.view, step.location, at)
  if acquires[step.order] and stored.view then view = joined(view, stored.view) end
  return {at = thread.at + 1, view = view, register = with(thread.register, step.register, stored.value)}
end

-- The state with a new store by thread i.
local function write(state, i, thread, step, value, before)
  local history = state.history[step.location]
  local at = #history + 1
  local view = with(thread.view, step.location, at)
  local carried = releases[step.order] and view or nil
  if before and before.view then carried = joined(carried or {}, before.view) end
  local out = {history = with(state.history, step.location, appended(history, {value = value, view = carried})),
    newest = step.order == "seq_cst" and with(state.newest, step.location, at) or state.newest, thread = state.thread}
  return out, {at = thread.at, view = view, register = thread.register}
end

local function placed(state, i, thread)
  return {history = state.history, newest = state.newest, thread = with(state.thread, i, thread)}
end

local explore

local function explore_load(state, i, step, found)
  local oldest = state.thread[i].view[step.location] or 1
  if step.order == "seq_cst" then oldest = math.max(oldest, state.newest[step.location] or 1) end
  for at = oldest, #state.history[step.location] do
    explore(placed(state, i, read(state, i, step, at)), found)
  end
end

local function explore_store(state, i, step, found)
  local thread = state.thread[i]
  local value = type(step.value) == "function" and step.value(thread.register) or step.value
  thread = {at = thread.at + 1, view = thread.view, register = thread.register}
  local after, own = write(state, i, thread, step, value)
  explore(placed(after, i, own), found)
end

local function explore_add(state, i, step, found)
  local at = #state.history[step.location]
  local before = state.history[step.location][at]
  local after, own = write(state, i, read(state, i, step, at), step, before.value + step.value, before)
  explore(placed(after, i, own), found)
end

local function explore_when(state, i, step, found)
  local thread = state.thread[i]
  local steps = step.condition(thread.register) and thread.at + 1 or math.huge
  explore(placed(state, i, {at = steps, view = thread.view, register = thread.register}), found)
end

local kinds = {load = explore_load, store = explore_store, add = explore_add, when = explore_when}

function explore(state, found)
  local ended = true
  for i = 1, #state.thread do
    local step = found.program[i][state.thread[i].at]
    if step then
      ended = false
      kinds[step.kind](state, i, step, found)
    end
  end
  if not ended then return end
  found.ends = found.ends + 1
  local registers = {}
  for i = 1, #state.thread do
    for name, value in pairs(state.thread[i].register) do registers[name] = value end
  end
  local last = {}
  for location, history in pairs(state.history) do last[location] = history[#history].value end
  if found.bad(registers, last) then found.count = found.count + 1 end
end

--- Run the threads in every order and with every store that a load may read. Returns how many executions end with `bad`
--- of the registers of all threads, and of the locations' last values; and how many there are.
function M.count(threads, bad)
  local state = {history = {}, newest = {}, thread = {}}
  for i, steps in ipairs(threads) do
    state.thread[i] = {at = 1, view = {}, register = {}}
    for _, step in ipairs(steps) do
      if step.location then state.history[step.location] = {{value = 0}} end
    end
  end
  local found = {program = threads, bad = bad, count = 0, ends = 0}
  explore(state, found)
  return found.count, found.ends
end

return M
