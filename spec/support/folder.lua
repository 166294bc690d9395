--- A temporary folder of a spec, removed when the sentence ends.
local lfs = require "lfs"

local folder = {}

--- A new, empty one.
---@return string path
function folder.make()
  local path = os.tmpname()
  os.remove(path)
  assert(lfs.mkdir(path))
  return path
end

--- Remove one with all it holds.
---@param path string
function folder.remove(path) os.execute("rm -rf '" .. path .. "'") end

--- Run fn(path) with its path.
---@param fn fun(path: string)
function folder.with(fn)
  local path = folder.make()
  local fine, message = xpcall(fn, debug.traceback, path)
  folder.remove(path)
  if not fine then error(message, 0) end
end

--- Make one the current folder, for calls that may write files under any name.
---@return fun() leave returns to the earlier folder and removes it
function folder.enter()
  local home, path = lfs.currentdir(), folder.make()
  assert(lfs.chdir(path))
  return function()
    assert(lfs.chdir(home))
    folder.remove(path)
  end
end

--- The names in a folder, hidden ones too, sorted.
---@param path string
---@return string[]
function folder.names(path)
  local names = {}
  for name in lfs.dir(path) do
    if name ~= "." and name ~= ".." then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

return folder
