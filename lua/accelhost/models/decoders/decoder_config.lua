--- The configuration of decoders with rotary embeddings, as transformers 4 and 5 write it. Several fields of 4
--- (rope_theta, rope_scaling, partial_rotary_factor) are one in 5, rope_parameters, which is written.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local rotary = require "accelhost.models.decoders.rotary"
local PretrainedConfig = require("accelhost.models.common.config").PretrainedConfig

local fail, describe, null = arguments.fail, arguments.describe, C.json.null

-- Entries of config.json files that change a decoder's numbers -> the values with which they do not. A family that
-- implements one has it among its fields.
local neutral = {
  quantization_config = {}, is_encoder_decoder = {false}, add_cross_attention = {false}, is_decoder = {false, true},
  attention_bias = {false}, mlp_bias = {false}, qkv_bias = {false}, lm_head_bias = {false}, use_bias = {false},
  sliding_window = {}, layer_types = {}, use_sliding_window = {false},
  rope_interleaved = {false}, rope_interleave = {false}, no_rope_layers = {}, alibi = {false}, use_alibi = {false},
  use_bidirectional_attention = {false}, attention_chunk_size = {}, clip_qkv = {}, sinks = {},
  qk_layernorm = {false}, use_qk_norm = {false}, qk_norm = {false}, norm_topk_prob = {}, num_experts = {},
  num_local_experts = {}, n_routed_experts = {}, attn_logit_softcapping = {}, final_logit_softcapping = {},
  query_pre_attn_scalar = {}, attention_multiplier = {1}, residual_multiplier = {1}, embedding_multiplier = {1},
  logits_scaling = {1}, logit_scale = {1}, attn_temperature_tuning = {false}, use_parallel_residual = {false},
  parallel_attn = {false}, hidden_dropout = {0}, resid_pdrop = {0}, embd_pdrop = {0}, hidden_activation = {},
}

--- The base of decoders' configurations.
---@field rope_parameters table rope_type, rope_theta and the parameters of the scaling
local DecoderConfig = PretrainedConfig:extend "DecoderConfig"
DecoderConfig.older_names = {"rope_theta", "rope_scaling", "partial_rotary_factor", "torch_dtype"}
-- Name in older files -> the rotary parameter that it is.
DecoderConfig.rope_names = {rope_theta = "rope_theta", partial_rotary_factor = "partial_rotary_factor"}
DecoderConfig.floats = {
  "initializer_range", "rms_norm_eps", "layer_norm_eps", "final_logit_softcapping", "attn_logit_softcapping",
}
DecoderConfig.rope_theta_default = 10000

--- Return a width that several fields determine: head_dim, by default hidden_size / num_attention_heads.
---@return integer
function DecoderConfig:head_width() return self.head_dim or self.hidden_size / self.num_attention_heads end

local function check_heads(self)
  local heads, groups = self.num_attention_heads, self.num_key_value_heads
  if self:head_width() % 1 ~= 0 then
    fail("%s: hidden_size %d is no multiple of num_attention_heads %d", self._name, self.hidden_size, heads)
  elseif groups and (type(groups) ~= "number" or groups < 1 or heads % groups ~= 0) then
    fail("%s: num_attention_heads %d is no multiple of num_key_value_heads %s", self._name, heads, tostring(groups))
  end
end

local kinds_of_layers = {full_attention = true, sliding_attention = true}

local function check_layer_types(self)
  local types, count = self.layer_types, self.num_hidden_layers
  if type(types) ~= "table" or #types ~= count then
    fail("%s: layer_types: expected %d names, got %s", self._name, count,
      type(types) == "table" and #types or describe(types))
  end
  for _, name in ipairs(types) do
    if not kinds_of_layers[name] then
      fail("%s: layer_types: expected full_attention or sliding_attention, got %s", self._name, describe(name))
    elseif name == "sliding_attention" and not self.sliding_window then
      fail("%s: layer_types: sliding_attention requires sliding_window", self._name)
    end
  end
end

--- Return the type of each layer where the configuration has none; nil: the family has no such field.
---@param older table values of fields of older files
---@return string[]?
function DecoderConfig:default_layer_types(older) end -- luacheck: ignore 212

--- Return layer_types with a window in all layers but those whose number is a multiple of a count.
function DecoderConfig:all_slide_but_every(count)
  local types = {}
  for i = 1, self.num_hidden_layers do types[i] = i % count == 0 and "full_attention" or "sliding_attention" end
  return types
end

--- Return layer_types with a window in the layers from max_window_layers on.
function DecoderConfig:last_layers_slide()
  local types = {}
  for i = 1, self.num_hidden_layers do
    local slides = self.use_sliding_window and self.sliding_window and i > self.max_window_layers
    types[i] = slides and "sliding_attention" or "full_attention"
  end
  return types
end

--- Return the rotary parameters in the form of transformers 5.
---@param given? table
---@param older table values of fields of older files
---@return table
function DecoderConfig:read_rope(given, older)
  return rotary.parameters(self._name, given, {
    rope_theta = older.rope_theta or self.rope_theta_default, partial_rotary_factor = older.partial_rotary_factor,
  }, self.max_position_embeddings)
end

function DecoderConfig:complete()
  self:refuse_unimplemented(neutral)
  if self.defaults.head_dim == null then self.head_dim = self:head_width() end
  if self.defaults.num_key_value_heads then
    self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
  end
  check_heads(self)
  local older = {}
  for _, name in ipairs(self.older_names) do older[name], self[name] = self[name], nil end
  if self.layer_types == nil then self.layer_types = self:default_layer_types(older) end
  if self.defaults.layer_types then check_layer_types(self) end
  self.rope_parameters = self:read_rope(older.rope_scaling or self.rope_parameters, older)
end

-- A change of the first field sets the second one again where that follows from the first.
local followers = {
  num_hidden_layers = {"layer_types"}, max_window_layers = {"layer_types"}, use_sliding_window = {"layer_types"},
  hidden_size = {"head_dim"}, num_attention_heads = {"head_dim", "num_key_value_heads"},
}

local function follows(self, name)
  if name == "head_dim" then return self.head_dim == self.hidden_size / self.num_attention_heads end
  if name == "num_key_value_heads" then return self.num_key_value_heads == self.num_attention_heads end
  return true
end

--- Return the rotary parameters with changes of `with`: a scaling keeps rope_theta. nil: they do not change.
---@return table?
function DecoderConfig:change_rope(changes)
  local given, p = changes.rope_scaling or changes.rope_parameters, nil
  if type(given) == "table" then
    p = arguments.copy(given)
    for _, name in pairs(self.rope_names) do
      if p[name] == nil then p[name] = self.rope_parameters[name] end
    end
  end
  for older, name in pairs(self.rope_names) do
    if changes[older] ~= nil then
      p = p or arguments.copy(self.rope_parameters)
      p[name] = changes[older]
    end
  end
  return p
end

function DecoderConfig:complete_changes(changes)
  local all = arguments.copy(changes)
  for changed, names in pairs(followers) do
    for _, name in ipairs(changes[changed] ~= nil and names or {}) do
      local is_derived = self.defaults[name] == null and follows(self, name)
      if all[name] == nil and is_derived then all[name] = null end
    end
  end
  local changed = self:change_rope(changes)
  if changed then
    for name in pairs(self.rope_names) do all[name] = nil end
    all.rope_parameters, all.rope_scaling = changed, nil
  end
  return all
end

return DecoderConfig
