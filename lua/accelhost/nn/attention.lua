--- Attention.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local init = require "accelhost.nn.initializers"
local linear = require "accelhost.nn.linear"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new

--- Attention over several heads. Inputs are [L, N, E] (or [N, L, E] with batch_first = true, or [L, E]).
--
--   local attention = nn.MultiheadAttention(64, 4, {batch_first = true})
--   local words = accelhost.randn(2, 5, 64)
--   local output, weights = attention(words, words, words)
--   print(output, weights:shape()[3])
---@field in_proj_weight Tensor? [3 * embed_dim, embed_dim]
---@field in_proj_bias Tensor? [3 * embed_dim]
---@field out_proj Linear
local MultiheadAttention = Module:extend "MultiheadAttention"

local read = arguments.signature("MultiheadAttention", {
  "embed_dim: count", "num_heads: count", {"dropout: probability", 0}, {"bias: flag", true},
  {"add_bias_kv: flag", false}, {"add_zero_attn: flag", false}, {"kdim: count"}, {"vdim: count"},
  {"batch_first: flag", false}, {"device: device"}, {"dtype: dtype"},
})

function MultiheadAttention:init(...)
  local embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype =
    read(...)
  if embed_dim % num_heads ~= 0 then
    arguments.fail("MultiheadAttention: embed_dim %d must be divisible by num_heads %d", embed_dim, num_heads)
  end
  local options = {dtype = dtype, device = device}
  self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim / num_heads
  self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
  self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
  self._same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
  if self._same_embed_dim then
    self.in_proj_weight = new(C.empty({3 * embed_dim, embed_dim}, options))
  else
    self.q_proj_weight = new(C.empty({embed_dim, embed_dim}, options))
    self.k_proj_weight = new(C.empty({embed_dim, self.kdim}, options))
    self.v_proj_weight = new(C.empty({embed_dim, self.vdim}, options))
  end
  if bias then self.in_proj_bias = new(C.empty({3 * embed_dim}, options)) end
  self.out_proj = linear.NonDynamicallyQuantizableLinear(embed_dim, embed_dim,
    {bias = bias, dtype = dtype, device = device})
  if add_bias_kv then
    self.bias_k = new(C.empty({1, 1, embed_dim}, options))
    self.bias_v = new(C.empty({1, 1, embed_dim}, options))
  end
  self:_reset_parameters()
end

--- Xavier uniform for the input projections, zero biases; out_proj keeps Linear's draw.
function MultiheadAttention:_reset_parameters()
  if self._same_embed_dim then
    init.xavier_uniform_(self.in_proj_weight)
  else
    init.xavier_uniform_(self.q_proj_weight)
    init.xavier_uniform_(self.k_proj_weight)
    init.xavier_uniform_(self.v_proj_weight)
  end
  if self.in_proj_bias then
    init.zeros_(self.in_proj_bias)
    init.zeros_(self.out_proj.bias)
  end
  if self.bias_k then init.xavier_normal_(self.bias_k) end
  if self.bias_v then init.xavier_normal_(self.bias_v) end
end

local read_call = arguments.signature("MultiheadAttention.forward", {
  "query: tensor", "key: tensor", "value: tensor", {"key_padding_mask: tensor"}, {"need_weights: flag", true},
  {"attn_mask: tensor"}, {"average_attn_weights: flag", true}, {"is_causal: flag", false},
})

--- Masks are true at the positions to leave out. is_causal = true declares attn_mask to be the causal mask, which is
-- then not read unless the weights are requested.
---@return Tensor output
---@return Tensor? weights nil with need_weights = false
function MultiheadAttention:forward(...)
  local query, key, value, key_padding_mask, need_weights, attn_mask, average, is_causal = read_call(...)
  return F.multi_head_attention_forward{
    query = query, key = key, value = value, embed_dim_to_check = self.embed_dim, num_heads = self.num_heads,
    in_proj_weight = self.in_proj_weight, in_proj_bias = self.in_proj_bias, bias_k = self.bias_k,
    bias_v = self.bias_v, add_zero_attn = self.add_zero_attn, dropout_p = self.dropout,
    out_proj_weight = self.out_proj.weight, out_proj_bias = self.out_proj.bias, training = self.training,
    key_padding_mask = key_padding_mask, need_weights = need_weights, attn_mask = attn_mask,
    use_separate_proj_weight = not self._same_embed_dim, q_proj_weight = self.q_proj_weight,
    k_proj_weight = self.k_proj_weight, v_proj_weight = self.v_proj_weight, average_attn_weights = average,
    is_causal = is_causal, batch_first = self.batch_first,
  }
end

return {MultiheadAttention = MultiheadAttention}
