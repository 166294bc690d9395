--- Phi-3 and Phi-4-mini: Llama with fused linear maps, and longrope.
local C = require "accelhost._C"
local DecoderConfig = require "accelhost.models.decoders.decoder_config"
local decoder = require "accelhost.models.decoders.decoder"
local layers = require "accelhost.models.decoders.decoder_layers"
local arguments = require "accelhost.util.arguments"

local null = C.json.null

--- Phi-3's configuration; the defaults are the sizes of Phi-3-mini. original_max_position_embeddings is the length from
--- which longrope uses its long factors.
--
--   accelhost.models.Phi3Config{partial_rotary_factor = 0.5}.rope_parameters.partial_rotary_factor  --> 0.5
---@field rope_parameters table rope_type (default or longrope), rope_theta and the scaling's
local Phi3Config = DecoderConfig:extend "Phi3Config"
Phi3Config.model_type = "phi3"
Phi3Config.defaults = {
  vocab_size = 32064, hidden_size = 3072, intermediate_size = 8192, num_hidden_layers = 32, num_attention_heads = 32,
  num_key_value_heads = null, resid_pdrop = 0, embd_pdrop = 0, attention_dropout = 0, hidden_act = "silu",
  max_position_embeddings = 4096, original_max_position_embeddings = 4096, initializer_range = 0.02,
  rms_norm_eps = 1e-5, use_cache = true, tie_word_embeddings = false, rope_parameters = null, bos_token_id = 1,
  eos_token_id = 32000, pad_token_id = 32000, sliding_window = null,
}

--- Return the rotary parameters: "su" and "yarn" of the first files are longrope.
---@param given? table
---@param older table values of fields of older files
function Phi3Config:read_rope(given, older)
  local p = arguments.copy(given) or {}
  local kind = p.rope_type or p.type
  if kind == "su" or kind == "yarn" then p.rope_type = "longrope" end
  if p.rope_type == "longrope" or kind == "longrope" then
    p.original_max_position_embeddings = self.original_max_position_embeddings
  end
  p = DecoderConfig.read_rope(self, p, older)
  p.partial_rotary_factor = p.partial_rotary_factor or 1
  return p
end

function Phi3Config:decoder_options()
  local o = layers.gated_options(self)
  o.kind = self.sliding_window and "sliding" or "full"
  o.projections, o.mlp, o.dropout = "fused", layers.FusedGatedMLP, self.resid_pdrop
  return o
end

local phi3 = {Phi3Config = Phi3Config}

--- Phi-3 without a head: LlamaModel's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, pad_token_id = 0, eos_token_id = 1}
--   accelhost.models.Phi3Model(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 8
phi3.Phi3Model = decoder.model("Phi3Model", Phi3Config)

--- Phi-3 that continues texts: LlamaForCausalLM's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, pad_token_id = 0, eos_token_id = 1}
--   local model = accelhost.models.Phi3ForCausalLM(config):eval()
--   model:generate(accelhost.arange(3):view(1, 3), {max_new_tokens = 2, min_new_tokens = 2}):size(1)  --> 5
phi3.Phi3ForCausalLM = decoder.causal_lm("Phi3ForCausalLM", phi3.Phi3Model)

--- Phi-3 that sorts texts by their last token: LlamaForSequenceClassification's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     num_attention_heads = 2, num_labels = 3, pad_token_id = 0}
--   accelhost.models.Phi3ForSequenceClassification(config)(accelhost.ones(2, 4):long()).logits:size(1)  --> 3
phi3.Phi3ForSequenceClassification = decoder.sequence_classification("Phi3ForSequenceClassification",
  phi3.Phi3Model)

return phi3
