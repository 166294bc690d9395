--- Lists of hooks that are never changed, only replaced: a hook may add and remove hooks while its list is read.
local hook_list = {}

--- A list without an entry.
---@param list table[]
---@param entry? table
function hook_list.without(list, entry)
  local kept = {}
  for _, other in ipairs(list) do
    if other ~= entry then kept[#kept + 1] = other end
  end
  return kept
end

--- A list with an entry, behind the others or before them.
---@param list table[]
---@param prepend? boolean
---@return table[]
function hook_list.with(list, entry, prepend)
  local more = hook_list.without(list)
  table.insert(more, prepend and 1 or #more + 1, entry)
  return more
end

return hook_list
