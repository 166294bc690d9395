--- Warnings: one line on stderr with the script's line, once per text and process.
local C = require "accelhost._C"
local printable = require "accelhost.util.printable"
local seen = {}

--- Print `text` on stderr unless it was printed before.
return function(text)
  if seen[text] then return end
  seen[text] = true
  io.stdout:flush()
  local where = C.system.call_site()
  io.stderr:write("warning: ", printable.message(text), where ~= "?" and " (" .. where .. ")" or "", "\n")
end
