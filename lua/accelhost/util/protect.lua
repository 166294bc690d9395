--- Undoing what was set up for a function, whether it returned or raised.
local function finish(after, fine, ...)
  after(fine)
  if not fine then error((...), 0) end
  return ...
end

--- Run fn, then after; an error is raised again unchanged.
---@param after fun(fine: boolean)
---@param fn fun(...): ...
---@param ... any fn's arguments
---@return any # what fn returns, nils included
return function(after, fn, ...)
  return finish(after, pcall(fn, ...))
end
