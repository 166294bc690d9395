--- Common to image models: their inputs, and the classes with a head that sorts images.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local image_names = require "accelhost.models.vision.image_names"
local inputs = require "accelhost.models.common.inputs"
local losses = require "accelhost.models.common.losses"
local PreTrainedModel = require("accelhost.models.common.pretrained").PreTrainedModel

local fail = arguments.fail
local image_model = {}

--- The inputs that every image model accepts.
image_model.inputs = {pixel_values = "tensor", output_hidden_states = "flag"}

--- Read the inputs of a call.
---@param model PreTrainedModel
---@param known table<string, string> name -> kind, as of inputs.read
---@param batch Tensor|table pixel_values, or a table by name
---@param more? table
---@return table
function image_model.read(model, known, batch, more)
  local what, given = model._name, inputs.read(model._name, known, batch, more, "pixel_values")
  local images, channels = given.pixel_values, model.config.num_channels
  if not images then fail("%s: expected pixel_values", what) end
  if images:dim() ~= 4 or images:size(1) ~= channels then
    fail("%s: pixel_values: expected shape (batch, %d, height, width), got %s", what, channels,
      arguments.shape_text(images))
  elseif not images:is_floating_point() then
    fail("%s: pixel_values: expected floats, got %s: call the image processor first", what, images.dtype)
  end
  return given
end

--- Return the images in the dtype of the first layer's weight.
---@param images Tensor
---@param first Module
---@return Tensor
function image_model.cast(images, first)
  local weight = first.weight
  if weight and weight.dtype ~= images.dtype then return images:to(weight.dtype) end
  return images
end

--- Return the value of a flag of a call, by default the configuration's.
---@param model PreTrainedModel
---@return boolean?
function image_model.flag(model, given, name)
  if given[name] ~= nil then return given[name] end
  return model.config[name]
end

local function build_classifier(self, config)
  self[self.base_model_prefix] = self.base_class(config, self.base_options)
  self.classifier = self._make_head(config)
end

local function forward_classifier(self, batch, more)
  local given = image_model.read(self, self.inputs, batch, more)
  local labels = given.labels
  given.labels = nil
  local base = self[self.base_model_prefix](given)
  local logits = self.classifier(self._pooled(base))
  return {
    logits = logits, loss = labels and losses.of_texts(self, logits, labels), hidden_states = base.hidden_states,
    attentions = base.attentions,
  }
end

--- Make the class of a family's base model.
---@param config_class ImageConfig
---@param prefix string the base model's field in models with a head
---@param schemes table of image_names.lua
---@return PreTrainedModel
function image_model.base(name, config_class, prefix, schemes)
  local Base = PreTrainedModel:extend(name)
  Base.config_class, Base.base_model_prefix = config_class, prefix
  function Base.own_names(_, state, own) return image_names.own_names(state, own, schemes, prefix) end
  return Base
end

--- Make the class of a family's model that sorts images.
---@param base PreTrainedModel
---@param o {head: (fun(config: ImageConfig): Module), pooled: (fun(base: table): Tensor), options: table?, inputs:
--- table} the head, its input from the base model's results, the base model's options and the inputs
---@return PreTrainedModel
function image_model.classifier(name, base, o)
  local Classifier = base:extend(name)
  Classifier.base_class, Classifier.base_options = base, o.options
  Classifier._make_head, Classifier._pooled = o.head, o.pooled
  Classifier.inputs = arguments.copy(o.inputs)
  Classifier.inputs.labels = "tensor"
  Classifier.build, Classifier.forward, Classifier.recomputes = build_classifier, forward_classifier, nil
  return Classifier
end

--- The forward of an encoder of stages: return the last feature maps; into the list, where there is one, those before
--- the first and after each stage.
---@param self Module with `stages`
---@param states Tensor[]?
---@return Tensor
function image_model.run_stages(self, x, states)
  if states then states[1] = x end
  for i, stage in ipairs(self.stages) do
    x = stage(x)
    if states then states[i + 1] = x end
  end
  return x
end

--- Average over rows and columns: [N, C, H, W] -> [N, C].
---@return Tensor
function image_model.average(x) return C.adaptive_avg_pool2d(x, {1, 1}):flatten(1) end

return image_model
