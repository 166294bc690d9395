--- Tables of tensors, whatever their form: lists, tables of fields, tables in tables.
---@param data any
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe
local nested = {}

-- fn of every tensor in a value; `other` of anything else that is no table.
local function map(value, fn, other)
  if C.is_tensor(value) then return fn(value) end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return other(value) end
  local result = {}
  for _, key in ipairs(arguments.sorted_keys(value)) do result[key] = map(value[key], fn, other) end
  return result
end

local function same(value) return value end

local function refuse(what)
  return function(value) fail("%s: expected tensors and tables of them, got %s", what, describe(value)) end
end

--- A function of every tensor in a value, in the value's form; anything else in it is unchanged.
--
--   accelhost.utils.recursively_apply(function(t) return t * 2 end, {x = a}).x  --> tensor([2., 4., 6.])
---@param func fun(tensor: userdata): any
---@param error_on_other_type? boolean refuse values that are neither tensors nor tables
---@return any
nested.recursively_apply = arguments.named("recursively_apply", {
  "func: callable", "data: any", {"error_on_other_type: flag", false},
}, function(what, func, data, strict)
  return map(data, func, strict and refuse(what) or same)
end)

--- A value with all its tensors on a device.
--
--   accelhost.utils.send_to_device({x = a}, "cpu").x.device  --> cpu
---@param non_blocking? boolean false: copies are waited for
---@param skip_keys? string|string[] fields that stay where they are
---@return any
nested.send_to_device = arguments.checked("send_to_device", {
  "tensor: any", "device: device", {"non_blocking: false", false}, {"skip_keys: string|list"},
}, function(value, device, _, skip)
  local skipped = {}
  for _, key in ipairs(type(skip) == "table" and skip or {skip}) do skipped[key] = true end
  local function move(tensor) return tensor:to {device = device} end
  if next(skipped) == nil or C.is_tensor(value) or type(value) ~= "table" then return map(value, move, same) end
  local result = {}
  for key, item in pairs(value) do result[key] = skipped[key] and item or map(item, move, same) end
  return result
end)

-- The first tensor in a value.
local function first_of(value)
  if C.is_tensor(value) then return value end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return nil end
  for _, key in ipairs(arguments.sorted_keys(value)) do
    local found = first_of(value[key])
    if found then return found end
  end
end

--- The size of dim 0 of the first tensor in a value; nil when it has none.
--
--   accelhost.utils.find_batch_size{x = images, y = labels}  --> 2
---@return integer?
function nested.find_batch_size(data)
  local tensor = first_of(data)
  if not tensor then return nil end
  if tensor:dim() == 0 then fail("find_batch_size: expected a tensor with dimensions, got a scalar") end
  return tensor:size(0)
end

--- The same rows of every tensor in a value.
--
--   accelhost.utils.slice_tensors({x = a}, 0, 2).x  --> tensor([1., 2.])
---@param start integer from 0
---@param stop? integer the first row that is left out, default: none
---@return any
nested.slice_tensors = arguments.named("slice_tensors", {
  "data: any", "start: size", {"stop: size"},
}, function(what, data, start, stop)
  return map(data, function(tensor)
    local rows = tensor:size(0)
    local from, to = math.min(start, rows), math.min(stop or rows, rows)
    return tensor:narrow(0, from, math.max(0, to - from))
  end, refuse(what))
end)

-- The values at one place of several tables of one form.
local function join(list, dim)
  local first = list[1]
  if C.is_tensor(first) then
    for i, item in ipairs(list) do
      if not C.is_tensor(item) then fail("concatenate: item %d is %s, item 1 a tensor", i, describe(item)) end
    end
    return C.cat(list, dim)
  end
  if type(first) ~= "table" or getmetatable(first) ~= nil then
    fail("concatenate: expected tensors and tables of them, got %s", describe(first))
  end
  local result = {}
  for _, key in ipairs(arguments.sorted_keys(first)) do
    local column = {}
    for i, item in ipairs(list) do
      if type(item) ~= "table" or item[key] == nil then
        fail("concatenate: item 1 has '%s', item %d has not", tostring(key), i)
      end
      column[i] = item[key]
    end
    result[key] = join(column, dim)
  end
  return result
end

--- Several values of one form as one, their tensors joined along a dim.
--
--   accelhost.utils.concatenate{{x = a}, {x = a}}.x:shape()  --> {6}
---@param data table[]
---@return any
nested.concatenate = arguments.checked("concatenate", {"data: list", {"dim: integer", 0}}, function(data, dim)
  if #data == 0 then fail "concatenate: expected at least one value" end
  return join(data, dim)
end)

--- Shape and dtype of every tensor in a value.
--
--   accelhost.utils.get_data_structure({x = a}).x.shape  --> {3}
---@return any
function nested.get_data_structure(data)
  return map(data, function(tensor) return {shape = tensor:shape(), dtype = tensor.dtype} end,
    refuse "get_data_structure")
end

--- Create uninitialised tensors for the result of get_data_structure.
--
--   local structure = accelhost.utils.get_data_structure({x = a})
--   accelhost.utils.initialize_tensors(structure).x:shape()  --> {3}
---@param data_structure any
---@return any
function nested.initialize_tensors(data_structure)
  local function make(value)
    if type(value) ~= "table" then fail("initialize_tensors: expected a structure, got %s", describe(value)) end
    if type(value.shape) == "table" and C.is_dtype(value.dtype) then
      return C.empty(value.shape, {dtype = value.dtype})
    end
    local result = {}
    for key, item in pairs(value) do result[key] = make(item) end
    return result
  end
  return make(data_structure)
end

--- A value with tables of numbers in the place of its tensors.
--
--   accelhost.utils.listify({x = a}).x[3]  --> 3
---@return any
function nested.listify(data)
  return map(data, function(tensor) return tensor:tolist() end, same)
end

--- A value with its half precision tensors in float32.
--
--   accelhost.utils.convert_to_fp32({x = a:half()}).x.dtype  --> float32
---@param tensor any
---@return any
function nested.convert_to_fp32(tensor)
  return map(tensor, function(item)
    if item.dtype == "float16" or item.dtype == "bfloat16" then return item:to {dtype = "float32"} end
    return item
  end, same)
end

return nested
