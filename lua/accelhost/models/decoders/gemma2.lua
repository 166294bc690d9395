--- Gemma 2: layers with and without a window in turn, bounded scores and logits, norms before and after attention and
--- MLP.
local C = require "accelhost._C"
local DecoderConfig = require "accelhost.models.decoders.decoder_config"
local decoder = require "accelhost.models.decoders.decoder"
local layers = require "accelhost.models.decoders.decoder_layers"

local null = C.json.null

--- Gemma 2's configuration; the defaults are the sizes of Gemma 2 2B. final_logit_softcapping and
--- attn_logit_softcapping bound logits and scores (nil: not).
--
--   accelhost.models.Gemma2Config{num_hidden_layers = 2}.layer_types[1]  --> sliding_attention
---@field layer_types string[] sliding_attention or full_attention of each layer
local Gemma2Config = DecoderConfig:extend "Gemma2Config"
Gemma2Config.model_type = "gemma2"
Gemma2Config.defaults = {
  vocab_size = 256000, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26, num_attention_heads = 8,
  num_key_value_heads = 4, head_dim = 256, hidden_activation = "gelu_pytorch_tanh", max_position_embeddings = 8192,
  initializer_range = 0.02, rms_norm_eps = 1e-6, use_cache = true, pad_token_id = 0, eos_token_id = 1,
  bos_token_id = 2, tie_word_embeddings = true, rope_parameters = null, attention_bias = false, attention_dropout = 0,
  query_pre_attn_scalar = 256, sliding_window = 4096, layer_types = null, final_logit_softcapping = 30,
  attn_logit_softcapping = 50,
}
Gemma2Config.nullable = {sliding_window = true, final_logit_softcapping = true, attn_logit_softcapping = true}

--- Return layer_types: a window in the first of two layers.
---@return string[]
function Gemma2Config:default_layer_types() return self:all_slide_but_every(2) end

function Gemma2Config:decoder_options()
  local o = layers.gemma_options(self)
  o.rotary = layers.one_rotary(self)
  return o
end

---@family Gemma 2: num_attention_heads = 2, num_key_value_heads = 1, head_dim = 4
return decoder.family("Gemma2", Gemma2Config)
