--- RoBERTa: BERT's layers with positions that count tokens, and a head of two layers for texts. The paths of its
--- weights are those of published checkpoints.
local C = require "accelhost._C"
local EncoderConfig = require "accelhost.models.encoders.encoder_config"
local encoder = require "accelhost.models.encoders.encoder"
local heads = require "accelhost.models.encoders.encoder_heads"
local layers = require "accelhost.models.encoders.encoder_layers"

--- RoBERTa's configuration; the defaults are transformers', with the sizes of roberta-base. Of max_position_embeddings
--- positions a text has the ones after pad_token_id: 512 of roberta-base's 514.
--
--   accelhost.models.RobertaConfig{hidden_size = 384}.pad_token_id  --> 1
local RobertaConfig = EncoderConfig:extend "RobertaConfig"
RobertaConfig.model_type = "roberta"
RobertaConfig.defaults = EncoderConfig.fields {
  vocab_size = 50265, pad_token_id = 1, bos_token_id = 0, eos_token_id = 2,
}

--- Return the options of the layers.
---@return table
function RobertaConfig:encoder_options()
  local o = EncoderConfig.encoder_options(self)
  o.first_position = self:padding() + 1
  return o
end

local roberta = {RobertaConfig = RobertaConfig}

--- RoBERTa without a head: BertModel's inputs and results. Without position_ids a text's tokens are counted from
--- pad_token_id + 1, and those of padding, by their number, are left out.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.RobertaModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 12
roberta.RobertaModel = encoder.model("RobertaModel", RobertaConfig, {
  base_model_prefix = "roberta", layers = layers.of_family "Roberta", has_pooler = true,
})

--- RoBERTa that sorts texts by a head on the first token: the inputs, logits and losses of
--- BertForSequenceClassification.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, num_labels = 3}
--   local model = accelhost.models.RobertaForSequenceClassification(config)
--   model(accelhost.arange(2):view(1, 2)).logits:size(1)  --> 3
roberta.RobertaForSequenceClassification = heads.sequence_classification("RobertaForSequenceClassification",
  roberta.RobertaModel, heads.two_layers(C.tanh))

--- RoBERTa that sorts tokens, as BertForTokenClassification does.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, num_labels = 3}
--   local model = accelhost.models.RobertaForTokenClassification(config)
--   model(accelhost.arange(2):view(1, 2)).logits:size(2)  --> 3
roberta.RobertaForTokenClassification = heads.token_classification("RobertaForTokenClassification",
  roberta.RobertaModel)

--- RoBERTa that finds answers in texts, as BertForQuestionAnswering does.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   local model = accelhost.models.RobertaForQuestionAnswering(config)
--   model(accelhost.arange(2):view(1, 2)).end_logits:size(1)  --> 2
roberta.RobertaForQuestionAnswering = heads.question_answering("RobertaForQuestionAnswering", roberta.RobertaModel)

--- RoBERTa that selects one of several texts, as BertForMultipleChoice does.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   local model = accelhost.models.RobertaForMultipleChoice(config)
--   model(accelhost.arange(4):view(1, 2, 2)).logits:size(1)  --> 2
roberta.RobertaForMultipleChoice = heads.multiple_choice("RobertaForMultipleChoice", roberta.RobertaModel,
  heads.pooled "dropout")

--- RoBERTa that guesses hidden tokens, as BertForMaskedLM does.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   local model = accelhost.models.RobertaForMaskedLM(config)
--   model(accelhost.arange(2):view(1, 2)).logits:size(2)  --> 9
roberta.RobertaForMaskedLM = heads.masked_lm("RobertaForMaskedLM",
  roberta.RobertaModel, heads.language(roberta.RobertaModel))

return roberta
