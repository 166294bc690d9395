-- A save meets a full disk at each of the calls by which it writes, and is killed at each of them: the state
-- afterwards is the old one or the new one, the new one if save_state succeeded, the old one if it reported a full
-- disk, and after a failure nothing else is left.
local faults = require "spec.support.faults"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local library = run.path:match "^(.*)/" .. "/fail_calls.so"
local case = "spec/slow/cases/save_twice.lua"
local tally = faults.tally()

local function trial(how, kills, at)
  local dir = folder.make()
  local env = {FAIL_ARMED = dir .. "/armed", FAIL_AT = at, FAIL_KILL = kills and "1" or false, LD_PRELOAD = library}
  local result = run.host({case, dir, "save", how}, {env = env, timeout = 30})
  os.remove(dir .. "/armed")
  local found = run.host({case, dir, "load", how}, {timeout = 30})
  local left = {}
  for _, place in ipairs {dir, dir .. "/checkpoints"} do
    for _, name in ipairs(require("lfs").attributes(place) and folder.names(place) or {}) do
      if name:find "^%." then left[#left + 1] = name end
    end
  end
  folder.remove(dir)
  local call = result.stderr:match "%[(%w+)%]"
  local said = result.stdout:match "^(%a+)"
  local state = found.stdout:match "^(%a+)\n$"
  local problem
  if not state then
    problem = "nothing can be loaded: " .. found.stderr
  elseif said == "true" and state ~= "new" then
    problem = "it reported success"
  elseif said == "false" and state ~= "old" and call ~= "fsync" then
    problem = "it reported a failure"
  elseif said == "false" and not result.stdout:find("No space left on device", 1, true) then
    problem = "another reason"
  elseif said and #left > 0 and call ~= "unlinkat" and call ~= "fsync" then
    problem = "left " .. table.concat(left, ", ")
  elseif not kills and not said then
    problem = "it ended"
  end
  tally:add(("%s, %s"):format(how, kills and "killed" or "no room"), problem,
    {code = result.code, text = ("call %d, %s: %s"):format(at, tostring(call), result.output)})
  return call ~= nil
end

for _, how in ipairs {"automatic", "named"} do
  for _, kills in ipairs {false, true} do
    local at = 1
    while trial(how, kills, at) do at = at + 1 end
  end
end
tally:conclude()
