--- The models of encoders with a head for a task: classes of texts, classes of tokens, spans of answers, choices,
--- hidden tokens.
--
-- The functions that make a class return it; `base` is the class of `encoder.model`.
-- A head that differs between families is a table {build = function(self, config, outputs), logits = function(self,
-- base, given), pools = whether it reads the pooler's output}, where base is the outputs of the model without a head.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local encoder = require "accelhost.models.encoders.encoder"
local inputs = require "accelhost.models.common.inputs"
local losses = require "accelhost.models.common.losses"
local Dropout = require("accelhost.nn.dropout").Dropout
local LayerNorm = require("accelhost.nn.norm").LayerNorm
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module
local Parameter = require("accelhost.nn.parameter").new
local PreTrainedModel = require("accelhost.models.common.pretrained").PreTrainedModel

local heads = {}

local function accepting(...)
  local known = arguments.copy(encoder.inputs)
  for _, name in ipairs {...} do known[name] = "tensor" end
  return known
end

local with_labels, with_spans = accepting "labels", accepting("start_positions", "end_positions")

-- Return the outputs of the model without a head, and the labels.
local function run(self, batch, more)
  local given = inputs.read(self._name, with_labels, batch, more)
  local labels = given.labels
  given.labels = nil
  return self[self.base_model_prefix](given), labels, given
end

local function result(logits, loss, base)
  return {logits = logits, loss = loss, hidden_states = base.hidden_states, attentions = base.attentions}
end

local function define(name, base, build, forward)
  local made = PreTrainedModel:extend(name)
  made.build, made.forward = build, forward
  made.config_class, made.base_model_prefix, made.base_class = base.config_class, base.base_model_prefix, base
  made.token_embedding, made.init_weight = base.token_embedding, base.init_weight
  made.accepts_prefix = base.accepts_prefix
  return made
end

local function add_base(self, config, pools)
  local options = {}
  if self.base_class.has_pooler then options.add_pooling_layer = pools or false end
  self[self.base_model_prefix] = self.base_class(config, options)
end

-- Heads of texts.

--- Return the head of dropout and a layer after the pooler.
---@param rate string the option of the dropout's rate
function heads.pooled(rate)
  return {
    pools = true,
    build = function(self, config, outputs)
      local o = config:encoder_options()
      self.dropout = Dropout(o[rate])
      self.classifier = Linear(o.width, outputs)
    end,
    logits = function(self, base) return self.classifier(self.dropout(base.pooler_output)) end,
  }
end

-- Two layers on the first token.
local ClassificationHead = Module:extend "ClassificationHead"

function ClassificationHead:init(o, outputs, act)
  self.dense = Linear(o.width, o.width)
  self.dropout = Dropout(o.classifier_dropout)
  self.out_proj = Linear(o.width, outputs)
  self.act = act
end

function ClassificationHead:forward(x)
  return self.out_proj(self.dropout(self.act(self.dense(self.dropout(x)))))
end

--- Return the head of two layers on the first token, with an activation between them.
---@param act fun(x: Tensor): Tensor
function heads.two_layers(act)
  return {
    build = function(self, config, outputs)
      self.classifier = ClassificationHead(config:encoder_options(), outputs, act)
    end,
    logits = function(self, base) return self.classifier(base.last_hidden_state:select(1, 0)) end,
  }
end

local function build_sequence(self, config)
  add_base(self, config, self.head.pools)
  self.head.build(self, config, config.num_labels)
end

local function forward_sequence(self, batch, more)
  local base, labels = run(self, batch, more)
  local logits = self.head.logits(self, base)
  return result(logits, labels and losses.of_texts(self, logits, labels), base)
end

--- Make the class of a family's model that sorts texts.
function heads.sequence_classification(name, base, head)
  local made = define(name, base, build_sequence, forward_sequence)
  made.head = head
  return made
end

-- Choices.

local function build_choice(self, config)
  add_base(self, config, self.head.pools)
  self.head.build(self, config, 1)
end

local dims = {input_ids = 3, attention_mask = 3, token_type_ids = 3, position_ids = 3, inputs_embeds = 4}

-- Replace [batch, choices, ...] by [batch * choices, ...]. Return the number of choices.
local function flatten_choices(what, given)
  local lead = given.input_ids or given.inputs_embeds
  local count = lead and lead:dim() > 1 and lead:size(1)
  for name, expected in pairs(dims) do
    local tensor = given[name]
    if tensor and tensor:dim() ~= expected then
      arguments.fail("%s: %s: expected %d dims (batch, choices, tokens%s), got shape %s", what, name, expected,
        expected == 4 and ", width" or "", arguments.shape_text(tensor))
    end
    if tensor then given[name] = tensor:flatten(0, 1) end
  end
  return count
end

local function forward_choice(self, batch, more)
  local given = inputs.read(self._name, with_labels, batch, more)
  local labels, count = given.labels, flatten_choices(self._name, given)
  given.labels = nil
  local base = self[self.base_model_prefix](given)
  local logits = self.head.logits(self, base):view(-1, count)
  return result(logits, labels and F.cross_entropy(logits, labels), base)
end

--- Make the class of a family's model that selects one of several texts.
function heads.multiple_choice(name, base, head)
  local made = define(name, base, build_choice, forward_choice)
  made.head = head
  return made
end

-- Classes of tokens.

local function build_tokens(self, config)
  local o = config:encoder_options()
  add_base(self, config)
  self.dropout = Dropout(o.classifier_dropout)
  self.classifier = Linear(o.width, config.num_labels)
end

local function forward_tokens(self, batch, more)
  local base, labels = run(self, batch, more)
  local logits = self.classifier(self.dropout(base.last_hidden_state))
  return result(logits, labels and losses.of_tokens(self._name, logits, labels), base)
end

--- Make the class of a family's model that sorts tokens.
function heads.token_classification(name, base)
  return define(name, base, build_tokens, forward_tokens)
end

-- Spans of answers.

local function build_spans(self, config)
  local o = config:encoder_options()
  if config.num_labels ~= 2 then
    arguments.fail("%s: num_labels: expected 2, the begin and the end of an answer, got %d", self._name,
      config.num_labels)
  end
  add_base(self, config)
  self[self.base_model_prefix].packs = false -- the loss reads the logits of padding
  if o.answer_dropout then self.dropout = Dropout(o.answer_dropout) end
  self.qa_outputs = Linear(o.width, 2)
end

local function forward_spans(self, batch, more)
  local given = inputs.read(self._name, with_spans, batch, more)
  local first, last = given.start_positions, given.end_positions
  given.start_positions, given.end_positions = nil, nil
  local base = self[self.base_model_prefix](given)
  local x = base.last_hidden_state
  local logits = self.qa_outputs(self.dropout and self.dropout(x) or x)
  local begins, ends = logits:select(-1, 0):contiguous(), logits:select(-1, 1):contiguous()
  return {
    start_logits = begins, end_logits = ends, loss = first and last and losses.of_spans(begins, ends, first, last),
    hidden_states = base.hidden_states, attentions = base.attentions,
  }
end

--- Make the class of a family's model that finds answers in texts.
function heads.question_answering(name, base)
  return define(name, base, build_spans, forward_spans)
end

-- Hidden tokens.

-- A layer, and the scores of all tokens by the word embeddings.
local LMHead = Module:extend "LMHead"

function LMHead:init(o)
  self.dense = Linear(o.width, o.width)
  self.layer_norm = LayerNorm(o.width, {eps = o.eps})
  self.decoder = Linear(o.width, o.words)
  self.bias = Parameter(C.zeros({o.words}))
end

function LMHead:forward(x) return self.decoder(self.layer_norm(C.gelu(self.dense(x)))) end

--- Return the head of RoBERTa, `lm_head`, for a family.
---@return table # and tied: the weights that are others
function heads.language(base)
  return {
    build = function(self, config) self.lm_head = LMHead(config:encoder_options()) end,
    logits = function(self, outputs) return self.lm_head(outputs.last_hidden_state) end,
    tied = {
      ["lm_head.decoder.weight"] = ("%s.%s.weight"):format(base.base_model_prefix, base.token_embedding),
      ["lm_head.decoder.bias"] = "lm_head.bias",
    },
  }
end

local function build_head(self, config)
  add_base(self, config)
  self.head.build(self, config)
end

local function forward_head(self, batch, more)
  local base, labels, given = run(self, batch, more)
  local logits = self.head.logits(self, base)
  return result(logits, labels and self.head.loss(self, logits, labels, given), base)
end

--- Make the class of a family's model with a head on all tokens, which has a loss(self, logits, labels, given).
function heads.of_tokens(name, base, head)
  local made = define(name, base, build_head, forward_head)
  made.head = head
  return made
end

--- Make the class of a family's model that guesses hidden tokens.
---@param head table with `tied`: the weights that are others
function heads.masked_lm(name, base, head)
  head.loss = function(self, logits, labels) return losses.of_tokens(self._name, logits, labels) end
  local made = heads.of_tokens(name, base, head)
  made.tied = head.tied
  return made
end

--- $family that sorts texts by a head on the first token: the inputs, logits and losses of
--- BertForSequenceClassification.
--
--   local config = {$sizes, num_labels = 3}
--   local model = accelhost.models.$nameForSequenceClassification(config)
--   model(accelhost.arange(2):view(1, 2)).logits:size(1)  --> 3
---@template heads.family ForSequenceClassification

--- $family that sorts tokens, as BertForTokenClassification does.
--
--   local config = {$sizes, num_labels = 3}
--   local model = accelhost.models.$nameForTokenClassification(config)
--   model(accelhost.arange(2):view(1, 2)).logits:size(2)  --> 3
---@template heads.family ForTokenClassification

--- $family that finds answers in texts, as BertForQuestionAnswering does.
--
--   local config = {$sizes}
--   local model = accelhost.models.$nameForQuestionAnswering(config)
--   model(accelhost.arange(2):view(1, 2)).end_logits:size(1)  --> 2
---@template heads.family ForQuestionAnswering

--- $family that selects one of several texts, as BertForMultipleChoice does.
--
--   local config = {$sizes}
--   local model = accelhost.models.$nameForMultipleChoice(config)
--   model(accelhost.arange(4):view(1, 2, 2)).logits:size(1)  --> 2
---@template heads.family ForMultipleChoice

--- $family that guesses hidden tokens, as BertForMaskedLM does.
--
--   local config = {$sizes}
--   local model = accelhost.models.$nameForMaskedLM(config)
--   model(accelhost.arange(2):view(1, 2)).logits:size(2)  --> 9
---@template heads.family ForMaskedLM

--- Make the classes of a family with a head; return a table of them by name, with the configuration and the base.
---@param name string the first part of the classes' names
---@param head_of {texts: table, choices: table, hidden: table}
function heads.family(name, base, head_of)
  return {
    [name .. "Config"] = base.config_class,
    [name .. "Model"] = base,
    [name .. "ForSequenceClassification"] =
      heads.sequence_classification(name .. "ForSequenceClassification", base, head_of.texts),
    [name .. "ForTokenClassification"] = heads.token_classification(name .. "ForTokenClassification", base),
    [name .. "ForQuestionAnswering"] = heads.question_answering(name .. "ForQuestionAnswering", base),
    [name .. "ForMultipleChoice"] = heads.multiple_choice(name .. "ForMultipleChoice", base, head_of.choices),
    [name .. "ForMaskedLM"] = heads.masked_lm(name .. "ForMaskedLM", base, head_of.hidden),
  }
end

return heads
