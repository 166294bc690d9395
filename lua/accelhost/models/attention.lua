--- Attention over heads, as the models share it.
local C = require "accelhost._C"

local attention = {}

--- [batch, tokens, width] as [batch, heads, tokens, width / heads].
---@param x Tensor
---@param heads integer
---@return Tensor
function attention.split(x, heads)
  local batch, tokens, width = x:size(0), x:size(1), x:size(2)
  return x:view(batch, tokens, heads, width / heads):transpose(1, 2)
end

--- The heads side by side again.
---@param x Tensor [batch, heads, tokens, width of a head]
---@return Tensor
function attention.join(x)
  return x:transpose(1, 2):flatten(2)
end

-- The same with the scores in hand, for those who ask for the weights.
local function written_out(q, k, v, mask, dropout, scale)
  local scores = q:matmul(k:transpose(-2, -1)) * scale
  if mask then scores = scores:masked_fill(mask:logical_not(), -math.huge) end
  local weights = C.softmax(scores, -1)
  local kept = dropout > 0 and C.dropout(weights, dropout, true) or weights
  return kept:matmul(v), weights
end

--- softmax(q k^T scale) v, and, when asked for, the weights.
---@param q Tensor [batch, heads, tokens, width]
---@param k Tensor
---@param v Tensor
---@param o {mask: Tensor?, causal: boolean?, dropout: number, scale: number?, weights: boolean?} mask: true may be seen
---@return Tensor
---@return Tensor?
function attention.attend(q, k, v, o)
  if not o.weights then
    return C.scaled_dot_product_attention(q, k, v, o.mask, o.dropout, o.causal or false, o.scale)
  end
  local mask = o.mask
  if o.causal then
    mask = C.ones({q:size(2), k:size(2)}, {dtype = "bool", device = q.device}):tril()
  end
  return written_out(q, k, v, mask, o.dropout, o.scale or 1 / math.sqrt(q:size(-1)))
end

--- Attention of packed texts, each in itself. Dropout draws the decisions of the padded batch.
---@param q Tensor [total, heads * width]
---@param k Tensor
---@param v Tensor
---@param heads integer
---@param places packing.Places
---@param dropout number
---@return Tensor [total, heads * width]
function attention.attend_packed(q, k, v, heads, places, dropout)
  local function by_heads(x) return x:unflatten(-1, {heads, -1}) end
  local bounds, longest, query = places.bounds, places.longest, by_heads(q)
  return (C.attention(query, by_heads(k), by_heads(v), nil, bounds, bounds, nil, places.index,
    {longest, longest, places.tokens}, {-1, -1}, 1 / math.sqrt(query:size(-1)), dropout)):flatten(1)
end

--- 1 and 0 (or true and false) for tokens and padding as true and false; nil when nothing is hidden.
---@param mask Tensor?
---@return Tensor?
function attention.kept(mask)
  if mask == nil then return nil end
  local kept = mask.dtype == "bool" and mask or mask:ne(0)
  if kept.device == "cpu" and kept:all():item() then return nil end
  return kept
end

return attention
