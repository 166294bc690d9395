--- The configuration of adapters: the fields of peft's adapter_config.json.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail, describe = arguments.fail, arguments.describe
local null = C.json.null
local config = {}

-- Fields of LoRA and their defaults, which are peft's.
local defaults = {
  r = 8, lora_alpha = 8, lora_dropout = 0, target_modules = null, exclude_modules = null, modules_to_save = null,
  bias = "none", use_rslora = false, use_dora = false, init_lora_weights = true, fan_in_fan_out = false,
  layers_to_transform = null, layers_pattern = null, rank_pattern = {}, alpha_pattern = {}, task_type = null,
  inference_mode = false, base_model_name_or_path = null, revision = null,
}

-- Fields that peft writes and that change no numbers, or none at these values; others are refused.
local inert = {
  peft_type = true, peft_version = true, auto_mapping = true, megatron_core = true, megatron_config = null,
  loftq_config = {}, eva_config = null, corda_config = null, lora_ga_config = null, kasa_config = null,
  velora_config = null, monteclora_config = null, arrow_config = null, alora_invocation_tokens = null,
  trainable_token_indices = null, layer_replication = null, lora_bias = false, use_qalora = false,
  qalora_group_size = true, use_bdlora = null, target_parameters = null, ensure_weight_tying = false,
}

local kinds = {
  r = "size", lora_alpha = "positive", lora_dropout = "number", bias = "'none'|'all'|'lora_only'", use_rslora = "flag",
  use_dora = "flag", fan_in_fan_out = "flag", inference_mode = "flag", rank_pattern = "table", alpha_pattern = "table",
  exclude_modules = "string|table", modules_to_save = "table", target_modules = "string|table",
  layers_to_transform = "number|table", layers_pattern = "string|table",
  task_type = "'CAUSAL_LM'|'SEQ_CLS'|'TOKEN_CLS'|'QUESTION_ANS'|'SEQ_2_SEQ_LM'|'FEATURE_EXTRACTION'",
}

local names = arguments.sorted_keys(defaults)

--- The configuration of LoRA: each target module with weight W computes with W + scaling * B A; the two small
--- matrices A and B are trained. scaling is lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora.
--
--   accelhost.peft.LoraConfig{r = 4, target_modules = {"q_proj", "v_proj"}}.lora_alpha  --> 8
---@field r integer the rank of the products
---@field lora_alpha number
---@field lora_dropout number of the input of A
---@field target_modules string[]|string? ends of modules' names, or "all-linear"; default by the type of the model
---@field exclude_modules string[]? ends of names that are left out
---@field modules_to_save string[]? ends of names of modules that are trained and saved whole
---@field bias string "none", "all" or "lora_only": the biases that are trained
---@field use_rslora boolean
---@field use_dora boolean train the length of each row of W + scaling * B A too
---@field init_lora_weights boolean|string true (A as a linear map, B 0), "gaussian", or false (both as linear maps)
---@field layers_to_transform integer[]|integer? numbers of layers, from 0
---@field layers_pattern string[]|string? the names of the lists of layers
---@field rank_pattern table<string, integer> other ranks by ends of names
---@field alpha_pattern table<string, number>
---@field task_type string? SEQ_CLS and TOKEN_CLS add the head (classifier, score) to modules_to_save
---@field inference_mode boolean adapters are not trained
---@class LoraConfig
local LoraConfig = class.new "LoraConfig"
LoraConfig.peft_type = "LORA"
config.LoraConfig = LoraConfig

local function is_default(value, default)
  if default == true or value == default or value == null then return true end
  return type(value) == "table" and type(default) == "table" and next(value) == nil
end

local function check(self)
  for name, kind in pairs(kinds) do
    if self[name] ~= nil then arguments.check(self._name, name, kind, self[name]) end
  end
  if self.r < 1 then fail("%s: r: expected a positive integer, got %d", self._name, self.r) end
  if self.lora_dropout < 0 or self.lora_dropout >= 1 then
    fail("%s: lora_dropout: expected 0 or more and less than 1, got %g", self._name, self.lora_dropout)
  end
  local initial = self.init_lora_weights
  if type(initial) ~= "boolean" and initial ~= "gaussian" then
    fail("%s: init_lora_weights: expected true, false or \"gaussian\", got %s", self._name, describe(initial))
  end
  local targets = self.target_modules
  if type(targets) == "string" and targets ~= "all-linear" then
    fail("%s: target_modules: '%s' is read as a regular expression by peft; list the ends of the names, {\"q_proj\", "
      .. "\"v_proj\"}, or use \"all-linear\"", self._name, targets)
  end
end

---@param values? table fields by name
function LoraConfig:init(values)
  values = values or {}
  if not arguments.is_options(values) then
    fail("%s: expected a table of fields, got %s", self._name, describe(values))
  end
  local known = {}
  for _, name in ipairs(arguments.sorted_keys(values)) do
    local default = inert[name]
    if default == nil then
      known[name] = values[name]
    elseif not is_default(values[name], default) then
      fail("%s: %s: there is nothing for it here (%s)", self._name, name, describe(values[name]))
    end
  end
  arguments.check_names(self._name, known, names)
  for name, default in pairs(defaults) do
    local value = known[name]
    if value == nil then value = arguments.copy(default) end
    if value ~= null then self[name] = value end
  end
  check(self)
end

--- Write adapter_config.json into a folder that exists.
---@param folder string
function LoraConfig:save_pretrained(folder)
  local values = {peft_type = self.peft_type}
  for _, name in ipairs(names) do
    local value = self[name]
    if value == nil then value = null end
    values[name] = value
  end
  values.inference_mode = true
  C.io.write_text(folder .. "/adapter_config.json", C.json.encode(values, 2) .. "\n")
end

--- Read adapter_config.json of a folder.
--
--   | peft.LoraConfig.from_pretrained("adapter").r
---@param folder string
---@return LoraConfig
function LoraConfig.from_pretrained(folder)
  local what = "LoraConfig.from_pretrained"
  arguments.check(what, "path", "string", folder)
  local path = folder .. "/adapter_config.json"
  local values = require("accelhost.models.config").read_object(what, path)
  if not values then fail("%s: '%s' has no adapter_config.json: it is no folder of an adapter", what, folder) end
  if values.peft_type ~= LoraConfig.peft_type then
    fail("%s: '%s': peft_type: expected LORA, got %s", what, path, describe(values.peft_type))
  end
  return LoraConfig(values)
end

return config
