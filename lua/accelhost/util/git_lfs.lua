--- Files of a repository that was cloned without Git LFS.
local arguments = require "accelhost.util.arguments"

local HEAD = "version https://git-lfs"

--- Raise if a file's first bytes are those of a pointer, which is there in place of the file.
---@param what string the caller, for messages
---@param head string
return function(what, path, head)
  if head:sub(1, #HEAD) ~= HEAD then return end
  arguments.fail("%s: '%s' is a Git LFS pointer, not the file: run git lfs pull in its folder, or download the file",
    what, path)
end
