--- Image models by torchvision's and timm's names: their sizes, config.json files of timm, and constructors.
local arguments = require "accelhost.util.arguments"
local files = require "accelhost.io"
local layer_names = require "accelhost.models.vision.layer_names"
local warn = require "accelhost.util.warn"
local weights = require "accelhost.models.common.weights"

local fail, describe = arguments.fail, arguments.describe
local image_architectures = {}

-- Name -> {model_type, fields that differ from the configuration's defaults}.
local known = {}

local bottleneck, basic = {256, 512, 1024, 2048}, {64, 128, 256, 512}
for layers, o in pairs {[18] = {basic, {2, 2, 2, 2}}, [34] = {basic, {3, 4, 6, 3}}, [50] = {bottleneck, {3, 4, 6, 3}},
  [101] = {bottleneck, {3, 4, 23, 3}}, [152] = {bottleneck, {3, 8, 36, 3}}} do
  known["resnet" .. layers] = {"resnet", {
    layer_type = o[1] == basic and "basic" or "bottleneck", hidden_sizes = o[1], depths = o[2],
  }}
end

for size, o in pairs {tiny = {96, 9}, small = {96, 27}, base = {128, 27}, large = {192, 27}, xlarge = {256, 27}} do
  known["convnext_" .. size] = {"convnext", {
    hidden_sizes = {o[1], 2 * o[1], 4 * o[1], 8 * o[1]}, depths = {3, 3, o[2], 3}, layer_norm_eps = 1e-6,
  }}
end

local vit_sizes = {tiny = {192, 12, 3}, small = {384, 12, 6}, base = {768, 12, 12}, large = {1024, 24, 16}}

local function vit(size, patch, image)
  local width, layers, heads = unpack(vit_sizes[size])
  return {"vit", {
    hidden_size = width, num_hidden_layers = layers, num_attention_heads = heads, intermediate_size = 4 * width,
    patch_size = patch, image_size = image, layer_norm_eps = 1e-6,
  }}
end

for size in pairs(vit_sizes) do
  for _, patch in ipairs {8, 16, 32} do
    for _, image in ipairs {224, 384} do
      known[("vit_%s_patch%d_%d"):format(size, patch, image)] = vit(size, patch, image)
      if patch == 16 and size ~= "large" then
        known[("deit_%s_patch16_%d"):format(size, image)] = vit(size, patch, image)
      end
    end
  end
end

-- torchvision's names of those that differ, with the rates of stochastic depth that it trains with.
local torchvision = {
  vit_b_16 = vit("base", 16, 224), vit_b_32 = vit("base", 32, 224), vit_l_16 = vit("large", 16, 224),
  vit_l_32 = vit("large", 32, 224),
}
local drop_path_rates = {convnext_tiny = 0.1, convnext_small = 0.4, convnext_base = 0.5, convnext_large = 0.5}
for name, rate in pairs(drop_path_rates) do
  local fields = arguments.copy(known[name][2])
  fields.drop_path_rate = rate
  torchvision[name] = {"convnext", fields}
end
for _, layers in ipairs {18, 34, 50, 101, 152} do torchvision["resnet" .. layers] = known["resnet" .. layers] end

-- The files, and the first part of the classes' names.
local families = {
  resnet = {"accelhost.models.vision.resnet", "ResNet", "ResNet"},
  vit = {"accelhost.models.vision.vit", "ViT", "VisionTransformer"},
  convnext = {"accelhost.models.vision.convnext", "ConvNext", "ConvNeXt"},
}

local function find(what, name, list)
  local found = type(name) == "string" and list[name:match "^[^.]*"]
  if not found then
    fail("%s: unknown architecture %s%s (known: %s)", what, describe(name),
      type(name) == "string" and arguments.did_you_mean(name, arguments.sorted_keys(list)) or "",
      table.concat(arguments.sorted_keys(list), ", "))
  end
  return found
end

local function one_or_both(height, width) return height == width and height or {height, width} end

-- timm's arguments of models -> functions that set the configuration's fields.
local function renames(field)
  return function(fields, value) fields[field] = value end
end

local timm_arguments = {
  resnet = {layers = renames "depths"},
  vit = {
    img_size = function(fields, value)
      fields.image_size = type(value) == "table" and one_or_both(value[1], value[2]) or value
    end,
    patch_size = renames "patch_size", embed_dim = renames "hidden_size", depth = renames "num_hidden_layers",
    num_heads = renames "num_attention_heads", qkv_bias = renames "qkv_bias",
    mlp_ratio = function(fields, value) fields.intermediate_size = math.floor(fields.hidden_size * value) end,
  },
  convnext = {
    dims = renames "hidden_sizes", depths = renames "depths", patch_size = renames "patch_size",
    ls_init_value = renames "layer_scale_init_value", drop_path_rate = renames "drop_path_rate",
  },
}

-- The arguments of resnet that set the widths, which depend on each other.
local function set_channels(fields, channels)
  local expansion, sizes = fields.layer_type == "basic" and 1 or 4, {}
  for i, width in ipairs(channels) do sizes[i] = expansion * width end
  fields.hidden_sizes = sizes
end
timm_arguments.resnet.channels = set_channels

local function add_arguments(what, model_type, fields, given)
  local setters = timm_arguments[model_type]
  if given.embed_dim then
    fields.hidden_size, fields.intermediate_size = given.embed_dim, 4 * given.embed_dim
  end
  for _, name in ipairs(arguments.sorted_keys(given)) do
    if name == "in_chans" then
      fields.num_channels = given[name]
    elseif setters[name] then
      setters[name](fields, given[name])
    elseif name ~= "num_classes" and name ~= "global_pool" then
      fail("%s: model_args: '%s' is not implemented (known: in_chans, num_classes, %s)", what, name,
        table.concat(arguments.sorted_keys(setters), ", "))
    end
  end
end

-- Return a value of config.json if it is a table; null is none.
local function table_in(values, name)
  local value = values[name]
  return type(value) == "table" and value or nil
end

local pools = {resnet = "avg", vit = "token", convnext = "avg"}

--- Return timm's config.json as the entries of a transformers configuration.
---@param what string the function and the file, for messages
---@param values table
---@return table # with model_type
function image_architectures.from_timm(what, values)
  local found = find(what, values.architecture, known)
  local model_type, fields = found[1], arguments.copy(found[2])
  local pretrained, given = table_in(values, "pretrained_cfg") or {}, table_in(values, "model_args") or {}
  local size = table_in(pretrained, "input_size")
  if size then
    fields.num_channels = size[1]
    if model_type == "vit" then fields.image_size = one_or_both(size[2], size[3]) end
  end
  add_arguments(what, model_type, fields, given)
  local pool = values.global_pool or given.global_pool or pools[model_type]
  if pool ~= pools[model_type] then
    fail("%s: global_pool = %s is not implemented; expected %s", what, describe(pool), pools[model_type])
  end
  fields.model_type = model_type
  local classes, names = values.num_classes or pretrained.num_classes or 1000, values.label_names
  fields.num_labels = classes > 0 and classes or 1
  if type(names) == "table" and #names == classes then
    fields.id2label = {}
    for i, name in ipairs(names) do fields.id2label[i - 1] = name end
  end
  return fields
end

-- Constructors.

local logits_classes = {}

-- Return the family's class whose result is the logits alone.
local function logits_class(model_type)
  local file, name, own = unpack(families[model_type])
  if not logits_classes[model_type] then
    local base = require(file)[name .. "ForImageClassification"]
    local made = base:extend(own)
    made.architecture = base._name
    function made:forward(images) return base.forward(self, {pixel_values = images}).logits end
    function made:load_state_dict(state, ...)
      return base.load_state_dict(self, type(state) == "table" and self:own_names(state, self:state_dict()) or state,
        ...)
    end
    layer_names.add(made, model_type)
    logits_classes[model_type] = made
  end
  return logits_classes[model_type], require(file)[name .. "Config"]
end

-- Replace the weights by those of a file or of a table.
local function load_weights(what, model, from, ignore_mismatched)
  local state = from
  if type(from) == "string" then state = files.load(from) end
  if type(state) ~= "table" or getmetatable(state) ~= nil then
    fail("%s: weights: expected a file of tensors by name, or such a table, got %s", what, describe(state))
  end
  local result = weights.assign(model, arguments.copy(state), ignore_mismatched)
  model:init_weights(result.missing_keys)
  for _, line in ipairs(weights.differences(model, type(from) == "string" and from or "weights", result)) do
    warn(line)
  end
end

local function construct(name, list, options)
  options = arguments.copy(options or {})
  if not arguments.is_options(options) then
    fail("%s: expected a table of options, got %s", name, describe(options))
  end
  local model_type, fields = unpack(find(name, name, list))
  fields = arguments.copy(fields)
  local from, ignores = options.weights, options.ignore_mismatched_sizes
  options.num_labels, options.num_classes = options.num_classes or options.num_labels or 1000, nil
  options.weights, options.ignore_mismatched_sizes = nil, nil
  for field, value in pairs(options) do fields[field] = value end
  local class, config_class = logits_class(model_type)
  local model = class(config_class(fields))
  if from ~= nil then load_weights(name, model, from, ignores or false) end
  return model
end

--- Create an image model by timm's or torchvision's name. Its call returns logits [batch, num_classes]; its layers and
--- weights have transformers' names, and files of weights may have torchvision's or timm's. A layer is replaced by
--- torchvision's name: `model.fc = nn.Linear(model.fc.in_features, 10)`.
--
--   local model = accelhost.models.create_model("vit_tiny_patch16_224", {num_classes = 10, num_hidden_layers = 1})
--   model(accelhost.zeros(1, 3, 224, 224)):size(1)  --> 10
---@param model_name string resnet18, vit_tiny_patch16_224, convnext_tiny, ...; an unknown one lists the known ones
---@param options? table num_classes (default 1000), weights (a file, .pth or .safetensors, or tensors by name),
--- ignore_mismatched_sizes (true: tensors of another shape, as a head of other classes, are initialised), and fields of
--- the configuration
---@return PreTrainedModel
function image_architectures.create_model(model_name, options)
  local list = type(model_name) == "string" and not known[model_name:match "^[^.]*"] and torchvision[model_name]
    and torchvision or known
  find("create_model", model_name, list)
  return construct(model_name:match "^[^.]*", list, options)
end

--- Create torchvision's model of this name; create_model documents the options. weights = "resnet18-f37072fd.pth" reads
--- a file of torchvision's.
--
--   local model = accelhost.models.resnet18{num_classes = 10}
--   model:eval()(accelhost.zeros(1, 3, 32, 32)):size(1)  --> 10
---@names resnet18 resnet34 resnet50 resnet101 resnet152 vit_b_16 vit_b_32 vit_l_16 vit_l_32 convnext_tiny
--- convnext_small convnext_base convnext_large
---@param options? table
---@return PreTrainedModel
for name in pairs(torchvision) do
  image_architectures[name] = function(options) return construct(name, torchvision, options) end
end

return image_architectures
