--- What an accelerator is made with: the constructor's arguments as one table.
local arguments = require "accelhost.util.arguments"

local options = {}

-- The names and kinds of the arguments, in their order; what is not given takes the default.
local rows = {
  {"device_placement: flag", true}, {"split_batches: flag", false}, {"mixed_precision: 'no'", "no"},
  {"gradient_accumulation_steps: count", 1}, {"cpu: flag", false}, {"even_batches: flag", true},
  {"step_scheduler_with_optimizer: flag", true}, {"bucket_cap_mb: positive"},
}

local read = arguments.signature("Accelerator", rows)

--- The arguments by name.
---@return table<string, any>
function options.read(...)
  local values, named = {read(...)}, {}
  for i, row in ipairs(rows) do named[row[1]:match "^[%w_]+"] = values[i] end
  return named
end

return options
