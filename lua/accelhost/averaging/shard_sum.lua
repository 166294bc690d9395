--- The sum of the gradients of shards over a window, and over the processes.
--
-- The gradients of a shard's backward are moved out of the gradient arena, and folded with the earlier ones by the tree
-- (averaging/shard_tree.lua): so a process keeps at most half as many copies of the gradients as it has shards and one,
-- in a window of several micro-steps as many as it has shards. The last shard's stays in the arena. Bucket by bucket
-- each process then gets its slice of every node of all processes, adds them up by the tree, divides by the sum of the
-- weights and sends its slice to all. One or two processes have one node each, which an all_reduce adds as well.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local tree = require "accelhost.averaging.shard_tree"

local ShardSum = class.new "ShardSum"

local ALIGNED = 16 -- elements that slices are multiples of, but for the last

---@param group userdata the processes
function ShardSum:init(reducer, group, shards)
  self.reducer, self.group, self.shards = reducer, group, shards
  self.rank, self.ranks = group:rank(), group:size()
  self.nodes, self.most = {}, 0 -- rank + 1 -> its nodes; the largest number of a rank's nodes
  for rank = 0, self.ranks - 1 do
    self.nodes[rank + 1] = tree.nodes_of(shards, rank, self.ranks)
    self.most = math.max(self.most, #self.nodes[rank + 1])
  end
  self.spare = {} -- sets of tensors to be used again
  self.under_way = {} -- launch position of a bucket -> its pending operation
  self:clear()
end

--- As if no shard had been added.
function ShardSum:clear()
  for _, set in pairs(self.sets or {}) do self.spare[#self.spare + 1] = set end
  self.sets = {}    -- node -> launch position of a bucket -> its elements
  self.weights = {} -- shard -> the sum of its weights
  self.used = {}    -- parameter -> has any shard used it?
  self.resting = false -- the shard whose gradients are in the arena
end

--- Is there anything of a window?
function ShardSum:is_empty() return next(self.weights) == nil end

local function leaf(self, shard) return tree.node(shard, tree.leaf_stride(self.shards)) end

local function weigh(self, shard, weight) self.weights[shard] = (self.weights[shard] or 0) + weight end

-- A set of tensors like the buckets, with their elements; zeros where there is no gradient.
local function copy_of_arena(self)
  local reducer = self.reducer
  for i, parameter in ipairs(reducer:parameters()) do
    local _, slot = reducer:bucket_of(i)
    if parameter.grad ~= nil then self.used[i] = true else slot:zero_() end
  end
  local set = table.remove(self.spare) or {}
  for launched = 0, reducer:bucket_count() - 1 do
    local bucket, tensor = reducer:bucket(launched), set[launched]
    if not tensor or tensor:numel() ~= bucket:numel() or tensor.dtype ~= bucket.dtype then
      tensor = bucket:new_empty {bucket:numel()}
    end
    set[launched] = tensor:copy_(bucket)
  end
  return set
end

local function add_sets(self, a, b)
  for launched, tensor in pairs(a) do tensor:add_(b[launched]) end
  self.spare[#self.spare + 1] = b
  return a
end

--- Copy a shard's gradients out of the arena.
---@param shard integer
---@param folds boolean will there be no more of this shard in the window?
function ShardSum:add(shard, weight, folds)
  local node = leaf(self, shard)
  if self:is_empty() then self.folds = folds end
  if self.folds and self.weights[shard] then
    arguments.fail("backward: with virtual_shards a step of several global batches has to be declared beforehand, by "
      .. "gradient_accumulation_steps and accumulate")
  end
  weigh(self, shard, weight)
  local set = copy_of_arena(self)
  local before = self.sets[node]
  self.sets[node] = before and add_sets(self, before, set) or set
  if self.folds then tree.fold(self.sets, self.shards, function(a, b) return add_sets(self, a, b) end) end
end

--- The next backward is the last of the window: its gradients stay in the arena.
---@param shard integer|false false: they count for nothing
function ShardSum:rest(shard, weight)
  self.resting = shard
  if shard then weigh(self, shard, weight) end
  for own = self.rank, self.shards - 1, self.ranks do
    if not self.weights[own] then
      -- A shard that was left out.
      self.weights[own] = 0
      self.sets[leaf(self, own)] = self:zeros()
    end
  end
end

--- A set of zeros.
---@return table<integer, userdata>
function ShardSum:zeros()
  local set = {}
  for launched = 0, self.reducer:bucket_count() - 1 do
    local bucket = self.reducer:bucket(launched)
    set[launched] = bucket:new_zeros {bucket:numel()}
  end
  return set
end

--- Assign a gradient to the parameters that only earlier shards used, so that they count as used.
function ShardSum:mark_used()
  for i, parameter in ipairs(self.reducer:parameters()) do
    if self.used[i] and parameter.grad == nil then parameter.grad = parameter:new_zeros(parameter:shape()) end
  end
end

-- This process's nodes of a bucket, where that is possible in the arena.
local function own_nodes(self, launched, bucket)
  local parts = {}
  for node, set in pairs(self.sets) do parts[node] = set[launched] end
  if self.resting then
    local node = leaf(self, self.resting)
    if parts[node] then bucket:add_(parts[node]) end
    parts[node] = bucket
  end
  tree.fold(parts, self.shards, function(a, b)
    if b == bucket then a, b = b, a end
    return a:add_(b)
  end)
  return parts
end

-- Return the number of elements, of n, that each process adds up.
local function slices(self, n)
  local each = math.ceil(n / self.ranks / ALIGNED) * ALIGNED
  local list, left = {}, n
  for rank = 1, self.ranks do
    list[rank] = math.min(each, left)
    left = left - list[rank]
  end
  return list
end

-- Begin to exchange the i-th nodes of all processes: each receives its slice of them.
local function exchange(self, i, own, empty, lengths)
  local counts, taken = {}, {}
  for from = 1, self.ranks do
    local node = self.nodes[from][i]
    if node then taken[#taken + 1] = node end
    for to = 1, self.ranks do counts[#counts + 1] = node and lengths[to] or 0 end
  end
  local mine = self.nodes[self.rank + 1][i]
  local out = empty:new_empty {#taken * lengths[self.rank + 1]}
  local work = self.group:collective("all_to_all_ragged", out, mine and own[mine] or empty,
    {counts = counts, async = true})
  return {work = work, out = out, nodes = taken}
end

--- The gradients of a bucket are final: begin to add them up. For ah_reducer_hook.
---@param launched integer
function ShardSum:launch(launched)
  local bucket = self.reducer:bucket(launched)
  local own = own_nodes(self, launched, bucket)
  if self.ranks <= 2 then
    -- One node on each, and a sum of two is the same in either order.
    local root = own[tree.node(self.rank, self.ranks)]
    if root ~= bucket then bucket:copy_(root) end
    local work = self.ranks == 2 and self.group:collective("all_reduce", bucket, bucket, {async = true})
    self.under_way[launched] = {bucket = bucket, work = work}
    return
  end
  local lengths, exchanges = slices(self, bucket:numel()), {}
  local empty = bucket:narrow(0, 0, 0)
  for i = 1, self.most do exchanges[i] = exchange(self, i, own, empty, lengths) end
  self.under_way[launched] = {bucket = bucket, lengths = lengths, exchanges = exchanges}
end

-- The sum of the weights of all shards, in their order. A collective.
local function total_of(self)
  local own = {}
  for shard = 0, self.shards - 1 do own[shard + 1] = self.weights[shard] or 0 end
  if self.ranks > 1 then
    local all = C.tensor(own, {dtype = "float64", device = "cpu"})
    self.group:collective("all_reduce", all, all)
    own = all:tolist()
  end
  local total = 0
  for _, weight in ipairs(own) do total = total + weight end
  return total > 0 and total or 1
end

--- Copy a bucket's mean into the arena. For ah_reducer_hook.
---@param launched integer
function ShardSum:finish(launched)
  if launched == 0 then self.total = total_of(self) end
  local pending, parts = self.under_way[launched], {}
  self.under_way[launched] = nil
  if self.ranks <= 2 then
    if pending.work then pending.work:wait() end
    pending.bucket:div_(self.total)
    return
  end
  local length = pending.lengths[self.rank + 1]
  for _, one in ipairs(pending.exchanges) do
    one.work:wait()
    for i, node in ipairs(one.nodes) do parts[node] = one.out:narrow(0, (i - 1) * length, length) end
  end
  tree.fold(parts, self.shards, function(a, b) return a:add_(b) end)
  local mine = parts[tree.node(0, 1)]:div_(self.total)
  self.group:collective("all_gather_ragged", pending.bucket, mine, {counts = pending.lengths})
end

return ShardSum
