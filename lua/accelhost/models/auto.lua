--- Select a model's class by a checkpoint's config.json.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local configs = require "accelhost.models.common.config"

local auto = {}

-- model_type -> file, and the classes of decoders: without a head, for each next token, for texts.
local decoders = {gemma3_text = {"decoders.gemma3", "Gemma3TextModel", "Gemma3ForCausalLM",
  "Gemma3TextForSequenceClassification"}}
for model_type, name in pairs {llama = "Llama", mistral = "Mistral", qwen2 = "Qwen2", qwen3 = "Qwen3",
  gemma2 = "Gemma2", phi3 = "Phi3", gpt_neox = "GPTNeoX"} do
  decoders[model_type] = {"decoders." .. model_type, name .. "Model", name .. "ForCausalLM",
    name .. "ForSequenceClassification"}
end

-- model_type -> file, and the first part of its classes' names.
local encoders = {
  bert = {"encoders.bert", "Bert"}, distilbert = {"encoders.distilbert", "DistilBert"},
  roberta = {"encoders.roberta", "Roberta"}, ["xlm-roberta"] = {"encoders.xlm_roberta", "XLMRoberta"},
  mpnet = {"encoders.mpnet", "MPNet"}, electra = {"encoders.electra", "Electra"},
}

-- Add to the classes the encoders' ones with this ending.
local function with_encoders(ending, classes)
  for model_type, row in pairs(encoders) do classes[model_type] = {row[1], row[2] .. ending} end
  return classes
end

-- Add to the classes the decoders' ones at this place.
local function with_decoders(place, classes)
  for model_type, row in pairs(decoders) do classes[model_type] = {row[1], row[place]} end
  return classes
end

-- A class that creates one of several models.
local function define(name, classes)
  local Auto = class.new(name)
  auto[name] = Auto

  local function find(what, config)
    local found = classes[config.model_type]
    if not found then
      arguments.fail("%s: models of type '%s' have no such head; expected one of %s", what, config.model_type,
        table.concat(arguments.sorted_keys(classes), ", "))
    end
    return require("accelhost.models." .. found[1])[found[2]]
  end

  function Auto:init()
    arguments.fail("%s: call %s.from_pretrained or %s.from_config", self._name, self._name, self._name)
  end

  --- The model of a checkpoint folder, by the model_type in its config.json; see PreTrainedModel.from_pretrained.
  ---@param options? table
  ---@return PreTrainedModel
  function Auto.from_pretrained(path, options)
    local what = name .. ".from_pretrained"
    return find(what, configs.read(what, path)).from_pretrained(path, options)
  end

  --- A new model from a configuration.
  ---@param config PretrainedConfig
  ---@return PreTrainedModel
  function Auto.from_config(config)
    local what = name .. ".from_config"
    if not class.is(config, configs.PretrainedConfig) then
      arguments.fail("%s: config: expected a configuration (BertConfig, GPT2Config), got %s", what,
        arguments.describe(config))
    end
    return find(what, config)(config)
  end
end

--- The base model that a checkpoint holds: from_pretrained(DIR, options), from_config(config).
--
--   local config = accelhost.models.BertConfig{vocab_size = 9, hidden_size = 12, num_hidden_layers = 1}
--   accelhost.models.AutoModel.from_config(config)._name  --> BertModel
define("AutoModel", with_encoders("Model", with_decoders(2, {
  gpt2 = {"decoders.gpt2", "GPT2Model"}, t5 = {"t5.t5", "T5Model"}, resnet = {"vision.resnet", "ResNetModel"},
  vit = {"vision.vit", "ViTModel"},
  convnext = {"vision.convnext", "ConvNextModel"},
})))

--- A model that sorts texts: from_pretrained(DIR, {num_labels = 3}), from_config(config).
define("AutoModelForSequenceClassification", with_encoders("ForSequenceClassification", with_decoders(4, {})))

--- A model that sorts tokens: from_pretrained(DIR, {num_labels = 9}), from_config(config).
define("AutoModelForTokenClassification", with_encoders("ForTokenClassification", {}))

--- A model that finds answers in texts: from_pretrained(DIR), from_config(config).
define("AutoModelForQuestionAnswering", with_encoders("ForQuestionAnswering", {}))

--- A model that selects one of several texts: from_pretrained(DIR), from_config(config).
define("AutoModelForMultipleChoice", with_encoders("ForMultipleChoice", {}))

--- A model that guesses hidden tokens: from_pretrained(DIR), from_config(config).
define("AutoModelForMaskedLM", with_encoders("ForMaskedLM", {}))

--- A model that continues texts: from_pretrained(DIR), from_config(config).
define("AutoModelForCausalLM", with_decoders(3, {gpt2 = {"decoders.gpt2", "GPT2LMHeadModel"}}))

--- A model that sorts images: from_pretrained(DIR, {num_labels = 3, ignore_mismatched_sizes = true}),
--- from_config(config). DIR may be a folder of timm's.
define("AutoModelForImageClassification", {
  resnet = {"vision.resnet", "ResNetForImageClassification"}, vit = {"vision.vit", "ViTForImageClassification"},
  convnext = {"vision.convnext", "ConvNextForImageClassification"},
})

--- A model that writes a text for another: from_pretrained(DIR), from_config(config).
define("AutoModelForSeq2SeqLM", {t5 = {"t5.t5", "T5ForConditionalGeneration"}})

return auto
