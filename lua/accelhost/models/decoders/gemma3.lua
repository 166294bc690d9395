--- Gemma 3 for texts: Gemma 2 with normalised queries and keys, and with other rotary embeddings in layers with a
--- window.
local C = require "accelhost._C"
local DecoderConfig = require "accelhost.models.decoders.decoder_config"
local decoder = require "accelhost.models.decoders.decoder"
local layers = require "accelhost.models.decoders.decoder_layers"
local arguments = require "accelhost.util.arguments"
local rotary = require "accelhost.models.decoders.rotary"

local null = C.json.null

--- The configuration of Gemma 3 for texts; the defaults are transformers'. rope_parameters has the parameters of both
--- kinds of layers; of older files they are made from rope_theta, rope_local_base_freq and rope_scaling.
--
--   accelhost.models.Gemma3TextConfig().rope_parameters.full_attention.rope_theta  --> 1000000
---@field layer_types string[] sliding_attention or full_attention of each layer
local Gemma3TextConfig = DecoderConfig:extend "Gemma3TextConfig"
Gemma3TextConfig.model_type = "gemma3_text"
Gemma3TextConfig.defaults = {
  vocab_size = 262208, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26, num_attention_heads = 8,
  num_key_value_heads = 4, head_dim = 256, hidden_activation = "gelu_pytorch_tanh", max_position_embeddings = 131072,
  initializer_range = 0.02, rms_norm_eps = 1e-6, use_cache = true, pad_token_id = 0, eos_token_id = 1,
  bos_token_id = 2, tie_word_embeddings = true, rope_parameters = null, attention_bias = false, attention_dropout = 0,
  query_pre_attn_scalar = 256, sliding_window = 4096, layer_types = null, final_logit_softcapping = null,
  attn_logit_softcapping = null,
}
Gemma3TextConfig.nullable = {sliding_window = true}
Gemma3TextConfig.older_names = {
  "rope_theta", "rope_scaling", "torch_dtype", "rope_local_base_freq", "sliding_window_pattern",
}

Gemma3TextConfig.rope_names = {rope_theta = "rope_theta", rope_local_base_freq = "rope_theta"}

--- Return layer_types: a window in all but every sixth layer.
---@param older table
---@return string[]
function Gemma3TextConfig:default_layer_types(older)
  return self:all_slide_but_every(older.sliding_window_pattern or 6)
end

--- Return the rotary parameters with changes of `with`: a scaling and rope_theta are those of full attention.
---@return table?
function Gemma3TextConfig:change_rope(changes)
  local given, theta, local_theta = changes.rope_scaling, changes.rope_theta, changes.rope_local_base_freq
  if type(given) ~= "table" and theta == nil and local_theta == nil then return nil end
  local p = self.rope_parameters
  local full = arguments.copy(type(given) == "table" and given or p.full_attention)
  local sliding = arguments.copy(p.sliding_attention)
  full.rope_theta = theta or full.rope_theta or p.full_attention.rope_theta
  sliding.rope_theta = local_theta or sliding.rope_theta
  return {full_attention = full, sliding_attention = sliding}
end

--- Return the rotary parameters of both kinds of layers.
---@param given? table
---@param older table values of fields of older files
function Gemma3TextConfig:read_rope(given, older)
  local of = given or {}
  local is_nested = of.full_attention ~= nil or of.sliding_attention ~= nil
  local function read(parameters, theta)
    if parameters == null then parameters = nil end
    return rotary.parameters(self._name, parameters, {rope_theta = theta}, self.max_position_embeddings)
  end
  if is_nested then given = of.full_attention end
  return {
    full_attention = read(given, older.rope_theta or 1e6),
    sliding_attention = read(of.sliding_attention, older.rope_local_base_freq or 1e4),
  }
end

function Gemma3TextConfig:decoder_options()
  local o, p = layers.gemma_options(self), self.rope_parameters
  local head, most = self:head_width(), self.max_position_embeddings
  o.head_norm = true
  o.rotary = {
    full = rotary.new(self._name, p.full_attention, head, most),
    sliding = rotary.new(self._name, p.sliding_attention, head, most),
  }
  return o
end

local gemma3 = {Gemma3TextConfig = Gemma3TextConfig}

--- Gemma 3 without a head: LlamaModel's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, num_key_value_heads = 1, head_dim = 4}
--   accelhost.models.Gemma3TextModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 8
gemma3.Gemma3TextModel = decoder.model("Gemma3TextModel", Gemma3TextConfig, {layer = "Gemma3DecoderLayer"})

--- Gemma 3 that continues texts: LlamaForCausalLM's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, num_key_value_heads = 1, head_dim = 4}
--   local model = accelhost.models.Gemma3ForCausalLM(config):eval()
--   model:generate(accelhost.arange(3):view(1, 3), {max_new_tokens = 2, min_new_tokens = 2}):size(1)  --> 5
gemma3.Gemma3ForCausalLM = decoder.causal_lm("Gemma3ForCausalLM", gemma3.Gemma3TextModel)

--- Gemma 3 that sorts texts by their last token: LlamaForSequenceClassification's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, num_key_value_heads = 1, head_dim = 4, num_labels = 3, pad_token_id = 0}
--   accelhost.models.Gemma3TextForSequenceClassification(config)(accelhost.ones(2, 4):long()).logits:size(1)  --> 3
gemma3.Gemma3TextForSequenceClassification = decoder.sequence_classification("Gemma3TextForSequenceClassification",
  gemma3.Gemma3TextModel)

return gemma3
