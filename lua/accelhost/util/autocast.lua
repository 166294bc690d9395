--- Functions made of ops that autocast runs in one precision as a whole, as it does with the rows of
--- host/ops/schema/autocast.def.
local C = require "accelhost._C"
local is_enabled, call = C.autocast.is_enabled, C.autocast.call

--- Mark functions of a table: within an autocast block their tensors are cast first, and autocast is off inside.
---@param functions table
---@param rule string "lower": in the block's dtype; "float32"; "widest" of their dtypes; "own": unchanged; "none"
---@param names string between blanks
---@param cuda_rule? string the rule for tensors of CUDA; default: the same
return function(functions, rule, names, cuda_rule)
  for name in names:gmatch "%S+" do
    local fn = functions[name]
    functions[name] = function(...)
      if not is_enabled() then return fn(...) end
      return call(rule, cuda_rule or rule, fn, ...)
    end
  end
end
