--- Undoing the set-up of a function's run, whether it returned or raised.
local function finish(after, fine, ...)
  after(fine)
  if not fine then error((...), 0) end
  return ...
end

--- Run fn, then after; an error is raised again unchanged.
---@param after fun(fine: boolean)
---@param fn fun(...): ...
---@param ... any fn's arguments
---@return any # the results of fn, nils included
return function(after, fn, ...)
  return finish(after, pcall(fn, ...))
end
