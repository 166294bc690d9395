--- Generators of the processes.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local comm = C.comm

local seed = {}

local read_seed = arguments.signature("set_seed",
  {"seed: size", {"device_specific: flag", false}, {"deterministic: flag", false}})

--- Seed the global generator and Lua's math.random. All processes draw alike, or each its own numbers.
--
--   accelhost.set_seed(42)
--   accelhost.set_seed(42, {device_specific = true})     -- 42 + the process's index
---@param device_specific? boolean add the process's index
---@param deterministic? boolean no difference here: repeated computations have equal results
function seed.set_seed(...)
  local value, specific = read_seed(...)
  if specific then value = value + comm.rank() end
  C.random.manual_seed(value)
  math.randomseed(value % 2 ^ 31)
end

-- Rank 0's bytes in a state of a generator.
local function shared(state)
  if comm.size() > 1 then comm.broadcast(state, 0) end
  return state
end

local read_state = arguments.signature("synchronize_rng_state",
  {{"rng_type: 'torch'|'generator'", "torch"}, {"generator: generator"}})

--- Broadcast rank 0's state of the global generator ("torch"), or of a generator ("generator"). A collective.
--
--   accelhost.utils.synchronize_rng_state("torch")
function seed.synchronize_rng_state(...)
  local kind, generator = read_state(...)
  if kind == "torch" then return C.random.set_rng_state(shared(C.random.get_rng_state())) end
  if not generator then arguments.fail "synchronize_rng_state: 'generator' is missing" end
  generator:set_state(shared(generator:get_state()))
end

local read_states = arguments.signature("synchronize_rng_states", {"rng_types: list", {"generator: generator"}})

--- synchronize_rng_state of several kinds. A collective.
--
--   accelhost.utils.synchronize_rng_states({"torch", "generator"}, accelhost.Generator(1))
---@param rng_types string[]
function seed.synchronize_rng_states(...)
  local kinds, generator = read_states(...)
  for _, kind in ipairs(kinds) do seed.synchronize_rng_state(kind, generator) end
end

return seed
