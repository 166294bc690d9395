--- Transformer layers: their stacks, and the whole encoder-decoder (Vaswani et al., 2017).
---@param activation string|function? "relu", "gelu" or a function of one tensor
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local attention = require "accelhost.nn.attention"
local container = require "accelhost.nn.container"
local fused = require "accelhost.nn.fused"
local dropout_layers = require "accelhost.nn.dropout"
local init = require "accelhost.nn.initializers"
local linear = require "accelhost.nn.linear"
local Module = require("accelhost.nn.module").Module
local norm = require "accelhost.nn.norm"

local fail, signature = arguments.fail, arguments.signature
local transformer = {}

local layer_parameters = {
  "d_model: count", "nhead: count", {"dim_feedforward: size", 2048}, {"dropout: probability", 0.1},
  {"activation: 'relu'|'gelu'|callable", "relu"}, {"layer_norm_eps: number", 1e-5}, {"batch_first: flag", false},
  {"norm_first: flag", false}, {"bias: flag", true}, {"device: device"}, {"dtype: dtype"},
}

--- The base of encoder and decoder layers: the feed-forward net, and the addition of a part to its input.
local Layer = Module:extend "TransformerLayer"

--- Make the layer's parts in PyTorch's order. `attentions` are the names of the attentions, each of which has a norm
-- and a dropout, as the feed-forward net has.
function Layer:setup(attentions, d_model, nhead, dim_feedforward, dropout, activation, eps, batch_first, norm_first,
                     bias, device, dtype)
  for _, name in ipairs(attentions) do
    self[name] = attention.MultiheadAttention(d_model, nhead,
      {dropout = dropout, batch_first = batch_first, bias = bias, dtype = dtype, device = device})
  end
  self.linear1 = linear.Linear(d_model, dim_feedforward, bias, device, dtype)
  self.dropout = dropout_layers.Dropout(dropout)
  self.linear2 = linear.Linear(dim_feedforward, d_model, bias, device, dtype)
  self.norm_first = norm_first
  for i = 1, #attentions + 1 do
    self["norm" .. i] = norm.LayerNorm(d_model, {eps = eps, bias = bias, dtype = dtype, device = device})
  end
  for i = 1, #attentions + 1 do self["dropout" .. i] = dropout_layers.Dropout(dropout) end
  if activation == "relu" or activation == "gelu" then activation = F[activation] end
  self.activation = activation
end

-- Return x plus the result of each part in turn, normalised before the parts (norm_first) or after each.
local function add_parts(self, x, ...)
  local normal = self.norm_first and self.norm1(x) or x
  for i = 1, select("#", ...) do
    local made = self["dropout" .. i](select(i, ...)(normal))
    local normalise = self["norm" .. (self.norm_first and i + 1 or i)]
    if normalise then
      normal, x = norm.of_sum(normalise, self.norm_first and x or normal, made)
    else
      x = x + made
    end
  end
  return self.norm_first and x or normal
end

-- The output of an attention alone.
local function attend(module, query, memory, mask, padding, is_causal)
  return (module(query, memory, memory,
    {attn_mask = mask, key_padding_mask = padding, need_weights = false, is_causal = is_causal}))
end

local function feed(self, x)
  local dropout = self.dropout
  if self.activation == F.gelu and fused.is_plain(dropout, dropout_layers.Dropout)
    and not (dropout.training and dropout.p > 0) then
    local y = fused.gelu_mlp(x, self.linear1, "none", self.linear2)
    if y then return y end
  end
  return self.linear2(dropout(self.activation(self.linear1(x))))
end

--- Self-attention and a two-layer feed-forward net, each with dropout, a residual and a layer norm.
--
--   nn.TransformerEncoderLayer(64, 4, {dim_feedforward = 256, batch_first = true, norm_first = true})
local TransformerEncoderLayer = Layer:extend "TransformerEncoderLayer"
transformer.TransformerEncoderLayer = TransformerEncoderLayer
local read_encoder_layer = signature("TransformerEncoderLayer", layer_parameters)

function TransformerEncoderLayer:init(...)
  self:setup({"self_attn"}, read_encoder_layer(...))
end

local read_encode = signature("TransformerEncoderLayer.forward", {
  "src: tensor", {"src_mask: tensor"}, {"src_key_padding_mask: tensor"}, {"is_causal: flag", false},
})

--- is_causal = true declares src_mask to be the causal mask, which is then not read.
---@param src Tensor [L, N, d_model] ([N, L, d_model] with batch_first)
---@return Tensor like src
function TransformerEncoderLayer:forward(...)
  local x, mask, padding, is_causal = read_encode(...)
  return add_parts(self, x,
    function(y) return attend(self.self_attn, y, y, mask, padding, is_causal) end,
    function(y) return feed(self, y) end)
end

--- Self-attention, attention to the memory that an encoder made, and a feed-forward net.
--
--   local layer = nn.TransformerDecoderLayer(8, 2, {dim_feedforward = 16})
--   layer(accelhost.randn(5, 3, 8), accelhost.randn(7, 3, 8)):shape()  --> {5, 3, 8}
local TransformerDecoderLayer = Layer:extend "TransformerDecoderLayer"
transformer.TransformerDecoderLayer = TransformerDecoderLayer
local read_decoder_layer = signature("TransformerDecoderLayer", layer_parameters)

function TransformerDecoderLayer:init(...)
  self:setup({"self_attn", "multihead_attn"}, read_decoder_layer(...))
end

local decode_parameters = {
  "tgt: tensor", "memory: tensor", {"tgt_mask: tensor"}, {"memory_mask: tensor"}, {"tgt_key_padding_mask: tensor"},
  {"memory_key_padding_mask: tensor"}, {"tgt_is_causal: flag", false}, {"memory_is_causal: flag", false},
}
local read_decode = signature("TransformerDecoderLayer.forward", decode_parameters)

--- With tgt_is_causal or memory_is_causal that mask is the causal one, and is not read.
---@param tgt Tensor [T, N, d_model] ([N, T, d_model] with batch_first)
---@param memory Tensor [S, N, d_model] ([N, S, d_model] with batch_first)
---@return Tensor like tgt
function TransformerDecoderLayer:forward(...)
  local x, memory, mask, memory_mask, padding, memory_padding, is_causal, memory_is_causal = read_decode(...)
  return add_parts(self, x,
    function(y) return attend(self.self_attn, y, y, mask, padding, is_causal) end,
    function(y) return attend(self.multihead_attn, y, memory, memory_mask, memory_padding, memory_is_causal) end,
    function(y) return feed(self, y) end)
end

-- Make the layers: copies of one, or the results of a function, so that each has its own weights.
local function stack(self, layer, num_layers, final_norm)
  local layers = {}
  for i = 1, num_layers do
    layers[i] = type(layer) == "function" and layer() or layer:deepcopy()
  end
  self.layers = container.ModuleList(layers)
  self.num_layers = num_layers
  self.norm = final_norm
end

local function run(self, x, step)
  for _, layer in ipairs(self.layers) do x = step(layer, x) end
  return self.norm and self.norm(x) or x
end

--- A stack of encoder layers: copies of one, as in PyTorch, or the results of a function, each with its own random
--- numbers.
--
--   nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4), 6)
--   nn.TransformerEncoder(function() return nn.TransformerEncoderLayer(64, 4) end, 6)
local TransformerEncoder = Module:extend "TransformerEncoder"
transformer.TransformerEncoder = TransformerEncoder

local read_encoder = signature("TransformerEncoder", {
  "encoder_layer: module|function", "num_layers: size", {"norm: module"}, {"enable_nested_tensor: flag", true},
  {"mask_check: flag", true},
})

--- enable_nested_tensor and mask_check are accepted and change nothing: there are no nested tensors, and their results
--- are
-- those of padded ones.
---@param norm Module? after the last layer
function TransformerEncoder:init(...)
  local layer, num_layers, final_norm, nested, mask_check = read_encoder(...)
  stack(self, layer, num_layers, final_norm)
  self.enable_nested_tensor, self.mask_check = nested, mask_check
end

local read_encoder_call = signature("TransformerEncoder.forward",
  {"src: tensor", {"mask: tensor"}, {"src_key_padding_mask: tensor"}, {"is_causal: flag", false}})

---@param src Tensor as of the layers
---@return Tensor like src
function TransformerEncoder:forward(...)
  local src, mask, padding, is_causal = read_encoder_call(...)
  return run(self, src, function(layer, x) return layer(x, mask, padding, is_causal) end)
end

--- A stack of decoder layers: copies of one, or the results of a function.
--
--   local decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, {dim_feedforward = 16}), 3)
--   decoder(accelhost.randn(5, 3, 8), accelhost.randn(7, 3, 8)):shape()  --> {5, 3, 8}
local TransformerDecoder = Module:extend "TransformerDecoder"
transformer.TransformerDecoder = TransformerDecoder

local read_decoder = signature("TransformerDecoder",
  {"decoder_layer: module|function", "num_layers: size", {"norm: module"}})

---@param norm Module? after the last layer
function TransformerDecoder:init(...)
  stack(self, read_decoder(...))
end

local read_decoder_call = signature("TransformerDecoder.forward", decode_parameters)

---@param tgt Tensor as of the layers
---@param memory Tensor
---@return Tensor like tgt
function TransformerDecoder:forward(...)
  local given = {read_decoder_call(...)}
  return run(self, given[1], function(layer, x) return layer(x, unpack(given, 2, #decode_parameters)) end)
end

--- Encoder and decoder. Inputs are vectors of d_model numbers, already embedded and with their positions.
--
--   local model = nn.Transformer {d_model = 32, nhead = 4, num_encoder_layers = 2, num_decoder_layers = 2}
--   local y = model(accelhost.rand(10, 3, 32), accelhost.rand(7, 3, 32))  --> [7, 3, 32]
local Transformer = Module:extend "Transformer"
transformer.Transformer = Transformer

local read_transformer = signature("Transformer", {
  {"d_model: count", 512}, {"nhead: count", 8}, {"num_encoder_layers: size", 6}, {"num_decoder_layers: size", 6},
  {"dim_feedforward: size", 2048}, {"dropout: probability", 0.1}, {"activation: 'relu'|'gelu'|callable", "relu"},
  {"custom_encoder: module"}, {"custom_decoder: module"}, {"layer_norm_eps: number", 1e-5},
  {"batch_first: flag", false}, {"norm_first: flag", false}, {"bias: flag", true}, {"device: device"}, {"dtype: dtype"},
})

---@param custom_encoder Module? in place of the encoder
---@param custom_decoder Module? in place of the decoder
function Transformer:init(...)
  local d_model, nhead, encoders, decoders, dim_feedforward, dropout, activation, encoder, decoder, eps, batch_first,
    norm_first, bias, device, dtype = read_transformer(...)
  local function part(Layer_class, Stack, count)
    local layer = Layer_class(d_model, nhead, dim_feedforward, dropout, activation, eps, batch_first, norm_first, bias,
      device, dtype)
    return Stack(layer, count, norm.LayerNorm(d_model, {eps = eps, bias = bias, device = device, dtype = dtype}))
  end
  self.encoder = encoder or part(TransformerEncoderLayer, TransformerEncoder, encoders)
  self.decoder = decoder or part(TransformerDecoderLayer, TransformerDecoder, decoders)
  self:_reset_parameters()
  self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
end

--- Xavier uniform for all matrices.
function Transformer:_reset_parameters()
  for _, weight in ipairs(self:parameters()) do
    if weight:dim() > 1 then init.xavier_uniform_(weight) end
  end
end

local read_call = signature("Transformer.forward", {
  "src: tensor", "tgt: tensor", {"src_mask: tensor"}, {"tgt_mask: tensor"}, {"memory_mask: tensor"},
  {"src_key_padding_mask: tensor"}, {"tgt_key_padding_mask: tensor"}, {"memory_key_padding_mask: tensor"},
  {"src_is_causal: flag", false}, {"tgt_is_causal: flag", false}, {"memory_is_causal: flag", false},
})

---@param src Tensor [S, N, d_model] ([N, S, d_model] with batch_first; or without N)
---@param tgt Tensor [T, N, d_model]
---@return Tensor like tgt
function Transformer:forward(...)
  local src, tgt, src_mask, tgt_mask, memory_mask, src_padding, tgt_padding, memory_padding, src_is_causal,
    tgt_is_causal, memory_is_causal = read_call(...)
  local batch = self.batch_first and 0 or 1
  if src:dim() ~= tgt:dim() or src:dim() == 3 and src:size(batch) ~= tgt:size(batch)
    or src:size(-1) ~= self.d_model or tgt:size(-1) ~= self.d_model then
    fail("Transformer: expected src and tgt of one batch with %d features, got %s and %s", self.d_model,
      arguments.shape_text(src), arguments.shape_text(tgt))
  end
  local memory = self.encoder(src, src_mask, src_padding, src_is_causal)
  return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_padding, memory_padding, tgt_is_causal, memory_is_causal)
end

local read_mask = signature("generate_square_subsequent_mask", {"sz: size", {"device: device"}, {"dtype: dtype"}})

--- The causal mask [sz, sz] that is added to scores: -inf above the diagonal, 0 elsewhere.
--
--   nn.Transformer.generate_square_subsequent_mask(3)
---@param dtype string? float32
---@return Tensor [sz, sz]
function Transformer.generate_square_subsequent_mask(...)
  local size, device, dtype = read_mask(...)
  return C.triu(C.full({size, size}, -math.huge, {device = device, dtype = dtype}), 1)
end

return transformer
