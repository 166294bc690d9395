--- A model with the adapter of a folder, where the folder names the base.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local configs = require "accelhost.peft.config"
local later = require "accelhost.util.later"
local models = later "accelhost.models"
local PeftModel = require("accelhost.peft.model").PeftModel

local fail = arguments.fail
local auto = {}

--- Return the configuration of an adapter's folder, and the folder of its base model.
---@param folder string
---@param remedy string for the message where there is none
---@return PeftConfig
---@return string
function auto.base_of(what, folder, remedy)
  local config = configs.PeftConfig.from_pretrained(folder)
  local base = config.base_model_name_or_path
  if not base or C.data.look(base) ~= "folder" then
    fail("%s: '%s/adapter_config.json': base_model_name_or_path: expected the folder of the base model, got %s; %s",
      what, folder, base and ("'%s', which is no folder"):format(base) or "none", remedy)
  end
  return config, base
end

local mine = {adapter_name = true, is_trainable = true}

local function define(name)
  local of_base = name:gsub("Peft", "")
  local Auto = class.new(name)
  auto[name] = Auto

  function Auto:init() fail("%s: call %s.from_pretrained", self._name, self._name) end

  --- The model of a base and an adapter. The folder of the adapter names that of its base.
  ---@param path string
  ---@param options? table adapter_name, is_trainable, and options of the base's from_pretrained (dtype, ...)
  ---@return PeftModel
  function Auto.from_pretrained(path, options)
    local what = name .. ".from_pretrained"
    local config, base = auto.base_of(what, path, "load the base, and call PeftModel.from_pretrained(base, folder)")
    local own, others = {config = config}, {}
    for key, value in pairs(options or {}) do (mine[key] and own or others)[key] = value end
    return PeftModel.from_pretrained(models[of_base].from_pretrained(base, others), path, own)
  end
end

--- An adapter for a model that continues texts, and its base: from_pretrained(FOLDER, options).
--
--   | local model = accelhost.peft.AutoPeftModelForCausalLM.from_pretrained("adapter", {dtype = "bfloat16"})
define("AutoPeftModelForCausalLM")

--- An adapter for a model that writes a text for another, and its base: from_pretrained(FOLDER, options).
define("AutoPeftModelForSeq2SeqLM")

--- An adapter for a classifier of texts, and its base: from_pretrained(FOLDER, {num_labels = 3}).
define("AutoPeftModelForSequenceClassification")

--- An adapter for a classifier of tokens, and its base: from_pretrained(FOLDER, {num_labels = 9}).
define("AutoPeftModelForTokenClassification")

--- An adapter for a model that finds answers in texts, and its base: from_pretrained(FOLDER, options).
define("AutoPeftModelForQuestionAnswering")

return auto
