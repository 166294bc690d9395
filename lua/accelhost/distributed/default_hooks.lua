--- Communication hooks that send a bucket unchanged, or in half the bytes.
---@param process_group? ProcessGroup default: the world
local arguments = require "accelhost.util.arguments"
local groups = require "accelhost.distributed.groups"
local work = require "accelhost.distributed.work"

local hooks = {}

-- The group that a hook's state names: a process group, or nothing for the world.
local function group_of(name, state)
  if state ~= nil then arguments.check(name, "state", "group", state) end
  return groups.resolve(name, state)
end

--- Begin to sum a tensor; the future returns it.
---@param group ProcessGroup
---@return Future
function hooks.begin_sum(group, tensor)
  local under_way = group.native:collective("all_reduce", tensor, tensor, {async = true})
  return work.Future(function() return under_way:wait() end, function() return under_way:is_completed() end)
end

--- Average a bucket, as without a hook; each process divides before the sum is formed.
--
--   ddp:register_comm_hook(nil, dist.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook)
---@return Future
function hooks.allreduce_hook(process_group, bucket)
  local group = group_of("allreduce_hook", process_group)
  return hooks.begin_sum(group, bucket:buffer():div_(group:size()))
end

local function compress(name, dtype, process_group, bucket)
  local group, buffer = group_of(name, process_group), bucket:buffer()
  local small = buffer:to(dtype)
  if small == buffer then small = buffer:clone() end
  return hooks.begin_sum(group, small:div_(group:size())):chain(function(sum) return buffer:copy_(sum) end)
end

--- Average a bucket in float16: half the bytes.
--
--   ddp:register_comm_hook(nil, dist.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook)
---@return Future
function hooks.fp16_compress_hook(process_group, bucket)
  return compress("fp16_compress_hook", "float16", process_group, bucket)
end

--- Average a bucket in bfloat16: half the bytes, with the range of float32.
--
--   ddp:register_comm_hook(nil, dist.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook)
---@return Future
function hooks.bf16_compress_hook(process_group, bucket)
  return compress("bf16_compress_hook", "bfloat16", process_group, bucket)
end

-- A bucket whose buffer is another tensor.
local function with_buffer(bucket, buffer)
  return setmetatable({_buffer = buffer, _reducer = bucket._reducer, _index = bucket._index}, getmetatable(bucket))
end

local function wrapper(dtype, hook)
  return function(state, bucket)
    local buffer = bucket:buffer()
    local given = hook(state, with_buffer(bucket, buffer:to(dtype)))
    return work.Future(function()
      local value = given
      if type(given) == "table" and given.result then value = given:result() end
      if type(given) == "table" and given.chain then value = given:wait() end
      return buffer:copy_(value)
    end)
  end
end

--- A hook that passes another one the bucket in float16, and converts its result back. Not for hooks that read
--- bucket:gradients().
--
--   local hooks = dist.algorithms.ddp_comm_hooks.default_hooks
--   ddp:register_comm_hook(nil, hooks.fp16_compress_wrapper(hooks.allreduce_hook))
---@param hook fun(state: any, bucket: GradBucket): any
---@return fun(state: any, bucket: GradBucket): Future
function hooks.fp16_compress_wrapper(hook)
  return wrapper("float16", arguments.check("fp16_compress_wrapper", "hook", "callable", hook))
end

--- As fp16_compress_wrapper, in bfloat16.
--
--   local hooks = dist.algorithms.ddp_comm_hooks.default_hooks
--   ddp:register_comm_hook(nil, hooks.bf16_compress_wrapper(hooks.allreduce_hook))
---@param hook fun(state: any, bucket: GradBucket): any
---@return fun(state: any, bucket: GradBucket): Future
function hooks.bf16_compress_wrapper(hook)
  return wrapper("bfloat16", arguments.check("bf16_compress_wrapper", "hook", "callable", hook))
end

--- Leave every process its own gradients: the time of training without communication.
--
--   ddp:register_comm_hook(nil, dist.algorithms.ddp_comm_hooks.debugging_hooks.noop_hook)
---@param _ any
---@return userdata
function hooks.noop_hook(_, bucket)
  return bucket:buffer()
end

return hooks
