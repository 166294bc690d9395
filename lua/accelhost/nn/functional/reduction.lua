--- The reduction of a loss: mean, sum or none.
local reduction = {}

--- The option as a row of a signature.
reduction.row = {"reduction: 'none'|'mean'|'sum'", "mean"}

--- The mean or the sum of the elements, or the elements.
---@param loss userdata
---@param how string "mean", "sum" or "none"
---@return userdata
function reduction.reduce(loss, how)
  if how == "mean" then return loss:mean() end
  if how == "sum" then return loss:sum() end
  return loss
end

--- The same for elements without another reference: their memory is available to the next op at once.
---@param loss userdata
---@param how string "mean", "sum" or "none"
---@return userdata
function reduction.reduce_own(loss, how)
  local result = reduction.reduce(loss, how)
  if how ~= "none" then loss:free() end
  return result
end

return reduction
