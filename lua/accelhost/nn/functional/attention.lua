--- Multi-head attention: the function behind nn.MultiheadAttention; the steps are those of PyTorch's
-- multi_head_attention_forward: project, extend keys and values, split into heads, attend, join the heads, project.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail = arguments.fail
local F = {}

--- A mask as floats to be added to the scores: true (drop) becomes -inf.
local function additive(mask, dtype)
  if mask == nil or mask:is_floating_point() then return mask end
  if mask.dtype ~= "bool" then fail("attention: a mask must be bool or floating, got %s", mask.dtype) end
  return C.zeros_like(mask, {dtype = dtype}):masked_fill_(mask, -math.huge)
end

local function slice(tensor, first, count)
  return tensor and tensor:narrow(0, first, count)
end

local function project(query, key, value, o)
  local width = o.embed_dim_to_check
  local bias = o.in_proj_bias
  if o.use_separate_proj_weight then
    return C.linear(query, o.q_proj_weight, slice(bias, 0, width)),
      C.linear(key, o.k_proj_weight, slice(bias, width, width)),
      C.linear(value, o.v_proj_weight, slice(bias, 2 * width, width))
  end
  local weight = o.in_proj_weight
  if query == key and key == value then
    local packed = C.linear(query, weight, bias)
    return packed:narrow(-1, 0, width), packed:narrow(-1, width, width), packed:narrow(-1, 2 * width, width)
  end
  return C.linear(query, slice(weight, 0, width), slice(bias, 0, width)),
    C.linear(key, slice(weight, width, width), slice(bias, width, width)),
    C.linear(value, slice(weight, 2 * width, width), slice(bias, 2 * width, width))
end

local attention_parameters = {
  "query: tensor", "key: tensor", "value: tensor", "embed_dim_to_check: count", "num_heads: count",
  {"in_proj_weight: tensor"}, {"in_proj_bias: tensor"}, {"bias_k: tensor"}, {"bias_v: tensor"},
  {"add_zero_attn: flag", false}, {"dropout_p: probability", 0}, "out_proj_weight: tensor", {"out_proj_bias: tensor"},
  {"training: flag", true}, {"key_padding_mask: tensor"}, {"need_weights: flag", true}, {"attn_mask: tensor"},
  {"use_separate_proj_weight: flag", false}, {"q_proj_weight: tensor"}, {"k_proj_weight: tensor"},
  {"v_proj_weight: tensor"}, {"static_k: tensor"}, {"static_v: tensor"}, {"average_attn_weights: flag", true},
  {"is_causal: flag", false}, {"batch_first: flag", false},
}
local set_attention = arguments.setter("multi_head_attention_forward", attention_parameters)

-- The sizes of a call: batch, heads, head (the width of one), target and source lengths, and the batch's dim.
local function sizes_of(query, key, o, batched)
  local batch_first = o.batch_first or not batched
  local batch_dim = batch_first and 0 or 1
  local width, heads = query:size(2), o.num_heads
  if width ~= o.embed_dim_to_check then
    fail("attention: was expecting embedding dimension of %d, but got %d", o.embed_dim_to_check, width)
  end
  if width / heads % 1 ~= 0 then fail("attention: embed_dim %d is not divisible by num_heads %d", width, heads) end
  return {
    batch_first = batch_first, batch = query:size(batch_dim), width = width, heads = heads, head = width / heads,
    target = query:size(1 - batch_dim), source = key:size(1 - batch_dim), length_dim = 1 - batch_dim,
  }
end

-- [N, length, E] or [length, N, E] to [N, heads, length, head].
local function split_heads(x, length, s)
  if s.batch_first then return x:reshape(s.batch, length, s.heads, s.head):transpose(1, 2) end
  return x:reshape(length, s.batch, s.heads, s.head):permute(1, 2, 0, 3)
end

-- And back to [length, N, E] in memory, also where the batch is first to the user: dropout draws in memory's order.
local function join_heads(x, s)
  return x:permute(2, 0, 1, 3):reshape(s.target, s.batch, s.width)
end

-- A further position at the end of the source, which no mask leaves out.
local function extend_masks(masks, s)
  for name, mask in pairs(masks) do
    local column = mask:narrow(-1, 0, 1)
    masks[name] = C.cat({mask, C.zeros_like(column)}, -1)
  end
  s.source = s.source + 1
end

-- The learnt position behind keys and values.
local function append_bias(k, v, masks, s, o)
  if not o.bias_k then return k, v end
  local sizes = s.batch_first and {s.batch, 1, s.width} or {1, s.batch, s.width}
  extend_masks(masks, s)
  return C.cat({k, o.bias_k:expand(sizes)}, s.length_dim), C.cat({v, o.bias_v:expand(sizes)}, s.length_dim)
end

-- The position of zeros behind the heads' keys and values.
local function append_zeros(k, v, masks, s, o)
  if not o.add_zero_attn then return k, v end
  local zeros = k:new_zeros {s.batch, s.heads, 1, s.head}
  extend_masks(masks, s)
  return C.cat({k, zeros}, 2), C.cat({v, zeros}, 2)
end

-- Both masks as one that is added to the scores [N, heads, L, S], or nil.
local function joined_mask(masks, s)
  local attn, padding = masks.attn, masks.padding
  if attn then
    local dims = attn:dim()
    if dims == 3 then
      attn = attn:reshape(s.batch, s.heads, s.target, s.source)
    elseif dims ~= 2 or attn:size(0) ~= s.target or attn:size(1) ~= s.source then
      fail("attention: expected an attn_mask of shape (%d, %d) or (%d, %d, %d), got (%s)", s.target, s.source,
        s.batch * s.heads, s.target, s.source, table.concat(attn:shape(), ", "))
    end
  end
  if not padding then return attn end
  if padding:size(0) ~= s.batch or padding:size(1) ~= s.source then
    fail("attention: expected a key_padding_mask of shape (%d, %d), got (%s)", s.batch, s.source,
      table.concat(padding:shape(), ", "))
  end
  padding = padding:reshape(s.batch, 1, 1, s.source)
  return attn and attn + padding or padding
end

-- The heads' outputs, and their weights if requested. A mask that is declared causal need not be read.
local function attend(q, k, v, masks, s, o)
  local dropout_p = o.training and o.dropout_p or 0
  if not o.need_weights then
    local causal = o.is_causal and not masks.padding and s.source == o.key_length
    local mask = not causal and joined_mask(masks, s) or nil
    return C.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal)
  end
  local mask = joined_mask(masks, s)
  local scores = C.matmul(q / math.sqrt(s.head), k:transpose(-2, -1))
  if mask then scores = scores + mask end
  local weights = C.softmax(scores, -1)
  if dropout_p > 0 then weights = C.dropout(weights, dropout_p, true) end
  return C.matmul(weights, v), weights
end

-- Keys or values [N heads, S, head] that are given instead of projected ones.
local function given_heads(name, x, s)
  if x:dim() ~= 3 or x:size(0) ~= s.batch * s.heads or x:size(2) ~= s.head then
    fail("attention: %s: expected shape (%d, S, %d), got %s", name, s.batch * s.heads, s.head, arguments.shape_text(x))
  end
  s.source = x:size(1)
  return x:reshape(s.batch, s.heads, s.source, s.head)
end

-- A call without a batch gets one of size 1. Query, key and value that are one tensor stay one.
local function add_batch(query, key, value, o)
  if query:dim() ~= 2 then fail("attention: expected a query of 2 or 3 dims, got %d", query:dim()) end
  local same = query == key and key == value
  query, key, value = query:unsqueeze(0), key:unsqueeze(0), value:unsqueeze(0)
  if same then key, value = query, query end
  if o.key_padding_mask then o.key_padding_mask = o.key_padding_mask:unsqueeze(0) end
  return query, key, value
end

--- Attention of num_heads heads with input and output projections, as in PyTorch. Masks are true at the positions to
-- leave out; is_causal = true declares attn_mask to be the causal mask. Shapes [L, N, E], [S, N, E] (or without N; or
-- N first with batch_first = true).
---@return Tensor output like query
---@return Tensor? weights [N, L, S], or [N, heads, L, S] with average_attn_weights = false
function F.multi_head_attention_forward(...)
  local o = {}
  set_attention(o, ...)
  local query, key, value = o.query, o.key, o.value
  local batched = query:dim() == 3
  if not batched then query, key, value = add_batch(query, key, value, o) end
  if o.is_causal and not o.attn_mask then fail("attention: is_causal requires attn_mask, which it declares causal") end
  local s = sizes_of(query, key, o, batched)
  o.key_length = s.source
  local q, k, v = project(query, key, value, o)
  local masks = {attn = additive(o.attn_mask, q.dtype), padding = additive(o.key_padding_mask, q.dtype)}
  k, v = append_bias(k, v, masks, s, o)
  q = split_heads(q, s.target, s)
  k, v = split_heads(k, s.source, s), split_heads(v, s.source, s)
  k = o.static_k and given_heads("static_k", o.static_k, s) or k
  v = o.static_v and given_heads("static_v", o.static_v, s) or v
  k, v = append_zeros(k, v, masks, s, o)
  local output, weights = attend(q, k, v, masks, s, o)
  output = C.linear(join_heads(output, s), o.out_proj_weight, o.out_proj_bias)
  if s.batch_first then output = output:transpose(0, 1) end
  if not batched then output = output:squeeze(0) end
  if not weights then return output, nil end
  if o.average_attn_weights then weights = weights:sum(1) / s.heads end
  if not batched then weights = weights:squeeze(0) end
  return output, weights
end

return F
