--- XLM-RoBERTa: RoBERTa of a hundred languages, with the same layers.
local C = require "accelhost._C"
local EncoderConfig = require "accelhost.models.encoders.encoder_config"
local RobertaConfig = require("accelhost.models.encoders.roberta").RobertaConfig
local encoder = require "accelhost.models.encoders.encoder"
local heads = require "accelhost.models.encoders.encoder_heads"
local layers = require "accelhost.models.encoders.encoder_layers"

--- XLM-RoBERTa's configuration; the defaults are transformers'.
--
--   accelhost.models.XLMRobertaConfig{vocab_size = 250002}.pad_token_id  --> 1
local XLMRobertaConfig = EncoderConfig:extend "XLMRobertaConfig"
XLMRobertaConfig.model_type = "xlm-roberta"
XLMRobertaConfig.defaults = EncoderConfig.fields {pad_token_id = 1, bos_token_id = 0, eos_token_id = 2}
XLMRobertaConfig.encoder_options = RobertaConfig.encoder_options

--- XLM-RoBERTa without a head: RobertaModel's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.XLMRobertaModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 12
local XLMRobertaModel = encoder.model("XLMRobertaModel", XLMRobertaConfig, {
  base_model_prefix = "roberta", layers = layers.of_family "XLMRoberta", has_pooler = true, accepts_prefix = true,
})

---@family XLM-RoBERTa: vocab_size = 9, hidden_size = 12, num_hidden_layers = 1
return heads.family("XLMRoberta", XLMRobertaModel, {
  texts = heads.two_layers(C.tanh), choices = heads.pooled "dropout", hidden = heads.language(XLMRobertaModel),
})
