--- BERT: an encoder of whole texts. The paths of its weights are those of published checkpoints.
local C = require "accelhost._C"
local EncoderConfig = require "accelhost.models.encoders.encoder_config"
local encoder = require "accelhost.models.encoders.encoder"
local heads = require "accelhost.models.encoders.encoder_heads"
local layers = require "accelhost.models.encoders.encoder_layers"
local LayerNorm = require("accelhost.nn.norm").LayerNorm
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module
local Parameter = require("accelhost.nn.parameter").new

--- BERT's configuration; the defaults are the sizes of bert-base.
--
--   accelhost.models.BertConfig{hidden_size = 384}.num_attention_heads  --> 12
local BertConfig = EncoderConfig:extend "BertConfig"
BertConfig.model_type = "bert"
BertConfig.defaults = EncoderConfig.fields {position_embedding_type = "absolute"}

local bert = {BertConfig = BertConfig}

--- BERT without a head. Called with input_ids [batch, tokens], or a table or a tokenizer's batch with input_ids and any
--- of attention_mask (1 for tokens, 0 for padding), token_type_ids, position_ids, inputs_embeds (in place of the ids),
--- past_key_values (of each layer, in front of the text's; attention_mask has their columns too), output_hidden_states
--- and output_attentions. Returns a table: last_hidden_state [batch, tokens, hidden_size],
--- pooler_output [batch, hidden_size] (the first token's state through a layer and tanh), and hidden_states and
--- attentions, one for each layer, if requested.
---
--- If attention_mask hides enough tokens, a batch on the CPU is computed without them, which makes training on short
--- texts more than twice as fast. The states of padding are 0 then, all others are those of the padded batch, to
--- rounding. pack_texts = false in the configuration turns this off, and so does output_attentions; second derivatives
--- need it off.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, intermediate_size = 24}
--   local model = accelhost.models.BertModel(config):eval()
--   model(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 12
---@param options? table add_pooling_layer = false leaves the pooler out
bert.BertModel = encoder.model("BertModel", BertConfig, {
  base_model_prefix = "bert", layers = layers.of_family "Bert", has_pooler = true, accepts_prefix = true,
})

--- BERT that sorts texts: logits [batch, num_labels] from the pooler's output, and a loss when labels are given. Labels
--- [batch] of integers are classes (cross entropy); with one label, or floating ones, it is a regression (mean squared
--- error), and floating [batch, num_labels] are several labels at once (binary cross entropy). config.problem_type
--- ("regression", "single_label_classification", "multi_label_classification") overrides these rules.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, num_labels = 3}
--   local model = accelhost.models.BertForSequenceClassification(config)
--   model{input_ids = accelhost.arange(2):view(1, 2), labels = accelhost.arange(1)}.loss:dim()  --> 0
bert.BertForSequenceClassification = heads.sequence_classification("BertForSequenceClassification", bert.BertModel,
  heads.pooled "classifier_dropout")

--- BERT that sorts tokens: logits [batch, tokens, num_labels], and the mean cross entropy when labels [batch, tokens]
--- are given; those of -100 are left out.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, num_labels = 3}
--   accelhost.models.BertForTokenClassification(config)(accelhost.arange(2):view(1, 2)).logits:size(2)  --> 3
bert.BertForTokenClassification = heads.token_classification("BertForTokenClassification", bert.BertModel)

--- BERT that finds answers in texts: start_logits and end_logits [batch, tokens], and, when start_positions and
--- end_positions [batch] are given, the mean of both cross entropies; positions beyond the text are left out.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.BertForQuestionAnswering(config)(accelhost.arange(2):view(1, 2)).end_logits:size(1)  --> 2
bert.BertForQuestionAnswering = heads.question_answering("BertForQuestionAnswering", bert.BertModel)

--- BERT that selects one of several texts: called with inputs [batch, choices, tokens]; logits [batch, choices], and
--- the cross entropy when labels [batch] are given.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.BertForMultipleChoice(config)(accelhost.arange(4):view(1, 2, 2)).logits:size(1)  --> 2
bert.BertForMultipleChoice = heads.multiple_choice("BertForMultipleChoice", bert.BertModel,
  heads.pooled "classifier_dropout")

-- A layer, and the scores of all tokens by the word embeddings.
local Transform = Module:extend "BertPredictionHeadTransform"

function Transform:init(o)
  self.dense = Linear(o.width, o.width)
  self.act = o.act
  self.LayerNorm = LayerNorm(o.width, {eps = o.eps})
end

function Transform:forward(x) return self.LayerNorm(self.act(self.dense(x))) end

local Prediction = Module:extend "BertLMPredictionHead"

function Prediction:init(o)
  self.transform = Transform(o)
  self.decoder = Linear(o.width, o.words)
  self.bias = Parameter(C.zeros({o.words}))
end

function Prediction:forward(x) return self.decoder(self.transform(x)) end

local OnlyMLM = Module:extend "BertOnlyMLMHead"

function OnlyMLM:init(o) self.predictions = Prediction(o) end
function OnlyMLM:forward(x) return self.predictions(x) end

--- BERT that guesses hidden tokens: logits [batch, tokens, vocab_size], and the mean cross entropy when labels
--- [batch, tokens] are given; those of -100, the tokens that were not hidden, are left out.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.BertForMaskedLM(config)(accelhost.arange(2):view(1, 2)).logits:size(2)  --> 9
bert.BertForMaskedLM = heads.masked_lm("BertForMaskedLM", bert.BertModel, {
  build = function(self, config) self.cls = OnlyMLM(config:encoder_options()) end,
  logits = function(self, base) return self.cls(base.last_hidden_state) end,
  tied = {
    ["cls.predictions.decoder.weight"] = "bert.embeddings.word_embeddings.weight",
    ["cls.predictions.decoder.bias"] = "cls.predictions.bias",
  },
})

return bert
