--- The present buffers of a prepared model: a forward may replace one by another tensor.
local C = require "accelhost._C"
local class = require "accelhost.util.class"

---@field tensors userdata[] as they were when they were last checked
---@field places table[] where each is found: {module =, name =}, the module held weakly
local Buffers = class.new "Buffers"

---@param model table
function Buffers:init(model)
  self.tensors, self.places = model:buffers(), {}
  local number = {}
  for i, tensor in ipairs(self.tensors) do number[tensor] = i end
  for _, module in ipairs(model:modules()) do
    for _, name in ipairs(module._buffers) do
      local i = number[module._fields[name]]
      if i and not self.places[i] then self.places[i] = setmetatable({module = module, name = name}, {__mode = "v"}) end
    end
  end
end

local function alike(a, b) return C.is_tensor(a) and a.dtype == b.dtype and C.same_shape(a, b) end

--- Check them again; fn(i, tensor) for each that was replaced. A buffer of another shape, as a table that grows with
--- its input, stays each process's own.
---@param fn fun(i: integer, tensor: userdata)
function Buffers:look(fn)
  for i, place in ipairs(self.places) do
    local now = place.module and place.module._fields[place.name]
    if now ~= self.tensors[i] and alike(now, self.tensors[i]) then
      fn(i, now)
      self.tensors[i] = now
    end
  end
end

return Buffers
