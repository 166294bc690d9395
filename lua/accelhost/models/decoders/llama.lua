--- Llama 2 and 3, and models of their form (SmolLM2). The paths of the weights are those of published checkpoints.
local C = require "accelhost._C"
local DecoderConfig = require "accelhost.models.decoders.decoder_config"
local decoder = require "accelhost.models.decoders.decoder"
local layers = require "accelhost.models.decoders.decoder_layers"

local null = C.json.null

--- Llama's configuration; the defaults are the sizes of Llama 7B. rope_theta and rope_scaling of older files, or in the
--- constructor, become fields of rope_parameters. Entries of a file that change the numbers and are not implemented are
--- errors; all others are kept and written again.
--
--   accelhost.models.LlamaConfig{rope_theta = 5e5}.rope_parameters.rope_theta  --> 500000
---@field rope_parameters table rope_type, rope_theta and the scaling's: linear, dynamic, yarn, llama3 or longrope
local LlamaConfig = DecoderConfig:extend "LlamaConfig"
LlamaConfig.model_type = "llama"
LlamaConfig.defaults = {
  vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32, num_attention_heads = 32,
  num_key_value_heads = null, hidden_act = "silu", max_position_embeddings = 2048, initializer_range = 0.02,
  rms_norm_eps = 1e-6, use_cache = true, bos_token_id = 1, eos_token_id = 2, tie_word_embeddings = false,
  rope_parameters = null, attention_bias = false, attention_dropout = 0, mlp_bias = false, head_dim = null,
}

--- Return the options of the layers.
function LlamaConfig:decoder_options()
  local o = layers.gated_options(self)
  o.qkv_bias, o.out_bias, o.mlp_bias = self.attention_bias, self.attention_bias, self.mlp_bias
  return o
end

local llama = {LlamaConfig = LlamaConfig}

--- Llama without a head. Called with input_ids [batch, tokens], or a table or a tokenizer's batch with input_ids and
--- any of attention_mask [batch, tokens so far] (1 for tokens, 0 for padding), position_ids, inputs_embeds (in place of
--- the ids), past_key_values (of an earlier call), use_cache, output_hidden_states and output_attentions;
--- token_type_ids are accepted and ignored. Returns a table: last_hidden_state [batch, tokens, hidden_size],
--- past_key_values (for each layer keys and values [batch, num_key_value_heads, tokens so far, width]; not while
--- training, unless use_cache is set), and hidden_states and attentions if requested.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, num_key_value_heads = 1}
--   accelhost.models.LlamaModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 8
llama.LlamaModel = decoder.model("LlamaModel", LlamaConfig)

--- Llama that continues texts: logits [batch, tokens, vocab_size], and, when labels [batch, tokens] (the ids
--- themselves) are passed, the mean cross entropy of each next token; labels of -100 are left out. `logits_to_keep` = n
--- computes the logits of the last n tokens only; `skip_logits` = true returns the loss without them.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, num_key_value_heads = 1}
--   local model = accelhost.models.LlamaForCausalLM(config)
--   local ids = accelhost.arange(3):view(1, 3)
--   model{input_ids = ids, labels = ids}.loss:dim()  --> 0
--   model:eval():generate(ids, {max_new_tokens = 2, min_new_tokens = 2}):size(1)  --> 5
llama.LlamaForCausalLM = decoder.causal_lm("LlamaForCausalLM", llama.LlamaModel)

--- Llama that sorts texts by their last token that is no padding: logits [batch, num_labels], and, when labels are
--- passed, the loss of BertForSequenceClassification. A batch of several texts requires pad_token_id.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, num_labels = 3, pad_token_id = 0}
--   accelhost.models.LlamaForSequenceClassification(config)(accelhost.ones(2, 4):long()).logits:size(1)  --> 3
llama.LlamaForSequenceClassification = decoder.sequence_classification("LlamaForSequenceClassification",
  llama.LlamaModel)

return llama
