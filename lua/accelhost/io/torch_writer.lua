--- Write PyTorch's zip format: a pickle that holds tensors, numbers, texts, booleans and containers of them, and the
--- storages. torch.load(path, weights_only=True) reads it.
--
-- Tables with the keys 1..n are lists, others are dicts; whole numbers up to 2^53 are ints. Tensors that share memory
-- share a storage, of which the part from their first to their last element is written; a tensor or table that is there
-- twice is one object in Python too.
-- https://pytorch.org/docs/stable/notes/serialization.html
local C = require "accelhost._C"
local ffi = require "ffi"
local arguments = require "accelhost.util.arguments"
local structure = require "accelhost.io.structure"
local serialize = require "accelhost.util.serialize"

local fail = arguments.fail

local torch_writer = {}

local FOLDER = "archive/" -- as PyTorch calls it in files without a name
local DEEPEST = 200

local STORAGES = {
  float64 = "DoubleStorage", float32 = "FloatStorage", float16 = "HalfStorage", bfloat16 = "BFloat16Storage",
  int64 = "LongStorage", int32 = "IntStorage", int16 = "ShortStorage", int8 = "CharStorage", uint8 = "ByteStorage",
  bool = "BoolStorage",
}

local Writer = {}
Writer.__index = Writer

--- The extent of a tensor in its storage, in elements: its first one and the one after its last.
local function extent(tensor)
  local first = tensor:storage_offset()
  local last, stride = first, tensor:stride()
  for d, size in ipairs(tensor:shape()) do
    if size == 0 then return first, first end
    last = last + (size - 1) * stride[d]
  end
  return first, last + 1
end

--- Note a tensor as part of its storage.
function Writer:collect_tensor(value)
  if self.part_of[value] then return end
  local tensor = value:detach()
  local first, stop = extent(tensor)
  local by_dtype = self.groups[tensor.dtype] or {}
  self.groups[tensor.dtype] = by_dtype
  local key = C.storage_key(tensor)
  local group = stop > first and by_dtype[key]
  if group then
    group.first, group.stop = math.min(group.first, first), math.max(group.stop, stop)
    group.count = group.count + 1
  else
    group = {first = first, stop = stop, count = 1, dtype = tensor.dtype, base = tensor}
    by_dtype[key] = group
  end
  self.part_of[value] = {group = group, tensor = tensor}
end

--- Find the tensors of a value, and the values that a file cannot hold.
function Writer:collect(value, path, depth)
  local kind = serialize.kind(value)
  if kind == "tensor" then return self:collect_tensor(value) end
  if kind == "scalar" then return end
  if not kind then structure.refuse("save", path, value) end
  if depth > DEEPEST then fail("save: '%s': tables nested deeper than %d", path, DEEPEST) end
  if self.seen[value] then return end
  self.seen[value] = true
  for key, item in next, value do
    if serialize.kind(key) ~= "scalar" then structure.refuse("save", path, key) end
    self:collect(item, path == "" and tostring(key) or path .. "." .. tostring(key), depth + 1)
  end
end

--- Add bytes to the pickle.
function Writer:put(...)
  for i = 1, select("#", ...) do self.parts[#self.parts + 1] = (select(i, ...)) end
end

local function little_endian(kind, value) return ffi.string(ffi.new(kind .. "[1]", value), ffi.sizeof(kind)) end

--- Have the pickle remember the value on top of its stack as this one.
function Writer:remember(value)
  local index = self.memo_count
  self.memo[value], self.memo_count = index, index + 1
  if index < 256 then self:put("q", string.char(index)) else self:put("r", little_endian("uint32_t", index)) end
end

--- Write a value that the pickle remembers; false where it does not.
function Writer:recall(value)
  local index = self.memo[value]
  if not index then return false end
  if index < 256 then self:put("h", string.char(index)) else self:put("j", little_endian("uint32_t", index)) end
  return true
end

--- Write a name of Python, or a text that occurs often; remembered as `opcodes`.
function Writer:constant(opcodes)
  if self:recall(opcodes) then return end
  self:put(opcodes)
  self:remember(opcodes)
end

local function text_opcodes(text) return "X" .. little_endian("uint32_t", #text) .. text end

local function global(module, name) return "c" .. module .. "\n" .. name .. "\n" end

--- Write a text; bytes that are not UTF-8 are Python's bytes, as protocol 2 has them.
function Writer:text(text)
  if #text >= 2 ^ 31 then fail("save: a text of %d bytes, at most 2^31 - 1 are possible", #text) end
  if C.events.is_utf8(text) then return self:put(text_opcodes(text)) end
  self:constant(global("_codecs", "encode"))
  self:put(text_opcodes((text:gsub("[\128-\255]", function(byte)
    local code = byte:byte()
    return string.char(192 + math.floor(code / 64), 128 + code % 64)
  end))))
  self:constant(text_opcodes "latin1")
  self:put("\134R")
end

--- Write a number.
function Writer:number(value)
  if value ~= math.floor(value) or math.abs(value) > 2 ^ 53 or (value == 0 and 1 / value < 0) then
    self:put("G", little_endian("double", value):reverse())
  elseif value >= 0 and value < 256 then
    self:put("K", string.char(value))
  elseif value >= 0 and value < 65536 then
    self:put("M", little_endian("uint16_t", value))
  elseif value >= -2 ^ 31 and value < 2 ^ 31 then
    self:put("J", little_endian("int32_t", value))
  else
    self:put("\138\8", little_endian("int64_t", value))
  end
end

--- Write a tuple of numbers.
function Writer:tuple(list)
  self:put "("
  for _, number in ipairs(list) do self:number(number) end
  self:put "t"
end

--- The elements of a group as a row on the CPU, and the number of its storage; the first time it is made.
function Writer:storage(group)
  if not group.number then
    group.number = #self.storages
    -- A single tensor with gaps between its elements is written without them.
    local gaps = group.count == 1 and group.stop - group.first > group.base:numel()
    if gaps then group.dense = group.base:contiguous() end
    local row = group.dense and group.dense:view(-1)
      or C.as_strided(group.base, {group.stop - group.first}, {1}, group.first)
    self.storages[#self.storages + 1] = row:to("cpu"):contiguous()
    group.length = group.stop - group.first
    if group.dense then group.length = group.dense:numel() end
  end
  return group.number
end

--- Write a tensor: _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), or, of dtypes without a
--- storage class, _rebuild_tensor_v3(..., dtype).
function Writer:tensor(value)
  if self:recall(value) then return end
  local part = self.part_of[value]
  local group, tensor = part.group, part.tensor
  local number, typed = self:storage(group), STORAGES[group.dtype]
  if group.dense then tensor = group.dense end
  self:constant(global("torch._utils", typed and "_rebuild_tensor_v2" or "_rebuild_tensor_v3"))
  self:put "(("
  self:constant(text_opcodes "storage")
  self:constant(typed and global("torch", typed) or global("torch.storage", "UntypedStorage"))
  self:text(tostring(number))
  self:constant(text_opcodes "cpu")
  self:number(typed and group.length or group.length * tensor:element_size())
  self:put "tQ"
  self:number(group.dense and 0 or tensor:storage_offset() - group.first)
  self:tuple(tensor:shape())
  self:tuple(tensor:stride())
  self:put "\137"
  self:constant(global("collections", "OrderedDict"))
  self:put ")R"
  if not typed then self:constant(global("torch", group.dtype)) end
  self:put "tR"
  self:remember(value)
end

--- Write a table.
function Writer:table(value)
  if self:recall(value) then return end
  local array = structure.is_array(value)
  self:put(array and "]" or "}")
  self:remember(value)
  self:put "("
  if array then
    for i = 1, #value do self:value(value[i]) end
  else
    for _, key in ipairs(structure.sorted_keys(value)) do
      self:value(key)
      self:value(value[key])
    end
  end
  self:put(array and "e" or "u")
end

--- Write any value.
function Writer:value(value)
  local kind = type(value)
  if C.is_tensor(value) then
    self:tensor(value)
  elseif kind == "table" then
    self:table(value)
  elseif kind == "number" then
    self:number(value)
  elseif kind == "string" then
    self:text(value)
  else
    self:put(value and "\136" or "\137")
  end
end

--- Write a file that torch.load reads.
---@param value any tensors, numbers, texts, booleans and tables of them
function torch_writer.write(path, value)
  local writer = setmetatable({
    parts = {"\128\2"}, memo = {}, memo_count = 0, groups = {}, part_of = {}, seen = {}, storages = {},
  }, Writer)
  writer:collect(value, "", 1)
  writer:value(value)
  writer:put "."
  -- Without PyTorch's ".format_version", which promises the offsets of PyTorch's zip writer.
  local names, contents = {"data.pkl", "byteorder"}, {table.concat(writer.parts), "little"}
  for i, storage in ipairs(writer.storages) do
    names[#names + 1], contents[#contents + 1] = "data/" .. i - 1, storage
  end
  names[#names + 1], contents[#contents + 1] = "version", "3\n"
  for i, name in ipairs(names) do names[i] = FOLDER .. name end
  C.io.write_zip(path, names, contents)
end

return torch_writer
