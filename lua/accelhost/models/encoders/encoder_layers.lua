--- The layers of encoders: embeddings, attention, and the block of them. A family sets the options, which its
--- configuration's `encoder_options` returns:
---
--- words, width, layers, heads, inner (width of the MLP), act, dropout, attention_dropout, positions, eps (of norms),
--- classifier_dropout: sizes and rates; types: number of types of tokens (nil: none); padding_idx of the words;
--- embedding_width, where it is not width; first_position: positions count from it in each text, tokens of padding have
--- the one before it; projections, result: names of the linear maps of attention; relative_buckets: attention adds a
--- number of the distance; tower: the field of the blocks, encoder.
local C = require "accelhost._C"
local activations = require "accelhost.models.common.activations"
local attention = require "accelhost.models.common.attention"
local container = require "accelhost.nn.container"
local fused = require "accelhost.nn.fused"
local inputs = require "accelhost.models.common.inputs"
local norms = require "accelhost.nn.norm"
local packing = require "accelhost.models.common.packing"
local recompute = require "accelhost.recompute"
local relative = require "accelhost.models.common.relative"
local Embedding = require("accelhost.nn.embedding").Embedding
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module

local Dropout = packing.Dropout
local layers, classes = {}, {}

--- Return the classes of a family's layers under transformers' names: the family's, then the layer's.
---@param own? table<string, table> classes in place of the common ones, with their names
---@return table<string, table>
function layers.of_family(prefix, own)
  local made = {}
  for name, class in pairs(classes) do made[name] = class:extend(prefix .. name) end
  for name, class in pairs(own or {}) do made[name] = class end
  return made
end

local Embeddings = Module:extend "Embeddings"
classes.Embeddings = Embeddings

function Embeddings:init(o)
  local width = o.embedding_width or o.width
  self.first, self.padding = o.first_position or 0, o.first_position and o.first_position - 1
  self.word_embeddings = Embedding(o.words, width, {padding_idx = o.padding_idx})
  self.position_embeddings = Embedding(o.positions, width, {padding_idx = self.padding})
  if o.types then self.token_type_embeddings = Embedding(o.types, width) end
  self.LayerNorm = norms.LayerNorm(width, {eps = o.eps})
  self.dropout = Dropout(o.dropout)
end

local function with_types(self, x, given, placed, batch, tokens)
  local types = given.token_type_ids
  if not self.token_type_embeddings then return x end
  if not types then return x + self.token_type_embeddings.weight:select(0, 0) end
  inputs.expect(given.what, "token_type_ids", types, batch, tokens)
  return x + self.token_type_embeddings(placed(types))
end

-- Return positions that count the tokens that are no padding, by their numbers; nil: they are the places.
local function counted(self, given)
  if not self.padding or not given.input_ids then return nil end
  local kept = given.input_ids:ne(self.padding):to "int64"
  return (kept:cumsum(1) + given.seen) * kept + self.padding
end

--- Return [batch, tokens, width], or of packed texts [total, width].
function Embeddings:forward(given, batch, tokens, places)
  local function placed(x) return x and places and packing.pack(places, x) or x end
  local x = placed(given.inputs_embeds) or self.word_embeddings(placed(given.input_ids))
  x = with_types(self, x, given, placed, batch, tokens)
  local positions = given.position_ids or counted(self, given)
  if positions then
    x = x + self.position_embeddings(places and placed(positions:expand(batch, tokens)) or positions)
  elseif places then
    x = x + self.position_embeddings(places.positions + self.first)
  else
    x = x + self.position_embeddings.weight:narrow(0, self.first + given.seen, tokens)
  end
  return self.dropout(self.LayerNorm(x), places)
end

local SelfAttention = Module:extend "SelfAttention"
classes.SelfAttention = SelfAttention

function SelfAttention:init(o)
  self.heads, self.rate, self.maps = o.heads, o.attention_dropout, o.projections or {"query", "key", "value"}
  for _, name in ipairs(self.maps) do self[name] = Linear(o.width, o.width) end
  if o.result then
    self.result = o.result
    self[o.result] = Linear(o.width, o.width)
  end
end

local function attend(self, q, k, v, seen)
  local dropout, places = self.training and self.rate or 0, seen.places
  if places and not seen.mask then return attention.attend_packed(q, k, v, self.heads, places, dropout) end
  local function by_heads(x) return attention.split(places and packing.unpack(places, x) or x, self.heads) end
  local keys, values = by_heads(k), by_heads(v)
  if seen.prefix then keys, values = C.cat({seen.prefix[1], keys}, 2), C.cat({seen.prefix[2], values}, 2) end
  local y, weights = attention.attend(by_heads(q), keys, values, {
    visible = seen, dropout = dropout, weights = seen.weights,
  })
  y = attention.join(y)
  return places and packing.pack(places, y) or y, weights
end

--- `seen`: {mask = which tokens may be seen (or numbers to add), places = of packed texts, weights = true where they
--- are wanted, prefix = keys and values in front of those of x}. Of packed texts with a mask attention alone is
--- computed with the padding.
function SelfAttention:forward(x, seen)
  local maps = self.maps
  local query, key, value = self[maps[1]], self[maps[2]], self[maps[3]]
  if fused.is_plain(query, Linear) and fused.is_plain(key, Linear) and fused.is_plain(value, Linear) then
    x = C.autocast.lower(x) -- once for the three
  end
  local y, weights = attend(self, query(x), key(x), value(x), seen)
  return self.result and self[self.result](y) or y, weights
end

-- The projection after attention and after the wide layer, with the residual connection.
local Output = Module:extend "Output"
classes.Output = Output

function Output:init(o, from)
  self.dense = Linear(from, o.width)
  self.LayerNorm = norms.LayerNorm(o.width, {eps = o.eps})
  self.dropout = Dropout(o.dropout)
end

-- Return the normalised sum of the linear map's result and the residual.
local function add_residual(self, y, residual, places)
  return (norms.of_sum(self.LayerNorm, self.dropout(y, places), residual))
end

function Output:forward(x, residual, places) return add_residual(self, self.dense(x), residual, places) end

local Attention = Module:extend "Attention"
classes.Attention = Attention

function Attention:init(o)
  self.self = o.classes.SelfAttention(o)
  self.output = o.classes.Output(o, o.width)
end

function Attention:forward(x, seen)
  local y, weights = self.self(x, seen)
  return self.output(y, x, seen.places), weights
end

local Intermediate = Module:extend "Intermediate"
classes.Intermediate = Intermediate

function Intermediate:init(o)
  self.dense = Linear(o.width, o.inner)
  self.act = o.act
end

function Intermediate:forward(x) return self.act(self.dense(x)) end

local Layer = Module:extend "Layer"
classes.Layer = Layer

function Layer:init(o)
  self.attention = o.classes.Attention(o)
  self.intermediate = o.classes.Intermediate(o)
  self.output = o.classes.Output(o, o.inner)
end

function Layer:forward(x, seen)
  local y, weights = self.attention(x, seen)
  local wide, output = self.intermediate, self.output
  if fused.is_plain(wide, Intermediate) and fused.is_plain(output, Output) then
    local made = fused.gelu_mlp(y, wide.dense, activations.gelu_formula[wide.act], output.dense)
    if made then return add_residual(output, made, y, seen.places), weights end
  end
  return output(wide(y), y, seen.places), weights
end

local Encoder = Module:extend "Encoder"
Encoder.recomputes = true
classes.Encoder = Encoder

function Encoder:init(o)
  self.layer = container.ModuleList {}
  for _ = 1, o.layers do self.layer:append(o.classes.Layer(o)) end
  if o.relative_buckets then self.relative_attention_bias = Embedding(o.relative_buckets, o.heads) end
end

--- Return the last states; append to the lists, where there are any, those of each layer. seen.prefixes: the prefix of
--- each layer.
function Encoder:forward(x, seen, states, attentions)
  local function whole(y) return seen.places and packing.unpack(seen.places, y) or y end
  if self.relative_attention_bias then
    local tokens = seen.places and seen.places.tokens or x:size(1)
    seen.mask = relative.mask(relative.bias(self.relative_attention_bias, tokens, x.device), seen.kept)
  end
  if states then states[1] = whole(x) end
  for i, layer in ipairs(self.layer) do
    local weights
    local of_layer = seen
    if seen.prefixes then of_layer = {mask = seen.mask, weights = seen.weights, prefix = seen.prefixes[i]} end
    x, weights = recompute.layer(self, layer, x, of_layer)
    if states then states[i + 1] = whole(x) end
    if attentions then attentions[i] = weights end
  end
  return states and states[#states] or whole(x)
end

local Pooler = Module:extend "Pooler"
classes.Pooler = Pooler

function Pooler:init(o) self.dense = Linear(o.width, o.width) end
function Pooler:forward(x) return C.tanh(self.dense(x:select(1, 0))) end

return layers
