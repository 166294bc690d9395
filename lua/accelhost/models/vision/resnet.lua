--- ResNet: residual convolutional networks. The paths of its weights are those of transformers' checkpoints.
local C = require "accelhost._C"
local activations = require "accelhost.models.common.activations"
local arguments = require "accelhost.util.arguments"
local container = require "accelhost.nn.container"
local fused = require "accelhost.nn.fused"
local image_model = require "accelhost.models.vision.image_model"
local image_names = require "accelhost.models.vision.image_names"
local init = require "accelhost.nn.initializers"
local ImageConfig = require "accelhost.models.vision.image_config"
local BatchNorm2d = require("accelhost.nn.batch_norm").BatchNorm2d
local Conv2d = require("accelhost.nn.conv").Conv2d
local Flatten = require("accelhost.nn.shape").Flatten
local Linear = require("accelhost.nn.linear").Linear
local MaxPool2d = require("accelhost.nn.pooling").MaxPool2d
local Module = require("accelhost.nn.module").Module

local resnet = {}

--- ResNet's configuration; the defaults are the sizes of ResNet-50. layer_type is "basic" (18 and 34 layers) or
--- "bottleneck".
--
--   accelhost.models.ResNetConfig{num_labels = 10}.depths[3]  --> 6
local ResNetConfig = ImageConfig:extend "ResNetConfig"
ResNetConfig.model_type = "resnet"
ResNetConfig.stage_lists = {"hidden_sizes", "depths"}
ResNetConfig.defaults = {
  num_channels = 3, embedding_size = 64, hidden_sizes = {256, 512, 1024, 2048}, depths = {3, 4, 6, 3},
  layer_type = "bottleneck", hidden_act = "relu", downsample_in_first_stage = false, downsample_in_bottleneck = false,
}
resnet.ResNetConfig = ResNetConfig

function ResNetConfig:complete()
  ImageConfig.complete(self)
  if self.layer_type ~= "basic" and self.layer_type ~= "bottleneck" then
    arguments.fail("ResNetConfig: layer_type: expected basic or bottleneck, got %s",
      arguments.describe(self.layer_type))
  end
end

local relu = activations.find("ResNet", "relu")

local function activation(config) return activations.find("ResNetConfig: hidden_act", config.hidden_act) end

-- A convolution, its norm and, with `act`, the activation.
local ConvLayer = Module:extend "ResNetConvLayer"

function ConvLayer:init(from, to, kernel, stride, act)
  self.convolution = Conv2d(from, to, kernel, {stride = stride, padding = math.floor(kernel / 2), bias = false})
  self.normalization = BatchNorm2d(to)
  self.act = act
end

function ConvLayer:forward(x)
  x = self.convolution(x)
  if self.act == relu then return fused.norm_relu(self.normalization, x) end
  x = self.normalization(x)
  return self.act and self.act(x) or x
end

local Embeddings = Module:extend "ResNetEmbeddings"

function Embeddings:init(config)
  self.embedder = ConvLayer(config.num_channels, config.embedding_size, 7, 2, activation(config))
  self.pooler = MaxPool2d(3, {stride = 2, padding = 1})
end

function Embeddings:forward(x) return self.pooler(self.embedder(x)) end

-- Convolutions around which the input is added: two of 3x3, or one of 3x3 between two of 1x1. As in transformers,
-- hidden_act is the activation of their sum alone, ReLU the one between them.
local Block = Module:extend "ResNetBlock"

function Block:init(config, from, to, stride)
  local act = relu
  if from ~= to or stride ~= 1 then self.shortcut = ConvLayer(from, to, 1, stride) end
  if config.layer_type == "basic" then
    self.layer = container.Sequential(ConvLayer(from, to, 3, stride, act), ConvLayer(to, to, 3, 1))
  else
    local inner, first = to / 4, config.downsample_in_bottleneck
    self.layer = container.Sequential(ConvLayer(from, inner, 1, first and stride or 1, act),
      ConvLayer(inner, inner, 3, first and 1 or stride, act), ConvLayer(inner, to, 1, 1))
  end
  self.act = activation(config)
end

function Block:forward(x)
  local layer, y = self.layer, x
  local last = layer[#layer]
  if self.act == relu and fused.is_plain(layer, container.Sequential) and fused.is_plain(last, ConvLayer) then
    for i = 1, #layer - 1 do y = layer[i](y) end
    y = last.convolution(y)
    return fused.norm_relu(last.normalization, y, self.shortcut and self.shortcut(x) or x)
  end
  y = layer(x)
  return self.act(y + (self.shortcut and self.shortcut(x) or x))
end

local Stage = Module:extend "ResNetStage"

function Stage:init(config, from, to, stride, depth)
  self.layers = container.Sequential()
  for i = 1, depth do self.layers:append(Block(config, i == 1 and from or to, to, i == 1 and stride or 1)) end
end

function Stage:forward(x) return self.layers(x) end

local Encoder = Module:extend "ResNetEncoder"

function Encoder:init(config)
  self.stages = container.ModuleList {}
  local from = config.embedding_size
  for i, to in ipairs(config.hidden_sizes) do
    local stride = (i > 1 or config.downsample_in_first_stage) and 2 or 1
    self.stages:append(Stage(config, from, to, stride, config.depths[i]))
    from = to
  end
end

Encoder.forward = image_model.run_stages

--- ResNet without a head. Called with pixel_values [batch, num_channels, height, width], or a table with it and
--- output_hidden_states. Returns a table: last_hidden_state [batch, channels, rows, columns], pooler_output
--- [batch, channels, 1, 1] (its average) and, if requested, hidden_states, before the first and after each stage.
--
--   local config = {embedding_size = 4, hidden_sizes = {8, 12}, depths = {1, 1}, layer_type = "basic"}
--   local model = accelhost.models.ResNetModel(config):eval()
--   model(accelhost.zeros(1, 3, 32, 32)).pooler_output:size(1)  --> 12
local ResNetModel = image_model.base("ResNetModel", ResNetConfig, "resnet", image_names.resnet)
resnet.ResNetModel = ResNetModel

function ResNetModel:build(config)
  self.embedder = Embeddings(config)
  self.encoder = Encoder(config)
end

--- Initialise a parameter: convolutions by their outputs, the linear head as nn.Linear's, norms 1 and 0.
function ResNetModel:init_weight(module, name, tensor, path) -- luacheck: ignore 212
  if module._name == "Conv2d" then
    init.kaiming_normal_(tensor, {mode = "fan_out", nonlinearity = "relu"})
  elseif module._name == "Linear" then
    if name == "weight" then
      init.kaiming_uniform_(tensor, math.sqrt(5))
    else
      local bound = 1 / math.sqrt(module.in_features)
      init.uniform_(tensor, -bound, bound)
    end
  elseif name == "bias" then
    init.zeros_(tensor)
  else
    init.ones_(tensor)
  end
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table
function ResNetModel:forward(batch, more)
  local given = image_model.read(self, image_model.inputs, batch, more)
  local states = image_model.flag(self, given, "output_hidden_states") and {} or nil
  local images = image_model.cast(given.pixel_values, self.embedder.embedder.convolution)
  local x = self.encoder(self.embedder(images), states)
  return {last_hidden_state = x, pooler_output = C.adaptive_avg_pool2d(x, {1, 1}), hidden_states = states}
end

--- ResNet that sorts images: logits [batch, num_labels], and a loss when labels are given, by the rules of
--- BertForSequenceClassification. Weights in torchvision's or timm's names are accepted.
--
--   local config = {embedding_size = 4, hidden_sizes = {8, 12}, depths = {1, 1}, layer_type = "basic", num_labels = 5}
--   local model = accelhost.models.ResNetForImageClassification(config)
--   model{pixel_values = accelhost.zeros(2, 3, 32, 32), labels = accelhost.arange(2)}.logits:size(1)  --> 5
resnet.ResNetForImageClassification = image_model.classifier("ResNetForImageClassification", ResNetModel, {
  head = function(config)
    return container.Sequential(Flatten(), Linear(config.hidden_sizes[#config.hidden_sizes], config.num_labels))
  end,
  pooled = function(base) return base.pooler_output end, inputs = image_model.inputs,
})

return resnet
