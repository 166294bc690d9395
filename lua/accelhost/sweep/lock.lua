--- A study is run by one process: a lock on a file in its folder, which the kernel releases when the process ends,
--- normally or not.
local C = require "accelhost._C"

local lock = {}

--- Acquire the lock.
---@param directory string the study's
---@return table? lock reference it as long as the lock is needed; nil when another process has it
function lock.acquire(directory)
  local database = C.sqlite.open(directory .. "/lock", "create")
  database:execute "PRAGMA busy_timeout = 0"
  if pcall(database.execute, database, "BEGIN EXCLUSIVE") then return database end
  database:close()
  return nil
end

--- Does a process run the study?
function lock.is_taken(directory)
  if not C.data.look(directory .. "/lock") then return false end
  local acquired = lock.acquire(directory)
  if acquired then acquired:close() end
  return acquired == nil
end

return lock
