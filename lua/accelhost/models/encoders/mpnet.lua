--- MPNet: RoBERTa's layers without types of tokens, and with a number for the distance of each pair of tokens in
--- attention. The paths of its weights are those of published checkpoints.
local C = require "accelhost._C"
local EncoderConfig = require "accelhost.models.encoders.encoder_config"
local encoder = require "accelhost.models.encoders.encoder"
local heads = require "accelhost.models.encoders.encoder_heads"
local layers = require "accelhost.models.encoders.encoder_layers"
local norms = require "accelhost.nn.norm"
local packing = require "accelhost.models.common.packing"
local Module = require("accelhost.nn.module").Module

-- The number of padding, whatever pad_token_id is.
local PADDING = 1

--- MPNet's configuration; the defaults are transformers', with the sizes of mpnet-base.
--
--   accelhost.models.MPNetConfig{hidden_size = 384}.relative_attention_num_buckets  --> 32
local MPNetConfig = EncoderConfig:extend "MPNetConfig"
MPNetConfig.model_type = "mpnet"
MPNetConfig.defaults = {
  vocab_size = 30527, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072,
  hidden_act = "gelu", hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1, max_position_embeddings = 512,
  initializer_range = 0.02, layer_norm_eps = 1e-12, relative_attention_num_buckets = 32, pad_token_id = 1,
  bos_token_id = 0, eos_token_id = 2, pack_texts = true,
}

--- Return the options of the layers.
---@return table
function MPNetConfig:encoder_options()
  local o = EncoderConfig.encoder_options(self)
  o.padding_idx, o.first_position, o.types, o.classifier_dropout = PADDING, PADDING + 1, nil, o.dropout
  o.relative_buckets, o.projections, o.result = self.relative_attention_num_buckets, {"q", "k", "v"}, "o"
  return o
end

-- Attention with the residual connection; its last linear map is in the inner module.
local Attention = Module:extend "MPNetAttention"

function Attention:init(o)
  self.attn = o.classes.SelfAttention(o)
  self.LayerNorm = norms.LayerNorm(o.width, {eps = o.eps})
  self.dropout = packing.Dropout(o.dropout)
end

function Attention:forward(x, seen)
  local y, weights = self.attn(x, seen)
  return (norms.of_sum(self.LayerNorm, self.dropout(y, seen.places), x)), weights
end

--- MPNet without a head: RobertaModel's inputs and results; token_type_ids are accepted and ignored.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.MPNetModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 12
local MPNetModel = encoder.model("MPNetModel", MPNetConfig, {
  base_model_prefix = "mpnet", layers = layers.of_family("MPNet", {Attention = Attention}), has_pooler = true,
})

---@family MPNet: vocab_size = 9, hidden_size = 12, num_hidden_layers = 1
return heads.family("MPNet", MPNetModel, {
  texts = heads.two_layers(C.tanh), choices = heads.pooled "dropout", hidden = heads.language(MPNetModel),
})
