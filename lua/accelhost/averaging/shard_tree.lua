--- The tree in which the gradients of shards are summed: the same for any assignment of shards to processes.
--
-- A node (offset, stride) is the sum of the shards offset, offset + stride, offset + 2 stride, ... of all; its halves
-- are the nodes (offset, 2 stride) and (offset + stride, 2 stride). The root is (0, 1), a shard by itself a node whose
-- stride is a power of two that is not below the number of shards. A rank of n = 1, 2, 4, ... has the shards r, r + n,
-- ..., which are one node; of other n it has several.
local arguments = require "accelhost.util.arguments"

local tree = {}

--- The stride of a shard by itself.
---@return integer
function tree.leaf_stride(shards)
  local stride = 1
  while stride < shards do stride = stride * 2 end
  return stride
end

--- The name of a node.
---@param offset integer
---@param stride integer
function tree.node(offset, stride) return offset .. "/" .. stride end

--- Merge nodes whose halves are both complete: `parts` (node -> value) is changed.
---@param parts table<string, any>
---@param add fun(a: any, b: any): any the sum of two values, a's shards before b's
function tree.fold(parts, shards, add)
  local stride = tree.leaf_stride(shards)
  while stride > 1 do
    local half = stride / 2
    for offset = 0, half - 1 do
      local low, high = tree.node(offset, stride), tree.node(offset + half, stride)
      local a, b = parts[low], parts[high]
      if a ~= nil and (b ~= nil or offset + half >= shards) then
        parts[low], parts[high] = nil, nil
        parts[tree.node(offset, half)] = b == nil and a or add(a, b)
      end
    end
    stride = half
  end
end

--- The nodes that the shards of a rank make up, in an order.
---@param ranks integer
function tree.nodes_of(shards, rank, ranks)
  local parts = {}
  for shard = rank, shards - 1, ranks do parts[tree.node(shard, tree.leaf_stride(shards))] = true end
  tree.fold(parts, shards, function() return true end)
  return arguments.sorted_keys(parts)
end

return tree
