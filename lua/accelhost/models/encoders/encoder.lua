--- Encoders: the model of a family without a head, from its options.
--
-- A family's file has its configuration, whose `encoder_options` sets the options of encoder_layers.lua, and the names
-- of its layers. encoder_heads.lua makes the models with a head.
local arguments = require "accelhost.util.arguments"
local attention = require "accelhost.models.common.attention"
local inputs = require "accelhost.models.common.inputs"
local packing = require "accelhost.models.common.packing"
local Linear = require("accelhost.nn.linear").Linear
local PreTrainedModel = require("accelhost.models.common.pretrained").PreTrainedModel

local encoder = {}

--- The inputs that every encoder accepts.
encoder.inputs = {
  input_ids = "tensor", attention_mask = "tensor", token_type_ids = "tensor", position_ids = "tensor",
  inputs_embeds = "tensor", past_key_values = "list", output_hidden_states = "flag", output_attentions = "flag",
}

local function build(self, config, options)
  arguments.check_names(self._name, options, self.has_pooler and {"add_pooling_layer"} or {})
  local o = config:encoder_options()
  o.classes = self.layers
  -- Computing without padding changes nothing that a user can see; heads that read states of padding turn it off.
  self.packs = config.pack_texts or false
  self.most = o.positions - (o.first_position or 0)
  self.embeddings = o.classes.Embeddings(o)
  if o.embedding_width and o.embedding_width ~= o.width then
    self.embeddings_project = Linear(o.embedding_width, o.width)
  end
  self[self.tower] = o.classes.Encoder(o)
  if self.has_pooler and options.add_pooling_layer ~= false then self.pooler = o.classes.Pooler(o) end
end

-- Return attention's masks for a mask [batch, keys] or [batch, queries, keys]: keys are those of the prefix, and the
-- tokens.
local function seen_by(given, batch, tokens, packs)
  local mask, keys = given.attention_mask, given.seen + tokens
  if mask == nil then return {} end
  if mask:dim() == 3 then
    inputs.expect(given.what, "attention_mask", mask, batch, tokens, keys)
  else
    inputs.expect(given.what, "attention_mask", mask, batch, keys)
  end
  mask = attention.kept(mask)
  local places = packs and given.seen == 0 and packing.places(mask) or nil
  mask = mask and (mask:dim() == 3 and mask:unsqueeze(1) or mask:view(batch, 1, 1, keys))
  return {places = places, mask = not places and mask or nil, kept = mask}
end

-- Return the number of tokens of a prefix, whose keys and values are past_key_values.
local function prefix_length(self, given)
  if given.past_key_values and not self.accepts_prefix then
    arguments.fail("%s: past_key_values: this family has no keys and values in front of a text", self._name)
  end
  return inputs.seen(self._name, given, self.config.num_hidden_layers)
end

local function forward(self, batch, more)
  local given, config = inputs.read(self._name, encoder.inputs, batch, more), self.config
  given.what, given.seen = self._name, prefix_length(self, given)
  local rows, tokens = inputs.sizes(self._name, given, self.most, given.seen > 0 and given.seen or nil)
  local function wanted(name)
    local asked = given[name]
    if asked == nil then asked = config[name] end
    return asked and {} or nil
  end
  local states, attentions = wanted "output_hidden_states", wanted "output_attentions"
  local seen = seen_by(given, rows, tokens, self.packs and not attentions)
  seen.weights, seen.prefixes = attentions ~= nil, given.past_key_values
  local x = self.embeddings(given, rows, tokens, seen.places)
  if self.embeddings_project then x = self.embeddings_project(x) end
  x = self[self.tower](x, seen, states, attentions)
  return {
    last_hidden_state = x, pooler_output = self.pooler and self.pooler(x), hidden_states = states,
    attentions = attentions,
  }
end

--- Make the class of a family's model without a head.
---@param o {base_model_prefix: string, layers: table, has_pooler: boolean?, tower: string?, accepts_prefix: boolean?}
--- the field of models with a head, the classes of the layers, whether there is a layer for the first token, the name
--- of the blocks (encoder), and whether keys and values may be in front of a text, as in transformers
---@return PreTrainedModel
function encoder.model(name, config_class, o)
  local Model = PreTrainedModel:extend(name)
  Model.config_class, Model.base_model_prefix, Model.layers = config_class, o.base_model_prefix, o.layers
  Model.token_embedding, Model.has_pooler = "embeddings.word_embeddings", o.has_pooler
  Model.tower, Model.accepts_prefix = o.tower or "encoder", o.accepts_prefix
  Model.build, Model.forward = build, forward
  return Model
end

return encoder
