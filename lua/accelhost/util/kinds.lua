--- The kinds of argument values: the words that follow the colon in a signature.
local C = require "accelhost._C"

local kinds = {}

local function is_integer(value)
  return type(value) == "number" and value % 1 == 0 and math.abs(value) <= 2 ^ 53
end

local function is_count(value, least)
  return is_integer(value) and value >= least
end

local function is_callable(value)
  if type(value) == "function" then return true end
  local meta = getmetatable(value)
  return type(meta) == "table" and type(meta.__call) == "function"
end

-- A table of values that pass a test: an array, without named fields. The key of an item that does not is the second
-- result.
local function is_list(value, test)
  if type(value) ~= "table" or getmetatable(value) ~= nil then return false end
  local count = #value
  for key, item in next, value do
    if type(key) ~= "number" or key > count or not test(item) then return false, key end
  end
  for i = 1, count do
    if value[i] == nil then return false, i end
  end
  return true
end

local function is_size(value) return is_count(value, 0) end

local function is_number(value) return type(value) == "number" end

local function is_module(value)
  local meta = type(value) == "table" and getmetatable(value)
  return type(meta) == "table" and meta._is_module == true
end

local function is_group(value)
  local meta = type(value) == "table" and getmetatable(value)
  return type(meta) == "table" and meta._is_process_group == true
end

local function is_accelerator(value)
  local meta = type(value) == "table" and getmetatable(value)
  return type(meta) == "table" and rawget(meta, "_is_accelerator") == true
end

local function is_object(value, ...)
  local kind = type(value)
  if (kind ~= "table" and kind ~= "userdata") or C.is_tensor(value) then return false end
  for i = 1, select("#", ...) do
    if type(value[(select(i, ...))]) ~= "function" then return false end
  end
  return true
end

--- Is it a stream of samples (an object with iter() and without get)?
function kinds.is_stream(value) return is_object(value, "iter") and type(value.get) ~= "function" end

-- name -> {the expected value in messages, test, a remark for some values}
local function is_dataset(value)
  return is_object(value, "get", "len") or is_list(value, function() return true end) and value[1] ~= nil
end

local known = {
  any = {"a value", function() return true end},
  integer = {"an integer", is_integer},
  size = {"an integer of at least 0", is_size},
  count = {"an integer of at least 1", function(value) return is_count(value, 1) end},
  number = {"a number", is_number},
  positive = {"a number above 0", function(value) return is_number(value) and value > 0 end},
  nonnegative = {"a number of at least 0", function(value) return is_number(value) and value >= 0 end},
  probability = {"a probability between 0 and 1", function(value)
    return is_number(value) and value >= 0 and value <= 1
  end},
  ["false"] = {"false", function(value) return value == false end},
  flag = {"true or false", function(value) return type(value) == "boolean" end},
  string = {"a string", function(value) return type(value) == "string" end},
  ["function"] = {"a function", function(value) return type(value) == "function" end},
  callable = {"a function or something callable", is_callable},
  iterable = {"a loader, an iterator function or a count", function(value)
    return is_callable(value) or is_size(value)
  end},
  table = {"a table", function(value) return type(value) == "table" and getmetatable(value) == nil end},
  list = {"a table of values", function(value) return is_list(value, function() return true end) end},
  sizes = {"an integer of at least 0 or a table of them", function(value)
    return is_size(value) or is_list(value, is_size)
  end},
  counts = {"an integer of at least 1 or a table of them", function(value)
    return is_count(value, 1) or is_list(value, function(item) return is_count(item, 1) end)
  end},
  open_sizes = {"an integer of at least 0 or a table of them, false to keep the input's size", function(value)
    return is_size(value) or is_list(value, function(item) return item == false or is_size(item) end)
  end},
  integers = {"an integer or a table of integers", function(value)
    return is_integer(value) or is_list(value, is_integer)
  end},
  numbers = {"a number or a table of numbers", function(value)
    return is_number(value) or is_list(value, is_number)
  end},
  datasets = {"a table of data sets (objects with get(i) and len(), or tables of samples)", function(value)
    return is_list(value, is_dataset)
  end},
  callables = {"a table of functions or transforms", function(value) return is_list(value, is_callable) end},
  tensor = {"a tensor", C.is_tensor},
  tensors = {"a tensor or a table of tensors", function(value)
    return C.is_tensor(value) or is_list(value, C.is_tensor)
  end},
  tensor_list = {"a table of tensors", function(value) return is_list(value, C.is_tensor) end},
  dtype = {'a dtype name such as "float32"', C.is_dtype},
  device = {'a device name such as "cpu"', C.device.is_name},
  generator = {"a Generator", C.random.is_generator},
  group = {"a process group", is_group},
  accelerator = {"an Accelerator", is_accelerator},
  module = {"a module", is_module},
  modules = {"a table of modules", function(value) return is_list(value, is_module) end},
  dataset = {"a data set (an object with get(i) and len(), or a table of samples)", is_dataset, function(value)
    return C.is_tensor(value) and "; data.TensorDataset makes one of tensors"
  end},
  stream = {"a stream of samples (an object with iter())", function(value) return is_object(value, "iter") end},
  sized = {"a data set or a length", function(value) return is_size(value) or is_object(value, "len") end},
  sampler = {"a sampler (an object with iter()) or a table", function(value)
    return is_object(value, "iter") or is_list(value, function() return true end)
  end},
}

local function parse(text)
  local texts, tests, words, hint = {}, {}, {}, nil
  for part in text:gmatch "[^|]+" do
    local word = part:match "^'(.*)'$"
    if word then
      words[#words + 1] = word
    else
      local kind = known[part] or error("there is no kind of argument '" .. part .. "'")
      texts[#texts + 1], tests[#tests + 1], hint = kind[1], kind[2], hint or kind[3]
    end
  end
  if #words > 0 then
    texts[#texts + 1] = (#words > 1 and "one of '" or "'") .. table.concat(words, "', '") .. "'"
    tests[#tests + 1] = function(value)
      for i = 1, #words do
        if words[i] == value then return true end
      end
      return false
    end
  end
  local test = tests[1]
  if #tests > 1 then
    test = function(value)
      local wrong
      for i = 1, #tests do
        local fits, key = tests[i](value)
        if fits then return true end
        wrong = wrong or key
      end
      return false, wrong
    end
  end
  return {
    name = text, text = table.concat(texts, " or "), test = test, words = #words > 0 and words or nil, hint = hint,
  }
end

local parsed = {}

--- The kind of a text such as "size", "number|tensor" or "'mean'|'sum'".
---@return {name: string, text: string, test: (fun(value: any): boolean, any), words: string[]?, hint: function?} test
--- returns the key of a wrong item as its second result
function kinds.get(text)
  local kind = parsed[text]
  if not kind then
    kind = parse(text)
    parsed[text] = kind
  end
  return kind
end

--- Is `value` a whole number of at least `least`?
---@param value any
---@param least number
kinds.is_count = is_count

--- Is it a function or something else that can be called?
---@param value any
kinds.is_callable = is_callable

--- Is it a number other than NaN and the infinities?
function kinds.is_finite(value) return type(value) == "number" and value - value == 0 end

--- Is it a table without a metatable?
function kinds.is_plain(value) return type(value) == "table" and getmetatable(value) == nil end

return kinds
