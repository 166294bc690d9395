--- ViT: a transformer of image patches. The paths of its weights are those of published checkpoints.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local activations = require "accelhost.models.common.activations"
local arguments = require "accelhost.util.arguments"
local attention = require "accelhost.models.common.attention"
local container = require "accelhost.nn.container"
local fused = require "accelhost.nn.fused"
local image_model = require "accelhost.models.vision.image_model"
local image_names = require "accelhost.models.vision.image_names"
local norms = require "accelhost.nn.norm"
local recompute = require "accelhost.recompute"
local truncated = require "accelhost.nn.special_initializers"
local ImageConfig = require "accelhost.models.vision.image_config"
local Conv2d = require("accelhost.nn.conv").Conv2d
local Dropout = require("accelhost.nn.dropout").Dropout
local Linear = require("accelhost.nn.linear").Linear
local Module = require("accelhost.nn.module").Module
local Parameter = require("accelhost.nn.parameter").new
local PreTrainedModel = require("accelhost.models.common.pretrained").PreTrainedModel

local fail, null = arguments.fail, C.json.null
local vit = {}

--- ViT's configuration; the defaults are the sizes of ViT-B/16. image_size and patch_size may be {height, width}.
--
--   accelhost.models.ViTConfig{hidden_size = 192, num_attention_heads = 3}.num_hidden_layers  --> 12
local ViTConfig = ImageConfig:extend "ViTConfig"
ViTConfig.model_type = "vit"
ViTConfig.size_fields = {"image_size", "patch_size"}
ViTConfig.nullable = {image_size = true, patch_size = true}
ViTConfig.defaults = {
  hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072, hidden_act = "gelu",
  hidden_dropout_prob = 0, attention_probs_dropout_prob = 0, initializer_range = 0.02, layer_norm_eps = 1e-12,
  image_size = null, patch_size = null, num_channels = 3, qkv_bias = true, encoder_stride = 16,
  pooler_output_size = null, pooler_act = "tanh",
}
vit.ViTConfig = ViTConfig

function ViTConfig:complete()
  self.image_size, self.patch_size = self.image_size or 224, self.patch_size or 16
  self.pooler_output_size = self.pooler_output_size or self.hidden_size
  ImageConfig.complete(self)
  local width, heads = self.hidden_size, self.num_attention_heads
  if width % heads ~= 0 then
    fail("ViTConfig: hidden_size %d is no multiple of num_attention_heads %d", width, heads)
  end
  local head = rawget(self, "head_dim")
  if head ~= nil and head ~= width / heads then
    fail("ViTConfig: head_dim = %s is not implemented; expected %d", arguments.describe(head), width / heads)
  end
end

local function dropped(rate) return rate > 0 and Dropout(rate) or nil end

local PatchEmbeddings = Module:extend "ViTPatchEmbeddings"

function PatchEmbeddings:init(config)
  local height, width = config:height_and_width "patch_size"
  self.projection = Conv2d(config.num_channels, config.hidden_size, {height, width}, {stride = {height, width}})
end

function PatchEmbeddings:forward(x) return self.projection(x):flatten(2):transpose(1, 2) end

-- The CLS token and the patches, with their positions.
local Embeddings = Module:extend "ViTEmbeddings"

function Embeddings:init(config)
  local height, width = config:height_and_width "image_size"
  local patch_height, patch_width = config:height_and_width "patch_size"
  self.image, self.patch = {height, width}, {patch_height, patch_width}
  self.rows, self.columns = math.floor(height / patch_height), math.floor(width / patch_width)
  self.cls_token = Parameter(C.zeros({1, 1, config.hidden_size}))
  self.position_embeddings = Parameter(C.zeros({1, self.rows * self.columns + 1, config.hidden_size}))
  self.patch_embeddings = PatchEmbeddings(config)
  self.dropout = dropped(config.hidden_dropout_prob)
end

--- Return the positions of an image of another size, by bicubic interpolation.
function Embeddings:interpolate(height, width)
  local rows, columns = math.floor(height / self.patch[1]), math.floor(width / self.patch[2])
  local positions = self.position_embeddings
  if rows == self.rows and columns == self.columns then return positions end
  local count = positions:size(1) - 1
  local grid = positions:narrow(1, 1, count):unflatten(1, {self.rows, self.columns}):permute(0, 3, 1, 2)
  grid = F.interpolate(grid, {size = {rows, columns}, mode = "bicubic", align_corners = false})
  return C.cat({positions:narrow(1, 0, 1), grid:permute(0, 2, 3, 1):flatten(1, 2)}, 1)
end

function Embeddings:forward(images, interpolates)
  local batch, height, width = images:size(0), images:size(2), images:size(3)
  local positions = self.position_embeddings
  if interpolates then
    positions = self:interpolate(height, width)
  elseif height ~= self.image[1] or width ~= self.image[2] then
    fail("ViTModel: pixel_values: expected images of %d x %d, got %d x %d; interpolate_pos_encoding = true accepts "
      .. "other sizes", self.image[1], self.image[2], height, width)
  end
  local x = C.cat({self.cls_token:expand(batch, -1, -1), self.patch_embeddings(images)}, 1) + positions
  return self.dropout and self.dropout(x) or x
end

local SelfAttention = Module:extend "ViTSelfAttention"

function SelfAttention:init(config)
  local width, options = config.hidden_size, {bias = config.qkv_bias}
  self.heads, self.rate = config.num_attention_heads, config.attention_probs_dropout_prob
  self.query = Linear(width, width, options)
  self.key = Linear(width, width, options)
  self.value = Linear(width, width, options)
end

function SelfAttention:forward(x, how)
  local query, key, value = self.query, self.key, self.value
  if fused.is_plain(query, Linear) and fused.is_plain(key, Linear) and fused.is_plain(value, Linear) then
    x = C.autocast.lower(x) -- once for the three
  end
  local q, k, v = query(x), key(x), value(x)
  local y, weights = attention.attend(attention.split(q, self.heads), attention.split(k, self.heads),
    attention.split(v, self.heads),
    {visible = how.visible, dropout = self.training and self.rate or 0, weights = how.wants_weights})
  return attention.join(y), weights
end

-- A linear map and dropout.
local Output = Module:extend "ViTOutput"

function Output:init(config, from)
  self.dense = Linear(from, config.hidden_size)
  self.dropout = dropped(config.hidden_dropout_prob)
end

local function drop(self, x) return self.dropout and self.dropout(x) or x end

function Output:forward(x) return drop(self, self.dense(x)) end

local Attention = Module:extend "ViTAttention"

function Attention:init(config)
  self.attention = SelfAttention(config)
  self.output = Output(config, config.hidden_size)
end

function Attention:forward(x, how)
  local y, weights = self.attention(x, how)
  return self.output(y), weights
end

local Intermediate = Module:extend "ViTIntermediate"

function Intermediate:init(config)
  self.dense = Linear(config.hidden_size, config.intermediate_size)
  self.act = activations.find("ViTConfig: hidden_act", config.hidden_act)
end

function Intermediate:forward(x) return self.act(self.dense(x)) end

local Layer = Module:extend "ViTLayer"

function Layer:init(config)
  self.attention = Attention(config)
  self.intermediate = Intermediate(config)
  self.output = Output(config, config.intermediate_size)
  self.layernorm_before = norms.LayerNorm(config.hidden_size, {eps = config.layer_norm_eps})
  self.layernorm_after = norms.LayerNorm(config.hidden_size, {eps = config.layer_norm_eps})
end

function Layer:forward(x, how)
  local y, weights = self.attention(norms.for_linear(self.layernorm_before, x), how)
  local normed, sum = norms.of_sum(self.layernorm_after, y, x, true)
  local wide, output, made = self.intermediate, self.output, nil
  if fused.is_plain(wide, Intermediate) and fused.is_plain(output, Output) then
    made = fused.gelu_mlp(normed, wide.dense, activations.gelu_formula[wide.act], output.dense)
  end
  return sum + (made and drop(output, made) or output(wide(normed))), weights
end

local Encoder = Module:extend "ViTEncoder"
Encoder.recomputes = true

function Encoder:init(config)
  self.layer = container.ModuleList {}
  for _ = 1, config.num_hidden_layers do self.layer:append(Layer(config)) end
end

-- Return the last states; into the lists, where there are any, those of each layer.
function Encoder:forward(x, how, states, weights)
  for i, layer in ipairs(self.layer) do
    if states then states[i] = x end
    local found
    x, found = recompute.layer(self, layer, x, how)
    if weights then weights[i] = found end
  end
  if states then states[#states + 1] = x end
  return x
end

local Pooler = Module:extend "ViTPooler"

function Pooler:init(config)
  self.dense = Linear(config.hidden_size, config.pooler_output_size)
  self.act = activations.find("ViTConfig: pooler_act", config.pooler_act)
end

function Pooler:forward(x) return self.act(self.dense(x:select(1, 0))) end

local known = arguments.copy(image_model.inputs)
known.output_attentions, known.interpolate_pos_encoding = "flag", "flag"

--- ViT without a head. Called with pixel_values [batch, num_channels, height, width], or a table with it and any of
--- interpolate_pos_encoding (images of another size than image_size), output_hidden_states and output_attentions.
--- Returns a table: last_hidden_state [batch, 1 + patches, hidden_size], pooler_output [batch, pooler_output_size] (the
--- CLS token's state through a layer and pooler_act), and hidden_states and attentions, if requested.
--
--   local config = {hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,
--     image_size = 8, patch_size = 4}
--   accelhost.models.ViTModel(config)(accelhost.zeros(1, 3, 8, 8)).last_hidden_state:size(1)  --> 5
---@param options? table add_pooling_layer = false leaves the pooler out
local ViTModel = image_model.base("ViTModel", ViTConfig, "vit", image_names.vit)
ViTModel.token_embedding = "embeddings.patch_embeddings"
vit.ViTModel = ViTModel

function ViTModel:build(config, options)
  arguments.check_names("ViTModel", options, {"add_pooling_layer"})
  self.embeddings = Embeddings(config)
  self.encoder = Encoder(config)
  self.layernorm = norms.LayerNorm(config.hidden_size, {eps = config.layer_norm_eps})
  if options.add_pooling_layer ~= false then self.pooler = Pooler(config) end
end

--- Initialise a parameter as PreTrainedModel does; the CLS token and the positions from a truncated normal
--- distribution.
function ViTModel:init_weight(module, name, tensor, path)
  if name == "cls_token" or name == "position_embeddings" then
    truncated.trunc_normal_(tensor, 0, self.config.initializer_range)
  else
    PreTrainedModel.init_weight(self, module, name, tensor, path)
  end
end

---@param batch Tensor|table
---@param more? table further inputs by name
---@return table
function ViTModel:forward(batch, more)
  local given = image_model.read(self, known, batch, more)
  local states = image_model.flag(self, given, "output_hidden_states") and {} or nil
  local weights = image_model.flag(self, given, "output_attentions") and {} or nil
  local images = image_model.cast(given.pixel_values, self.embeddings.patch_embeddings.projection)
  local x = self.embeddings(images, given.interpolate_pos_encoding)
  x = self.encoder(x, {visible = {}, wants_weights = weights ~= nil}, states, weights)
  x = self.layernorm(x)
  return {
    last_hidden_state = x, pooler_output = self.pooler and self.pooler(x), hidden_states = states,
    attentions = weights,
  }
end

--- ViT that sorts images by the state of their CLS token: logits [batch, num_labels], and a loss when labels are given,
--- by the rules of BertForSequenceClassification. Weights in torchvision's or timm's names are accepted.
--
--   local config = {hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,
--     image_size = 8, patch_size = 4, num_labels = 5}
--   accelhost.models.ViTForImageClassification(config)(accelhost.zeros(1, 3, 8, 8)).logits:size(1)  --> 5
vit.ViTForImageClassification = image_model.classifier("ViTForImageClassification", ViTModel, {
  head = function(config) return Linear(config.hidden_size, config.num_labels) end,
  pooled = function(base) return base.last_hidden_state:select(1, 0) end,
  options = {add_pooling_layer = false}, inputs = known,
})

return vit
