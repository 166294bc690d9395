--- A file of functions that is loaded when one of them is first used: for functions that many scripts could use and few
--- do.
--
--   local manifest = later "accelhost.checkpoint.manifest"
---@param name string of the module, a table of functions
---@return table
return function(name)
  return setmetatable({}, {__index = function(self, key)
    local value = require(name)[key]
    rawset(self, key, value)
    return value
  end})
end
