--- The automatic names of checkpoints: PROJECT/checkpoints/checkpoint_N.
local C = require "accelhost._C"

local names = {}

--- The folder of a project's checkpoints.
function names.folder(project_dir) return project_dir .. "/checkpoints" end

--- The path of the checkpoint of a number.
function names.path(project_dir, number)
  return ("%s/checkpoint_%d"):format(names.folder(project_dir), number)
end

--- The number in a checkpoint's path, nil when it is none of this project.
---@return integer?
function names.number(project_dir, path)
  local folder = names.folder(project_dir) .. "/"
  local rest = path:sub(1, #folder) == folder and path:sub(#folder + 1)
  return rest and tonumber(rest:match "^checkpoint_(%d+)/*$")
end

--- The numbers of the checkpoints of a project, the oldest first.
function names.numbers(project_dir)
  local folder, numbers = names.folder(project_dir), {}
  if C.data.look(folder) ~= "folder" then return numbers end
  for _, name in ipairs(C.data.list_folder(folder) or {}) do
    numbers[#numbers + 1] = tonumber(name:match "^checkpoint_(%d+)$")
  end
  table.sort(numbers)
  return numbers
end

--- The number of the next one: beyond all that are there, and at least `least`.
---@param least integer
function names.next(project_dir, least)
  local numbers = names.numbers(project_dir)
  return math.max(least, (numbers[#numbers] or -1) + 1)
end

--- Return the checkpoints to remove once checkpoint `number` is complete, so that `limit` remain: paths, the oldest
--- first.
---@param limit integer?
function names.surplus(project_dir, number, limit)
  local surplus, numbers = {}, names.numbers(project_dir)
  for i = 1, limit and #numbers - limit + 1 or 0 do
    if numbers[i] < number then surplus[#surplus + 1] = names.path(project_dir, numbers[i]) end
  end
  return surplus
end

return names
