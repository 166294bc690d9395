--- T5 1.0 and 1.1 (Flan-T5): an encoder of texts and a decoder that writes others. The paths of its weights are those
--- of published checkpoints.
local C = require "accelhost._C"
local activations = require "accelhost.models.common.activations"
local arguments = require "accelhost.util.arguments"
local attention = require "accelhost.models.common.attention"
local configs = require "accelhost.models.common.config"
local generation = require "accelhost.models.generation"
local inputs = require "accelhost.models.common.inputs"
local layers = require "accelhost.models.t5.t5_layers"
local losses = require "accelhost.models.common.losses"
local Embedding = require("accelhost.nn.embedding").Embedding
local Linear = require("accelhost.nn.linear").Linear
local PreTrainedModel = require("accelhost.models.common.pretrained").PreTrainedModel

local fail, describe, null = arguments.fail, arguments.describe, C.json.null

-- Entries that change the numbers and are not implemented -> the values with which they do not.
local neutral = {quantization_config = {}, is_encoder_decoder = {true}}

--- T5's configuration; the defaults are the sizes of t5-small. feed_forward_proj is "relu" (1.0) or "gated-gelu" (1.1).
--- Without tie_word_embeddings (1.1) the scores of words have weights of another tensor, and are not scaled.
--
--   accelhost.models.T5Config{num_layers = 3}.num_decoder_layers  --> 3
local T5Config = configs.PretrainedConfig:extend "T5Config"
T5Config.model_type = "t5"
T5Config.defaults = {
  vocab_size = 32128, d_model = 512, d_kv = 64, d_ff = 2048, num_layers = 6, num_decoder_layers = null, num_heads = 8,
  relative_attention_num_buckets = 32, relative_attention_max_distance = 128, dropout_rate = 0.1,
  layer_norm_epsilon = 1e-6, initializer_factor = 1, feed_forward_proj = "relu", is_encoder_decoder = true,
  use_cache = true, pad_token_id = 0, eos_token_id = 1, classifier_dropout = 0, decoder_start_token_id = null,
  scale_decoder_outputs = null,
}
T5Config.floats = {"initializer_factor", "dropout_rate", "classifier_dropout", "layer_norm_epsilon"}

function T5Config:complete()
  self:refuse_unimplemented(neutral, true)
  self.num_decoder_layers = self.num_decoder_layers or self.num_layers
  if self.scale_decoder_outputs == nil then self.scale_decoder_outputs = self.tie_word_embeddings end
  if self.scale_decoder_outputs == false then self.tie_word_embeddings = false end
end

--- Return the activation of the MLPs, and whether they are gated.
---@return fun(x: Tensor): Tensor
---@return boolean
function T5Config:act()
  local gate, name = tostring(self.feed_forward_proj):match "^(gated%-)(.*)$"
  name = name or self.feed_forward_proj
  if gate and name == "gelu" then name = "gelu_new" end
  return activations.find("T5Config: feed_forward_proj", name), gate ~= nil
end

local t5 = {T5Config = T5Config}

-- Deviations of new weights, by the ends of their names.
local deviations = {
  {"%.q%.weight$", function(c) return (c.d_model * c.d_kv) ^ -0.5 end},
  {"%.o%.weight$", function(c) return (c.num_heads * c.d_kv) ^ -0.5 end},
  {"%.wo%.weight$", function(c) return c.d_ff ^ -0.5 end},
  {"shared%.weight$", function() return 1 end}, {"lm_head%.weight$", function() return 1 end},
}

local T5PreTrainedModel = PreTrainedModel:extend "T5PreTrainedModel"
T5PreTrainedModel.config_class, T5PreTrainedModel.base_model_prefix = T5Config, "transformer"
T5PreTrainedModel.token_embedding = "shared"

--- The initial standard deviation of a weight.
---@return number
function T5PreTrainedModel:initial_deviation(path)
  local config = self.config
  for _, row in ipairs(deviations) do
    if path:find(row[1]) then return config.initializer_factor * row[2](config) end
  end
  return config.initializer_factor * config.d_model ^ -0.5
end

--- The tied weights of this configuration.
---@return table<string, string>
function T5PreTrainedModel:tied_weights()
  local tied = {["encoder.embed_tokens.weight"] = "shared.weight"}
  if self.decoder then tied["decoder.embed_tokens.weight"] = "shared.weight" end
  local ties_head = self.config.tie_word_embeddings or self._ties_head
  if self.lm_head and ties_head then tied["lm_head.weight"] = "shared.weight" end
  return tied
end

-- transformers does not quantise them.
T5PreTrainedModel.keep_in_fp32 = {"wo"}

local encoder_inputs = {
  input_ids = "tensor", attention_mask = "tensor", inputs_embeds = "tensor", token_type_ids = "tensor",
  output_hidden_states = "flag", output_attentions = "flag",
}
local all_inputs = arguments.copy(encoder_inputs)
for name, kind in pairs {
  decoder_input_ids = "tensor", decoder_attention_mask = "tensor", decoder_inputs_embeds = "tensor",
  encoder_outputs = "list", past_key_values = "list", use_cache = "flag",
} do all_inputs[name] = kind end
local with_labels = arguments.copy(all_inputs)
with_labels.labels, with_labels.logits_to_keep = "tensor", "number"

local function asked(self, given, name)
  if given[name] ~= nil then return given[name] end
  return self.config[name]
end

local function encode(self, given)
  local rows, tokens = inputs.sizes(self._name, given, math.huge)
  if given.attention_mask then inputs.expect(self._name, "attention_mask", given.attention_mask, rows, tokens) end
  return self.encoder {
    ids = given.input_ids, vectors = given.inputs_embeds, kept = attention.kept(given.attention_mask),
    wants_states = asked(self, given, "output_hidden_states"), wants_weights = asked(self, given, "output_attentions"),
  }
end

-- Return the number of tokens of earlier calls.
local function seen_before(self, past)
  if not past then return 0 end
  local count = self.config.num_decoder_layers
  if #past ~= 2 * count and #past ~= count then -- a prefix: those of the decoder's tokens alone
    fail("%s: past_key_values: expected those of an earlier call", self._name)
  end
  return past[1].seen or past[1][1]:size(2)
end

local function decode(self, given, encoded)
  local past, states = given.past_key_values, encoded.last_hidden_state
  local own = {input_ids = given.decoder_input_ids, inputs_embeds = given.decoder_inputs_embeds}
  if not own.input_ids and not own.inputs_embeds then
    fail("%s: expected decoder_input_ids, decoder_inputs_embeds or labels", self._name)
  end
  local rows, tokens = inputs.sizes(self._name, own, math.huge)
  local mask, seen = given.decoder_attention_mask, seen_before(self, past)
  if mask then inputs.expect(self._name, "decoder_attention_mask", mask, rows, seen + tokens) end
  if states:size(0) ~= rows then
    fail("%s: decoder_input_ids: expected %d texts, as of the encoder, got %d", self._name, states:size(0), rows)
  end
  local keeps = given.use_cache
  if keeps == nil then keeps = self.config.use_cache and not self.training end
  return self.decoder {
    ids = own.input_ids, vectors = own.inputs_embeds, kept = attention.kept(mask), states = states, past = past,
    states_kept = attention.kept(given.attention_mask), keeps = keeps,
    wants_states = asked(self, given, "output_hidden_states"), wants_weights = asked(self, given, "output_attentions"),
  }
end

local function run(self, given)
  local encoded = given.encoder_outputs or encode(self, given)
  local decoded = decode(self, given, encoded)
  return {
    last_hidden_state = decoded.last_hidden_state, past_key_values = decoded.past_key_values,
    decoder_hidden_states = decoded.hidden_states, decoder_attentions = decoded.attentions,
    cross_attentions = decoded.cross_attentions, encoder_last_hidden_state = encoded.last_hidden_state,
    encoder_hidden_states = encoded.hidden_states, encoder_attentions = encoded.attentions,
  }
end

local function build_stacks(self, config)
  self.shared = Embedding(config.vocab_size, config.d_model)
  self.encoder = layers.Stack(config, false)
  self.decoder = layers.Stack(config, true)
end

--- T5's encoder: called with input_ids [batch, tokens], or a table or a tokenizer's batch with input_ids and any of
--- attention_mask, inputs_embeds, output_hidden_states and output_attentions. Returns a table with last_hidden_state
--- [batch, tokens, d_model].
--
--   local config = {vocab_size = 9, d_model = 8, d_kv = 4, d_ff = 16, num_layers = 1, num_heads = 2}
--   accelhost.models.T5EncoderModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 8
local T5EncoderModel = T5PreTrainedModel:extend "T5EncoderModel"
t5.T5EncoderModel = T5EncoderModel
T5EncoderModel.unread = {"^decoder%.", "^lm_head%."}

function T5EncoderModel:build(config)
  self.shared = Embedding(config.vocab_size, config.d_model)
  self.encoder = layers.Stack(config, false)
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table
function T5EncoderModel:forward(batch, more)
  return encode(self, inputs.read(self._name, encoder_inputs, batch, more))
end

--- T5 without a head: T5ForConditionalGeneration's inputs but labels; returns a table with last_hidden_state of the
--- decoder and encoder_last_hidden_state.
--
--   local config = {vocab_size = 9, d_model = 8, d_kv = 4, d_ff = 16, num_layers = 1, num_heads = 2}
--   local ids = accelhost.arange(3):view(1, 3)
--   local output = accelhost.models.T5Model(config){input_ids = ids, decoder_input_ids = ids}
--   output.last_hidden_state:size(2)  --> 8
local T5Model = T5PreTrainedModel:extend "T5Model"
t5.T5Model = T5Model
T5Model.build, T5Model.unread = build_stacks, {"^lm_head%."}

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table
function T5Model:forward(batch, more) return run(self, inputs.read(self._name, all_inputs, batch, more)) end

--- T5 that writes texts. Called with input_ids and attention_mask of the encoder, and labels [batch, tokens] (-100 is
--- left out), from which the decoder's inputs are made, or decoder_input_ids, with decoder_attention_mask; also
--- inputs_embeds, decoder_inputs_embeds, encoder_outputs and past_key_values of earlier calls, use_cache,
--- output_hidden_states, output_attentions, and `logits_to_keep` = n for the last n tokens only. Returns a table:
--- logits [batch, tokens, vocab_size], loss, past_key_values (not while training), encoder_last_hidden_state, and where
--- requested the lists encoder_hidden_states, decoder_hidden_states, encoder_attentions, decoder_attentions and
--- cross_attentions.
--
--   local config = {vocab_size = 9, d_model = 8, d_kv = 4, d_ff = 16, num_layers = 1, num_heads = 2}
--   local model = accelhost.models.T5ForConditionalGeneration(config):eval()
--   local ids = accelhost.arange(3):view(1, 3)
--   model{input_ids = ids, labels = ids}.loss:dim()  --> 0
--   model:generate(ids, {max_new_tokens = 4, min_new_tokens = 4}):size(1)  --> 5
local Conditional = T5PreTrainedModel:extend "T5ForConditionalGeneration"
t5.T5ForConditionalGeneration = Conditional
Conditional.has_any_length = true
generation.mix_into(Conditional)

function Conditional:build(config)
  build_stacks(self, config)
  self.lm_head = Linear(config.d_model, config.vocab_size, {bias = false})
end

--- A folder without the weights of the scores of words has those of the embedding, also where they are not scaled, as
--- in transformers.
function Conditional:own_names(state)
  self._ties_head = state["lm_head.weight"] == nil
  return state
end

-- Return the number of the decoder's first token.
local function first_token(self)
  local config, generated = self.config, self.generation_config or {}
  local found = config.decoder_start_token_id or generated.decoder_start_token_id
  if found == nil or found == null then found = config.pad_token_id end
  if type(found) ~= "number" then
    fail("%s: decoder_start_token_id: expected a token's number in the configuration, got %s", self._name,
      describe(found))
  end
  return found
end

--- Return the decoder's inputs for labels: they begin with decoder_start_token_id, and end before the last label.
---@param labels Tensor [batch, tokens]
---@return Tensor
function Conditional:prepare_decoder_input_ids_from_labels(labels)
  local rows, tokens = labels:size(0), labels:size(1)
  local first = labels:new_full({rows, 1}, first_token(self))
  local shifted = C.cat({first, labels:narrow(1, 0, tokens - 1)}, 1)
  return shifted:masked_fill(shifted:eq(-100), self.config.pad_token_id)
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table
function Conditional:forward(batch, more)
  local given = inputs.read(self._name, with_labels, batch, more)
  local labels, keep = given.labels, given.logits_to_keep or 0
  if labels and not given.decoder_input_ids and not given.decoder_inputs_embeds then
    given.decoder_input_ids = self:prepare_decoder_input_ids_from_labels(labels)
  end
  local output = run(self, given)
  local x = output.last_hidden_state
  if keep > 0 then x = x:narrow(1, x:size(1) - keep, keep) end
  if self.config.scale_decoder_outputs then x = x * self.config.d_model ^ -0.5 end
  output.last_hidden_state = nil
  output.logits = self.lm_head(x)
  output.loss = labels and losses.of_tokens(self._name, output.logits, labels)
  return output
end

--- Run the encoder; the decoder begins with its first token.
---@param batch table<string, Tensor>
---@param o table all options of generate
function Conditional:_begin(batch, o)
  if o.assistant_model or o.prompt_lookup_num_tokens then
    fail("generate: %s: not with an encoder", o.assistant_model and "assistant_model" or "prompt_lookup_num_tokens")
  end
  local encoded = encode(self, batch)
  local given = batch.input_ids or batch.inputs_embeds
  local ids = C.full({given:size(0), 1}, first_token(self), {dtype = "int64", device = given.device})
  return {
    ids = ids,
    more = {encoder_outputs = {last_hidden_state = encoded.last_hidden_state}, encoder_mask = batch.attention_mask},
  }
end

--- Return the inputs of a step: the tokens are the decoder's, the mask is the encoder's.
---@param ids Tensor
---@return table
function Conditional:_step_inputs(given, ids) -- luacheck: ignore 212
  given.decoder_input_ids, given.decoder_attention_mask = ids, given.attention_mask
  given.attention_mask, given.encoder_mask, given.position_ids = given.encoder_mask, nil, nil
  return given
end

return t5
