--- The base of configurations of image models: numbers of labels, lists of sizes, and entries that are not implemented.
local arguments = require "accelhost.util.arguments"
local PretrainedConfig = require("accelhost.models.common.config").PretrainedConfig

local fail, describe = arguments.fail, arguments.describe

--- The base of image models' configurations.
local ImageConfig = PretrainedConfig:extend "ImageConfig"
ImageConfig.older_names = {"torch_dtype"}
ImageConfig.floats = {"layer_norm_eps", "layer_scale_init_value", "drop_path_rate", "initializer_range"}

-- Fields that have one item for each stage of the network.
ImageConfig.stage_lists = {}

-- Fields that are one size, or {height, width}.
ImageConfig.size_fields = {}

-- Fields of backbones, which follow from the number of stages.
local backbone_fields = {"stage_names", "out_features", "out_indices"}

local function is_count(value) return type(value) == "number" and value >= 1 and value % 1 == 0 end

local function check_list(self, name, length)
  local list = self[name]
  if type(list) ~= "table" or #list == 0 then
    fail("%s: %s: expected positive integers, one for each stage, got %s", self._name, name, describe(list))
  end
  for i, value in ipairs(list) do
    if not is_count(value) then
      fail("%s: %s: expected positive integers, item %d is %s", self._name, name, i, describe(value))
    end
  end
  if length and #list ~= length then
    fail("%s: %s: expected %d items, as many as %s has, got %d", self._name, name, length, self.stage_lists[1], #list)
  end
end

local function check_size(self, name)
  local value = self[name]
  local fine = is_count(value) or type(value) == "table" and #value == 2 and is_count(value[1]) and is_count(value[2])
  if not fine then
    fail("%s: %s: expected a positive integer or {height, width}, got %s", self._name, name, describe(value))
  end
end

--- Return the height and the width of a field that is one size or both.
---@return integer height
---@return integer width
function ImageConfig:height_and_width(name)
  local value = self[name]
  if type(value) == "table" then return value[1], value[2] end
  return value, value
end

function ImageConfig:complete()
  if rawget(self, "quantization_config") ~= nil then
    fail("%s: quantization_config is not implemented; expected no such entry", self._name)
  end
  for _, name in ipairs(self.stage_lists) do
    check_list(self, name, name ~= self.stage_lists[1] and #self[self.stage_lists[1]] or nil)
  end
  for _, name in ipairs(self.size_fields) do check_size(self, name) end
  local names = self.stage_names
  if #self.stage_lists > 0 and (type(names) ~= "table" or #names ~= #self[self.stage_lists[1]] + 1) then
    for _, name in ipairs(backbone_fields) do self[name] = nil end
  end
end

return ImageConfig
