--- The configuration of encoders, as transformers 4 and 5 write it.
local C = require "accelhost._C"
local activations = require "accelhost.models.common.activations"
local arguments = require "accelhost.util.arguments"
local PretrainedConfig = require("accelhost.models.common.config").PretrainedConfig

local null = C.json.null

-- Entries of config.json files that change an encoder's numbers -> the values with which they do not. A family that
-- implements one has it among its fields.
local neutral = {
  quantization_config = {}, is_encoder_decoder = {false}, cross_attention_hidden_size = {}, embedding_size = {},
  relative_attention_num_buckets = {}, summary_proj_to_labels = {false}, summary_first_dropout = {0},
}

-- The same of entries that are fields of some families.
local neutral_fields = {
  is_decoder = {false}, add_cross_attention = {false}, position_embedding_type = {"absolute"},
}

--- The base of encoders' configurations.
---@field pack_texts boolean compute batches with padding without it, on the CPU
local EncoderConfig = PretrainedConfig:extend "EncoderConfig"
EncoderConfig.older_names = {"torch_dtype"}
EncoderConfig.floats = {"initializer_range", "layer_norm_eps"}

--- Return the fields that most families have, with changes.
---@return table
function EncoderConfig.fields(changes)
  local defaults = {
    vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072,
    hidden_act = "gelu", hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1, max_position_embeddings = 512,
    type_vocab_size = 2, initializer_range = 0.02, layer_norm_eps = 1e-12, pad_token_id = 0, use_cache = true,
    classifier_dropout = null, is_decoder = false, add_cross_attention = false, pack_texts = true,
  }
  for name, value in pairs(changes) do defaults[name] = value end
  return defaults
end

--- Return an activation, the value of a field.
---@return fun(x: Tensor): Tensor
function EncoderConfig:find_activation(field)
  return activations.find(("%s: %s"):format(self._name, field), self[field])
end

--- Raise if the heads do not divide the width.
---@param width string name of the field
---@param heads string
function EncoderConfig:check_heads(width, heads)
  if self[width] % self[heads] ~= 0 then
    arguments.fail("%s: %s %d is no multiple of %s %d", self._name, width, self[width], heads, self[heads])
  end
end

--- Return pad_token_id, which the family requires: positions are counted from it.
---@return integer
function EncoderConfig:padding()
  local padding = self.pad_token_id
  if type(padding) ~= "number" then
    arguments.fail("%s: pad_token_id: expected a token's number, got %s", self._name, arguments.describe(padding))
  end
  return padding
end

--- Raise if the configuration has an entry that changes the numbers and is not implemented.
function EncoderConfig:check_entries()
  self:refuse_unimplemented(neutral)
  self:refuse_unimplemented(neutral_fields, true)
end

--- Return the options of the layers, which encoder_layers.lua lists, by the names that most families' fields have.
---@return table
function EncoderConfig:encoder_options()
  self:check_entries()
  self:check_heads("hidden_size", "num_attention_heads")
  return {
    words = self.vocab_size, width = self.hidden_size, layers = self.num_hidden_layers,
    heads = self.num_attention_heads, inner = self.intermediate_size, act = self:find_activation "hidden_act",
    dropout = self.hidden_dropout_prob, attention_dropout = self.attention_probs_dropout_prob,
    positions = self.max_position_embeddings, types = self.type_vocab_size, eps = self.layer_norm_eps,
    padding_idx = self.pad_token_id, classifier_dropout = self.classifier_dropout or self.hidden_dropout_prob,
  }
end

return EncoderConfig
