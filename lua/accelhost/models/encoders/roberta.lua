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

--- RoBERTa without a head: BertModel's inputs and results. Without position_ids a text's tokens are counted from
--- pad_token_id + 1, and those of padding, by their number, are left out.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.RobertaModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 12
local RobertaModel = encoder.model("RobertaModel", RobertaConfig, {
  base_model_prefix = "roberta", layers = layers.of_family "Roberta", has_pooler = true, accepts_prefix = true,
})

---@family RoBERTa: vocab_size = 9, hidden_size = 12, num_hidden_layers = 1
return heads.family("Roberta", RobertaModel, {
  texts = heads.two_layers(C.tanh), choices = heads.pooled "dropout", hidden = heads.language(RobertaModel),
})
