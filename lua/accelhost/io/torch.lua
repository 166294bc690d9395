--- PyTorch's files (.pt, .pth, .bin), as far as they are data: a zip archive of a pickle and the storages, or, before
--- 1.6, pickles followed by the storages; also a bare pickle of NumPy's arrays and containers.
--- https://pytorch.org/docs/stable/notes/serialization.html
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local numpy = require "accelhost.io.numpy"
local pickle = require "accelhost.io.pickle"

local fail = arguments.fail

local torch = {}

-- Bytes of a pickle: names and shapes, and the elements of NumPy's arrays. torch.save stores it; a deflated one could
-- be a thousand times as large as the file.
local MOST, MOST_DEFLATED = 2 ^ 26, 2 ^ 20

-- The beginning of a file before 1.6: the pickle of a magic number.
local MAGIC = "\128\2\138\10\108\252\156\70\249\32\106\168\80\25."

local STORAGES = {
  DoubleStorage = "float64", FloatStorage = "float32", HalfStorage = "float16", BFloat16Storage = "bfloat16",
  LongStorage = "int64", IntStorage = "int32", ShortStorage = "int16", CharStorage = "int8", ByteStorage = "uint8",
  BoolStorage = "bool", ComplexFloatStorage = "complex64", ComplexDoubleStorage = "complex128",
  QInt8Storage = "qint8", QUInt8Storage = "quint8", QInt32Storage = "qint32", QUInt4x2Storage = "quint4x2",
  QUInt2x4Storage = "quint2x4",
}

-- PyTorch's dtypes that do not exist here, and the bytes of an element.
local OTHERS = {
  complex32 = 4, complex64 = 8, complex128 = 16, float8_e4m3fn = 1, float8_e5m2 = 1, float8_e4m3fnuz = 1,
  float8_e5m2fnuz = 1, float8_e8m0fnu = 1, float4_e2m1fn_x2 = 1, qint8 = 1, quint8 = 1, qint32 = 4, quint4x2 = 1,
  quint2x4 = 1, bits8 = 1, bits16 = 2,
}
local SIZES = {
  bool = 1, uint8 = 1, int8 = 1, int16 = 2, uint16 = 2, int32 = 4, uint32 = 4, int64 = 8, uint64 = 8, float16 = 2,
  bfloat16 = 2, float32 = 4, float64 = 8,
}

local function no_dtype(name) return nil, ("there is no dtype for torch.%s here"):format(name) end

-- A file's makers; `open_storage(storage, dtype)` returns a storage's elements as a tensor of one dim.
local Reader = {}
Reader.__index = Reader

--- Raise an error about the file.
function Reader:fail(format, ...) fail("load: '%s': " .. format, self.name, ...) end

--- A tuple of whole numbers from 0.
function Reader:integers(value, what)
  local list = {}
  if type(value) ~= "table" or value[0] ~= "list" then self:fail("a tensor's %s is no tuple", what) end
  for i, item in ipairs(value) do
    if type(item) ~= "number" or item < 0 or item % 1 ~= 0 then self:fail("a tensor's %s is not whole", what) end
    list[i] = item
  end
  return list
end

--- The tensor of (storage, offset, size, stride, requires_grad, hooks) and, of a storage without one, its dtype.
function Reader:rebuild(list, dtype)
  local storage, offset = list[1], list[2]
  if type(storage) ~= "table" or storage[0] ~= "storage" or type(offset) ~= "number" then
    self:fail "a tensor of the file has no storage"
  end
  dtype = dtype or storage.dtype
  if not dtype then self:fail "a tensor of the file has no dtype" end
  return {
    [0] = "object",
    make = function()
      if not SIZES[dtype] then return no_dtype(dtype) end
      local elements = self:elements(storage, dtype)
      return C.as_strided(elements, self:integers(list[3], "size"), self:integers(list[4], "stride"), offset)
    end,
  }
end

--- A storage's elements in a dtype, once.
function Reader:elements(storage, dtype)
  if not storage.elements[dtype] then storage.elements[dtype] = self:open_storage(storage, dtype) end
  return storage.elements[dtype]
end

--- The storage of the persistent id ("storage", type, key, location, number of elements).
function Reader:storage(id)
  local list = type(id) == "table" and id[0] == "list" and id or {}
  local kind, key, count = list[2], list[3], list[5]
  local known = type(kind) == "table" and kind[0] == "global" and type(kind.maker) == "table" and kind.maker.storage
  if list[1] ~= "storage" or not known or type(key) ~= "string" or type(count) ~= "number" or count < 0
    or count % 1 ~= 0 then
    self:fail "an object outside the pickle that is no storage of a tensor"
  end
  if type(list[6]) == "table" and list[6][0] == "list" then
    self:fail "its storages are parts of others (PyTorch before 0.4): load and save it once with a newer one"
  end
  local dtype = kind.maker.dtype
  local storage = self.storages[key]
  if not storage then
    storage = {[0] = "storage", key = key, dtype = dtype, count = count, elements = {}}
    self.storages[key] = storage
  elseif storage.dtype ~= dtype then
    self:fail("the storage '%s' is both %s and %s", key, storage.dtype or "untyped", dtype or "untyped")
  end
  return storage
end

--- The replacements of the names of Python in a file.
function Reader:makers()
  local list = numpy.makers(self.name)
  local function first(given) return given[1] end
  list["torch._utils._rebuild_tensor_v2"] = function(given) return self:rebuild(given) end
  list["torch._utils._rebuild_tensor_v3"] = function(given)
    local dtype = given[7]
    local known = type(dtype) == "table" and dtype[0] == "global" and type(dtype.maker) == "table" and dtype.maker.text
    return self:rebuild(given, known or nil)
  end
  list["torch._utils._rebuild_parameter"] = first
  list["torch._utils._rebuild_parameter_with_state"] = first
  list["torch.Size"], list["torch.device"] = first, first
  list["collections.OrderedDict"] = pickle.new_dict
  list["torch.storage.UntypedStorage"] = {storage = true}
  for name, dtype in pairs(STORAGES) do list["torch." .. name] = {storage = true, dtype = dtype} end
  for _, names in ipairs {SIZES, OTHERS} do
    for name in pairs(names) do list["torch." .. name] = {text = name} end
  end
  return list
end

local function new_reader(path, open_storage)
  return setmetatable({name = path, storages = {}, open_storage = open_storage}, Reader)
end

-- Options of pickle.run for a file of this reader.
local function options(reader)
  return {
    name = reader.name, makers = reader:makers(), persistent = function(id) return reader:storage(id) end,
  }
end

-- The archive's folder: the part before "data.pkl".
local function find_folder(path, number_of)
  for _, name in ipairs(arguments.sorted_keys(number_of)) do
    local folder = name:match("^(.*)data%.pkl$")
    if folder then return folder end
  end
  return fail("load: '%s': a zip archive, but neither of PyTorch (data.pkl) nor of NumPy (.npy)", path)
end

--- Read a file that torch.save wrote.
---@param archive userdata as C.io.zip returned it
---@param names string[] its entries
---@return any
---@return table<string, string> left_out
function torch.load(path, archive, names)
  local number_of = {}
  for i, name in ipairs(names) do number_of[name] = i end
  local folder = find_folder(path, number_of)
  local order = number_of[folder .. "byteorder"]
  if order and C.io.zip_text(archive, order, 16, 16) ~= "little" then
    fail("load: '%s': written on a big-endian machine", path)
  end
  local reader = new_reader(path, function(self, storage, dtype)
    local number = number_of[folder .. "data/" .. storage.key]
    if not number then self:fail("the storage '%s' is missing", storage.key) end
    return C.io.zip_tensor(archive, number, dtype)
  end)
  local text = C.io.zip_text(archive, number_of[folder .. "data.pkl"], MOST, MOST_DEFLATED)
  return pickle.plain((pickle.run(text, options(reader))), path)
end

-- The storages behind the pickles of a file before 1.6: for each of `keys` its number of elements, then those.
local function find_storages(reader, file, at, keys)
  if type(keys) ~= "table" or keys[0] ~= "list" then reader:fail "the list of storages is damaged" end
  for _, key in ipairs(keys) do
    local storage = reader.storages[key]
    local head = C.io.mapped_text(file, at, 8)
    if not storage or storage.at or #head < 8 then reader:fail "the list of storages is damaged" end
    local count = 0
    for i = 8, 1, -1 do count = count * 256 + head:byte(i) end
    if count ~= storage.count then
      reader:fail("the storage '%s' has %.0f elements, expected %.0f", key, count, storage.count)
    end
    storage.at = at + 8
    at = storage.at + count * (SIZES[storage.dtype] or OTHERS[storage.dtype] or 1)
  end
  for key, storage in pairs(reader.storages) do
    if not storage.at then reader:fail("the storage '%s' is missing", key) end
  end
  return at
end

--- Read a file that torch.save of PyTorch before 1.6 wrote, or a bare pickle.
---@return any
---@return table<string, string> left_out
function torch.load_stream(path)
  local file, size = C.io.mapped(path)
  local reader = new_reader(path, function(self, storage, dtype)
    if not storage.at then self:fail "a tensor in its head, before the storages" end
    local bytes = storage.count * (SIZES[storage.dtype] or 1)
    if bytes % SIZES[dtype] ~= 0 then self:fail("the storage '%s' has half an element", storage.key) end
    return C.io.mapped_tensor(file, storage.at, bytes / SIZES[dtype], dtype)
  end)
  local text, run = C.io.mapped_text(file, 0, MOST), options(reader)
  local value, head, keys
  if text:sub(1, #MAGIC) == MAGIC then
    run.at = #MAGIC + 1
    value, run.at = pickle.run(text, run)
    if value ~= 1001 then reader:fail "a protocol of PyTorch that is not known" end
    value, run.at = pickle.run(text, run)
    head = pickle.plain(value, path)
    if type(head) ~= "table" or head.little_endian ~= true then reader:fail "written on a big-endian machine" end
    value, run.at = pickle.run(text, run)
    keys, run.at = pickle.run(text, run)
    run.at = find_storages(reader, file, run.at - 1, keys) + 1
  else
    run.persistent = function() reader:fail "a bare pickle with objects outside of it" end
    value, run.at = pickle.run(text, run)
  end
  if run.at ~= size + 1 then reader:fail("%.0f bytes after its end", size + 1 - run.at) end
  return pickle.plain(value, path)
end

return torch
