--- A study is run by one process: a lock on a file in its folder, which the kernel releases when the process ends, in
--- whatever way.
local C = require "accelhost._C"

local lock = {}

--- Acquire the lock.
---@param directory string the study's
---@return table? lock keep it as long as the lock is to hold; nil when another process has it
function lock.take(directory)
  local database = C.sqlite.open(directory .. "/lock", "create")
  database:execute "PRAGMA busy_timeout = 0"
  if pcall(database.execute, database, "BEGIN EXCLUSIVE") then return database end
  database:close()
  return nil
end

--- Does a process run the study?
---@param directory string
---@return boolean
function lock.is_taken(directory)
  if not C.data.look(directory .. "/lock") then return false end
  local taken = lock.take(directory)
  if taken then taken:close() end
  return taken == nil
end

return lock
