--- BERT: an encoder of whole texts. The paths of its weights are those of published checkpoints.
local C = require "accelhost._C"
local activations = require "accelhost.models.activations"
local arguments = require "accelhost.util.arguments"
local attention = require "accelhost.models.attention"
local configs = require "accelhost.models.config"
local container = require "accelhost.nn.container"
local fused = require "accelhost.nn.fused"
local inputs = require "accelhost.models.inputs"
local norms = require "accelhost.nn.norm"
local packing = require "accelhost.models.packing"
local recompute = require "accelhost.recompute"
local Embedding = require("accelhost.nn.embedding").Embedding
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module
local PreTrainedModel = require("accelhost.models.pretrained").PreTrainedModel

local Dropout, fail = packing.Dropout, arguments.fail
local bert = {}

local Embeddings = Module:extend "BertEmbeddings"

function Embeddings:init(config)
  local width = config.hidden_size
  self.word_embeddings = Embedding(config.vocab_size, width, {padding_idx = config.pad_token_id})
  self.position_embeddings = Embedding(config.max_position_embeddings, width)
  self.token_type_embeddings = Embedding(config.type_vocab_size, width)
  self.LayerNorm = norms.LayerNorm(width, {eps = config.layer_norm_eps})
  self.dropout = Dropout(config.hidden_dropout_prob)
end

-- [batch, tokens, width], or of packed texts [total, width].
function Embeddings:forward(given, batch, tokens, places)
  local function placed(x) return x and places and packing.pack(places, x) or x end
  local x = placed(given.inputs_embeds) or self.word_embeddings(placed(given.input_ids))
  local types, positions = given.token_type_ids, given.position_ids
  if types then
    inputs.expect("BertModel", "token_type_ids", types, batch, tokens)
    x = x + self.token_type_embeddings(placed(types))
  else
    x = x + self.token_type_embeddings.weight:select(0, 0)
  end
  if positions then
    x = x + self.position_embeddings(places and placed(positions:expand(batch, tokens)) or positions)
  elseif places then
    x = x + self.position_embeddings(places.positions)
  else
    x = x + self.position_embeddings.weight:narrow(0, 0, tokens)
  end
  return self.dropout(self.LayerNorm(x), places)
end

local SelfAttention = Module:extend "BertSelfAttention"

function SelfAttention:init(config)
  local width, heads = config.hidden_size, config.num_attention_heads
  if width % heads ~= 0 then
    fail("BertConfig: hidden_size %d is no multiple of num_attention_heads %d", width, heads)
  end
  self.heads, self.rate = heads, config.attention_probs_dropout_prob
  self.query, self.key, self.value = nil, nil, nil
  self.query = Linear(width, width)
  self.key = Linear(width, width)
  self.value = Linear(width, width)
end

-- `seen`: {mask = which tokens may be seen, places = of packed texts, weights = true where they are wanted}.
function SelfAttention:forward(x, seen)
  local query, key, value = self.query, self.key, self.value
  if fused.is_plain(query, Linear) and fused.is_plain(key, Linear) and fused.is_plain(value, Linear) then
    x = C.autocast.lower(x) -- once for the three
  end
  local q, k, v = query(x), key(x), value(x)
  local dropout = self.training and self.rate or 0
  if seen.places then return attention.attend_packed(q, k, v, self.heads, seen.places, dropout) end
  local y, weights = attention.attend(attention.split(q, self.heads), attention.split(k, self.heads),
    attention.split(v, self.heads), {visible = seen, dropout = dropout, weights = seen.weights})
  return attention.join(y), weights
end

-- The projection behind attention and behind the wide layer, with the way around.
local Output = Module:extend "BertOutput"

function Output:init(config, from)
  self.dense = Linear(from, config.hidden_size)
  self.LayerNorm = norms.LayerNorm(config.hidden_size, {eps = config.layer_norm_eps})
  self.dropout = Dropout(config.hidden_dropout_prob)
end

function Output:forward(x, around, places)
  return (norms.of_sum(self.LayerNorm, self.dropout(self.dense(x), places), around))
end

local Attention = Module:extend "BertAttention"

function Attention:init(config)
  self.self = SelfAttention(config)
  self.output = Output(config, config.hidden_size)
end

function Attention:forward(x, seen)
  local y, weights = self.self(x, seen)
  return self.output(y, x, seen.places), weights
end

local Intermediate = Module:extend "BertIntermediate"

function Intermediate:init(config)
  self.dense = Linear(config.hidden_size, config.intermediate_size)
  self.act = activations.find("BertConfig: hidden_act", config.hidden_act)
end

function Intermediate:forward(x) return self.act(self.dense(x)) end

local Layer = Module:extend "BertLayer"

function Layer:init(config)
  self.attention = Attention(config)
  self.intermediate = Intermediate(config)
  self.output = Output(config, config.intermediate_size)
end

function Layer:forward(x, seen)
  local y, weights = self.attention(x, seen)
  return self.output(self.intermediate(y), y, seen.places), weights
end

local Encoder = Module:extend "BertEncoder"
Encoder.recomputes = true

function Encoder:init(config)
  self.layer = container.ModuleList {}
  for _ = 1, config.num_hidden_layers do self.layer:append(Layer(config)) end
end

-- The last states; into the lists, where there are any, those of each layer.
function Encoder:forward(x, seen, states, attentions)
  local function whole(y) return seen.places and packing.unpack(seen.places, y) or y end
  if states then states[1] = whole(x) end
  for i, layer in ipairs(self.layer) do
    local weights
    x, weights = recompute.layer(self, layer, x, seen)
    if states then states[i + 1] = whole(x) end
    if attentions then attentions[i] = weights end
  end
  return states and states[#states] or whole(x)
end

local Pooler = Module:extend "BertPooler"

function Pooler:init(config) self.dense = Linear(config.hidden_size, config.hidden_size) end
function Pooler:forward(x) return C.tanh(self.dense(x:select(1, 0))) end

-- Return attention's masks for a mask [batch, tokens] or [batch, queries, keys].
local function seen_by(given, batch, tokens, packs)
  local mask = given.attention_mask
  if mask == nil then return {} end
  if mask:dim() == 3 then
    inputs.expect("BertModel", "attention_mask", mask, batch, tokens, tokens)
  else
    inputs.expect("BertModel", "attention_mask", mask, batch, tokens)
  end
  mask = attention.kept(mask)
  local places = packs and packing.places(mask)
  if places then return {places = places} end
  return {mask = mask and (mask:dim() == 3 and mask:unsqueeze(1) or mask:view(batch, 1, 1, tokens))}
end

--- The inputs that every BERT accepts.
bert.inputs = {
  input_ids = "tensor", attention_mask = "tensor", token_type_ids = "tensor", position_ids = "tensor",
  inputs_embeds = "tensor", output_hidden_states = "flag", output_attentions = "flag",
}

--- The base of all models of this family.
---@class BertPreTrainedModel: PreTrainedModel
local BertPreTrainedModel = PreTrainedModel:extend "BertPreTrainedModel"
BertPreTrainedModel.config_class, BertPreTrainedModel.base_model_prefix = configs.BertConfig, "bert"
BertPreTrainedModel.token_embedding = "embeddings.word_embeddings"
bert.BertPreTrainedModel = BertPreTrainedModel

local function refuse_unknown(config)
  if config.is_decoder or config.add_cross_attention then
    fail("BertConfig: is_decoder, add_cross_attention: BERT is an encoder here; GPT2LMHeadModel writes text")
  end
  if config.position_embedding_type ~= "absolute" then
    fail("BertConfig: position_embedding_type: only 'absolute' is here, got %s",
      arguments.describe(config.position_embedding_type))
  end
end

--- BERT without a head. Called with input_ids [batch, tokens], or a table or a tokenizer's batch with input_ids and any
--- of attention_mask (1 for tokens, 0 for padding), token_type_ids, position_ids, inputs_embeds (in place of the ids),
--- output_hidden_states and output_attentions. Returns a table: last_hidden_state [batch, tokens, hidden_size],
--- pooler_output [batch, hidden_size] (the first token's state through a layer and tanh), and hidden_states and
--- attentions, one for each layer, if requested.
---
--- If attention_mask hides enough tokens, a batch on the CPU is computed without them, which makes training on short
--- texts more than twice as fast. The states of padding are 0 then, all others are those of the padded batch, to
--- rounding. pack_texts = false in the configuration turns this off, and so does output_attentions; second derivatives
--- need it off.
--
--   local config = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, intermediate_size = 24}
--   local model = accelhost.models.BertModel(config):eval()
--   model(accelhost.arange(3):view(1, 3)).last_hidden_state:size(2)  --> 12
---@param config BertConfig|table
---@param options? table add_pooling_layer = false leaves the pooler out
---@class BertModel: PreTrainedModel
local BertModel = BertPreTrainedModel:extend "BertModel"
bert.BertModel = BertModel

function BertModel:build(config, options)
  arguments.check_names("BertModel", options, {"add_pooling_layer"})
  refuse_unknown(config)
  self.embeddings = Embeddings(config)
  self.encoder = Encoder(config)
  if options.add_pooling_layer ~= false then self.pooler = Pooler(config) end
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table
function BertModel:forward(batch, more)
  local given, config = inputs.read(self._name, bert.inputs, batch, more), self.config
  local rows, tokens = inputs.sizes(self._name, given, config.max_position_embeddings)
  local function wanted(name)
    local asked = given[name]
    if asked == nil then asked = config[name] end
    return asked and {} or nil
  end
  local states, attentions = wanted "output_hidden_states", wanted "output_attentions"
  local seen = seen_by(given, rows, tokens, config.pack_texts and not attentions)
  seen.weights = attentions ~= nil
  local x = self.encoder(self.embeddings(given, rows, tokens, seen.places), seen, states, attentions)
  return {
    last_hidden_state = x, pooler_output = self.pooler and self.pooler(x), hidden_states = states,
    attentions = attentions,
  }
end

return bert
