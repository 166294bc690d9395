--- accelhost.utils.checkpoint: memory for time, by the names of torch.utils.checkpoint.
local arguments = require "accelhost.util.arguments"
local namespace = require "accelhost.util.namespace"
local recompute = require "accelhost.recompute"

local checkpoint = {}

--- Activation checkpointing: run fn(...) without keeping its intermediate results, and again during backward. Both runs
--- see the same random numbers and the same autocast, so that the gradients are those of the plain call to the bit. An
--- argument that is changed in place meanwhile, and a second run with other results, are errors.
--
--   local net, x = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 2)), accelhost.ones(4, 3)
--   accelhost.utils.checkpoint.checkpoint(net, x, {use_reentrant = false}):size(1)  --> 2
---@param fn fun(...): ... a function or a module
---@param ... any tensors and other arguments; behind them a table with options: preserve_rng_state (true; false: the
--- second run draws other numbers, for functions that draw none), context_fn (a function that returns two functions,
--- which call their argument in the first and in the second run), and PyTorch's use_reentrant = false,
--- determinism_check = "default", debug = false, early_stop = false, the only supported values. A table without one of
--- these names is an argument of fn
---@return any # the results of fn
function checkpoint.checkpoint(fn, ...)
  arguments.check("checkpoint", "fn", "callable", fn)
  local count = select("#", ...)
  local last = count > 0 and select(count, ...) or nil
  if not recompute.is_options(last) then return recompute.run({}, fn, ...) end
  local given = {...}
  return recompute.run(recompute.check("checkpoint", last), fn, unpack(given, 1, count - 1))
end

-- The functions first to last, one after the other.
local function chain(functions, first, last)
  return function(value)
    for i = first, last do value = functions[i](value) end
    return value
  end
end

--- A Sequential, or a list of functions and modules, in `segments` pieces, of which all but the last are checkpointed.
--
--   local net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
--   accelhost.utils.checkpoint.checkpoint_sequential(net, 2, accelhost.ones(4, 3)):size(1)  --> 2
---@param functions Sequential|function[]
---@param segments integer 1 (nothing is forgotten) to #functions
---@param input any the input of the first of them
---@param options? table as of checkpoint
---@return any # the result of the last one
function checkpoint.checkpoint_sequential(functions, segments, input, options)
  local what = "checkpoint_sequential"
  local count = type(functions) == "table" and #functions or 0
  if count == 0 then
    arguments.fail("%s: functions: expected a Sequential or a list of functions, got %s", what,
      arguments.describe(functions))
  end
  arguments.check(what, "segments", "count", segments)
  if segments > count then
    arguments.fail("%s: segments: expected 1 to %d, the number of functions, got %d", what, count, segments)
  end
  options = recompute.check(what, options or {})
  local size = math.floor(count / segments)
  local first = 1
  for _ = 1, segments - 1 do
    input = recompute.run(options, chain(functions, first, first + size - 1), input)
    first = first + size
  end
  return chain(functions, first, count)(input)
end

return namespace.new("utils.checkpoint", checkpoint, {}, {refused = {
  set_checkpoint_early_stop = "the second run is always whole",
  set_checkpoint_debug_enabled = "accelhost.profiler shows the ops of both runs",
}})
