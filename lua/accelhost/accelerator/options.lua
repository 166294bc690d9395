--- What an accelerator is made with: the constructor's arguments as one table.
local arguments = require "accelhost.util.arguments"
local launched = require "accelhost.util.launched"

local options = {}

-- The names and kinds of the arguments, in their order; what is not given takes the default. What has none here may be
-- told by the launcher.
local rows = {
  {"device_placement: flag", true}, {"split_batches: flag", false}, {"mixed_precision: 'no'"},
  {"gradient_accumulation_steps: count"}, {"cpu: flag"}, {"even_batches: flag", true},
  {"step_scheduler_with_optimizer: flag", true}, {"bucket_cap_mb: positive"},
}

local launch_defaults = {mixed_precision = "no", gradient_accumulation_steps = 1, cpu = false}

local read = arguments.signature("Accelerator", rows)

--- The arguments by name.
---@return table<string, any>
function options.read(...)
  local values, named = {read(...)}, {}
  for i, row in ipairs(rows) do
    local name, kind = row[1]:match "^([%w_]+): (.*)$"
    local default = launch_defaults[name]
    named[name] = values[i]
    if default ~= nil then named[name] = launched.settle("Accelerator", name, kind, values[i], default) end
  end
  return named
end

return options
