--- The kinds of objects that accelerator:prepare accepts.
local C = require "accelhost._C"

local marks = {_is_module = "model", _is_loader = "loader", _is_optimizer = "optimizer", _is_scheduler = "scheduler"}

--- Return a value's kind for an accelerator: "model", "loader", "optimizer" or "scheduler", nil for anything else.
---@return string?
return function(object)
  if type(object) ~= "table" and type(object) ~= "userdata" or C.is_tensor(object) then return nil end
  local meta = getmetatable(object)
  if type(meta) ~= "table" then return nil end
  for mark, kind in pairs(marks) do
    if meta[mark] == true then return kind end
  end
end
