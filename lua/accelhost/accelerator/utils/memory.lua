--- Batch sizes that fit into memory, and the release of memory.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local pack = require "accelhost.util.pack"

local fail = arguments.fail
local memory = {}

--- Was it memory that was missing?
--
--   accelhost.utils.should_reduce_batch_size("empty: out of memory")  --> true
---@param exception any the value of an error
function memory.should_reduce_batch_size(exception)
  local text = tostring(exception)
  return text:find("out of memory", 1, true) ~= nil or text:find("not enough memory", 1, true) ~= nil
end

--- Collect unreferenced objects, and free memory that is cached for the next tensors.
--
--   accelhost.utils.clear_device_cache()
function memory.clear_device_cache()
  collectgarbage() -- its finalizers release tensors; empty_cache collects once more
  C.system.empty_cache()
end

--- Return as many nils as arguments, for the script's own references, and free the memory of the old values.
--
--   a, b = accelhost.utils.release_memory(a, b)
---@param ... any
---@return nil one for each of them
function memory.release_memory(...)
  memory.clear_device_cache()
  return unpack({}, 1, select("#", ...))
end

local function nine_tenths(size) return math.floor(size * 0.9) end

-- Did any process run out of memory? All processes return the same.
local function agree(missing)
  if C.comm.size() == 1 then return missing end
  local flag = C.tensor({missing and 1 or 0}, {device = "cpu"})
  C.comm.all_reduce(flag, "max")
  return flag:item() > 0
end

-- Steps of a window that keep the samples of an optimizer's step at batch size `size` at no less than at first.
local function keep_global_batch(accelerator, first, steps, size)
  if accelerator then accelerator.gradient_accumulation_steps = math.ceil(first * steps / size) end
end

local read = arguments.signature("find_executable_batch_size", {
  "fn: function", {"starting_batch_size: size", 128}, {"reduce_batch_size_fn: callable", nine_tenths}, {"accelerator"},
})

--- A function that calls fn(batch_size, ...) and, as long as memory runs out, calls it again with a smaller batch size,
--- with which its next call begins, too. In a job all processes continue with the same size; they have to run out in
--- the same places, between the same collectives.
--
--   local train = accelhost.find_executable_batch_size(function(batch_size, epochs)
--     return batch_size * epochs
--   end, {starting_batch_size = 64})
--   train(2)  --> 128
---@param fn fun(batch_size: integer, ...): any
---@param reduce_batch_size_fn? fun(batch_size: integer): integer the next size to try; default: nine tenths
---@param accelerator? Accelerator its gradient_accumulation_steps grow, so that a step sees no fewer samples
---@return function # accepts the arguments of fn after the batch size
function memory.find_executable_batch_size(...)
  local fn, first, reduce, accelerator = read(...)
  local info = debug.getinfo(fn, "u")
  local size, steps = first, accelerator and accelerator.gradient_accumulation_steps
  return function(...)
    if not info.isvararg and select("#", ...) + 1 > info.nparams then
      fail("find_executable_batch_size: the function has %d parameters, including the batch size; it was called with "
        .. "%d more (omit the batch size: it is passed automatically)", info.nparams, select("#", ...))
    end
    while true do
      if size == 0 then fail "find_executable_batch_size: no batch size fits into memory: the size has reached 0" end
      memory.clear_device_cache()
      keep_global_batch(accelerator, first, steps, size)
      local results = pack(pcall(fn, size, ...))
      local missing = not results[1] and memory.should_reduce_batch_size(results[2])
      if not results[1] and not missing then error(results[2], 0) end
      if not agree(missing) then return unpack(results, 2, results.n) end
      local smaller = reduce(size)
      if type(smaller) ~= "number" or smaller % 1 ~= 0 or smaller < 0 or smaller >= size then
        fail("find_executable_batch_size: reduce_batch_size_fn: expected an integer from 0 to %d, got %s", size - 1,
          arguments.describe(smaller))
      end
      size = smaller
    end
  end
end

return memory
