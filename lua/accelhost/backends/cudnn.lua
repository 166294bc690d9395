--- accelhost.backends.cudnn: how CUDA devices compute convolutions, and attention.
local arguments = require "accelhost.util.arguments"
local switches = require "accelhost.backends.switches"

local one_switch = "allow_tf32 is the switch"
local rows = {}

--- May convolutions of float32 be computed in TF32? Default true.
---@names allow_tf32
rows.allow_tf32 = switches.of_host "conv"

--- May cuDNN compute convolutions and attention? Default true; with false convolutions are products of matrices, and
--- attention is computed by the program's own kernels.
---@names enabled
rows.enabled = switches.of_host "cudnn"

-- A switch with a fixed value.
local function always(name, value, reason)
  return {get = function() return value end, set = function(on)
    if on ~= value then arguments.fail("backends.cudnn.%s is always %s: %s", name, tostring(value), reason) end
  end}
end

--- Always true: algorithms that add up in a varying order are not used.
---@names deterministic
rows.deterministic = always("deterministic", true, "algorithms that add up in a varying order are not used")

--- Always false: nothing is timed, cuDNN's heuristics choose.
---@names benchmark
rows.benchmark = always("benchmark", false, "cuDNN's heuristics choose, and their choice is kept for each shape")

return switches.new("backends.cudnn", rows, nil, {
  fp32_precision = one_switch, conv = one_switch, rnn = "recurrent layers are products: backends.cuda.matmul",
  benchmark_limit = "nothing is timed", version = "accelhost env prints the versions of libraries",
  is_available = "convolutions are products of matrices where cuDNN is not there",
  flags = "set the fields, and set them back",
})
