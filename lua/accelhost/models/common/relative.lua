--- Relative positions in attention: scores of MPNet and T5 have a number added, by the bucket of the distance between
--- query and key. Near distances have a bucket each, farther ones share buckets of growing width.
local C = require "accelhost._C"

local relative = {}

-- The buckets of MPNet, whatever the configuration.
local BUCKETS, FARTHEST = 32, 128

--- Return the buckets of distances, keys' places minus queries'.
---@param distance Tensor int64
---@param buckets integer
---@param farthest integer distance from which all share the last bucket
---@param causal? boolean keys after the query share the first bucket; else they have the second half of the buckets
---@return Tensor int64
function relative.buckets(distance, buckets, farthest, causal)
  local first, far
  if causal then
    far = (-distance):clamp_min(0)
  else
    buckets = buckets / 2
    first, far = distance:gt(0):to "int64" * buckets, distance:abs()
  end
  local near = math.floor(buckets / 2)
  local logs = C.log(far:to "float32" / near) / math.log(farthest / near) * (buckets - near)
  local wide = (logs:clamp_min(0):to "int64" + near):clamp_max(buckets - 1)
  local found = C.where(far:lt(near), far, wide)
  return first and found + first or found
end

--- Return the numbers that are added to the scores of all pairs of tokens.
---@param embedding Embedding [buckets, heads]
---@return Tensor [1, heads, tokens, tokens]
function relative.bias(embedding, tokens, device)
  local places = C.arange(tokens, {device = device})
  local distance = places:view(1, tokens) - places:view(tokens, 1)
  return embedding(relative.buckets(distance, BUCKETS, FARTHEST)):permute(2, 0, 1):unsqueeze(0)
end

--- Return a bias with the lowest number where a mask is false.
---@param bias Tensor
---@param mask Tensor? bool
---@return Tensor
function relative.mask(bias, mask)
  if not mask then return bias end
  return bias:masked_fill(mask:logical_not(), C.dtype.finfo(bias.dtype).min)
end

return relative
