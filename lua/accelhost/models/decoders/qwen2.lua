--- Qwen2 and Qwen2.5: Llama with biases of queries, keys and values.
local C = require "accelhost._C"
local DecoderConfig = require "accelhost.models.decoders.decoder_config"
local decoder = require "accelhost.models.decoders.decoder"
local layers = require "accelhost.models.decoders.decoder_layers"

local null = C.json.null

--- Qwen2's configuration; the defaults are transformers'. With use_sliding_window, layers from max_window_layers on
--- attend to the last sliding_window tokens; layer_types has the type of each layer.
--
--   accelhost.models.Qwen2Config{num_hidden_layers = 2}.layer_types[2]  --> full_attention
---@field rope_parameters table rope_type, rope_theta and the parameters of the scaling
local Qwen2Config = DecoderConfig:extend "Qwen2Config"
Qwen2Config.model_type = "qwen2"
Qwen2Config.defaults = {
  vocab_size = 151936, hidden_size = 4096, intermediate_size = 22016, num_hidden_layers = 32,
  num_attention_heads = 32, num_key_value_heads = 32, hidden_act = "silu", max_position_embeddings = 32768,
  initializer_range = 0.02, rms_norm_eps = 1e-6, use_cache = true, tie_word_embeddings = false, rope_parameters = null,
  use_sliding_window = false, sliding_window = 4096, max_window_layers = 28, layer_types = null, attention_dropout = 0,
}
Qwen2Config.nullable = {sliding_window = true, num_key_value_heads = true}
Qwen2Config.may_be_zero = {max_window_layers = true}
Qwen2Config.default_layer_types = DecoderConfig.last_layers_slide

function Qwen2Config:decoder_options()
  local o = layers.gated_options(self)
  o.qkv_bias = true
  return o
end

---@family Qwen2: num_attention_heads = 2, num_key_value_heads = 1
return decoder.family("Qwen2", Qwen2Config)
