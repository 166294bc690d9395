--- Decoders with rotary embeddings: the classes of a family, from its options.
--
-- A family's file has its configuration, whose `decoder_options` sets the options of decoder_layers.lua and: embedding
-- and final_norm, the names of the first and the last layer (embed_tokens, norm), embedding_scale, windows and rotary,
-- both by the kind of attention, logit_cap, embedding_dropout.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local cache = require "accelhost.models.common.cache"
local container = require "accelhost.nn.container"
local context = require "accelhost.models.decoders.context"
local generation = require "accelhost.models.generation"
local inputs = require "accelhost.models.common.inputs"
local language_head = require "accelhost.models.decoders.language_head"
local layers = require "accelhost.models.decoders.decoder_layers"
local losses = require "accelhost.models.common.losses"
local rotary = require "accelhost.models.decoders.rotary"
local Dropout = require("accelhost.nn.dropout").Dropout
local Embedding = require("accelhost.nn.embedding").Embedding
local Linear = require("accelhost.nn.linear").Linear
local PreTrainedModel = require("accelhost.models.common.pretrained").PreTrainedModel

local fail = arguments.fail
local decoder = {}

-- The model without a head.

local function build(self, config)
  local o = config:decoder_options()
  o.head_width = config:head_width()
  self.embedding_name, self.norm_name = o.embedding or "embed_tokens", o.final_norm or "norm"
  self.embedding_scale, self.windows, self.rotary = o.embedding_scale, o.windows or {}, o.rotary
  if o.padding_idx and o.padding_idx >= config.vocab_size then
    fail("%s: pad_token_id %d is outside of the vocabulary of %d", config._name, o.padding_idx, config.vocab_size)
  end
  self[self.embedding_name] = Embedding(config.vocab_size, config.hidden_size, {padding_idx = o.padding_idx})
  if o.embedding_dropout and o.embedding_dropout > 0 then self.emb_dropout = Dropout(o.embedding_dropout) end
  self.layers = container.ModuleList {}
  self.kinds = {}
  for number = 1, config.num_hidden_layers do
    self.layers:append(self.layer_class(config, o, number))
    local kind = layers.kind_of(config, o, number)
    self.kinds[kind] = self.kinds[kind] or number
  end
  self[self.norm_name] = o.norm(config.hidden_size)
end

-- Return a number rounded to a dtype, as factors of transformers are. It is kept: a captured step may not write
-- tensors.
local rounded = {}
local function rounded_to(dtype, number)
  local key = dtype .. number
  rounded[key] = rounded[key] or C.tensor(number, {dtype = dtype, device = "cpu"}):item()
  return rounded[key]
end

local function token_vectors(self, ids)
  local x = self[self.embedding_name](ids)
  return self.embedding_scale and x * rounded_to(x.dtype, self.embedding_scale) or x
end

local function embed(self, given)
  local x = given.inputs_embeds or token_vectors(self, given.input_ids)
  return self.emb_dropout and self.emb_dropout(x) or x
end

-- Return the angles and the visible keys of each kind of attention.
local function add_places(self, how, given, past, dtype)
  local positions, length = given.position_ids, nil
  if not positions then
    positions, length = C.arange(past, past + how.tokens, {device = how.device}), past + how.tokens
  end
  local texts = context.texts(how, given.position_ids, past)
  how.angles, how.visible, how.windows = {}, {}, self.windows
  for kind, number in pairs(self.kinds) do
    local entry, window = given.past_key_values and given.past_key_values[number], self.windows[kind]
    how.angles[kind] = {rotary.angles(self.rotary[kind], positions, length, dtype)}
    how.visible[kind] = entry and entry.position and context.visible_at(entry, window)
      or context.visible(how.kept, how.tokens, past, how.device,
        {window = window, used = entry and cache.used(entry, window), texts = texts})
  end
end

local function forward(self, batch, more)
  local given = inputs.read(self._name, context.inputs, batch, more)
  local past = inputs.seen(self._name, given, #self.layers)
  local how = context.settings(self, given, past, math.huge)
  local x = embed(self, given)
  add_places(self, how, given, past, x.dtype)
  local results
  x, results = context.run(self, self.layers, x, how, given.past_key_values)
  return context.outputs(self[self.norm_name](x), results)
end

-- The language head.

local function base_of(self) return self[self.base_model_prefix] end

local function build_language_head(self, config)
  self[self.base_model_prefix] = self.base_class(config)
  self.lm_head = Linear(config.hidden_size, config.vocab_size, {bias = false})
end

local function forward_language_head(self, batch, more)
  return language_head.forward(self, base_of(self), batch, more, self.config.final_logit_softcapping)
end

-- Beyond the length where other factors begin, all angles change.
local function valid_length(self)
  local p = self.config.rope_parameters
  return p.rope_type == "longrope" and p.original_max_position_embeddings or math.huge
end

-- Angles are of each place alone, and no window has an end before the last token.
local function is_capturable(self, tokens)
  local base = base_of(self)
  for kind in pairs(base.kinds) do
    local window = base.windows[kind]
    if base.rotary[kind].varies or window and window < tokens then return false end
  end
  return true
end

-- The head that sorts texts: it reads the last token that is no padding.

local classifier_inputs = arguments.copy(context.inputs)
classifier_inputs.labels = "tensor"

local function build_classifier(self, config)
  self[self.base_model_prefix] = self.base_class(config)
  self.score = Linear(config.hidden_size, config.num_labels, {bias = false})
end

-- Return the states [batch, width] of the last tokens.
local function last_states(self, x, ids)
  local batch, tokens, pad = x:size(0), x:size(1), self.config.pad_token_id
  if not pad and batch > 1 then
    fail("%s: a batch of several texts requires pad_token_id in the configuration", self._name)
  elseif not pad or not ids then
    return x:select(1, tokens - 1)
  end
  local places = C.arange(tokens, {device = x.device})
  local last = (places * ids:ne(pad):to "int64"):amax(1)
  return x:flatten(0, 1):index_select(0, last + tokens * C.arange(batch, {device = x.device}))
end

local function forward_classifier(self, batch, more)
  local given = inputs.read(self._name, classifier_inputs, batch, more)
  local labels = given.labels
  given.labels = nil
  local base = base_of(self)(given)
  local logits = self.score(last_states(self, base.last_hidden_state, given.input_ids))
  return {
    logits = logits, loss = labels and losses.of_texts(self, logits, labels), past_key_values = base.past_key_values,
    hidden_states = base.hidden_states, attentions = base.attentions,
  }
end

-- The classes of a family.

local function define(name, base, o)
  local made = PreTrainedModel:extend(name)
  made.config_class, made.base_model_prefix, made.base_class = o.config_class, o.base_model_prefix, base
  made.token_embedding, made.renamed = o.token_embedding, o.renamed
  return made
end

--- Make the class of a family's model without a head.
---@param o? {base_model_prefix: string?, token_embedding: string?, renamed: table<string, string>?, layer: string?} the
--- field of models with a head, the path of the embedding, names in checkpoints -> the model's names, and the class of
--- the layers
---@return PreTrainedModel
function decoder.model(name, config_class, o)
  o = o or {}
  local Model = define(name, nil, {
    config_class = config_class, base_model_prefix = o.base_model_prefix or "model",
    token_embedding = o.token_embedding or "embed_tokens", renamed = o.renamed or {},
  })
  Model.build, Model.forward, Model.recomputes, Model.token_vectors = build, forward, true, token_vectors
  Model.layer_class = layers.Block:extend(o.layer or (name:gsub("Model$", "DecoderLayer")))
  return Model
end

--- Make the class of a family's model that continues texts.
---@param base PreTrainedModel of `decoder.model`
---@return PreTrainedModel
function decoder.causal_lm(name, base)
  local CausalLM = define(name, base, base)
  CausalLM.build, CausalLM.forward = build_language_head, forward_language_head
  function CausalLM:token_vectors(ids) return base_of(self):token_vectors(ids) end
  CausalLM.tied = {["lm_head.weight"] = ("%s.%s.weight"):format(base.base_model_prefix, base.token_embedding)}
  CausalLM.loss_shifts_labels, CausalLM.has_any_length = true, true
  generation.mix_into(CausalLM)
  CausalLM._valid_length, CausalLM._is_capturable = valid_length, is_capturable
  return CausalLM
end

--- Make the class of a family's model that sorts texts.
---@param base PreTrainedModel of `decoder.model`
---@return PreTrainedModel
function decoder.sequence_classification(name, base)
  local Classifier = define(name, base, base)
  Classifier.build, Classifier.forward, Classifier.accepts_prefix = build_classifier, forward_classifier, true
  function Classifier:token_vectors(ids) return base_of(self):token_vectors(ids) end
  return Classifier
end

--- $family without a head: LlamaModel's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     $sizes}
--   accelhost.models.$nameModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 8
---@template decoder.family Model

--- $family that continues texts: LlamaForCausalLM's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     $sizes}
--   local model = accelhost.models.$nameForCausalLM(config):eval()
--   model:generate(accelhost.arange(3):view(1, 3), {max_new_tokens = 2, min_new_tokens = 2}):size(1)  --> 5
---@template decoder.family ForCausalLM

--- $family that sorts texts by their last token: LlamaForSequenceClassification's inputs and results.
--
--   local config = {vocab_size = 9, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
--     $sizes, num_labels = 3, pad_token_id = 0}
--   accelhost.models.$nameForSequenceClassification(config)(accelhost.ones(2, 4):long()).logits:size(1)  --> 3
---@template decoder.family ForSequenceClassification

--- Make the classes of a family; return a table of them by name, with the configuration.
---@param name string the first part of the classes' names
---@param o? table of `decoder.model`
function decoder.family(name, config_class, o)
  local Model = decoder.model(name .. "Model", config_class, o)
  return {
    [name .. "Config"] = config_class,
    [name .. "Model"] = Model,
    [name .. "ForCausalLM"] = decoder.causal_lm(name .. "ForCausalLM", Model),
    [name .. "ForSequenceClassification"] =
      decoder.sequence_classification(name .. "ForSequenceClassification", Model),
  }
end

return decoder
