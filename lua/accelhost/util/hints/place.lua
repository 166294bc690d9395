--- The place where a script failed: its lines and the values of its variables.
local C = require "accelhost._C"

local place = {}

--- The sources of the chunks that no file holds, by chunk name: `-e` and piped scripts (stored by
--- host/cli/process/host.c) and the lines of a prompt.
---@return table<string, string>
function place.sources()
  local registry = debug.getregistry()
  local sources = registry["accelhost.chunk_sources"] or {}
  registry["accelhost.chunk_sources"] = sources
  return sources
end

-- The text of a chunk: the stored one, or its file's.
local function open_source(source)
  local kept = place.sources()[source]
  if kept then return kept end
  local path = source:match "^@(.+)$"
  local file = path and io.open(path)
  if not file then return nil end
  local text = file:read(2 ^ 22)
  file:close()
  return text
end

--- The lines of a chunk up to one, nil when its text cannot be had.
---@param source string as Lua names chunks
---@param last integer
---@return string[]?
function place.lines(source, last)
  local text, lines = open_source(source), {}
  if not text then return nil end
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    lines[#lines + 1] = line
    if #lines == last then break end
  end
  return lines
end

--- One line of a chunk.
---@return string?
function place.line(source, number)
  local lines = place.lines(source, number)
  return lines and lines[number]
end

-- Return name -> value for the variables in a function's scope: its locals over its upvalues over the globals.
local function variables_at(level, func)
  local seen = {}
  for i = 1, math.huge do
    local name, value = debug.getupvalue(func, i)
    if not name then break end
    seen[name] = {value}
  end
  for i = 1, math.huge do
    local name, value = debug.getlocal(level + 1, i)
    if not name then break end
    seen[name] = {value}
  end
  return function(name)
    local found = seen[name]
    if found then return found[1] end
    return rawget(_G, name)
  end, seen
end

--- A frame of the script, 1 is the innermost; levels count from the caller of this function.
---@return {line: string, lines: string[], value_of: (fun(name: string): any), seen: table}?
function place.find(number)
  for level = 2, math.huge do
    local info = debug.getinfo(level, "Slf")
    if not info then return nil end
    if info.currentline > 0 and not info.source:find("^=accelhost/") then
      number = number - 1
      if number == 0 then
        local value_of, seen = variables_at(level, info.func)
        local lines = place.lines(info.source, info.currentline) or {}
        return {line = lines[info.currentline] or "", lines = lines, value_of = value_of, seen = seen}
      end
    end
  end
end

--- A field of any value, nil when asking raises.
function place.field(value, key)
  local kind = type(value)
  if kind ~= "table" and kind ~= "userdata" and kind ~= "string" then return nil end
  local fine, found = pcall(function() return value[key] end)
  return fine and found or nil
end

--- The value of "model.layers" where the script failed.
---@param at table from place.find
function place.resolve(at, path)
  local value, first = nil, true
  for name in path:gmatch "[%w_]+" do
    if first then value, first = at.value_of(name), false else value = place.field(value, name) end
    if value == nil then return nil end
  end
  return value
end

--- Is the value an object: with methods, called with a colon?
function place.is_object(value)
  if C.is_tensor(value) then return true end
  local meta = (type(value) == "table" or type(value) == "userdata") and getmetatable(value)
  return type(meta) == "table" and meta._class ~= nil
end

return place
