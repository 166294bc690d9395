--- Programs that chunks start: while one of os.execute runs Ctrl-C is for that alone; one that it has ended ends the
--- chunk too.
local C = require "accelhost._C"

--- Watch os.execute from now on.
return function()
  local execute = os.execute
  rawset(os, "execute", function(...)
    local status = execute(...)
    if type(status) == "number" and status % 128 == 2 then C.interrupt.press() end
    return status
  end)
end
