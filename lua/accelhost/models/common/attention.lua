--- Attention over heads, as the models share it.
local C = require "accelhost._C"

local attention = {}

--- [batch, tokens, width] as [batch, heads, tokens, width / heads].
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

-- Return the mask of visible keys as a tensor, nil where all are visible.
local function mask_of(visible, queries, keys, device)
  if visible.mask or not visible.causal then return visible.mask end
  local mask = C.ones({queries, keys}, {dtype = "bool", device = device}):tril()
  if visible.window then mask = mask:logical_and(mask:tril(-visible.window):logical_not()) end
  if visible.texts then
    local numbers = visible.texts.numbers:unsqueeze(1)
    mask = mask:logical_and(numbers:unsqueeze(3):eq(numbers:unsqueeze(2)))
  end
  return mask
end

-- The same with the scores as a tensor: for callers that request the weights, and for bounded scores.
local function with_scores(q, k, v, o)
  local times = q:size(1) / k:size(1)
  if times > 1 then k, v = k:repeat_interleave(times, 1), v:repeat_interleave(times, 1) end
  local scores = q:matmul(k:transpose(-2, -1)) * (o.scale or 1 / math.sqrt(q:size(-1)))
  if o.cap then scores = C.tanh(scores / o.cap) * o.cap end
  local mask = mask_of(o.visible, q:size(2), k:size(2), q.device)
  if mask then
    scores = mask.dtype == "bool" and scores:masked_fill(mask:logical_not(), -math.huge) or scores + mask
  end
  local weights = C.softmax(scores, -1)
  local kept = o.dropout > 0 and C.dropout(weights, o.dropout, true) or weights
  return kept:matmul(v), weights
end

-- Causal attention to the last `window` keys of each query: keys outside of the window are not computed.
local function in_window(q, k, v, window, o)
  local y = C.attention(q:transpose(1, 2), k:transpose(1, 2), v:transpose(1, 2), nil, nil, nil, nil, nil, nil,
    {window - 1, 0}, o.scale or 1 / math.sqrt(q:size(-1)), o.dropout)
  return y:transpose(1, 2)
end

-- Causal attention of texts one after the other, each in itself: keys of other texts are not computed.
local function in_texts(q, k, v, visible, o)
  local function flat(x) return x:transpose(1, 2):flatten(0, 1) end
  local texts = visible.texts
  local y = C.attention(flat(q), flat(k), flat(v), nil, texts.bounds, texts.bounds, nil, nil,
    {texts.longest, texts.longest}, {visible.window and visible.window - 1 or -1, 0},
    o.scale or 1 / math.sqrt(q:size(-1)), o.dropout)
  return y:unflatten(0, {q:size(0), q:size(2)}):transpose(1, 2)
end

--- softmax(q k^T scale) v, and, when asked for, the weights. Heads of k and v serve several of q's where they are
--- fewer.
---
--- `visible` is the keys that a query may see: those where `mask` is true (a floating one is added to the scores); with
--- `causal`, of as many queries as keys, those that are not later; with `window`, of these the last ones; with `texts`,
--- of these those of the query's text.
---@param q Tensor [batch, heads, tokens, width]
---@param k Tensor
---@param v Tensor
---@param o table visible = {mask: Tensor?, causal: boolean?, window: integer?, texts: table?}, dropout: number,
--- scale: number?, cap: number? (bound of the scores: cap tanh(scores / cap)), weights: boolean?
---@return Tensor
---@return Tensor?
function attention.attend(q, k, v, o)
  local visible = o.visible
  local window, keys = visible.window, k:size(2)
  if window and not visible.causal and keys > window then -- one query, which sees the last keys
    k, v = k:narrow(2, keys - window, window), v:narrow(2, keys - window, window)
  end
  local heads, groups = q:size(1), k:size(1)
  if q:size(2) == 1 and groups < heads then -- the heads of a group as its queries: k and v are not repeated
    local batch = q:size(0)
    local y, weights = attention.attend(q:reshape(batch, groups, heads / groups, -1), k, v, o)
    return y:reshape(batch, heads, 1, -1), weights and weights:reshape(batch, heads, 1, -1)
  end
  if o.weights or o.cap then return with_scores(q, k, v, o) end
  if visible.texts and visible.texts.bounds then return in_texts(q, k, v, visible, o) end
  if (window or visible.texts) and visible.causal then
    if q.device == "cpu" and not visible.texts then return in_window(q, k, v, window, o) end
    return C.scaled_dot_product_attention(q, k, v, mask_of(visible, keys, keys, q.device), o.dropout, false, o.scale,
      true)
  end
  return C.scaled_dot_product_attention(q, k, v, visible.mask, o.dropout, visible.causal or false, o.scale,
    heads ~= groups)
end

--- Attention of packed texts, each in itself. Dropout draws the decisions of the padded batch.
---@param q Tensor [total, heads * width]
---@param k Tensor
---@param v Tensor
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
