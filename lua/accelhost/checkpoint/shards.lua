--- A model's weights in one file or several, with the index of the tensors' files: Hugging Face's layout.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe

local shards = {}

local NAME, INDEX = "model.safetensors", "model.safetensors.index.json"

local units = {
  B = 1, KB = 1e3, MB = 1e6, GB = 1e9, TB = 1e12, KIB = 2 ^ 10, MIB = 2 ^ 20, GIB = 2 ^ 30, TIB = 2 ^ 40,
}

--- Bytes from a number or a text such as "10GB" (10^9), "500MiB".
---@param what string the function and argument, for messages
---@param size integer|string
function shards.bytes(what, size)
  if type(size) == "number" and size >= 1 and size % 1 == 0 then return size end
  local number, unit = tostring(size):match "^%s*([%d.]+)%s*(%a+)%s*$"
  local factor = unit and units[unit:upper()]
  if type(size) ~= "string" or not tonumber(number) or not factor or tonumber(number) * factor < 1 then
    fail("%s: expected a number of bytes or a text such as \"10GB\" or \"500MiB\", got %s", what, describe(size))
  end
  return math.floor(tonumber(number) * factor)
end

local function size_of(tensor) return tensor:numel() * tensor:element_size() end

-- Groups of tensors, in their order, of at most `most` bytes each; a larger tensor is alone.
local function group(names, tensors, most)
  local groups, room = {}, 0
  for i, tensor in ipairs(tensors) do
    local size = size_of(tensor)
    local last = groups[#groups]
    if not last or size > room then
      last = {names = {}, tensors = {}}
      groups[#groups + 1], room = last, most
    end
    last.names[#last.names + 1], last.tensors[#last.tensors + 1] = names[i], tensor
    room = room - size
  end
  return groups
end

-- Is it a name that an earlier call may have written?
local function is_ours(name)
  return name == NAME or name == INDEX or name:find "^model%-%d%d%d%d%d%-of%-%d%d%d%d%d%.safetensors$" ~= nil
end

--- Write weights into a folder: model.safetensors, or model-00001-of-0000N.safetensors and an index. Files of an
--- earlier call that this one does not write are removed at last.
---@param folder string which exists
---@param tensors userdata[] on the CPU, row-major
---@param tied table<string, string> further names of tensors and the first ones
---@param most integer bytes of a file
---@return string[] # the files' names
function shards.write(folder, names, tensors, tied, most)
  local groups = group(names, tensors, most)
  if #groups == 0 then groups[1] = {names = {}, tensors = {}} end
  local weight_map, total, written = {}, 0, {}
  for i, each in ipairs(groups) do
    local name = #groups == 1 and NAME or ("model-%05d-of-%05d.safetensors"):format(i, #groups)
    local notes = {format = "pt"}
    for _, tensor_name in ipairs(each.names) do weight_map[tensor_name] = name end
    for further, first in pairs(tied) do
      if weight_map[first] == name then notes[further] = first end
    end
    C.io.write_safetensors(folder .. "/" .. name, each.names, each.tensors, notes)
    for _, tensor in ipairs(each.tensors) do total = total + size_of(tensor) end
    written[i] = name
  end
  if #groups > 1 then
    local index = C.json.encode({metadata = {total_size = total}, weight_map = weight_map}, 2)
    C.io.write_text(folder .. "/" .. INDEX, index .. "\n")
    written[#written + 1] = INDEX
  end
  local is_written = {}
  for _, name in ipairs(written) do is_written[name] = true end
  for _, name in ipairs(C.data.list_folder(folder)) do
    if is_ours(name) and not is_written[name] then
      local removed, reason = C.io.remove_file(folder .. "/" .. name)
      if not removed then
        fail("%s: it would be loaded in place of the new files; move it to another folder", reason)
      end
    end
  end
  return written
end

-- The only name in a folder that fits.
local function only(what, folder, pattern)
  local found = {}
  for _, name in ipairs(C.data.list_folder(folder)) do
    if name:find(pattern) then found[#found + 1] = name end
  end
  table.sort(found)
  if #found > 1 then fail("%s: '%s' has several indexes: %s", what, folder, table.concat(found, ", ")) end
  return found[1]
end

-- The files that an index names; they are in its folder.
local function files_of(what, path)
  local file, reason = io.open(path, "rb")
  if not file then fail("%s: %s", what, reason) end
  local text = file:read "*a"
  file:close()
  local fine, index = pcall(C.json.decode, text)
  if not fine or type(index) ~= "table" or type(index.weight_map) ~= "table" then
    fail("%s: '%s' is no index of weights (a JSON object with \"weight_map\")", what, path)
  end
  local folder, list, seen = path:match "^(.*/)" or "", {}, {}
  for _, name in ipairs(arguments.sorted_keys(index.weight_map)) do
    local part = index.weight_map[name]
    if type(part) ~= "string" or part:find "/" or part == "" or part:find "^%.%.?$" then
      fail("%s: '%s' has %s for %s, which is no file in its folder", what, path, describe(part), name)
    end
    if not seen[part] then
      seen[part] = true
      list[#list + 1] = folder .. part
    end
  end
  return list
end

--- The files that hold a model's weights: of a file, an index, or a folder that has either.
---@return string[]
function shards.files(what, path)
  local kind, reason = C.data.look(path)
  if not kind then fail("%s: '%s': %s", what, path, reason or "there is no such file or folder") end
  if kind == "file" then return path:find "%.json$" and files_of(what, path) or {path} end
  for _, name in ipairs {NAME, "pytorch_model.bin"} do
    if C.data.look(path .. "/" .. name) == "file" then return {path .. "/" .. name} end
  end
  local index = only(what, path, "%.index%.json$")
  if not index then
    fail("%s: '%s' has neither %s nor pytorch_model.bin nor an index (*.index.json)", what, path, NAME)
  end
  return files_of(what, path .. "/" .. index)
end

return shards
