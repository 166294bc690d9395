--- Qwen3: Llama with normalised queries and keys.
local C = require "accelhost._C"
local DecoderConfig = require "accelhost.models.decoders.decoder_config"
local decoder = require "accelhost.models.decoders.decoder"
local layers = require "accelhost.models.decoders.decoder_layers"

local null = C.json.null

--- Qwen3's configuration; the defaults are transformers'. Windows are Qwen2Config's.
--
--   accelhost.models.Qwen3Config{hidden_size = 1024}.head_dim  --> 128
---@field rope_parameters table rope_type, rope_theta and the parameters of the scaling
local Qwen3Config = DecoderConfig:extend "Qwen3Config"
Qwen3Config.model_type = "qwen3"
Qwen3Config.defaults = {
  vocab_size = 151936, hidden_size = 4096, intermediate_size = 22016, num_hidden_layers = 32,
  num_attention_heads = 32, num_key_value_heads = 32, head_dim = 128, hidden_act = "silu",
  max_position_embeddings = 32768, initializer_range = 0.02, rms_norm_eps = 1e-6, use_cache = true,
  tie_word_embeddings = false, rope_parameters = null, attention_bias = false, use_sliding_window = false,
  sliding_window = 4096, max_window_layers = 28, layer_types = null, attention_dropout = 0,
}
Qwen3Config.nullable = {sliding_window = true, num_key_value_heads = true}
Qwen3Config.may_be_zero = {max_window_layers = true}
Qwen3Config.default_layer_types = DecoderConfig.last_layers_slide

function Qwen3Config:decoder_options()
  local o = layers.gated_options(self)
  o.qkv_bias, o.out_bias, o.head_norm = self.attention_bias, self.attention_bias, true
  return o
end

---@family Qwen3: num_attention_heads = 2, num_key_value_heads = 1
return decoder.family("Qwen3", Qwen3Config)
