--- Small classes for data sets, samplers and transforms.
local class = {}

--- Make a class: calling it makes an instance and runs its `init`.
---@param name string
---@param parent? table
---@return table
function class.new(name, parent)
  local made = {_name = name}
  made.__index = made
  made.__tostring = parent and parent.__tostring
  made.__call = parent and parent.__call
  function made.extend(self, child) return class.new(child, self) end
  return setmetatable(made, {
    __index = parent,
    __call = function(self, ...)
      local instance = setmetatable({}, self)
      if instance.init then instance:init(...) end
      return instance
    end,
  })
end

--- Is `value` a whole number of at least `least`?
---@param value any
---@param least number
---@return boolean
function class.is_count(value, least)
  return type(value) == "number" and value >= least and value % 1 == 0 and value < 2 ^ 53
end

return class
