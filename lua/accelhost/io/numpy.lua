--- NumPy's arrays, scalars and dtypes in a pickle, as the makers of accelhost.io.pickle: arrays are tensors, scalars
--- numbers. Covers protocols 2 to 5, of NumPy 1 and 2, and the pickles of Python 2.
--- https://numpy.org/doc/stable/reference/generated/numpy.ndarray.__reduce__.html
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail

local numpy = {}

local OBJECTS = "an array of Python objects is a pickle, which could run code"

-- The characters 0 to 255 of a text in UTF-8, by their two bytes.
local byte_of = {}
for code = 128, 255 do byte_of[string.char(192 + math.floor(code / 64), 128 + code % 64)] = string.char(code) end

-- A file's makers and their errors.
local Reader = {}
Reader.__index = Reader

--- Raise an error about the file.
function Reader:damaged(what) fail("load: '%s': the pickle is damaged: %s", self.name, what) end

--- Bytes as Python 3 writes them in protocol 2: the text of their characters in Latin-1.
function Reader:encode(list)
  if type(list[1]) ~= "string" or list[2] ~= nil and list[2] ~= "latin1" then self:damaged "bytes that are no text" end
  return (list[1]:gsub("[\194\195][\128-\191]", byte_of))
end

--- numpy.dtype("f8", ...), whose state has the byte order and, of a record, the fields.
function Reader:dtype(list)
  local reader = self
  if type(list[1]) ~= "string" then self:damaged "a dtype without a name" end
  return {
    [0] = "object", dtype = true, name = list[1], order = "|",
    build = function(dtype, state)
      if type(state) ~= "table" or state[0] ~= "list" then reader:damaged "a dtype's state is no tuple" end
      if type(state[2]) == "string" then dtype.order = state[2] end
      dtype.record = type(state[4]) == "table" and state[4][0] == "list"
    end,
    make = function(dtype) return dtype.name end,
  }
end

--- A tensor of elements in bytes, or nil and the reason why there is none here.
function Reader:tensor(dtype, shape, columns, bytes)
  if type(dtype) ~= "table" or not dtype.dtype or type(shape) ~= "table" or shape[0] ~= "list" then
    self:damaged "an array without dtype and shape"
  end
  if dtype.record then return nil, "there is no dtype for records here" end
  if type(bytes) ~= "string" then return nil, OBJECTS end
  local sizes = {}
  for i = 1, #shape do
    if type(shape[i]) ~= "number" or shape[i] < 0 or shape[i] % 1 ~= 0 or shape[i] > 2 ^ 53 then
      self:damaged "an array's shape is no tuple of sizes"
    end
    sizes[i] = shape[i]
  end
  local tensor, reason = C.io.npy_elements(self.name, dtype.order .. dtype.name, columns, sizes, bytes)
  return tensor, reason and reason:gsub("^npy: ", "")
end

--- An array that gets its content by BUILD: (version, shape, dtype, in Fortran's order, elements).
function Reader:reconstruct()
  local reader, state = self, nil
  return {
    [0] = "object",
    build = function(_, given)
      if type(given) ~= "table" or given[0] ~= "list" or #given ~= 5 then
        reader:damaged "an array without its parts"
      end
      state = given
    end,
    make = function()
      if not state then reader:damaged "an array without its parts" end
      return reader:tensor(state[3], state[2], state[4] == true, state[5])
    end,
  }
end

--- _frombuffer(elements, dtype, shape, order), of protocol 5.
function Reader:from_buffer(list)
  local reader = self
  return {
    [0] = "object",
    make = function() return reader:tensor(list[2], list[3], list[4] == "F", list[1]) end,
  }
end

--- scalar(dtype, bytes): a number, or a tensor of int64 or uint64 where no number is exact.
function Reader:scalar(list)
  local tensor, reason = self:tensor(list[1], {[0] = "list"}, false, list[2])
  if not tensor then return {[0] = "object", make = function() return nil, reason end} end
  local exact, number = pcall(tensor.item, tensor)
  if exact then return number end
  return {[0] = "object", make = function() return tensor end}
end

--- The makers of a file.
---@param name string the file, for messages
---@return table<string, function> makers by the names of Python
function numpy.makers(name)
  local reader = setmetatable({name = name}, Reader)
  local function method(key) return function(list) return reader[key](reader, list) end end
  local makers = {
    ["_codecs.encode"] = method "encode", ["numpy.dtype"] = method "dtype",
    ["numpy.ndarray"] = function() reader:damaged "an array without its parts" end,
  }
  for _, core in ipairs {"numpy.core", "numpy._core"} do
    makers[core .. ".multiarray._reconstruct"] = method "reconstruct"
    makers[core .. ".multiarray.scalar"] = method "scalar"
    makers[core .. ".numeric._frombuffer"] = method "from_buffer"
  end
  return makers
end

return numpy
