--- Cutting data into one part per process.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

-- This process's part of a list or tensor; padded: its last item repeated up to the length of the longest part.
local function part_of(items, rank, ranks, padded)
  local tensor = C.is_tensor(items)
  local total = tensor and items:size(0) or #items
  local base, extra = math.floor(total / ranks), total % ranks
  local first = rank * base + math.min(rank, extra)
  local length = base + (rank < extra and 1 or 0)
  local missing = padded and total > 0 and base + (extra > 0 and 1 or 0) - length or 0
  if tensor then
    local part = items:narrow(0, first, length)
    return missing > 0 and C.cat({part, items:narrow(0, total - 1, 1)}, 0) or part
  end
  local part = {}
  for i = 1, length do part[i] = items[first + i] end
  for i = length + 1, length + missing do part[i] = items[total] end
  return part
end

--- Part `rank` of `ranks`: see Accelerator:split_between_processes.
---@param items table|userdata
---@param ranks integer
---@param options {apply_padding?: boolean}
---@return table|userdata
return function(items, rank, ranks, options)
  arguments.check_names("split_between_processes", options, {"apply_padding"})
  local padded = options.apply_padding
  if type(items) ~= "table" and not C.is_tensor(items) then
    arguments.fail("split_between_processes: expected a table or a tensor, got %s", arguments.describe(items))
  end
  if C.is_tensor(items) or #items > 0 or next(items) == nil then return part_of(items, rank, ranks, padded) end
  local parts, length, first = {}, nil, nil
  for _, name in ipairs(arguments.sorted_keys(items)) do
    local field = items[name]
    if type(field) ~= "table" and not C.is_tensor(field) then
      arguments.fail("split_between_processes: field '%s': expected a table or a tensor, got %s", tostring(name),
        arguments.describe(field))
    end
    if length and #field ~= length then
      arguments.fail("split_between_processes: field '%s' has %d items, '%s' has %d", tostring(first), length,
        tostring(name), #field)
    end
    length, first = #field, first or name
    parts[name] = part_of(field, rank, ranks, padded)
  end
  return parts
end
