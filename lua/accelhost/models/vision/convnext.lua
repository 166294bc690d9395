--- ConvNeXt: a convolutional network with the layers of a transformer. The paths of its weights are those of
--- transformers' checkpoints.
local C = require "accelhost._C"
local activations = require "accelhost.models.common.activations"
local arguments = require "accelhost.util.arguments"
local container = require "accelhost.nn.container"
local fused = require "accelhost.nn.fused"
local image_model = require "accelhost.models.vision.image_model"
local image_names = require "accelhost.models.vision.image_names"
local init = require "accelhost.nn.initializers"
local ImageConfig = require "accelhost.models.vision.image_config"
local Conv2d = require("accelhost.nn.conv").Conv2d
local LayerNorm = require("accelhost.nn.norm").LayerNorm
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module
local Parameter = require("accelhost.nn.parameter").new
local PreTrainedModel = require("accelhost.models.common.pretrained").PreTrainedModel

local fail, null = arguments.fail, C.json.null
local convnext = {}
local EPS = 1e-6 -- of all norms but the last

--- ConvNeXt's configuration; the defaults are the sizes of ConvNeXt-T.
--
--   accelhost.models.ConvNextConfig{depths = {3, 3, 27, 3}}.hidden_sizes[4]  --> 768
local ConvNextConfig = ImageConfig:extend "ConvNextConfig"
ConvNextConfig.model_type = "convnext"
ConvNextConfig.stage_lists, ConvNextConfig.size_fields = {"hidden_sizes", "depths"}, {"patch_size"}
ConvNextConfig.nullable = {num_stages = true}
ConvNextConfig.defaults = {
  num_channels = 3, patch_size = 4, num_stages = null, hidden_sizes = {96, 192, 384, 768}, depths = {3, 3, 9, 3},
  hidden_act = "gelu", initializer_range = 0.02, layer_norm_eps = 1e-12, layer_scale_init_value = 1e-6,
  drop_path_rate = 0, image_size = 224,
}
convnext.ConvNextConfig = ConvNextConfig

function ConvNextConfig:complete()
  ImageConfig.complete(self)
  self.num_stages = self.num_stages or #self.depths
  if self.num_stages ~= #self.depths then
    fail("ConvNextConfig: num_stages: expected %d, as many as depths has items, got %s", #self.depths,
      arguments.describe(self.num_stages))
  end
end

--- Return the changes with num_stages, which follows from depths.
---@return table
function ConvNextConfig:complete_changes(changes)
  local all = arguments.copy(changes)
  if all.depths and all.num_stages == nil then all.num_stages = null end
  return all
end

-- A LayerNorm of the channels of [N, C, H, W].
local ChannelNorm = LayerNorm:extend "ConvNextLayerNorm"

function ChannelNorm:forward(x) return LayerNorm.forward(self, x:permute(0, 2, 3, 1)):permute(0, 3, 1, 2) end

local Embeddings = Module:extend "ConvNextEmbeddings"

function Embeddings:init(config)
  local height, width = config:height_and_width "patch_size"
  self.patch_embeddings = Conv2d(config.num_channels, config.hidden_sizes[1], {height, width},
    {stride = {height, width}})
  self.layernorm = ChannelNorm(config.hidden_sizes[1], {eps = EPS})
end

function Embeddings:forward(x) return self.layernorm(self.patch_embeddings(x)) end

-- A convolution of each channel, and an MLP of the channels of each pixel, around which the input is added.
local Layer = Module:extend "ConvNextLayer"

function Layer:init(config, width, drop_rate)
  self.dwconv = Conv2d(width, width, 7, {padding = 3, groups = width})
  self.layernorm = LayerNorm(width, {eps = EPS})
  self.pwconv1 = Linear(width, 4 * width)
  self.pwconv2 = Linear(4 * width, width)
  if config.layer_scale_init_value > 0 then self.layer_scale_parameter = Parameter(C.zeros({width})) end
  self.act, self.drop_rate = activations.find("ConvNextConfig: hidden_act", config.hidden_act), drop_rate
end

-- Stochastic depth: drop the layer's result for some images of the batch, scale it for the others.
local function drop_path(x, rate)
  local keep = 1 - rate
  local drawn = C.rand({x:size(0), 1, 1, 1}, {dtype = x.dtype, device = x.device})
  return x / keep * (drawn + keep):floor()
end

function Layer:forward(x)
  local y = self.layernorm(self.dwconv(x):permute(0, 2, 3, 1))
  y = fused.gelu_mlp(y, self.pwconv1, activations.gelu_formula[self.act], self.pwconv2)
    or self.pwconv2(self.act(self.pwconv1(y)))
  if self.layer_scale_parameter then y = self.layer_scale_parameter * y end
  y = y:permute(0, 3, 1, 2)
  if self.training and self.drop_rate > 0 then y = drop_path(y, self.drop_rate) end
  return x + y
end

local Stage = Module:extend "ConvNextStage"

function Stage:init(config, number, from, to, rates)
  self.downsampling_layer = container.ModuleList {}
  if number > 1 then
    self.downsampling_layer:append(ChannelNorm(from, {eps = EPS}))
    self.downsampling_layer:append(Conv2d(from, to, 2, {stride = 2}))
  end
  self.layers = container.ModuleList {}
  for i = 1, config.depths[number] do self.layers:append(Layer(config, to, rates[i])) end
end

function Stage:forward(x)
  for _, layer in ipairs(self.downsampling_layer) do x = layer(x) end
  for _, layer in ipairs(self.layers) do x = layer(x) end
  return x
end

local Encoder = Module:extend "ConvNextEncoder"

function Encoder:init(config)
  local count, done = 0, 0
  for _, depth in ipairs(config.depths) do count = count + depth end
  local rates = C.linspace(0, config.drop_path_rate, count, {dtype = "float32", device = "cpu"}):tolist()
  self.stages = container.ModuleList {}
  local from = config.hidden_sizes[1]
  for number, to in ipairs(config.hidden_sizes) do
    self.stages:append(Stage(config, number, from, to, {unpack(rates, done + 1, done + config.depths[number])}))
    done = done + config.depths[number]
    from = to
  end
end

Encoder.forward = image_model.run_stages

--- ConvNeXt without a head. Called with pixel_values [batch, num_channels, height, width], or a table with it and
--- output_hidden_states. Returns a table: last_hidden_state [batch, channels, rows, columns], pooler_output
--- [batch, channels] (its average, normalised) and, if requested, hidden_states, before the first and after each stage.
--
--   local config = {hidden_sizes = {4, 8}, depths = {1, 1}}
--   accelhost.models.ConvNextModel(config)(accelhost.zeros(1, 3, 16, 16)).pooler_output:size(1)  --> 8
local ConvNextModel = image_model.base("ConvNextModel", ConvNextConfig, "convnext", image_names.convnext)
convnext.ConvNextModel = ConvNextModel

function ConvNextModel:build(config)
  self.embeddings = Embeddings(config)
  self.encoder = Encoder(config)
  self.layernorm = LayerNorm(config.hidden_sizes[#config.hidden_sizes], {eps = config.layer_norm_eps})
end

--- Initialise a parameter as PreTrainedModel does; a layer's scale is layer_scale_init_value.
function ConvNextModel:init_weight(module, name, tensor, path)
  if name == "layer_scale_parameter" then
    init.constant_(tensor, self.config.layer_scale_init_value)
  elseif module._name == "ConvNextLayerNorm" and name == "weight" then
    init.ones_(tensor)
  else
    PreTrainedModel.init_weight(self, module, name, tensor, path)
  end
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table
function ConvNextModel:forward(batch, more)
  local given = image_model.read(self, image_model.inputs, batch, more)
  local states = image_model.flag(self, given, "output_hidden_states") and {} or nil
  local images = image_model.cast(given.pixel_values, self.embeddings.patch_embeddings)
  local x = self.encoder(self.embeddings(images), states)
  return {last_hidden_state = x, pooler_output = self.layernorm(image_model.average(x)), hidden_states = states}
end

--- ConvNeXt that sorts images: logits [batch, num_labels], and a loss when labels are given, by the rules of
--- BertForSequenceClassification. Weights in torchvision's or timm's names are accepted.
--
--   local config = {hidden_sizes = {4, 8}, depths = {1, 1}, num_labels = 5}
--   accelhost.models.ConvNextForImageClassification(config)(accelhost.zeros(1, 3, 16, 16)).logits:size(1)  --> 5
convnext.ConvNextForImageClassification = image_model.classifier("ConvNextForImageClassification", ConvNextModel, {
  head = function(config) return Linear(config.hidden_sizes[#config.hidden_sizes], config.num_labels) end,
  pooled = function(base) return base.pooler_output end, inputs = image_model.inputs,
})

return convnext
