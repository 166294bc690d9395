--- Folders for the files that a script writes.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local folders = {}

local read = arguments.signature("makedirs", {"name: string", {"exist_ok: flag", false}})

--- Make a folder and the folders that lead to it, as Python's os.makedirs. In a launched job every process may call it
--- with exist_ok = true.
--
--   | accelhost.utils.makedirs("out/images", {exist_ok = true})
---@param exist_ok? boolean|table false: a folder that is there already is an error
function folders.makedirs(...)
  local name, exist_ok = read(...)
  local found = C.data.look(name)
  if found and not (exist_ok and found == "folder") then
    arguments.fail("makedirs: '%s' exists already%s", name,
      found == "file" and " and is a file" or " (exist_ok = true accepts it)")
  end
  local made, reason = C.io.make_folder(name)
  if not made then arguments.fail("makedirs: %s", reason) end
end

return folders
