--- The bucket that a communication hook is given: gradients that are averaged together.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local GradBucket = class.new "GradBucket"

--- Gradients that are averaged together, as a communication hook gets them. Its memory is that of the gradients
--- themselves; there may be zeros between two of them.
function GradBucket:init(reducer, index)
  if type(reducer) ~= "userdata" or C.is_tensor(reducer) then
    arguments.fail("GradBucket: register_comm_hook passes them to its hook")
  end
  self._reducer, self._index = reducer, index
end

--- The gradients as one tensor [n].
--
--   ddp:register_comm_hook(nil, function(_, bucket) return bucket:buffer() end)
---@return userdata
function GradBucket:buffer()
  self._buffer = self._buffer or self._reducer:bucket(self._index)
  return self._buffer
end

--- Write another tensor's elements into the bucket.
--
--   ddp:register_comm_hook(nil, function(_, bucket)
--     bucket:set_buffer(bucket:buffer() / 2)
--     return bucket:buffer()
--   end)
---@param buffer userdata [n]
function GradBucket:set_buffer(buffer)
  arguments.check("GradBucket:set_buffer", "buffer", "tensor", buffer)
  C.autograd.no_grad(function() self:buffer():copy_(buffer:reshape(-1)) end)
end

--- Return the bucket's number, from 0 in the order in which all processes reduce them.
--
--   ddp:register_comm_hook(nil, function(_, bucket) print(bucket:index()) return bucket:buffer() end)
---@return integer
function GradBucket:index() return self._index end

--- Is it the last one of this backward?
--
--   ddp:register_comm_hook(nil, function(_, bucket) print(bucket:is_last()) return bucket:buffer() end)
function GradBucket:is_last() return self._index == self._reducer:bucket_count() - 1 end

local function members(self)
  if self._parameters then return end
  self._parameters, self._gradients = {}, {}
  local all = self._reducer:parameters()
  -- As the bucket holds them: the last parameter first.
  for i = #all, 1, -1 do
    local index, gradient = self._reducer:bucket_of(i)
    if index == self._index then
      table.insert(self._parameters, all[i])
      table.insert(self._gradients, gradient)
    end
  end
end

--- The gradients one by one, with the shapes of their parameters: views of the bucket.
--
--   ddp:register_comm_hook(nil, function(_, bucket)
--     for _, gradient in ipairs(bucket:gradients()) do gradient:clamp_(-1, 1) end
--     return bucket:buffer()
--   end)
---@return userdata[]
function GradBucket:gradients()
  members(self)
  return arguments.copy(self._gradients)
end

--- The parameters of these gradients, in the same order.
--
--   ddp:register_comm_hook(nil, function(_, bucket) print(#bucket:parameters()) return bucket:buffer() end)
---@return userdata[]
function GradBucket:parameters()
  members(self)
  return arguments.copy(self._parameters)
end

return GradBucket
