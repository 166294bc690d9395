--- A prepared model whose gradients are those of a fixed number of shards, however many processes compute them.
--
-- A batch is a virtual shard's, and its backward counts in its own sum (averaging/shard_sum.lua); the last micro-batch
-- of a round averages. Between micro-batches parameters have no gradients.
local C = require "accelhost._C"
local Parallel = require "accelhost.averaging.parallel"
local ShardSum = require "accelhost.averaging.shard_sum"
local warn = require "accelhost.util.warn"

---@field virtual_shards VirtualShards
---@field sum ShardSum
local ShardedParallel = Parallel:extend "ShardedParallel"

---@param model table
---@param options {bucket_cap_mb?: number, virtual_shards: VirtualShards}
function ShardedParallel:init(model, accelerator, options)
  Parallel.init(self, model, accelerator, options)
  self.virtual_shards = options.virtual_shards
  self.at = setmetatable({}, {__mode = "v"}) -- pass: whose batch the backward under way is of
  self.sum = ShardSum(self.reducer, C.comm.world(), options.virtual_shards.count)
  self.reducer:set_hook(
    function(launched) C.autograd.no_grad(self.sum.launch, self.sum, launched) end,
    function(launched) C.autograd.no_grad(self.sum.finish, self.sum, launched) end)
end

function ShardedParallel:synchronises()
  return self.accelerator.sync_gradients
end

-- Return the reason why a backward is impossible, nil for none.
local function obstacle(pass)
  if not pass then
    return "backward: with virtual_shards a loss has to be of a batch of a prepared loader, inside its `for`"
  end
  if pass.differentiated then
    return "backward: with virtual_shards a batch has one backward: add its losses up before"
  end
end

local function round_of(pass) return pass.rounds - (pass.next_micro_batch == 0 and 1 or 0) end

-- A window in whose last round a shard is missing was left by a break.
local function check_round(self, pass)
  local open = self.open_round
  if self.sum:is_empty() or not open or open.complete then return end
  if open.pass == pass and open.round == round_of(pass) then return end
  warn("backward: a global batch was left before its last shard; its gradients are dropped")
  self.sum:clear()
end

function ShardedParallel:begin_backward(weight, micro_step)
  local pass = self.virtual_shards:current()
  self.change = self:changed() or obstacle(pass)
  self.at.pass, self.weight, self.micro_step = pass, weight or 1, micro_step
  self.sync = pass ~= nil and self:synchronises()
  self.pending = true
  self.reducer:touched()
  self.kept_before = self.kept
  if not pass then return end
  check_round(self, pass)
  if self.sum:is_empty() then
    if not self.kept then self:set_aside() end
  else
    self:drop_gradients()
  end
end

-- Return the shard of the batch.
local function shard_of(self)
  local pass = self.at.pass
  return not pass.filler and pass.loader.partition:virtual_shard(pass.micro_batch)
end

local function note(self)
  local pass = self.at.pass
  pass.differentiated = true
  local complete = pass.next_micro_batch == 0
  self.open_round = setmetatable({pass = pass, round = round_of(pass), complete = complete}, {__mode = "v"})
end

--- After a backward that does not average: the shard's gradients wait for the others. A round that ends so copies
--- shard 0's buffers to all processes, as one does that is averaged; that is a collective.
function ShardedParallel:after_accumulation()
  local pass = self.at.pass
  if not pass then return end
  local shard = shard_of(self)
  note(self)
  if shard then
    local alone = not self.micro_step or self.accelerator.gradient_accumulation_steps == 1
    C.autograd.no_grad(self.sum.add, self.sum, shard, self.weight, alone)
  end
  self:drop_gradients()
  if pass.next_micro_batch == 0 then
    self.virtual_shards:settle_buffers(pass)
    self:spread(self:current_buffers(), 0)
  end
end

function ShardedParallel:skip()
  self.reducer:cancel()
  if self.kept ~= self.kept_before then self:add_again() end
end

local function begin(self, shard)
  C.autograd.no_grad(self.sum.rest, self.sum, shard, self.weight)
  self.reducer:begin(1)
end

function ShardedParallel:begin_average()
  local shard = shard_of(self)
  if shard then begin(self, shard) end
end

function ShardedParallel:finish_average()
  if not shard_of(self) then
    self:drop_gradients()
    begin(self, false)
  end
  note(self)
  C.autograd.no_grad(self.sum.mark_used, self.sum)
  self.virtual_shards:settle_buffers(self.at.pass)
  self:finish_reducing()
  self.sum:clear()
  self.virtual_shards:close()
  self:after_average()
end

function ShardedParallel:drop_window()
  self.sum:clear()
  Parallel.drop_window(self)
end

return ShardedParallel
