--- The memory of a recording at its peak: the blocks that are alive then, by kind and by the op that allocated them.
local C = require "accelhost._C"

local memory_use = {}

-- Read the events into blocks {bytes, op, born, died, in_backward, end_in_backward} in order of allocation, `died` nil
-- for those alive at the end, and the events at which backwards begin. Of blocks from before the recording only the
-- end is known.
local function read_blocks(recording)
  local count, lost, live = recording:memory()
  local blocks, at, freed, begins, before = {}, {}, {}, {}, false
  for i = 0, count - 1 do
    local address, bytes, op, in_backward = recording:memory_event(i)
    if in_backward and not before then begins[#begins + 1] = i end
    before = in_backward
    if bytes > 0 then
      local block = {bytes = bytes, op = op or "no op", born = i, in_backward = in_backward}
      blocks[#blocks + 1], at[address] = block, block
    elseif at[address] then
      at[address].died, at[address].end_in_backward = i, in_backward
      at[address] = nil
    else
      freed[#freed + 1] = {at = i, bytes = -bytes}
    end
  end
  return blocks, freed, {live = live, count = count, lost = lost, begins = begins}
end

-- Return the event after which most bytes are live, and these bytes.
local function find_peak(blocks, freed, log)
  local change = {}
  for _, block in ipairs(blocks) do
    change[block.born] = block.bytes
    if block.died then change[block.died] = -block.bytes end
  end
  for _, block in ipairs(freed) do change[block.at] = -block.bytes end
  local live, peak, at = log.live, log.live, -1
  for i = 0, log.count - 1 do
    live = live + change[i]
    if live > peak then peak, at = live, i end
  end
  return at, peak
end

-- Return whether a backward began between two events.
local function backward_between(log, from, to)
  for _, begin in ipairs(log.begins) do
    if begin > from and begin <= to then return true end
  end
  return false
end

local function kind_of(log, block)
  if not block.in_backward and block.died and backward_between(log, block.born, block.died) then
    return "saved for backward"
  end
  if block.in_backward and block.died and block.end_in_backward then return "temporaries of backward" end
  if block.in_backward then return "gradients" end
  return block.died and "other temporaries" or "kept after the recording"
end

-- The bytes of the tensors of a nested table.
local function bytes_in(value)
  if C.is_tensor(value) then return value:numel() * value:element_size() end
  local sum = 0
  if type(value) == "table" then
    for _, item in pairs(value) do sum = sum + bytes_in(item) end
  end
  return sum
end

--- Sum the blocks that are alive at the peak.
---@param recording userdata
---@param owners {model?: Module, optimizer?: Optimizer} to divide the memory from before the recording
---@return {peak: number, kinds: table[], ops: table[]} rows {name, bytes, count}, the largest first
function memory_use.at_peak(recording, owners)
  local blocks, freed, log = read_blocks(recording)
  local at, peak = find_peak(blocks, freed, log)
  local kinds, ops = {}, {}
  local function add(list, name, bytes, count)
    if bytes <= 0 then return end
    local row = list[name]
    if not row then
      row = {name = name, bytes = 0, count = 0}
      list[name], list[#list + 1] = row, row
    end
    row.bytes, row.count = row.bytes + bytes, row.count + count
  end
  local before = log.live
  for _, block in ipairs(freed) do before = before - (block.at <= at and block.bytes or 0) end
  local parameters = owners.model and bytes_in(owners.model:parameters()) or 0
  local state = owners.optimizer and bytes_in(owners.optimizer:state_dict().state) or 0
  for _, block in ipairs(blocks) do
    if block.born <= at and (not block.died or block.died > at) then
      local kind = kind_of(log, block)
      add(kinds, kind, block.bytes, 1)
      add(ops, block.op .. (block.in_backward and ", in backward" or ""), block.bytes, 1)
    end
  end
  state = math.min(state, math.max(0, before - parameters))
  add(kinds, "parameters", parameters, owners.model and #owners.model:parameters() or 0)
  add(kinds, "optimizer state", state, 0)
  add(kinds, owners.model and "other memory from before" or "memory from before", before - parameters - state, 0)
  local function larger(a, b) return a.bytes > b.bytes end
  table.sort(kinds, larger)
  table.sort(ops, larger)
  return {peak = peak, kinds = kinds, ops = ops, lost = log.lost}
end

local function line(name, bytes, count)
  return ("%-40s %10.2f MB %8s"):format(name, bytes / 2 ^ 20, count > 0 and ("%d"):format(count) or "")
end

--- The sums as a text.
---@param use table of at_peak
---@param row_limit integer of ops; negative: all
function memory_use.text(use, row_limit)
  local lines = {("%-40s %13s %8s"):format("At the peak, by kind", "", "blocks")}
  for _, row in ipairs(use.kinds) do lines[#lines + 1] = line(row.name, row.bytes, row.count) end
  lines[#lines + 1] = line("total", use.peak, 0)
  lines[#lines + 1] = ""
  lines[#lines + 1] = "Allocated in the recording, by op"
  for i, row in ipairs(use.ops) do
    if row_limit >= 0 and i > row_limit then break end
    lines[#lines + 1] = line(row.name, row.bytes, row.count)
  end
  if use.lost > 0 then lines[#lines + 1] = ("%d events did not fit the log and are missing"):format(use.lost) end
  return table.concat(lines, "\n")
end

return memory_use
