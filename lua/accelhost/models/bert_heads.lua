--- BERT with a head for a task: classes of texts, classes of tokens, hidden tokens.
local C = require "accelhost._C"
local activations = require "accelhost.models.activations"
local arguments = require "accelhost.util.arguments"
local bert = require "accelhost.models.bert"
local inputs = require "accelhost.models.inputs"
local losses = require "accelhost.models.losses"
local Dropout = require("accelhost.nn.dropout").Dropout
local LayerNorm = require("accelhost.nn.norm").LayerNorm
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module
local Parameter = require("accelhost.nn.parameter").new

local heads = {}
local known = arguments.copy(bert.inputs)
known.labels = "tensor"

-- The base model's outputs, and the labels.
local function run(self, batch, more)
  local given = inputs.read(self._name, known, batch, more)
  local labels = given.labels
  given.labels = nil
  return self.bert(given), labels
end

-- The outputs of a model with a head.
local function result(logits, loss, base)
  return {logits = logits, loss = loss, hidden_states = base.hidden_states, attentions = base.attentions}
end

-- The dropout and the layer behind the base model.
local function add_classifier(self, config)
  self.dropout = Dropout(config.classifier_dropout or config.hidden_dropout_prob)
  self.classifier = Linear(config.hidden_size, config.num_labels)
end

--- BERT that sorts texts: logits [batch, num_labels] from the pooler's output, and a loss when labels are given. Labels
--- [batch] of integers are classes (cross entropy); with one label, or floating ones, it is a regression (mean squared
--- error), and floating [batch, num_labels] are several labels at once (binary cross entropy). config.problem_type
--- ("regression", "single_label_classification", "multi_label_classification") overrides these rules.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, num_labels = 3}
--   local model = accelhost.models.BertForSequenceClassification(config)
--   model{input_ids = accelhost.arange(2):view(1, 2), labels = accelhost.arange(1)}.loss:dim()  --> 0
---@param config BertConfig|table
---@class BertForSequenceClassification: PreTrainedModel
local Sequence = bert.BertPreTrainedModel:extend "BertForSequenceClassification"
heads.BertForSequenceClassification = Sequence

function Sequence:build(config)
  self.bert = bert.BertModel(config)
  add_classifier(self, config)
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table # logits, loss, hidden_states, attentions
function Sequence:forward(batch, more)
  local base, labels = run(self, batch, more)
  local logits = self.classifier(self.dropout(base.pooler_output))
  return result(logits, labels and losses.of_texts(self, logits, labels), base)
end

--- BERT that sorts tokens: logits [batch, tokens, num_labels], and the mean cross entropy when labels [batch, tokens]
--- are given; those of -100 are left out.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, num_labels = 3}
--   accelhost.models.BertForTokenClassification(config)(accelhost.arange(2):view(1, 2)).logits:size(2)  --> 3
---@param config BertConfig|table
---@class BertForTokenClassification: PreTrainedModel
local Token = bert.BertPreTrainedModel:extend "BertForTokenClassification"
heads.BertForTokenClassification = Token

function Token:build(config)
  self.bert = bert.BertModel(config, {add_pooling_layer = false})
  add_classifier(self, config)
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table # logits, loss, hidden_states, attentions
function Token:forward(batch, more)
  local base, labels = run(self, batch, more)
  local logits = self.classifier(self.dropout(base.last_hidden_state))
  return result(logits, labels and losses.of_tokens(self._name, logits, labels), base)
end

-- A layer, and the scores of all tokens by the word embeddings.
local Transform = Module:extend "BertPredictionHeadTransform"

function Transform:init(config)
  self.dense = Linear(config.hidden_size, config.hidden_size)
  self.act = activations.find("BertConfig: hidden_act", config.hidden_act)
  self.LayerNorm = LayerNorm(config.hidden_size, {eps = config.layer_norm_eps})
end

function Transform:forward(x) return self.LayerNorm(self.act(self.dense(x))) end

local Prediction = Module:extend "BertLMPredictionHead"

function Prediction:init(config)
  self.transform = Transform(config)
  self.decoder = Linear(config.hidden_size, config.vocab_size)
  self.bias = Parameter(C.zeros({config.vocab_size}))
end

function Prediction:forward(x) return self.decoder(self.transform(x)) end

local OnlyMLM = Module:extend "BertOnlyMLMHead"

function OnlyMLM:init(config) self.predictions = Prediction(config) end
function OnlyMLM:forward(x) return self.predictions(x) end

--- BERT that guesses hidden tokens: logits [batch, tokens, vocab_size], and the mean cross entropy when labels
--- [batch, tokens] are given; those of -100, the tokens that were not hidden, are left out.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.BertForMaskedLM(config)(accelhost.arange(2):view(1, 2)).logits:size(2)  --> 9
---@param config BertConfig|table
---@class BertForMaskedLM: PreTrainedModel
local Masked = bert.BertPreTrainedModel:extend "BertForMaskedLM"
Masked.tied = {
  ["cls.predictions.decoder.weight"] = "bert.embeddings.word_embeddings.weight",
  ["cls.predictions.decoder.bias"] = "cls.predictions.bias",
}
heads.BertForMaskedLM = Masked

function Masked:build(config)
  self.bert = bert.BertModel(config, {add_pooling_layer = false})
  self.cls = OnlyMLM(config)
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table # logits, loss, hidden_states, attentions
function Masked:forward(batch, more)
  local base, labels = run(self, batch, more)
  local logits = self.cls(base.last_hidden_state)
  return result(logits, labels and losses.of_tokens(self._name, logits, labels), base)
end

return heads
