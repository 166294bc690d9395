--- Communication hooks: functions that reduce the buckets of a reducer in place of averaging them.
local C = require "accelhost._C"
local GradBucket = require "accelhost.distributed.bucket"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local work = require "accelhost.distributed.work"

local comm_hook = {}

-- A hook returns a tensor, a future or a work; the bucket is to hold its value.
local function settle(bucket, given)
  local value = given
  if class.is(given, work.Work) then
    value = given:result()
  elseif class.is(given, work.Future) then
    value = given:wait()
  end
  if type(value) == "table" and C.is_tensor(value[1]) then value = value[1] end
  local buffer = bucket:buffer()
  if not C.is_tensor(value) or value:numel() ~= buffer:numel() then
    arguments.fail("register_comm_hook: the hook of bucket %d: expected a tensor of %d elements, a future or a work, "
      .. "got %s", bucket:index(), buffer:numel(), arguments.describe(value))
  end
  if value ~= buffer then buffer:copy_(value:reshape(-1)) end
end

--- Let hook(state, bucket) replace averaging.
---@param hook fun(state: any, bucket: GradBucket): any
---@param before? fun(bucket: GradBucket) called with each bucket before the hook, in the order of their reduction
function comm_hook.install(reducer, state, hook, before)
  local under_way = {}
  reducer:set_hook(function(launched)
    C.autograd.no_grad(function()
      local bucket = GradBucket(reducer, launched)
      if before then before(bucket) end
      under_way[launched] = {bucket, (hook(state, bucket))}
    end)
  end, function(launched)
    local bucket, given = unpack(under_way[launched])
    under_way[launched] = nil
    C.autograd.no_grad(settle, bucket, given)
  end)
end

return comm_hook
