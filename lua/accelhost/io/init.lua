--- Saving and loading: tensors and tables of them in files.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local refuse_pointer = require "accelhost.util.git_lfs"
local structure = require "accelhost.io.structure"
local warn = require "accelhost.util.warn"

local fail, describe = arguments.fail, arguments.describe

local files = {}

local NOTE = "accelhost" -- the key of the structure in a safetensors file's metadata

-- Return a tensor in the writers' form: on the CPU, row-major, without a history.
local function plain(tensor)
  return tensor:detach():to("cpu"):contiguous()
end

local function write_safetensors(path, value)
  local names, tensors, text = structure.split("save", value)
  for i = 1, #tensors do tensors[i] = plain(tensors[i]) end
  C.io.write_safetensors(path, names, tensors, {format = "pt", [NOTE] = text})
end

local function write_npy(path, value)
  if not C.is_tensor(value) then fail("save: a .npy file holds one tensor, got %s", describe(value)) end
  C.io.write_npy(path, plain(value))
end

local function write_npz(path, value)
  local names, tensors = {}, {}
  if type(value) ~= "table" or C.is_tensor(value) then
    fail("save: a .npz file holds a table of tensors by name, got %s", describe(value))
  end
  for _, name in ipairs(arguments.sorted_keys(value)) do
    local tensor = value[name]
    if type(name) ~= "string" or not C.is_tensor(tensor) then
      fail("save: a .npz file holds a table of tensors by name, got %s under %s", describe(tensor), describe(name))
    end
    names[#names + 1] = name
  end
  for i, name in ipairs(names) do
    tensors[i] = plain(value[name])
    names[i] = name .. ".npy"
  end
  C.io.write_npz(path, names, tensors)
end

local function write_torch(path, value)
  require("accelhost.io.torch_writer").write(path, value)
end

local writers = {npy = write_npy, npz = write_npz, pt = write_torch, pth = write_torch, bin = write_torch}

local read_save = arguments.signature("save", {"object: any", "path: string"})

--- Keep tensors in a file: a tensor, a state_dict, or nested tables of tensors, numbers, texts and booleans.
--
-- The file is written next to its goal and renamed to it when it is complete and on the disk, so that a reader, or a
-- run that is killed, finds the old content or the new one. Its format is safetensors, which PyTorch and Hugging Face
-- read; a plain table of tensors by name is just that. With a path that ends in .npy or .npz it is NumPy's, with .pt,
-- .pth or .bin PyTorch's (torch.load(path, weights_only=True) reads it). Tensors are kept by value: detached, on no
-- device; those that share memory do so in PyTorch's format only.
--
--   | accelhost.save(net:state_dict(), "model.safetensors")
function files.save(...)
  if type((...)) == "string" and type((select(2, ...))) == "table" then
    fail("save: expected the object first and then the path: save(object, '%s')", (...))
  end
  local object, path = read_save(...)
  local write = writers[(path:match("%.([^./]+)$") or ""):lower()] or write_safetensors
  write(path, object)
end

-- Readers return the value, and its missing parts: {name = reason} of those without a dtype here.

local function load_npy(path)
  return C.io.npy(path), {}
end

local function load_zip(path)
  local archive, names = C.io.zip(path)
  local result, left_out = {}, {}
  for i, name in ipairs(names) do
    local key = name:match("^(.*)%.npy$")
    if not key then return require("accelhost.io.torch").load(path, archive, names) end
    local tensor, reason = C.io.zip_npy(archive, i)
    result[key] = tensor
    if not tensor then left_out[key] = reason:gsub("^npy: ", "") end
  end
  return result, left_out
end

-- Further names of a tensor (tied weights) are in the metadata as {further = first}: safetensors' own convention.
local function load_safetensors(path)
  local tensors, notes, left_out = C.io.safetensors(path)
  for name, first in pairs(notes) do
    if tensors[name] == nil then tensors[name] = tensors[first] end
  end
  return structure.join(notes[NOTE], tensors), left_out
end

-- One line about the parts that a loaded value lacks; an error where nothing else is there.
local function report_left_out(path, value, left_out)
  local names = arguments.sorted_keys(left_out)
  if #names == 0 then return end
  if value == nil or type(value) == "table" and not C.is_tensor(value) and next(value) == nil then
    fail("load: '%s': %s%s", path, names[1] == "" and "" or "'" .. names[1] .. "': ", left_out[names[1]])
  end
  local shown = {}
  for i = 1, math.min(#names, 8) do shown[i] = ("'%s' (%s)"):format(names[i], left_out[names[i]]) end
  if #names > #shown then shown[#shown + 1] = ("and %d more"):format(#names - #shown) end
  warn(("load: '%s': %d of its tensors left out: %s"):format(path, #names, table.concat(shown, ", ")))
end

-- The bytes of a value, tensors in the order of their names.
local function add_bytes(value, path, list)
  if type(value) == "string" then
    list[#list + 1] = value
  elseif C.is_tensor(value) then
    list[#list + 1] = plain(value)
  elseif type(value) == "table" and getmetatable(value) == nil then
    for _, key in ipairs(arguments.sorted_keys(value)) do
      add_bytes(value[key], path == "" and tostring(key) or path .. "." .. tostring(key), list)
    end
  else
    fail("sha256: %s: expected a text, a tensor or a table of them, got %s", path == "" and "value" or path,
      describe(value))
  end
  return list
end

--- The SHA-256 of bytes, as 64 digits: of a text, of a tensor (row-major, little-endian), or of a table of them, one
--- after the other in the order of their keys (numbers first, then names by their bytes).
--
--   accelhost.sha256 "abc"  --> ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
---@param value string|Tensor|table
---@return string
function files.sha256(value)
  return C.io.sha256(add_bytes(value, "", {}))
end

-- By the first bytes, whatever the file is called.
local function reader_of(path)
  local kind, reason = C.data.look(path)
  if kind ~= "file" then
    fail("load: '%s': %s", path, kind == "folder" and "it is a folder" or reason or "there is no such file")
  end
  local file = assert(io.open(path, "rb"))
  local head = file:read(32) or ""
  file:close()
  refuse_pointer("load", path, head)
  if head:sub(1, 2) == "PK" then return load_zip end
  if head:sub(1, 6) == "\147NUMPY" then return load_npy end
  if head:sub(9, 9) == "{" then return load_safetensors end
  if head:sub(1, 1) == "\128" then return require("accelhost.io.torch").load_stream end
  return fail("load: '%s' is in no format that is read here (safetensors, .npy, .npz, .pt), or cut", path)
end

-- The same value with its tensors on a device.
local function moved(value, device, done)
  if C.is_tensor(value) then
    done[value] = done[value] or value:to(device)
    return done[value]
  end
  if type(value) ~= "table" then return value end
  if done[value] then return done[value] end
  local result = {}
  done[value] = result
  for key, item in next, value do result[key] = moved(item, device, done) end
  return result
end

--- Read a file of `save` or of another program: safetensors files, NumPy's .npy and .npz, and files of torch.save with
--- tensors, numbers, texts and containers of them. The content decides, not the name. Nothing in a file is run.
--
-- A file over 64 MiB is mapped, not read: it is opened in no time, and its tensors are views of it. Until they are
-- copied another program may replace it (rename a file over it), but must not write into it: load_state_dict raises an
-- error when that happened, and reading a truncated part ends the process with a line that names the file.
--
-- A tensor of a dtype that does not exist here (float8, complex, NumPy's strings and objects) is left out: a warning
-- names it, and the second result is a table {name = reason}, empty where nothing was left out.
--
--   | local state = accelhost.load "model.safetensors"
---@param map_location string? the device of the tensors, "cpu" without
---@return any value
---@return table<string, string> left_out
files.load = arguments.checked("load", {"path: string", {"map_location: device"}}, function(path, device)
  local value, left_out = reader_of(path)(path)
  report_left_out(path, value, left_out)
  return device and moved(value, device, {}) or value, left_out
end)

return files
