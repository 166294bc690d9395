--- DistilBERT: BERT's layers without types of tokens and pooler. The paths of its weights are those of published
--- checkpoints.
local C = require "accelhost._C"
local EncoderConfig = require "accelhost.models.encoders.encoder_config"
local activations = require "accelhost.models.common.activations"
local encoder = require "accelhost.models.encoders.encoder"
local fused = require "accelhost.nn.fused"
local heads = require "accelhost.models.encoders.encoder_heads"
local layers = require "accelhost.models.encoders.encoder_layers"
local norms = require "accelhost.nn.norm"
local packing = require "accelhost.models.common.packing"
local Dropout = require("accelhost.nn.dropout").Dropout
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module
local PreTrainedModel = require("accelhost.models.common.pretrained").PreTrainedModel

local EPS = 1e-12 -- of all norms

-- The names that other families' fields have.
local aliases = {hidden_size = "dim", num_attention_heads = "n_heads", num_hidden_layers = "n_layers"}

--- DistilBERT's configuration; the defaults are the sizes of distilbert-base. hidden_size, num_attention_heads and
--- num_hidden_layers are other names of dim, n_heads and n_layers.
--
--   accelhost.models.DistilBertConfig{hidden_size = 384}.dim  --> 384
local DistilBertConfig = EncoderConfig:extend "DistilBertConfig"
DistilBertConfig.model_type = "distilbert"
DistilBertConfig.defaults = {
  vocab_size = 30522, max_position_embeddings = 512, sinusoidal_pos_embds = false, n_layers = 6, n_heads = 12,
  dim = 768, hidden_dim = 3072, dropout = 0.1, attention_dropout = 0.1, activation = "gelu", initializer_range = 0.02,
  qa_dropout = 0.1, seq_classif_dropout = 0.2, pad_token_id = 0, pack_texts = true,
}
DistilBertConfig.older_names = {"torch_dtype", "hidden_size", "num_attention_heads", "num_hidden_layers"}
DistilBertConfig.__index = function(self, name)
  local field = aliases[name]
  if field then return rawget(self, field) end
  return DistilBertConfig[name]
end

function DistilBertConfig:complete()
  for alias, field in pairs(aliases) do
    local value = rawget(self, alias)
    if value ~= nil then self[field] = value end
    rawset(self, alias, nil)
  end
end

--- Return the options of the layers.
---@return table
function DistilBertConfig:encoder_options()
  self:check_entries()
  self:check_heads("dim", "n_heads")
  return {
    words = self.vocab_size, width = self.dim, layers = self.n_layers, heads = self.n_heads, inner = self.hidden_dim,
    act = self:find_activation "activation", dropout = self.dropout,
    attention_dropout = self.attention_dropout, positions = self.max_position_embeddings, eps = EPS,
    padding_idx = self.pad_token_id, classifier_dropout = self.dropout, answer_dropout = self.qa_dropout,
    projections = {"q_lin", "k_lin", "v_lin"}, result = "out_lin",
  }
end

local FFN = Module:extend "FFN"

function FFN:init(o)
  self.dropout = packing.Dropout(o.dropout)
  self.lin1 = Linear(o.width, o.inner)
  self.lin2 = Linear(o.inner, o.width)
  self.act = o.act
end

function FFN:forward(x, places)
  local y = fused.gelu_mlp(x, self.lin1, activations.gelu_formula[self.act], self.lin2)
  return self.dropout(y or self.lin2(self.act(self.lin1(x))), places)
end

local Block = Module:extend "TransformerBlock"

function Block:init(o)
  self.attention = o.classes.SelfAttention(o)
  self.sa_layer_norm = norms.LayerNorm(o.width, {eps = EPS})
  self.ffn = FFN(o)
  self.output_layer_norm = norms.LayerNorm(o.width, {eps = EPS})
end

function Block:forward(x, seen)
  local y, weights = self.attention(x, seen)
  x = norms.of_sum(self.sa_layer_norm, y, x)
  return (norms.of_sum(self.output_layer_norm, self.ffn(x, seen.places), x)), weights
end

local own = layers.of_family "DistilBert"
own.Layer, own.Embeddings, own.Encoder = Block, own.Embeddings:extend "Embeddings", own.Encoder:extend "Transformer"

-- Write sines and cosines of growing wave lengths into position embeddings.
local function fill_sinusoidal(weight)
  local count, width = weight:size(0), weight:size(1)
  local rows = {}
  for place = 0, count - 1 do
    local row = {}
    for i = 0, width - 1 do
      local angle = place / 10000 ^ (2 * math.floor(i / 2) / width)
      row[i + 1] = i % 2 == 0 and math.sin(angle) or math.cos(angle)
    end
    rows[place + 1] = row
  end
  C.autograd.no_grad(function() weight:copy_(C.tensor(rows, {dtype = "float64", device = "cpu"})) end)
end

--- DistilBERT without a head: BertModel's inputs and results but for the pooler's; token_type_ids are accepted and
--- ignored.
--
--   local config = {vocab_size = 9, dim = 12, n_layers = 1}
--   accelhost.models.DistilBertModel(config)(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 12
local DistilBertModel = encoder.model("DistilBertModel", DistilBertConfig, {
  base_model_prefix = "distilbert", layers = own, tower = "transformer",
})

function DistilBertModel:init_weight(module, name, tensor, path)
  if self.config.sinusoidal_pos_embds and path:find "position_embeddings%.weight$" then
    return fill_sinusoidal(tensor)
  end
  return PreTrainedModel.init_weight(self, module, name, tensor, path)
end

-- The layer before the last one, and its activation.
local classifier = {
  build = function(self, config, outputs)
    self.pre_classifier = Linear(config.dim, config.dim)
    self.classifier = Linear(config.dim, outputs)
    self.dropout = Dropout(config.seq_classif_dropout)
  end,
  logits = function(self, base)
    return self.classifier(self.dropout(C.relu(self.pre_classifier(base.last_hidden_state:select(1, 0)))))
  end,
}

local hidden = {
  tied = {["vocab_projector.weight"] = "distilbert.embeddings.word_embeddings.weight"},
  build = function(self, config)
    self.act = config:find_activation "activation"
    self.vocab_transform = Linear(config.dim, config.dim)
    self.vocab_layer_norm = norms.LayerNorm(config.dim, {eps = EPS})
    self.vocab_projector = Linear(config.dim, config.vocab_size)
  end,
  logits = function(self, base)
    return self.vocab_projector(self.vocab_layer_norm(self.act(self.vocab_transform(base.last_hidden_state))))
  end,
}

---@family DistilBERT: vocab_size = 9, dim = 12, n_layers = 1
return heads.family("DistilBert", DistilBertModel, {texts = classifier, choices = classifier, hidden = hidden})
