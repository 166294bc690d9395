--- virtual_shards: training with the same bits in any number of processes.
--
-- Every global batch is cut into `count` virtual shards (data/partition/micro_batches.lua), each process computes some
-- of them one after the other, and their gradients are summed in one order (averaging/virtual_shards.lua). This file
-- has the state of a virtual shard while it is computed: its random numbers, and the buffers that its forward changes.
--
-- The stream of a shard is a function of the pass's seed, the place in the pass and the shard. Draws outside of loops,
-- by loaders, and after a round's gradients were averaged are from the common stream, which is in the same state on all
-- processes. Every shard begins with the buffers that its round began with, and after the round all get those of shard
-- 0, as with PyTorch's DDP.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local averaging = require "accelhost.averaging"
local class = require "accelhost.util.class"
local passes = require "accelhost.data.loader.passes"
local protect = require "accelhost.util.protect"
local random = require "accelhost.checkpoint.random"

local native = C.data

---@field count integer
---@field common table|false the common stream while a shard's is in use
local VirtualShards = class.new "VirtualShards"

function VirtualShards:init(accelerator, count)
  local ranks = C.comm.size()
  if ranks > count then
    arguments.fail("Accelerator: virtual_shards: expected at least one for each of the %d processes, got %d", ranks,
      count)
  end
  if accelerator.device ~= "cpu" then
    arguments.fail("Accelerator: virtual_shards: computes on the CPU, whose results are the same bits in any process; "
      .. "here the device is %s", accelerator.device)
  end
  self.accelerator, self.count = setmetatable({accelerator}, {__mode = "v"}), count
  self.common, self.pass = false, setmetatable({}, {__mode = "v"})
  -- Products may be rounded otherwise in another number of threads, which the launcher chooses by that of processes.
  C.system.set_num_threads(1)
end

-- Streams.

local function capture() return {generators = random.capture(), lua = C.random.lua_state()} end

local function restore(state)
  random.restore(state.generators)
  if state.lua then C.random.set_lua_state(state.lua) end
end

local function open_stream(pass)
  local loader = pass.loader
  pass.streams = pass.streams or native.fork_seed(pass.seed, -1)
  local place = pass.start + pass.rounds * loader.partition:round_size()
  local stream = native.stream(pass.streams, place, loader.partition:virtual_shard(pass.next_micro_batch))
  local seed = native.stream_seed(stream)
  C.random.manual_seed(seed)
  math.randomseed(seed)
end

--- Run fn with the common stream.
---@param fn fun(...): ...
---@return any # the results of fn
function VirtualShards:outside(fn, ...)
  if not self.common then return fn(...) end
  local inner = capture()
  restore(self.common)
  return protect(function()
    self.common = capture()
    restore(inner)
  end, fn, ...)
end

--- Continue with the present common stream, in no shard.
function VirtualShards:reset()
  self.common, self.pass[1] = false, nil
end

-- Buffers.

local function copies(buffers)
  local list = {}
  for i, buffer in ipairs(buffers) do list[i] = buffer:detach():clone() end
  return list
end

local function put_back(buffers, list)
  C.autograd.no_grad(function()
    for i, buffer in ipairs(buffers) do buffer:copy_(list[i]) end
  end)
end

local function each_model(self, fn)
  local accelerator = self.accelerator[1]
  if not accelerator then return end
  for _, handle in ipairs(averaging.of(accelerator)) do
    local buffers = handle:current_buffers()
    if #buffers > 0 then fn(handle, buffers) end
  end
end

-- End a round: shard 0's buffers, on the process that had it, become those of all; averaging copies them to the others.
local function end_round(self, kept)
  each_model(self, function(handle, buffers)
    if kept[handle] and kept[handle].first then put_back(buffers, kept[handle].first) end
    kept[handle] = nil
  end)
end

local function exchange_buffers(self, pass)
  pass.buffers = pass.buffers or setmetatable({}, {__mode = "k"})
  local kept = pass.buffers
  if pass.next_micro_batch == 0 then end_round(self, kept) end
  each_model(self, function(handle, buffers)
    if pass.next_micro_batch == 0 then
      kept[handle] = {base = copies(buffers)}
    elseif kept[handle] then
      kept[handle].first = kept[handle].first or copies(buffers)
      put_back(buffers, kept[handle].base)
    end
  end)
end

--- Before the gradients of a round are averaged, and buffers with them.
function VirtualShards:settle_buffers(pass)
  if pass.buffers then end_round(self, pass.buffers) end
end

-- Passes.

--- A pass of a loader is about to make a batch.
function VirtualShards:enter(pass)
  self.common = self.common or capture()
  local before = self.pass[1]
  if before ~= pass then
    if not pass.around then pass.around = before and capture() or false end
    self.pass[1] = pass
  end
  if pass.loader.partition.batches_per_round > 1 then exchange_buffers(self, pass) end
  open_stream(pass)
end

--- Leave a pass: the code around it continues with its own stream.
function VirtualShards:leave(pass)
  if pass.buffers then end_round(self, pass.buffers) end
  local outer = passes.innermost()
  if not outer or outer.loader.virtual_shards ~= self or not pass.around then return self:close() end
  self.pass[1] = outer
  restore(pass.around)
end

--- Leave the shard: a round's gradients are averaged, or a pass has ended.
function VirtualShards:close()
  if self.common then restore(self.common) end
  self:reset()
end

--- The pass whose batch is computed now, nil when there is none.
---@return Pass?
function VirtualShards:current()
  local pass = passes.innermost()
  return pass and pass.loader.virtual_shards == self and pass or nil
end

--- Is the current batch the last one of its round on this process, or none?
function VirtualShards:round_ends()
  local pass = passes.top()
  if pass and passes.matters() then pass = passes.innermost() end
  return not pass or pass.loader.virtual_shards ~= self or pass.next_micro_batch == 0
end

--- Is the current batch the first one of its round?
function VirtualShards:round_begins()
  local pass = passes.innermost()
  return not pass or pass.loader.virtual_shards ~= self or pass.micro_batch == 0
end

--- Is no shard of a window waiting for others?
function VirtualShards:is_between()
  local accelerator = self.accelerator[1]
  for _, handle in ipairs(accelerator and averaging.of(accelerator) or {}) do
    if not handle.sum:is_empty() then return false end
  end
  return self:round_ends()
end

return VirtualShards
