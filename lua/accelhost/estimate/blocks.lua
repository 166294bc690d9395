--- The blocks of a recording: the phase of a step in which each was allocated, its kind, and those alive at the peak.
local blocks = {}

-- A function from the time of an event to whether an optimizer's step runs then. Times ascend.
local function optimizer_clock(intervals)
  local at = 1
  return function(time)
    while intervals[at] and intervals[at].stop < time do at = at + 1 end
    return intervals[at] ~= nil and intervals[at].begin <= time
  end
end

-- Return the next phase: "set-up" until a module runs, then loader, forward, backward and optimizer in turns.
local function next_phase(phase, in_backward, in_optimizer, module)
  if in_backward then return "backward" end
  if in_optimizer then return "optimizer" end
  if module then return "forward" end
  return (phase == "backward" or phase == "optimizer") and "loader" or phase
end

-- Read the events into blocks {bytes, op, tensor, site, module, phase, born, died, end_phase}, in order; `at` are the
-- phases and times of the events, `change` their bytes.
local function read_events(recording, intervals)
  local count, lost, live = recording:memory()
  local in_optimizer, open = optimizer_clock(intervals), {}
  local log = {list = {}, phase = {}, time = {}, change = {}, count = count, lost = lost, live = live}
  local phase = "set-up"
  for i = 0, count - 1 do
    local address, bytes, op, in_backward, _, time, tensor, site, module = recording:memory_event(i)
    phase = next_phase(phase, in_backward, in_optimizer(time), module)
    log.phase[i], log.time[i], log.change[i] = phase, time, bytes
    if bytes > 0 then
      local block = {
        address = address, bytes = bytes, op = op, tensor = tensor, site = site, module = module, phase = phase,
        born = i,
      }
      log.list[#log.list + 1], open[address] = block, block
    elseif open[address] then
      open[address].died, open[address].end_phase = i, phase
      open[address] = nil
    end
  end
  return log
end

-- Find the peak of the live bytes, of all and of each phase.
local function find_peaks(log)
  local live, peaks, peak = log.live, {}, {bytes = -1}
  for i = 0, log.count - 1 do
    live = live + log.change[i]
    local phase = log.phase[i]
    if not peaks[phase] or live > peaks[phase] then peaks[phase] = live end
    if live > peak.bytes then peak = {bytes = live, at = i} end
  end
  return peak, peaks
end

-- Set the kind of the block that holds each tensor of a known owner. Return the bytes by kind of those that no block
-- holds (memory that ranks share, mapped files).
local function mark_owned(log, owned)
  local by_address, outside, seen = {}, {}, {}
  for _, block in ipairs(log.list) do by_address[#by_address + 1] = block end
  table.sort(by_address, function(a, b)
    if a.address ~= b.address then return a.address < b.address end
    return a.born < b.born
  end)
  -- The last block that begins at the address or before it.
  local function position(address)
    local low, high = 0, #by_address
    while low < high do
      local middle = math.ceil((low + high) / 2)
      if by_address[middle].address <= address then low = middle else high = middle - 1 end
    end
    return low
  end
  local function is_alive(block, time)
    if not time then return not block.died end
    return log.time[block.born] <= time and (not block.died or log.time[block.died] >= time)
  end
  for _, owner in ipairs(owned) do
    local found
    for i = position(owner.address), 1, -1 do
      local block = by_address[i]
      if is_alive(block, owner.time) then
        found = block.address + block.bytes > owner.address and block or nil
        break
      end
    end
    local fresh = not seen[owner.address] or seen[owner.address] ~= found
    seen[owner.address] = found or true
    if found then
      found.kind, found.owners = owner.kind, (found.owners or 0) + (fresh and 1 or 0)
    elseif fresh then
      outside[owner.kind] = (outside[owner.kind] or 0) + owner.bytes
    end
  end
  return outside
end

local function kind_of(block)
  if block.kind then return block.kind end
  local phase, last = block.phase, block.end_phase
  if phase == "forward" and last == "backward" then return "activations" end
  if phase == "set-up" and last == "backward" and block.op then return "activations" end
  if phase == "set-up" then return "made before the first step" end
  if phase == "loader" then return "batches" end
  if phase == "backward" and last ~= "backward" then return "gradients" end
  return "temporaries of " .. phase
end

local function add(list, key, bytes, fields)
  local row = list[key]
  if not row then
    row = fields or {name = key}
    row.bytes, row.count = 0, 0
    list[key], list[#list + 1] = row, row
  end
  row.bytes, row.count = row.bytes + bytes, row.count + 1
end

-- Layers of one kind are one row: "h.*.attn.c_attn (Conv1D)".
local function group_of(module)
  return module and (module:gsub("%f[%w]%d+%f[%W]", "*"):gsub("^[^ ]-%*", "%0")) or "outside of modules"
end

local function larger(a, b)
  if a.bytes ~= b.bytes then return a.bytes > b.bytes end
  return (a.born or 0) < (b.born or 0)
end

--- The blocks that are alive when most bytes are, by kind, and activations by module and op.
---@param recording userdata with memory, sites and modules
---@param run {owned: table[], intervals: table[]} tensors of known owners {address, bytes, kind, time?}, and the times
---of the optimizers' steps {begin, stop}
---@return table {bytes, step, phase, kinds, activations, largest, phases, lost}
function blocks.at_peak(recording, run)
  local log = read_events(recording, run.intervals)
  local outside = mark_owned(log, run.owned)
  local peak, phases = find_peaks(log)
  local kinds, activations, largest = {}, {}, {}
  for _, block in ipairs(log.list) do
    if block.born <= peak.at and (not block.died or block.died > peak.at) then
      local kind = kind_of(block)
      block.kind = kind
      add(kinds, kind, block.bytes)
      if kind == "activations" then
        local module, op = group_of(block.module), block.op or "no op"
        add(activations, module .. "\0" .. op, block.bytes, {module = module, op = op})
      end
      largest[#largest + 1] = block
    end
  end
  local known = 0
  for _, row in ipairs(kinds) do known = known + row.bytes end
  if peak.bytes > known then add(kinds, "allocated by the program before", peak.bytes - known) end
  local extra = 0
  for kind, bytes in pairs(outside) do
    add(kinds, kind, bytes)
    extra = extra + bytes
  end
  for phase, bytes in pairs(phases) do phases[phase] = bytes + extra end
  table.sort(kinds, larger)
  table.sort(activations, larger)
  table.sort(largest, larger)
  local step, time = 1, log.time[peak.at]
  for _, interval in ipairs(run.intervals) do step = step + (interval.stop < time and 1 or 0) end
  return {
    bytes = peak.bytes + extra, step = step, phase = log.phase[peak.at], kinds = kinds, activations = activations,
    largest = largest, phases = phases, lost = log.lost,
  }
end

return blocks
