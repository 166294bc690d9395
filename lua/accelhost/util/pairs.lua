--- `pairs` that asks the metatable (`__pairs`), as later versions of Lua do: a Sequential iterates over its items, a
--- ModuleDict over its names.
local plain, getmetatable, type = pairs, getmetatable, type

return function(value)
  local meta = getmetatable(value)
  local own = type(meta) == "table" and meta.__pairs
  if own then return own(value) end
  return plain(value)
end
