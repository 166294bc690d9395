--- The argument of from_pretrained.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

--- Raise unless a path is a folder: users of other libraries pass the name of a model in a hub.
---@param what string the function, for messages
---@return string path
return function(what, path)
  arguments.check(what, "path", "string", path)
  local kind = C.data.look(path)
  if kind ~= "folder" then
    arguments.fail("%s: '%s' is no folder%s; nothing is downloaded: pass the folder of a checkpoint", what, path,
      kind and "" or " (it does not exist)")
  end
  return path
end
