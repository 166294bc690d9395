--- Saving and loading: tensors and tables of them in files.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local structure = require "accelhost.io.structure"

local fail, describe = arguments.fail, arguments.describe

local files = {}

local NOTE = "accelhost" -- the key of the structure in a safetensors file's metadata

-- As the writers take it: on the CPU, row-major, without a history.
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
  table.sort(names)
  for i, name in ipairs(names) do
    tensors[i] = plain(value[name])
    names[i] = name .. ".npy"
  end
  C.io.write_npz(path, names, tensors)
end

local function refuse_pickle(path)
  fail("save: '%s': PyTorch's own format is a program for Python and is not written; name the file .safetensors "
    .. "(there: safetensors.torch.load_file)", path)
end

local writers = {
  npy = write_npy, npz = write_npz, pt = refuse_pickle, pth = refuse_pickle, bin = refuse_pickle,
}

local read_save = arguments.signature("save", {"object: any", "path: string"})

--- Keep tensors in a file: a tensor, a state_dict, or nested tables of tensors, numbers, texts and booleans.
--
-- The file is written beside its goal and takes its name when it is whole and on the disk, so that a reader, or a run
-- that is killed, finds the old content or the new one. Its format is safetensors, which PyTorch and Hugging Face read;
-- a plain table of tensors by name is just that. With a path that ends in .npy or .npz it is NumPy's. Tensors are kept
-- by value: detached, row-major, on no device.
--
--   | accelhost.save(net:state_dict(), "model.safetensors")
---@param object any
---@param path string
function files.save(...)
  if type((...)) == "string" and type((select(2, ...))) == "table" then
    fail("save: the object comes first and then the path: save(object, '%s')", (...))
  end
  local object, path = read_save(...)
  local write = writers[(path:match("%.([^./]+)$") or ""):lower()] or write_safetensors
  write(path, object)
end

local function load_zip(path)
  local archive, names = C.io.zip(path)
  local result = {}
  for i, name in ipairs(names) do
    local key = name:match("^(.*)%.npy$")
    if not key then return require("accelhost.io.torch").load(path, archive, names) end
    result[key] = C.io.zip_npy(archive, i, path)
  end
  return result
end

-- Further names of a tensor (tied weights) stand in the metadata as {further = first}: safetensors' own convention.
local function load_safetensors(path)
  local tensors, notes = C.io.safetensors(path)
  for name, first in pairs(notes) do
    if tensors[name] == nil then tensors[name] = tensors[first] end
  end
  return structure.join(notes[NOTE], tensors)
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
  local head = file:read(9) or ""
  file:close()
  if head:sub(1, 2) == "PK" then return load_zip end
  if head:sub(1, 6) == "\147NUMPY" then return C.io.npy end
  if head:sub(9) == "{" then return load_safetensors end
  if head:sub(1, 1) == "\128" then
    fail("load: '%s' is a bare pickle (PyTorch before 1.6 wrote such files): load and save it once with a newer one",
      path)
  end
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

local read_load = arguments.signature("load", {"path: string", {"map_location: device"}})

--- Read what `save` wrote, or another program: safetensors files, NumPy's .npy and .npz, and what torch.save made of
--- tensors, numbers, texts and containers of them. The content decides, not the name. Nothing in a file is run.
--
-- A file over 64 MiB is mapped, not read: it is opened in no time, and its tensors lie in it. Until they are copied
-- another program may replace it (rename a file over it), but must not write into it: load_state_dict raises an error
-- when that happened, and reading what was cut off ends the process with a line that names the file.
--
--   | local state = accelhost.load "model.safetensors"
---@param path string
---@param map_location string? the device of the tensors, "cpu" without
---@return any
function files.load(...)
  local path, device = read_load(...)
  local value = reader_of(path)(path)
  return device and moved(value, device, {}) or value
end

return files
