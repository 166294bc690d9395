-- A file that only grows, by whole records: each is one write of the system's, so that any reader of the file, and a
-- run that is killed, finds whole ones.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail = arguments.fail

---@field path string
local LogFile = class.new "LogFile"

--- Open it, and make it when it is not there.
---@param what string who writes, for messages
function LogFile:init(what, path)
  self.what, self.path = what, path
  local file, reason = io.open(path, "ab")
  if not file then fail("%s: cannot write %s", what, reason) end
  file:setvbuf "no"
  self.file = file
end

--- Write a record.
function LogFile:append(text)
  if not self.file then fail("%s: '%s' is closed", self.what, self.path) end
  local fine, reason = self.file:write(text)
  if not fine then fail("%s: cannot write '%s': %s", self.what, self.path, reason) end
end

--- Close it; once is enough.
function LogFile:close()
  if self.file then self.file:close() end
  self.file = nil
end

--- Make a folder with all that leads to it.
---@return string path
function LogFile.folder(what, path)
  local fine, reason = C.io.make_folder(path)
  if not fine then fail("%s: %s", what, reason) end
  return path
end

--- A file's content; nil when there is none.
---@return string?
function LogFile.content(what, path)
  if not C.data.look(path) then return nil end
  local file, reason = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  if not text then fail("%s: cannot read '%s': %s", what, path, reason or "is it a folder?") end
  return text
end

return LogFile
