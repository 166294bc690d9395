--- ELECTRA: BERT's layers, with embeddings of another width; a discriminator that finds replaced tokens, and the
--- generator that replaces them. The paths of its weights are those of published checkpoints.
local C = require "accelhost._C"
local EncoderConfig = require "accelhost.models.encoders.encoder_config"
local activations = require "accelhost.models.common.activations"
local arguments = require "accelhost.util.arguments"
local encoder = require "accelhost.models.encoders.encoder"
local heads = require "accelhost.models.encoders.encoder_heads"
local layers = require "accelhost.models.encoders.encoder_layers"
local losses = require "accelhost.models.common.losses"
local Dropout = require("accelhost.nn.dropout").Dropout
local LayerNorm = require("accelhost.nn.norm").LayerNorm
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module

--- ELECTRA's configuration; the defaults are the sizes of electra-small. The summary_... fields are of the model that
--- selects one of several texts.
--
--   accelhost.models.ElectraConfig{hidden_size = 64}.embedding_size  --> 128
local ElectraConfig = EncoderConfig:extend "ElectraConfig"
ElectraConfig.model_type = "electra"
ElectraConfig.defaults = EncoderConfig.fields {
  embedding_size = 128, hidden_size = 256, num_attention_heads = 4, intermediate_size = 1024, summary_type = "first",
  summary_use_proj = true, summary_activation = "gelu", summary_last_dropout = 0.1,
}

--- Return the options of the layers.
---@return table
function ElectraConfig:encoder_options()
  local o = EncoderConfig.encoder_options(self)
  o.embedding_width = self.embedding_size
  return o
end

--- ELECTRA without a head: BertModel's inputs and results but for the pooler's. inputs_embeds have the width
--- embedding_size.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.ElectraModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 12
local ElectraModel = encoder.model("ElectraModel", ElectraConfig, {
  base_model_prefix = "electra", layers = layers.of_family "Electra", accepts_prefix = true,
})

-- The summary of a text, for choices.
local Summary = Module:extend "ElectraSequenceSummary"

local selections = {
  first = function(x) return x:select(1, 0) end,
  last = function(x) return x:select(1, -1) end,
  mean = function(x) return x:mean(1) end,
}

function Summary:init(config)
  self.find = selections[config.summary_type]
  if not self.find then
    arguments.fail("ElectraConfig: summary_type: expected first, last or mean, got %s",
      arguments.describe(config.summary_type))
  end
  if config.summary_use_proj then self.summary = Linear(config.hidden_size, config.hidden_size) end
  local act = config.summary_activation
  if act and act ~= "" then self.act = activations.find("ElectraConfig: summary_activation", act) end
  if config.summary_last_dropout > 0 then self.last_dropout = Dropout(config.summary_last_dropout) end
end

function Summary:forward(x)
  x = self.find(x)
  if self.summary then x = self.summary(x) end
  if self.act then x = self.act(x) end
  return self.last_dropout and self.last_dropout(x) or x
end

local choice = {
  build = function(self, config, outputs)
    self.sequence_summary = Summary(config)
    self.classifier = Linear(config.hidden_size, outputs)
    if config.summary_type ~= "first" then self.electra.packs = false end -- it reads the states of padding
  end,
  logits = function(self, base) return self.classifier(self.sequence_summary(base.last_hidden_state)) end,
}

-- The generator's head.
local Generator = Module:extend "ElectraGeneratorPredictions"

function Generator:init(config)
  self.LayerNorm = LayerNorm(config.embedding_size, {eps = config.layer_norm_eps})
  self.dense = Linear(config.hidden_size, config.embedding_size)
end

function Generator:forward(x) return self.LayerNorm(C.gelu(self.dense(x))) end

local hidden = {
  tied = {["generator_lm_head.weight"] = "electra.embeddings.word_embeddings.weight"},
  build = function(self, config)
    self.generator_predictions = Generator(config)
    self.generator_lm_head = Linear(config.embedding_size, config.vocab_size)
  end,
  logits = function(self, base)
    return self.generator_lm_head(self.generator_predictions(base.last_hidden_state))
  end,
}

-- The discriminator's head.
local Discriminator = Module:extend "ElectraDiscriminatorPredictions"

function Discriminator:init(config)
  self.dense = Linear(config.hidden_size, config.hidden_size)
  self.act = config:find_activation "hidden_act"
  self.dense_prediction = Linear(config.hidden_size, 1)
end

function Discriminator:forward(x) return self.dense_prediction(self.act(self.dense(x))):squeeze(-1) end

---@family ELECTRA: vocab_size = 9, hidden_size = 12, num_hidden_layers = 1
local electra = heads.family("Electra", ElectraModel, {
  texts = heads.two_layers(function(x) return C.gelu(x) end), choices = choice, hidden = hidden,
})

--- ELECTRA that finds replaced tokens: logits [batch, tokens], above 0 where a token seems replaced, and the mean
--- binary cross entropy of the tokens that are no padding when labels [batch, tokens] (1: replaced) are given.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   local model = accelhost.models.ElectraForPreTraining(config)
--   model(accelhost.arange(2):view(1, 2)).logits:size(1)  --> 2
electra.ElectraForPreTraining = heads.of_tokens("ElectraForPreTraining", ElectraModel, {
  build = function(self, config) self.discriminator_predictions = Discriminator(config) end,
  logits = function(self, base) return self.discriminator_predictions(base.last_hidden_state) end,
  loss = function(self, logits, labels, given)
    return losses.of_flags(self._name, logits, labels, given.attention_mask)
  end,
})

return electra
