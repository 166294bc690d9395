--- The layers of decoders with rotary embeddings: norms, attention with fewer heads of keys and values, gated MLPs, and
--- the block of them. A family sets the options, which are listed at `layers.Block`.
---@param config PretrainedConfig
local C = require "accelhost._C"
local activations = require "accelhost.models.common.activations"
local attention = require "accelhost.models.common.attention"
local cache = require "accelhost.models.common.cache"
local fused = require "accelhost.nn.fused"
local init = require "accelhost.nn.initializers"
local norms = require "accelhost.nn.norm"
local rotary = require "accelhost.models.decoders.rotary"
local Dropout = require("accelhost.nn.dropout").Dropout
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module

local layers = {}

local function linear(from, to, bias) return Linear(from, to, {bias = bias or false}) end

--- RMSNorm whose weight is the difference from 1, as Gemma has it.
local CentredRMSNorm = norms.RMSNorm:extend "CentredRMSNorm"
layers.CentredRMSNorm = CentredRMSNorm

--- Set the weight to 0.
function CentredRMSNorm:reset_parameters() init.zeros_(self.weight) end

---@param input Tensor [..., normalized_shape]
function CentredRMSNorm:forward(input)
  local weight = self.weight
  if weight.dtype ~= "float64" then weight = weight:float() end
  return C.rms_norm(input, self.normalized_shape, weight + 1, self.eps)
end

-- Cast the input of several linear maps once, where no hook watches it.
local function lower_for(x, ...)
  for i = 1, select("#", ...) do
    if not fused.is_plain(select(i, ...), Linear) then return x end
  end
  return C.autocast.lower(x)
end

-- The types of layers in configurations.
local kinds = {full_attention = "full", sliding_attention = "sliding"}

--- Return the kind of attention of a layer by the configuration's layer_types; of all others it is the option `kind`.
---@param o table
---@param number integer from 1
---@return string full or sliding
function layers.kind_of(config, o, number)
  return config.layer_types and kinds[config.layer_types[number]] or o.kind or "full"
end

--- Attention. Its linear maps are those of `o.projections`:
---
--- separate: q_proj, k_proj and v_proj; fused: qkv_proj, all queries, then all keys, then all values; by_head:
--- query_key_value, head by head; with o_proj or, of by_head, dense.
local Attention = Module:extend "DecoderAttention"
layers.Attention = Attention

function Attention:init(config, o, number)
  local width, head, heads = config.hidden_size, o.head_width, config.num_attention_heads
  self.heads, self.groups, self.head = heads, config.num_key_value_heads or heads, head
  self.kind, self.scale, self.cap = layers.kind_of(config, o, number), o.scale or 1 / math.sqrt(head), o.score_cap
  self.rate = config.attention_dropout or 0
  local queries, keys = heads * head, self.groups * head
  if o.projections == "fused" then
    self.qkv_proj = linear(width, queries + 2 * keys, o.qkv_bias)
  elseif o.projections == "by_head" then
    self.query_key_value = linear(width, 3 * queries, o.qkv_bias)
  else
    self.q_proj = linear(width, queries, o.qkv_bias)
    self.k_proj = linear(width, keys, o.qkv_bias)
    self.v_proj = linear(width, keys, o.qkv_bias)
  end
  self[o.projections == "by_head" and "dense" or "o_proj"] = linear(queries, width, o.out_bias)
  if o.head_norm then self.q_norm, self.k_norm = o.norm(head), o.norm(head) end
end

-- Return a linear map's result by heads, the only handle of its memory where no hook watches the map.
local function by_heads(map, x, heads, head)
  local all = map(x)
  local apart = all:unflatten(-1, {heads, head})
  if fused.leave_nothing(map) then all:free() end
  return apart
end

--- Return queries, keys and values, [batch, tokens, heads, width of a head].
function Attention:project(x)
  local head = self.head
  if self.query_key_value then
    return unpack(self.query_key_value(x):unflatten(-1, {self.heads, 3 * head}):chunk(3, -1))
  end
  local q, k, v
  if self.qkv_proj then
    local queries, keys = self.heads * head, self.groups * head
    local all = self.qkv_proj(x)
    q, k, v = all:narrow(-1, 0, queries), all:narrow(-1, queries, keys), all:narrow(-1, queries + keys, keys)
  else
    x = lower_for(x, self.q_proj, self.k_proj, self.v_proj)
    return by_heads(self.q_proj, x, self.heads, head), by_heads(self.k_proj, x, self.groups, head),
      by_heads(self.v_proj, x, self.groups, head)
  end
  return q:unflatten(-1, {self.heads, head}), k:unflatten(-1, {self.groups, head}), v:unflatten(-1, {self.groups, head})
end

-- Return heads before tokens, rotated.
local function rotated(x, norm, angles)
  local normed = norm and norm(x) or x
  local heads = normed:transpose(1, 2)
  local turned = rotary.apply(heads, angles[1], angles[2])
  heads:free()
  if normed ~= x and fused.leave_nothing(norm) then normed:free() end
  return turned
end

-- Return a linear map of heads side by side again.
local function joined(map, heads)
  local turned = heads:transpose(1, 2)
  local flat = turned:flatten(2)
  local y = map(flat)
  if fused.leave_nothing(map) then
    turned:free()
    flat:free()
  end
  return y
end

--- Return true if no one else holds its input.
function Attention:leaves_nothing()
  if not fused.is_plain(self, Attention) then return false end
  local map = self.qkv_proj or self.query_key_value
  if map then return fused.leave_nothing(map) end
  return fused.leave_nothing(self.q_proj, self.k_proj, self.v_proj)
end

--- Compute a layer's attention. `how` is {angles = {kind = {cos, sin}}, visible = {kind = ...}, keeps, wants_weights}.
function Attention:forward(x, how, past)
  local q, k, v = self:project(x)
  local angles = how.angles[self.kind]
  local queries, keys = rotated(q, self.q_norm, angles), rotated(k, self.k_norm, angles)
  local present = cache.add(past, keys, v:transpose(1, 2), how.windows[self.kind])
  local y, weights = attention.attend(queries, present[1], present[2], {
    visible = how.visible[self.kind], dropout = self.training and self.rate or 0, scale = self.scale, cap = self.cap,
    weights = how.wants_weights,
  })
  for _, made in ipairs {q, k, v, queries} do made:free() end
  if not past and not how.keeps then
    present[1]:free()
    present[2]:free()
  end
  local out = joined(self.o_proj or self.dense, y)
  y:free()
  return out, how.keeps and present or nil, weights
end

-- Return down_proj(act(gate) * up) of an MLP. `frees`: no one else holds gate and up, the widest tensors of a layer.
local function gated(mlp, gate, up, frees)
  local x = activations.gate(mlp.act, gate, up)
  if frees then
    gate:free()
    up:free()
  end
  local y = mlp.down_proj(x)
  if fused.leave_nothing(mlp.down_proj) then x:free() end
  return y
end

--- down_proj(act(gate_proj(x)) * up_proj(x)).
local GatedMLP = Module:extend "GatedMLP"
layers.GatedMLP = GatedMLP

function GatedMLP:init(config, o)
  local width, inner = config.hidden_size, config.intermediate_size
  self.gate_proj = linear(width, inner, o.mlp_bias)
  self.up_proj = linear(width, inner, o.mlp_bias)
  self.down_proj = linear(inner, width, o.mlp_bias)
  self.act = o.act
end

function GatedMLP:forward(x)
  x = lower_for(x, self.gate_proj, self.up_proj)
  return gated(self, self.gate_proj(x), self.up_proj(x),
    fused.leave_nothing(self.gate_proj, self.up_proj))
end

--- The same with gate_proj and up_proj in one linear map, gate_up_proj.
local FusedGatedMLP = Module:extend "FusedGatedMLP"
layers.FusedGatedMLP = FusedGatedMLP

function FusedGatedMLP:init(config, o)
  local width, inner = config.hidden_size, config.intermediate_size
  self.gate_up_proj = linear(width, 2 * inner, o.mlp_bias)
  self.down_proj = linear(inner, width, o.mlp_bias)
  self.act = o.act
end

function FusedGatedMLP:forward(x)
  local both = self.gate_up_proj(x)
  local gate, up = unpack(both:chunk(2, -1))
  if fused.leave_nothing(self.gate_up_proj) then both:free() end
  return gated(self, gate, up, true)
end

--- A block: x + attention(norm(x)), then x + mlp(norm(x)). The options of a family:
---
--- norm: function(width) -> a norm; mlp: the class of the MLP; act: its activation; projections, qkv_bias, out_bias,
--- mlp_bias; head_norm: queries and keys are normalised; head_width; scale of the scores; score_cap: their bound; kind
--- of attention, where the configuration has no layer_types; outer_norms: the results of attention and MLP are
--- normalised too; parallel: both read x; dropout of both results; attention: the field's name.
local Block = Module:extend "DecoderLayer"
layers.Block = Block

function Block:init(config, o, number)
  local width = config.hidden_size
  self[o.attention or "self_attn"] = Attention(config, o, number)
  self.mlp = o.mlp(config, o)
  self.input_layernorm = o.norm(width)
  self.post_attention_layernorm = o.norm(width)
  if o.outer_norms then
    self.pre_feedforward_layernorm = o.norm(width)
    self.post_feedforward_layernorm = o.norm(width)
  end
  self.parallel = o.parallel or false
  if o.dropout and o.dropout > 0 then self.dropout = Dropout(o.dropout) end
end

local function dropped(self, x) return self.dropout and self.dropout(x) or x end

-- Return true if no one else holds the result of a module whose last step is the linear map `last`.
local function ends_linear(self, module, class, last)
  return not self.dropout and fused.is_plain(module, class) and fused.leave_nothing(last)
end

-- Return x + y. A y that no one else holds is freed here: the collector would free it some ops later.
local function add(x, y, frees)
  local sum = x + y
  if frees then y:free() end
  return sum
end

-- Return mlp(norm(x)).
local function mlp_of(self, norm, x)
  local mlp, normed = self.mlp, norm(x)
  local y = mlp(normed)
  if fused.leave_nothing(norm) and (fused.is_plain(mlp, GatedMLP) and fused.leave_nothing(mlp.gate_proj, mlp.up_proj)
    or fused.is_plain(mlp, FusedGatedMLP) and fused.leave_nothing(mlp.gate_up_proj)) then
    normed:free()
  end
  return y
end

-- Return x + mlp(norm(x)); x is this block's own.
local function add_mlp(self, x)
  local mlp, norm = self.mlp, self.post_attention_layernorm
  local frees = ends_linear(self, mlp, GatedMLP, mlp.down_proj)
    or ends_linear(self, mlp, FusedGatedMLP, mlp.down_proj)
  local sum = add(x, dropped(self, mlp_of(self, norm, x)), frees)
  if fused.leave_nothing(norm) then x:free() end
  return sum
end

function Block:forward(x, how, past)
  local attn = self.self_attn or self.attention
  local normed = self.input_layernorm(x)
  local y, present, weights = attn(normed, how, past)
  if attn:leaves_nothing() and fused.leave_nothing(self.input_layernorm) then normed:free() end
  y = dropped(self, y)
  if self.pre_feedforward_layernorm then
    x = x + self.post_attention_layernorm(y)
    return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x))), present, weights
  end
  if self.parallel then
    return x + y + dropped(self, self.mlp(self.post_attention_layernorm(x))), present, weights
  end
  x = add(x, y, ends_linear(self, attn, Attention, attn.o_proj or attn.dense))
  return add_mlp(self, x), present, weights
end

--- Return the activation that a field of a configuration names.
---@return fun(x: Tensor): Tensor
function layers.activation(config, field)
  return activations.find(("%s: %s"):format(config._name, field), config[field])
end

--- Return one rotation for all layers, by the kind of attention.
---@return table<string, rotary.Rotary>
function layers.one_rotary(config)
  local rotation = rotary.new(config._name, config.rope_parameters, config:head_width(),
    config.max_position_embeddings)
  return {full = rotation, sliding = rotation}
end

--- Return the options of Gemma's blocks. Its configurations have head_dim and layer_types.
function layers.gemma_options(config)
  return {
    norm = function(width) return CentredRMSNorm(width, {eps = config.rms_norm_eps}) end, mlp = layers.GatedMLP,
    act = layers.activation(config, "hidden_activation"), padding_idx = config.pad_token_id, outer_norms = true,
    embedding_scale = math.sqrt(config.hidden_size), scale = 1 / math.sqrt(config.query_pre_attn_scalar),
    score_cap = config.attn_logit_softcapping, windows = {sliding = config.sliding_window},
    qkv_bias = config.attention_bias, out_bias = config.attention_bias,
  }
end

--- Return the options of blocks with gated MLPs and RMSNorm, which most families have.
function layers.gated_options(config)
  return {
    norm = function(width) return norms.RMSNorm(width, {eps = config.rms_norm_eps}) end, mlp = layers.GatedMLP,
    act = layers.activation(config, "hidden_act"), padding_idx = config.pad_token_id,
    rotary = layers.one_rotary(config), windows = {sliding = config.sliding_window},
  }
end

return layers
