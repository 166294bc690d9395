--- Batches of tensors on a device, kept there until their counts are read: the device is waited for once then,
-- and not at every batch.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

-- The largest number of batches that are kept.
local MANY = 256

local WaitingBatches = class.new "WaitingBatches"

function WaitingBatches:init()
  self._batches, self.is_full = {}, false
end

--- Keep a batch.
---@param columns table<string, userdata> vectors on one device that are not written elsewhere
function WaitingBatches:add(columns)
  local names = arguments.sorted_keys(columns)
  local kind = columns[names[1]].device .. " " .. table.concat(names, " ")
  self._batches[#self._batches + 1] = {names = names, kind = kind, columns = columns}
  self.is_full = #self._batches >= MANY
end

-- The batches from `first` on that have the same columns, as one of tables of numbers; and the one behind them.
local function read_alike(batches, first)
  local beyond, lists = first, {}
  while batches[beyond] and batches[beyond].kind == batches[first].kind do beyond = beyond + 1 end
  for _, name in ipairs(batches[first].names) do
    local parts = {}
    for i = first, beyond - 1 do parts[#parts + 1] = batches[i].columns[name] end
    lists[name] = C.cat(parts, 0):to("cpu"):tolist()
  end
  return lists, beyond
end

--- Pass the stored batches to `count`, in order, and remove them.
---@param count fun(columns: table<string, number[]>) receives the rows of one or several batches
function WaitingBatches:read(count)
  local batches, first = self._batches, 1
  self:init()
  while batches[first] do
    local lists, beyond = read_alike(batches, first)
    count(lists)
    first = beyond
  end
end

return WaitingBatches
