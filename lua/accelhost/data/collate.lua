--- Collating: samples to a batch, as PyTorch's default_collate does it.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local collate = {}

local function kind_of(value)
  return C.is_tensor(value) and "tensor" or type(value)
end

local function numbers(values)
  for i = 1, #values do
    if values[i] % 1 ~= 0 then return C.tensor(values, {dtype = "float32"}) end
  end
  return C.tensor(values, {dtype = "int64"})
end

--- Collate values of one kind: tensors are stacked, numbers become a tensor (int64 when all are integral, else
--- float32), booleans a bool tensor, strings a table; tables are traversed, field by field.
---@param values any[] one per sample
function collate.values(values)
  local first = values[1]
  local kind = kind_of(first)
  for i = 2, #values do
    if kind_of(values[i]) ~= kind then
      arguments.fail("collate: sample 1 holds %s where sample %d holds %s", arguments.describe(first), i,
        arguments.describe(values[i]))
    end
  end
  if kind == "tensor" then return C.stack(values, 0) end
  if kind == "number" then return numbers(values) end
  if kind == "boolean" then return C.tensor(values, {dtype = "bool"}) end
  if kind == "string" then return values end
  if kind ~= "table" or getmetatable(first) then
    arguments.fail("collate: samples hold %s; pass the loader a collate_fn", arguments.describe(first))
  end
  local result = {}
  for _, key in ipairs(arguments.sorted_keys(first)) do
    local column = {}
    for i = 1, #values do
      column[i] = values[i][key]
      if column[i] == nil then
        arguments.fail("collate: sample %d has no field '%s', which sample 1 has", i, tostring(key))
      end
    end
    result[key] = collate.values(column)
  end
  return result
end

--- Collate samples of `count` values each; returns as many results.
---@param samples any[] the sample itself when count is 1, else a table of its values
---@return any ...
function collate.samples(samples, count)
  if count == 1 then return collate.values(samples) end
  local results = {}
  for k = 1, count do
    local column = {}
    for i = 1, #samples do column[i] = samples[i][k] end
    results[k] = collate.values(column)
  end
  return unpack(results, 1, count)
end

local read = arguments.signature("default_collate", {"batch: list"})

--- PyTorch's default_collate: a table of samples to a batch.
--
--   data.default_collate{1, 2, 3}  --> tensor([1, 2, 3])
---@param batch any[]
---@return any
function collate.default_collate(...)
  local samples = read(...)
  if #samples == 0 then arguments.fail("default_collate: batch: expected at least one sample") end
  return collate.values(samples)
end

return collate
