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

local xlm_roberta = {XLMRobertaConfig = XLMRobertaConfig}

--- XLM-RoBERTa without a head: RobertaModel's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.XLMRobertaModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 12
xlm_roberta.XLMRobertaModel = encoder.model("XLMRobertaModel", XLMRobertaConfig, {
  base_model_prefix = "roberta", layers = layers.of_family "XLMRoberta", has_pooler = true,
})

--- XLM-RoBERTa that sorts texts by a head on the first token: the inputs, logits and losses of
--- BertForSequenceClassification.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, num_labels = 3}
--   local model = accelhost.models.XLMRobertaForSequenceClassification(config)
--   model(accelhost.arange(2):view(1, 2)).logits:size(1)  --> 3
xlm_roberta.XLMRobertaForSequenceClassification = heads.sequence_classification("XLMRobertaForSequenceClassification",
  xlm_roberta.XLMRobertaModel, heads.two_layers(C.tanh))

--- XLM-RoBERTa that sorts tokens, as BertForTokenClassification does.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, num_labels = 3}
--   local model = accelhost.models.XLMRobertaForTokenClassification(config)
--   model(accelhost.arange(2):view(1, 2)).logits:size(2)  --> 3
xlm_roberta.XLMRobertaForTokenClassification = heads.token_classification("XLMRobertaForTokenClassification",
  xlm_roberta.XLMRobertaModel)

--- XLM-RoBERTa that finds answers in texts, as BertForQuestionAnswering does.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   local model = accelhost.models.XLMRobertaForQuestionAnswering(config)
--   model(accelhost.arange(2):view(1, 2)).end_logits:size(1)  --> 2
xlm_roberta.XLMRobertaForQuestionAnswering = heads.question_answering("XLMRobertaForQuestionAnswering",
  xlm_roberta.XLMRobertaModel)

--- XLM-RoBERTa that selects one of several texts, as BertForMultipleChoice does.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   local model = accelhost.models.XLMRobertaForMultipleChoice(config)
--   model(accelhost.arange(4):view(1, 2, 2)).logits:size(1)  --> 2
xlm_roberta.XLMRobertaForMultipleChoice = heads.multiple_choice("XLMRobertaForMultipleChoice",
  xlm_roberta.XLMRobertaModel,
  heads.pooled "dropout")

--- XLM-RoBERTa that guesses hidden tokens, as BertForMaskedLM does.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   local model = accelhost.models.XLMRobertaForMaskedLM(config)
--   model(accelhost.arange(2):view(1, 2)).logits:size(2)  --> 9
xlm_roberta.XLMRobertaForMaskedLM = heads.masked_lm("XLMRobertaForMaskedLM",
  xlm_roberta.XLMRobertaModel, heads.language(xlm_roberta.XLMRobertaModel))

return xlm_roberta
