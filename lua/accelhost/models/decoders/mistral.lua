--- Mistral: Llama with a window of the last keys in each layer.
local C = require "accelhost._C"
local DecoderConfig = require "accelhost.models.decoders.decoder_config"
local decoder = require "accelhost.models.decoders.decoder"
local layers = require "accelhost.models.decoders.decoder_layers"

local null = C.json.null

--- Mistral's configuration; the defaults are the sizes of Mistral 7B v0.1. With sliding_window (nil: none) a token
--- attends to that number of tokens, itself included.
--
--   accelhost.models.MistralConfig{sliding_window = 8}.sliding_window  --> 8
---@field rope_parameters table rope_type, rope_theta and the parameters of the scaling
local MistralConfig = DecoderConfig:extend "MistralConfig"
MistralConfig.model_type = "mistral"
MistralConfig.defaults = {
  vocab_size = 32000, hidden_size = 4096, intermediate_size = 14336, num_hidden_layers = 32, num_attention_heads = 32,
  num_key_value_heads = 8, head_dim = null, hidden_act = "silu", max_position_embeddings = 131072,
  initializer_range = 0.02, rms_norm_eps = 1e-6, use_cache = true, bos_token_id = 1, eos_token_id = 2,
  tie_word_embeddings = false, rope_parameters = null, sliding_window = 4096, attention_dropout = 0,
}
MistralConfig.nullable = {sliding_window = true, num_key_value_heads = true}

function MistralConfig:decoder_options()
  local o = layers.gated_options(self)
  o.kind = self.sliding_window and "sliding" or "full"
  return o
end

---@family Mistral: num_attention_heads = 2, num_key_value_heads = 1
return decoder.family("Mistral", MistralConfig)
