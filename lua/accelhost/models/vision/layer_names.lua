--- torchvision's and timm's names of the layers of image models, which have transformers' names here: `model.fc` is
--- read and replaced as `model.classifier[2]`.
local arguments = require "accelhost.util.arguments"

local layer_names = {}

-- Family -> {name there: the layer's path, or false where there is no such layer}.
local paths = {
  resnet = {
    fc = "classifier.1", conv1 = "resnet.embedder.embedder.convolution", bn1 = "resnet.embedder.embedder.normalization",
    maxpool = "resnet.embedder.pooler", avgpool = false, global_pool = false,
  },
  vit = {heads = "classifier", head = "classifier", conv_proj = "vit.embeddings.patch_embeddings.projection"},
  convnext = {avgpool = false},
}
for i = 1, 4 do paths.resnet["layer" .. i] = "resnet.encoder.stages." .. i - 1 end

-- Replace the layer; a head of another number of classes changes the configuration, too.
local function replace(model, family, name, layer)
  local path = paths[family][name]
  if not path then arguments.fail("%s: there is no layer '%s' to replace", model._name, name) end
  model:set_submodule(path, layer)
  local is_head = path:find "^classifier"
  if is_head and type(layer.out_features) == "number" and layer.out_features ~= model.config.num_labels then
    model.config = model.config:with {num_labels = layer.out_features}
  end
end

-- torchvision's heads, whose layer is heads.head.
local function heads_of(model)
  return setmetatable({}, {
    __index = function(_, name) return name == "head" and model.classifier or model.classifier[name] end,
    __newindex = function(_, name, layer)
      if name ~= "head" then arguments.fail("%s: heads has no layer '%s'", model._name, tostring(name)) end
      replace(model, "vit", "head", layer)
    end,
  })
end

--- Add the names to a class of models.
---@param cls Module
---@param family string "resnet", "vit" or "convnext"
function layer_names.add(cls, family)
  local names, index, assign = paths[family], cls.__index, cls.__newindex
  function cls.__index(self, name)
    local value = index(self, name)
    if value ~= nil or not names[name] then return value end
    if name == "heads" then return heads_of(self) end
    return self:get_submodule(names[name])
  end
  function cls.__newindex(self, name, value)
    if names[name] == nil then return assign(self, name, value) end
    replace(self, family, name, value)
  end
end

return layer_names
