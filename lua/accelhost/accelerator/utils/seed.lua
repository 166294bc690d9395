--- Generators of the processes.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local comm = C.comm

local seed = {}

--- Seed the global generator and Lua's math.random. All processes draw alike, or each its own numbers.
--
--   accelhost.set_seed(42)
--   accelhost.set_seed(42, {device_specific = true})     -- 42 + the process's index
---@param device_specific? boolean add the process's index
---@param deterministic? boolean no difference here: repeated computations have equal results
seed.set_seed = arguments.checked("set_seed", {
  "seed: size", {"device_specific: flag", false}, {"deterministic: flag", false},
}, function(value, specific)
  if specific then value = value + comm.rank() end
  C.random.manual_seed(value)
  math.randomseed(value % 2 ^ 31)
end)

-- Rank 0's bytes in a state of a generator.
local function shared(state)
  if comm.size() > 1 then comm.broadcast(state, 0) end
  return state
end

--- Broadcast rank 0's state of the global generator ("torch"), or of a generator ("generator"). A collective.
--
--   accelhost.utils.synchronize_rng_state("torch")
seed.synchronize_rng_state = arguments.checked("synchronize_rng_state", {
  {"rng_type: 'torch'|'generator'", "torch"}, {"generator: generator"},
}, function(kind, generator)
  if kind == "torch" then return C.random.set_rng_state(shared(C.random.get_rng_state())) end
  if not generator then arguments.fail "synchronize_rng_state: 'generator' is missing" end
  generator:set_state(shared(generator:get_state()))
end)

--- synchronize_rng_state of several kinds. A collective.
--
--   accelhost.utils.synchronize_rng_states({"torch", "generator"}, accelhost.Generator(1))
---@param rng_types string[]
seed.synchronize_rng_states = arguments.checked("synchronize_rng_states", {
  "rng_types: list", {"generator: generator"},
}, function(kinds, generator)
  for _, kind in ipairs(kinds) do seed.synchronize_rng_state(kind, generator) end
end)

return seed
