--- Steps that all processes run together, and that fail in all processes together.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local objects = require "accelhost.accelerator.process.objects"

local agree = {}

--- Raise on all processes when one of them has a reason: "save_state: rank 1: the disk is full". A collective.
---@param what string the function
---@param reason string? why this process failed
function agree.reasons(what, reason)
  local reasons, size = objects.all_gather(what, reason or false)
  local first, texts = nil, {}
  for rank = 1, size do
    local text = reasons[rank]
    if text then
      first = first or text
      texts[#texts + 1] = size > 1 and ("rank %d: %s"):format(rank - 1, text) or text
    end
  end
  if not first then return end
  arguments.fail("%s: %s", what, table.concat(texts, "; "))
end

-- Return an error's text without the script's line and the function in front, which are added again later.
local function bare(what, text)
  text = tostring(text)
  local site = C.system.call_site() .. ": "
  if text:sub(1, #site) == site then text = text:sub(#site + 1) end
  if text:sub(1, #what + 2) == what .. ": " then text = text:sub(#what + 3) end
  return text
end

--- Run fn on every process; when it raises on one, all raise, and name that one. A collective.
---@param fn fun(...): any
---@param ... any its arguments
---@return any # the results of fn, at most three
function agree.run(what, fn, ...)
  local fine, a, b, c = pcall(fn, ...)
  agree.reasons(what, not fine and bare(what, a) or nil)
  return a, b, c
end

--- Run fn on rank 0 alone; all return its result, or raise its error. A collective.
---@param fn fun(...): any
---@return any # one value that can be serialized
function agree.main(what, fn, ...)
  local fine, value = true, nil
  if C.comm.rank() == 0 then fine, value = pcall(fn, ...) end
  local answer = objects.broadcast(what, {fine = fine, value = fine and value or nil,
    reason = not fine and bare(what, value) or nil}, 0)
  if not answer.fine then arguments.fail("%s: %s", what, answer.reason) end
  return answer.value
end

return agree
