--- Random numbers for samples.
--
-- While a loader makes a sample, transforms draw from that sample's own stream: a function of the pass's
-- seed, the sample's index in the loader's data set, and the number of times that the pass has met it before. So a run
-- repeats them whatever the number of ranks, threads and workers. The pass's seed is the number that every pass of a
-- loader draws (made of `seed` and epoch, where the loader has a seed). Elsewhere, as in `transform(image)`, they are
-- drawn from the global generator, in the order and by the rules of torchvision's transforms.
local C = require "accelhost._C"
local protect = require "accelhost.util.protect"

local native = C.data
local rng_streams = {}

local sample -- the sample being made: {seed, index, turn, and its stream once something is drawn}

local function finish(before, ...)
  sample = before
  return ...
end

--- Run fn, which makes samples and identifies each by rng_streams.of.
---@param fn fun(...): ...
---@return any ... the results of fn
function rng_streams.during(fn, ...)
  return finish(sample, fn(...))
end

--- Set the sample from whose stream numbers are drawn from now on.
---@param seed userdata the pass's seed
---@param turn integer number of times that the pass has met the sample before
function rng_streams.of(seed, index, turn) sample = {seed, index, turn} end

-- Is a loader making samples? An error in one leaves without a word, so that its traceback is whole.
local function is_during()
  local level = 3
  local frame = debug.getinfo(level, "f")
  while frame and frame.func ~= rng_streams.during do
    level = level + 1
    frame = debug.getinfo(level, "f")
  end
  return frame ~= nil
end

local function source()
  if sample and not is_during() then sample = nil end
  if not sample then return nil end
  sample.stream = sample.stream or native.stream(sample[1], sample[2], sample[3])
  return sample.stream
end

--- A number from low to high, with float32's steps.
---@return number
function rng_streams.uniform(low, high) return native.uniform(source(), low, high) end

--- Draw an event of probability p: does it happen?
---@param p number
function rng_streams.chance(p) return native.chance(source(), p) end

--- A whole number from 0 to n - 1.
---@return integer
function rng_streams.below(n) return native.below(source(), n) end

--- The numbers 0 to n - 1 in a random order.
---@return integer[]
function rng_streams.shuffled(n) return native.shuffled(source(), n) end

--- Return the result of `make`, which may draw whole tensors: within a sample the global generator is the sample's
--- meanwhile.
---@param make fun(): any
function rng_streams.tensors(make)
  local stream = source()
  if not stream then return make() end
  local saved = C.random.get_rng_state()
  C.random.manual_seed(native.stream_seed(stream))
  return protect(function() C.random.set_rng_state(saved) end, make)
end

return rng_streams
