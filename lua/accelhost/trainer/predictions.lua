--- The results of an evaluation's batches, joined: {place =, logits =, labels =, inputs =, losses =} of each,
--- where place is the batch's number in the data set.
local C = require "accelhost._C"
local utils = require "accelhost.accelerator.utils"

local predictions = {}

local PADDING = -100
local fields = {"logits", "labels", "inputs", "losses"}

-- Tensors with equal sizes but for dim 0, padded where they are shorter.
local function padded(list)
  local dims = list[1]:dim()
  for dim = 1, dims - 1 do
    local most = 0
    for _, tensor in ipairs(list) do most = math.max(most, tensor:size(dim)) end
    for i, tensor in ipairs(list) do
      local lack = most - tensor:size(dim)
      if lack > 0 then
        local shape = tensor:shape()
        shape[dim + 1] = lack
        list[i] = C.cat({tensor, C.full(shape, PADDING, {dtype = tensor.dtype, device = tensor.device})}, dim)
      end
    end
  end
  return list
end

-- Values of all batches as one: tensors, or tables of them.
local function concatenated(list)
  local first = list[1]
  if first == nil then return nil end
  if C.is_tensor(first) then
    for i, tensor in ipairs(list) do
      if tensor:dim() == 0 then list[i] = tensor:reshape(1) end
    end
    return C.cat(padded(list), 0)
  end
  local result = {}
  for key in pairs(first) do
    local column = {}
    for i, value in ipairs(list) do column[i] = value[key] end
    result[key] = concatenated(column)
  end
  return result
end

--- A value apart from the graph, on a device: a tensor, or a table of them.
---@param device string?
function predictions.brought(value, device)
  if C.is_tensor(value) then return value:detach():to {device = device} end
  if type(value) ~= "table" then return nil end
  local copy = {}
  for key, item in pairs(value) do copy[key] = predictions.brought(item, device) end
  return copy
end

--- A part in the CPU's memory.
---@param part table
function predictions.on_cpu(part)
  local copy = {place = part.place}
  for _, field in ipairs(fields) do copy[field] = predictions.brought(part[field], "cpu") end
  return copy
end

local function ordered(parts)
  table.sort(parts, function(a, b) return a.place < b.place end)
  return parts
end

--- The parts of all processes, in the order of the data set. A collective.
---@return table[]
function predictions.together(accelerator, parts)
  if accelerator.num_processes == 1 then return parts end
  local own = {}
  for i, part in ipairs(parts) do own[i] = predictions.on_cpu(part) end
  return ordered(utils.gather_object(own))
end

--- One part of each process that has one, and whether none has more. A collective.
---@param part table?
---@param last boolean
---@return table[], boolean
function predictions.round(part, last)
  local all, parts, through = utils.gather_object {{part = part and predictions.on_cpu(part), last = last}}, {}, true
  for _, other in ipairs(all) do
    parts[#parts + 1] = other.part
    through = through and other.last
  end
  return ordered(parts), through
end

--- Parts as one: each field's tensors along dim 0, shorter ones padded with -100; or as lists by batch.
---@param as_one boolean
function predictions.joined(parts, as_one)
  local found = {}
  for _, field in ipairs(fields) do
    local column = {}
    for i, part in ipairs(parts) do column[i] = part[field] end
    if as_one then found[field] = concatenated(column) elseif #column > 0 then found[field] = column end
  end
  return found
end

return predictions
