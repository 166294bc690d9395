--- Values as files of a checkpoint and back: safetensors where there are tensors, else JSON. Nothing in them is run.
local C = require "accelhost._C"
local io_structure = require "accelhost.io.structure"
local files = require "accelhost.io"

local stored = {}

local NOTE = "accelhost" -- as accelhost.save names the structure in a file's metadata

--- A tensor in the form for a file: on the CPU, row-major, without a history; `copied`: separate memory in any case.
---@param copied boolean?
---@return userdata
function stored.plain(tensor, copied)
  local result = tensor:detach():to("cpu"):contiguous()
  return copied and result:clone() or result
end

local function file_of(name, names, tensors, notes, copied)
  local kept = {}
  for i, tensor in ipairs(tensors) do kept[i] = stored.plain(tensor, copied) end
  return {name = name .. ".safetensors", names = names, tensors = kept, notes = notes}
end

--- A value (tensors, numbers, texts, booleans and tables of them) as a file for C.saver.
---@param name string of the file, without its ending
---@param copied boolean? copy the tensors: they may change before they are written
---@return table
function stored.file(what, name, value, copied)
  local names, tensors, text = io_structure.split(what, value)
  if #names == 0 then return {name = name .. ".json", text = (text or "{}") .. "\n"} end
  return file_of(name, names, tensors, {format = "pt", [NOTE] = text}, copied)
end

-- Is it a table of nothing but tensors by name?
local function is_plain(state)
  for name, value in pairs(state) do
    if type(name) ~= "string" or not C.is_tensor(value) then return false end
  end
  return true
end

--- The tensors of a state dict, each once: names, tensors, and for each further name of a tensor the one it is kept
--- under (safetensors' own rule for tied weights: metadata {further = first}).
---@param ordered fun(): string, userdata the state's names and tensors in order
---@return string[] names, userdata[] tensors, table<string, string> tied
function stored.unique(ordered)
  local names, tensors, tied, first = {}, {}, {}, {}
  for name, tensor in ordered do
    if first[tensor] then
      tied[name] = first[tensor]
    else
      first[tensor] = name
      names[#names + 1], tensors[#tensors + 1] = name, tensor
    end
  end
  return names, tensors, tied
end

--- A state dict as a file; a tensor that has several names (tied weights) is written once.
---@param state table as state_dict{keep_vars = true} returns it
---@param ordered fun(): string, any its names and values in order
---@param copied boolean?
---@return table
function stored.state(what, name, state, ordered, copied)
  if not is_plain(state) or next(state) == nil then return stored.file(what, name, state, copied) end
  local names, tensors, notes = stored.unique(ordered)
  notes.format = "pt"
  return file_of(name, names, tensors, notes, copied)
end

--- Read a file that `file` or `state` wrote.
---@param list table<string, any> the files that the folder has, by name
---@param name string without its ending
---@return any # nil when there is no such file
function stored.read(folder, list, name)
  if list[name .. ".safetensors"] then return files.load(folder .. "/" .. name .. ".safetensors") end
  if not list[name .. ".json"] then return nil end
  local file = assert(io.open(folder .. "/" .. name .. ".json", "rb"))
  local text = file:read "*a"
  file:close()
  return io_structure.join(text, {})
end

return stored
