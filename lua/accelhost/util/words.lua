--- Python's True, False and None are nil here, and an option that is nil has its default: reading them is an error.
local arguments = require "accelhost.util.arguments"

local words = {True = "true", False = "false", None = "nil"}

if getmetatable(_G) == nil then
  setmetatable(_G, {__index = function(_, name)
    if words[name] then arguments.fail("%s is nothing here: write %s", name, words[name]) end
  end})
end

return words
