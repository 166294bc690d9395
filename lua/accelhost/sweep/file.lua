--- Reads the file of a sweep. A Lua file is a script that returns its definition; it is trusted as any script is.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local wandb = require "accelhost.sweep.wandb"
local Definition = require "accelhost.sweep.definition"

local file = {}

local function content(path)
  local handle, reason = io.open(path, "rb")
  local text = handle and handle:read "*a"
  if handle then handle:close() end
  if not text then error(("cannot read %s"):format(reason or ("'%s': it is a folder"):format(path)), 0) end
  return text
end

-- A Lua file can also require modules from its own folder.
local function run_lua(path, folder)
  local chunk, reason = loadstring(content(path), "@" .. path)
  if not chunk then error(reason, 0) end
  local place = folder == "" and "." or folder:sub(1, -2)
  if not package.path:find(place .. "/?.lua", 1, true) then
    package.path = ("%s;%s/?.lua;%s/?/init.lua"):format(package.path, place, place)
  end
  return chunk()
end

--- The folder of a path, with a slash at the end, or "".
---@return string
function file.folder_of(path) return path:match "^(.*/)[^/]*$" or "" end

--- Read a definition from its file, unchecked.
---@param path string FILE.lua, FILE.yaml, FILE.yml or FILE.json
---@param note fun(text: string)
---@return table
function file.load(path, note)
  local ending = path:match "%.([^./]+)$"
  if ending == "yaml" or ending == "yml" or ending == "json" then
    local fine, given, reals = pcall(C.yaml.decode, content(path)) -- JSON is YAML
    if not fine then error(("%s: %s"):format(path, given), 0) end
    return wandb.read(given, reals, note)
  end
  if ending ~= "lua" then error(("expected a .lua, .yaml or .json file, got '%s'"):format(path), 0) end
  return run_lua(path, file.folder_of(path))
end

--- Read and check a definition. Errors are one line that begins with the file's name.
---@param overrides? table<string, any> keys of the definition set on the command line
---@param note? fun(text: string)
---@return Definition
function file.read(path, overrides, note)
  local fine, result = pcall(function()
    local given = arguments.copy(file.load(path, note or function() end))
    for name, value in pairs(type(given) == "table" and overrides or {}) do given[name] = value end
    return Definition(given, file.folder_of(path))
  end)
  if fine then return result end
  local text = tostring(result)
  if not text:find(path, 1, true) then text = path .. ": " .. text end
  return error(text, 0)
end

return file
