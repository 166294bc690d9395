--- The cells that ran, in this session and in earlier ones: a file with a line of JSON per cell.
local C = require "accelhost._C"
local json = require "accelhost.util.json"
local text = require "accelhost.jupyter.text"

local history = {}

local MOST, MOST_BYTES = 1000, 4 * 2 ^ 20 -- cells that the file keeps; bytes of it that are read

-- Return the path of the file: nil without a home.
local function file_path()
  local state, home = os.getenv "XDG_STATE_HOME", os.getenv "HOME"
  if (state or "") == "" then state = (home or "") ~= "" and home .. "/.local/state" or nil end
  return state and state .. "/accelhost/notebook_history"
end

-- Read the entries of the file: {session, line, input}; damaged lines are passed over.
local function read(path)
  local entries, file = {}, io.open(path, "rb")
  if not file then return entries end
  local bytes = file:seek "end"
  file:seek("set", math.max(0, bytes - MOST_BYTES))
  for line in file:lines() do
    local fine, entry = pcall(json.decode, line)
    if fine and type(entry) == "table" and type(entry[1]) == "number" and type(entry[2]) == "number"
      and type(entry[3]) == "string" then
      entries[#entries + 1] = entry
    end
  end
  file:close()
  return entries
end

local function quoted(path) return "'" .. path:gsub("'", "'\\''") .. "'" end

-- Make the file for this user alone, as the prompt's.
local function make(path)
  local file = io.open(path, "rb")
  if file then return file:close() end
  os.execute("umask 077; : >> " .. quoted(path))
end

local function write(path, entries, first)
  local lines = {}
  for i = first, #entries do lines[#lines + 1] = json.encode(json.array(entries[i])) .. "\n" end
  C.io.write_text(path, table.concat(lines))
  os.execute("chmod 600 " .. quoted(path))
end

--- Open the history of a new session.
function history.open()
  local self = {path = file_path(), entries = {}, outputs = {}, session = 1}
  if self.path then
    local fine = pcall(C.io.make_folder, (self.path:match "^(.*)/"))
    if not fine then self.path = nil end
  end
  if self.path then make(self.path) end
  if self.path then
    self.entries = read(self.path)
    for _, entry in ipairs(self.entries) do self.session = math.max(self.session, entry[1] + 1) end
    if #self.entries > 2 * MOST then pcall(write, self.path, self.entries, #self.entries - MOST + 1) end
  end
  return self
end

--- Add a cell.
---@param line integer its number
---@param input string
function history.add(self, line, input)
  local entry = {self.session, line, text.utf8(input)}
  self.entries[#self.entries + 1] = entry
  local file = self.path and io.open(self.path, "ab")
  if not file then return end
  file:write(json.encode(json.array(entry)) .. "\n")
  file:close()
end

--- Keep the text of a cell's result.
---@param output string
function history.add_output(self, line, output) self.outputs[line] = output end

local function matches(input, pattern)
  local lua = "^" .. pattern:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$"
  return input:find(lua) ~= nil
end

-- Functions that return the entries of a request and the most that are wanted.
local select_entries = {}

select_entries.tail = function(self, request) return self.entries, request.n or 10 end

-- A range of one session; 0 is this one, and negative ones are those before it.
select_entries.range = function(self, request)
  local session, found = request.session or 0, {}
  if session <= 0 then session = self.session + session end
  for _, entry in ipairs(self.entries) do
    if entry[1] == session and entry[2] >= (request.start or 1) and entry[2] < (request.stop or math.huge) then
      found[#found + 1] = entry
    end
  end
  return found, math.huge
end

select_entries.search = function(self, request)
  local found, seen = {}, {}
  for i = #self.entries, 1, -1 do
    local entry = self.entries[i]
    if matches(entry[3], request.pattern or "*") and not (request.unique and seen[entry[3]]) then
      table.insert(found, 1, entry)
      seen[entry[3]] = true
    end
  end
  return found, request.n or math.huge
end

--- Answer a history_request.
---@param request table
---@return table # the list of {session, line, input} or {session, line, {input, output}}
function history.answer(self, request)
  local choose = select_entries[request.hist_access_type]
  local list = json.array {}
  if not choose then return list end
  local entries, most = choose(self, request)
  for i = math.max(1, #entries - most + 1), #entries do
    local session, line, input = unpack(entries[i])
    local output = session == self.session and self.outputs[line] or json.null
    list[#list + 1] = json.array {session, line, request.output and json.array {input, output} or input}
  end
  return list
end

return history
