--- Transformer encoder.
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local attention = require "accelhost.nn.attention"
local container = require "accelhost.nn.container"
local dropout_layers = require "accelhost.nn.dropout"
local linear = require "accelhost.nn.linear"
local Module = require("accelhost.nn.module").Module
local norm = require "accelhost.nn.norm"

local transformer = {}

--- Self-attention and a two-layer feed-forward net, each with dropout, a residual and a layer norm.
--
--   nn.TransformerEncoderLayer(64, 4, {dim_feedforward = 256, batch_first = true, norm_first = true})
---@class TransformerEncoderLayer: Module
local TransformerEncoderLayer = Module:extend "TransformerEncoderLayer"
transformer.TransformerEncoderLayer = TransformerEncoderLayer

local read = arguments.signature("TransformerEncoderLayer", {
  "d_model: count", "nhead: count", {"dim_feedforward: size", 2048}, {"dropout: probability", 0.1},
  {"activation: 'relu'|'gelu'|callable", "relu"}, {"layer_norm_eps: number", 1e-5}, {"batch_first: flag", false},
  {"norm_first: flag", false}, {"device: device"}, {"dtype: dtype"},
})

---@param activation string|function? "relu", "gelu" or a function of one tensor
function TransformerEncoderLayer:init(...)
  local d_model, nhead, dim_feedforward, dropout, activation, eps, batch_first, norm_first, device, dtype = read(...)
  local options = {dtype = dtype, device = device}
  self.self_attn = attention.MultiheadAttention(d_model, nhead,
    {dropout = dropout, batch_first = batch_first, dtype = dtype, device = device})
  self.linear1 = linear.Linear(d_model, dim_feedforward, options)
  self.dropout = dropout_layers.Dropout(dropout)
  self.linear2 = linear.Linear(dim_feedforward, d_model, options)
  self.norm_first = norm_first
  self.norm1 = norm.LayerNorm(d_model, {eps = eps, dtype = dtype, device = device})
  self.norm2 = norm.LayerNorm(d_model, {eps = eps, dtype = dtype, device = device})
  self.dropout1 = dropout_layers.Dropout(dropout)
  self.dropout2 = dropout_layers.Dropout(dropout)
  if activation == "relu" or activation == "gelu" then
    activation = F[activation]
  end
  self.activation = activation
end

local function attend(self, x, mask, padding)
  return self.dropout1((self.self_attn(x, x, x,
    {attn_mask = mask, key_padding_mask = padding, need_weights = false})))
end

local function feed(self, x)
  return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))
end

local read_call = arguments.signature("TransformerEncoderLayer.forward",
  {"src: tensor", {"src_mask: tensor"}, {"src_key_padding_mask: tensor"}})

---@param src table [L, N, d_model] ([N, L, d_model] with batch_first)
---@return table like src
function TransformerEncoderLayer:forward(...)
  local x, mask, padding = read_call(...)
  if self.norm_first then
    x = x + attend(self, self.norm1(x), mask, padding)
    return x + feed(self, self.norm2(x))
  end
  x = self.norm1(x + attend(self, x, mask, padding))
  return self.norm2(x + feed(self, x))
end

--- A stack of encoder layers, made by a function so that each has weights of its own:
--
--   nn.TransformerEncoder(function() return nn.TransformerEncoderLayer(64, 4) end, 6)
---@class TransformerEncoder: Module
local TransformerEncoder = Module:extend "TransformerEncoder"
transformer.TransformerEncoder = TransformerEncoder

local read_stack = arguments.signature("TransformerEncoder",
  {"make_layer: function", "num_layers: size", {"norm: module"}})

function TransformerEncoder:init(...)
  local make_layer, num_layers, final_norm = read_stack(...)
  local layers = {}
  for i = 1, num_layers do layers[i] = make_layer() end
  self.layers = container.ModuleList(layers)
  self.num_layers = num_layers
  self.norm = final_norm
end

local read_stack_call = arguments.signature("TransformerEncoder.forward",
  {"src: tensor", {"mask: tensor"}, {"src_key_padding_mask: tensor"}})

function TransformerEncoder:forward(...)
  local x, mask, padding = read_stack_call(...)
  for _, layer in ipairs(self.layers) do x = layer(x, mask, padding) end
  if self.norm then x = self.norm(x) end
  return x
end

return transformer
