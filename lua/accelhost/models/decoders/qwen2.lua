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

--- Return the options of the layers.
---@return table
function Qwen2Config:decoder_options()
  local o = layers.gated_options(self)
  o.qkv_bias = true
  return o
end

local qwen2 = {Qwen2Config = Qwen2Config}

--- Qwen2 without a head: LlamaModel's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, num_key_value_heads = 1}
--   accelhost.models.Qwen2Model(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 8
qwen2.Qwen2Model = decoder.model("Qwen2Model", Qwen2Config)

--- Qwen2 that continues texts: LlamaForCausalLM's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, num_key_value_heads = 1}
--   local model = accelhost.models.Qwen2ForCausalLM(config):eval()
--   model:generate(accelhost.arange(3):view(1, 3), {max_new_tokens = 2, min_new_tokens = 2}):size(1)  --> 5
qwen2.Qwen2ForCausalLM = decoder.causal_lm("Qwen2ForCausalLM", qwen2.Qwen2Model)

--- Qwen2 that sorts texts by their last token: LlamaForSequenceClassification's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, num_key_value_heads = 1, num_labels = 3, pad_token_id = 0}
--   accelhost.models.Qwen2ForSequenceClassification(config)(accelhost.ones(2, 4):long()).logits:size(1)  --> 3
qwen2.Qwen2ForSequenceClassification = decoder.sequence_classification("Qwen2ForSequenceClassification",
  qwen2.Qwen2Model)

return qwen2
