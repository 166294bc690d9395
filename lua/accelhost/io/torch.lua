--- PyTorch's files (.pt, .pth, .bin: a zip archive of a pickle and the storages), as far as they are data.
--- https://pytorch.org/docs/stable/notes/serialization.html
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local pickle = require "accelhost.io.pickle"

local fail = arguments.fail

local torch = {}

local MOST = 2 ^ 28 -- bytes of a pickle: names and shapes, no elements

local STORAGES = {
  DoubleStorage = "float64", FloatStorage = "float32", HalfStorage = "float16", BFloat16Storage = "bfloat16",
  LongStorage = "int64", IntStorage = "int32", ByteStorage = "uint8", BoolStorage = "bool",
}
local OTHER_STORAGES = {
  "CharStorage", "ShortStorage", "ComplexFloatStorage", "ComplexDoubleStorage", "QInt8Storage", "QUInt8Storage",
  "QInt32Storage",
}

local function integers(value, what)
  local list = {}
  if type(value) ~= "table" or value.kind ~= "list" then fail("load: a tensor's %s is no tuple", what) end
  for i, item in ipairs(value.items) do
    if type(item) ~= "number" or item < 0 or item % 1 ~= 0 then fail("load: a tensor's %s is not whole", what) end
    list[i] = item
  end
  return list
end

-- _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)
local function rebuild_tensor(list)
  local storage, offset = list[1], list[2]
  if type(storage) ~= "table" or storage.kind ~= "storage" or type(offset) ~= "number" then
    fail("load: a tensor of the file has no storage")
  end
  return pickle.made(C.as_strided(storage.tensor, integers(list[3], "size"), integers(list[4], "stride"), offset))
end

local function makers()
  local list = {
    ["torch._utils._rebuild_tensor_v2"] = rebuild_tensor,
    ["torch._utils._rebuild_parameter"] = function(given) return given[1] end,
    ["collections.OrderedDict"] = function() return pickle.new_dict() end,
    ["torch.Size"] = function(given) return given[1] end,
  }
  for name, dtype in pairs(STORAGES) do list["torch." .. name] = {dtype = dtype} end
  for _, name in ipairs(OTHER_STORAGES) do list["torch." .. name] = {name = name} end
  return list
end

-- The archive's folder: the part before "data.pkl".
local function find_folder(path, number_of)
  for _, name in ipairs(arguments.sorted_keys(number_of)) do
    local folder = name:match("^(.*)data%.pkl$")
    if folder then return folder end
  end
  fail("%s: a zip archive, but neither of PyTorch (data.pkl) nor of NumPy (.npy)", path)
end

--- Read a file that torch.save wrote.
---@param path string
---@param archive userdata as C.io.zip gave it
---@param names string[] its entries
---@return any
function torch.load(path, archive, names)
  local number_of, storages = {}, {}
  for i, name in ipairs(names) do number_of[name] = i end
  local folder = find_folder(path, number_of)
  local order = number_of[folder .. "byteorder"]
  if order and C.io.zip_text(archive, order, 16) ~= "little" then
    fail("%s: written on a big-endian machine", path)
  end

  local function storage(id)
    local parts = type(id) == "table" and id.kind == "list" and id.items or {}
    local kind, key = parts[2], parts[3]
    local maker = type(kind) == "table" and kind.make
    if parts[1] ~= "storage" or type(maker) ~= "table" or type(key) ~= "string" then
      fail("%s: an object outside the pickle that is no storage of a tensor", path)
    end
    if not maker.dtype then fail("%s: there is no dtype for PyTorch's %s here", path, maker.name) end
    if not storages[key] then
      local number = number_of[folder .. "data/" .. key]
      if not number then fail("%s: the storage '%s' is missing", path, key) end
      storages[key] = {kind = "storage", dtype = maker.dtype, tensor = C.io.zip_tensor(archive, number, maker.dtype)}
    elseif storages[key].dtype ~= maker.dtype then
      fail("%s: the storage '%s' is both %s and %s", path, key, storages[key].dtype, maker.dtype)
    end
    return storages[key]
  end

  return pickle.load(C.io.zip_text(archive, number_of[folder .. "data.pkl"], MOST), makers(), storage)
end

return torch
