--- Call a function and drop its printed text.
---@param fn function
---@return any # fn's results
return function(fn, ...)
  local before = print
  rawset(_G, "print", function() end)
  local results = {pcall(fn, ...)}
  rawset(_G, "print", before)
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end
