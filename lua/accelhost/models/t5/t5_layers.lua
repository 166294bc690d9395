--- The layers of T5: attention with numbers of distances instead of positions, MLPs, and the stacks of encoder and
--- decoder.
local C = require "accelhost._C"
local activations = require "accelhost.models.common.activations"
local attention = require "accelhost.models.common.attention"
local cache = require "accelhost.models.common.cache"
local container = require "accelhost.nn.container"
local norms = require "accelhost.nn.norm"
local recompute = require "accelhost.recompute"
local relative = require "accelhost.models.common.relative"
local Dropout = require("accelhost.nn.dropout").Dropout
local Embedding = require("accelhost.nn.embedding").Embedding
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module

local layers = {}

local function linear(from, to) return Linear(from, to, {bias = false}) end
local function norm_of(config) return norms.RMSNorm(config.d_model, {eps = config.layer_norm_epsilon}) end

local Attention = Module:extend "T5Attention"

function Attention:init(config, has_bias)
  local inner = config.num_heads * config.d_kv
  self.heads, self.rate = config.num_heads, config.dropout_rate
  self.q = linear(config.d_model, inner)
  self.k = linear(config.d_model, inner)
  self.v = linear(config.d_model, inner)
  self.o = linear(inner, config.d_model)
  if has_bias then
    self.relative_attention_bias = Embedding(config.relative_attention_num_buckets, config.num_heads)
  end
end

--- Return the result, the keys and values, and the weights. `states` are the encoder's, of which the keys and values in
--- `past` are.
function Attention:forward(x, visible, past, states, wants_weights)
  local q, present = attention.split(self.q(x), self.heads), past
  if not states or not past then
    local source = states or x
    local k, v = attention.split(self.k(source), self.heads), attention.split(self.v(source), self.heads)
    present = cache.add(past, k, v)
  end
  local y, weights = attention.attend(q, present[1], present[2], {
    visible = visible, dropout = self.training and self.rate or 0, scale = 1, weights = wants_weights,
  })
  return self.o(attention.join(y)), present, weights
end

-- Make the class of attention with its norm and the residual connection; `field` is the attention's name.
local function with_residual(name, field)
  local Layer = Module:extend(name)
  function Layer:init(config, has_bias)
    self[field] = Attention(config, has_bias)
    self.layer_norm = norm_of(config)
    self.dropout = Dropout(config.dropout_rate)
  end
  function Layer:forward(x, ...)
    local y, present, weights = self[field](self.layer_norm(x), ...)
    return x + self.dropout(y), present, weights
  end
  return Layer
end

local SelfAttention = with_residual("T5LayerSelfAttention", "SelfAttention")
local CrossAttention = with_residual("T5LayerCrossAttention", "EncDecAttention")

-- wo(act(wi(x))), or gated wo(act(wi_0(x)) * wi_1(x)).
local Dense = Module:extend "T5DenseActDense"

function Dense:init(config)
  self.act, self.gated = config:act()
  local names = self.gated and {"wi_0", "wi_1"} or {"wi"}
  for _, name in ipairs(names) do self[name] = linear(config.d_model, config.d_ff) end
  self.wo = linear(config.d_ff, config.d_model)
  self.dropout = Dropout(config.dropout_rate)
end

function Dense:forward(x)
  local y = self.gated and activations.gate(self.act, self.wi_0(x), self.wi_1(x)) or self.act(self.wi(x))
  return self.wo(self.dropout(y))
end

local FeedForward = Module:extend "T5LayerFF"

function FeedForward:init(config)
  self.DenseReluDense = Dense(config)
  self.layer_norm = norm_of(config)
  self.dropout = Dropout(config.dropout_rate)
end

function FeedForward:forward(x) return x + self.dropout(self.DenseReluDense(self.layer_norm(x))) end

local Block = Module:extend "T5Block"

function Block:init(config, is_decoder, has_bias)
  self.layer = container.ModuleList {SelfAttention(config, has_bias)}
  if is_decoder then self.layer:append(CrossAttention(config)) end
  self.layer:append(FeedForward(config))
end

--- Return the states, the weights of attention to the stack's tokens and to the encoder's, and the keys and values of
--- both. `how` is {visible, states, cross_visible, wants_weights}.
function Block:forward(x, how, past, cross_past)
  local present, weights, cross_present, cross_weights
  x, present, weights = self.layer[1](x, how.visible, past, nil, how.wants_weights)
  if how.states then
    x, cross_present, cross_weights = self.layer[2](x, how.cross_visible, cross_past, how.states, how.wants_weights)
  end
  return self.layer[#self.layer](x), weights, cross_weights, present, cross_present
end

--- The blocks of the encoder or the decoder, with the embedding of its tokens.
local Stack = Module:extend "T5Stack"
Stack.recomputes = true
layers.Stack = Stack

function Stack:init(config, is_decoder)
  local count = is_decoder and config.num_decoder_layers or config.num_layers
  self.is_decoder, self.farthest = is_decoder, config.relative_attention_max_distance
  self.buckets = config.relative_attention_num_buckets
  self.embed_tokens = Embedding(config.vocab_size, config.d_model)
  self.block = container.ModuleList {}
  for i = 1, count do self.block:append(Block(config, is_decoder, i == 1)) end
  self.final_layer_norm = norm_of(config)
  self.dropout = Dropout(config.dropout_rate)
end

-- Return the numbers of distances with the lowest one where a key is hidden. `kept`: [batch, past + tokens] bool.
local function bias_of(self, tokens, past, kept, device)
  local queries = C.arange(past, past + tokens, {device = device}):view(tokens, 1)
  local distance = C.arange(past + tokens, {device = device}):view(1, -1) - queries
  local embedding = self.block[1].layer[1].SelfAttention.relative_attention_bias
  local bias = embedding(relative.buckets(distance, self.buckets, self.farthest, self.is_decoder))
  local mask = kept and kept:view(-1, 1, 1, past + tokens)
  if self.is_decoder and tokens > 1 then
    local causal = distance:le(0)
    mask = mask and mask:logical_and(causal) or causal
  end
  return relative.mask(bias:permute(2, 0, 1):unsqueeze(0), mask)
end

--- Return {last_hidden_state, past_key_values, hidden_states, attentions, cross_attentions}, those that are requested.
--- past_key_values are those of all blocks, then those of the encoder's states.
---@param o table ids or vectors, kept: Tensor? (false: padding), states and states_kept of the encoder, past, keeps,
--- wants_states, wants_weights
function Stack:forward(o)
  local x = o.vectors or self.embed_tokens(o.ids)
  local past, count = o.past, #self.block
  local how = {
    visible = {mask = bias_of(self, x:size(1), past and cache.seen(past[1]) or 0, o.kept, x.device)},
    states = o.states, wants_weights = o.wants_weights,
    cross_visible = {mask = o.states_kept and o.states_kept:view(x:size(0), 1, 1, -1)},
  }
  x = self.dropout(x)
  local states, attentions, cross = o.wants_states and {} or nil, o.wants_weights and {} or nil, {}
  local presents = o.keeps and {} or nil
  for i, block in ipairs(self.block) do
    if states then states[i] = x end
    local weights, cross_weights, present, cross_present
    x, weights, cross_weights, present, cross_present = recompute.layer(self, block, x, how, past and past[i],
      past and past[count + i])
    if attentions then attentions[i], cross[i] = weights, cross_weights end
    if presents then presents[i], presents[count + i] = present, cross_present end
  end
  x = self.dropout(self.final_layer_norm(x))
  if states then states[count + 1] = x end
  return {
    last_hidden_state = x, past_key_values = presents, hidden_states = states, attentions = attentions,
    cross_attentions = attentions and o.states and cross or nil,
  }
end

return layers
