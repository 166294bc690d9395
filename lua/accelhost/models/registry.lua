--- The class of configurations of each model type. Families are loaded when a checkpoint names them.
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe
local registry = {}

-- model_type -> file and class.
local by_type = {
  bert = {"encoders.bert", "BertConfig"}, distilbert = {"encoders.distilbert", "DistilBertConfig"},
  electra = {"encoders.electra", "ElectraConfig"}, mpnet = {"encoders.mpnet", "MPNetConfig"},
  roberta = {"encoders.roberta", "RobertaConfig"}, ["xlm-roberta"] = {"encoders.xlm_roberta", "XLMRobertaConfig"},
  gpt2 = {"common.config", "GPT2Config"}, t5 = {"t5.t5", "T5Config"}, gpt_neox = {"decoders.gpt_neox", "GPTNeoXConfig"},
  gemma2 = {"decoders.gemma2", "Gemma2Config"}, gemma3_text = {"decoders.gemma3", "Gemma3TextConfig"},
  llama = {"decoders.llama", "LlamaConfig"}, mistral = {"decoders.mistral", "MistralConfig"},
  phi3 = {"decoders.phi3", "Phi3Config"}, qwen2 = {"decoders.qwen2", "Qwen2Config"},
  qwen3 = {"decoders.qwen3", "Qwen3Config"}, convnext = {"vision.convnext", "ConvNextConfig"},
  resnet = {"vision.resnet", "ResNetConfig"}, vit = {"vision.vit", "ViTConfig"},
}

--- Return the model types that have a class, sorted.
function registry.model_types() return arguments.sorted_keys(by_type) end

--- Return the class of a config.json's model type, and its values, those of timm under transformers' names. An unknown
--- type is an error that names those known.
---@param file string for messages
---@param values table
---@return PretrainedConfig cls
---@return table values
function registry.class_of(file, values)
  if values.architecture ~= nil and (values.model_type == nil or values.model_type == "timm_wrapper") then
    values = require("accelhost.models.vision.image_architectures").from_timm(file, values)
  end
  local found = type(values.model_type) == "string" and by_type[values.model_type]
  if not found then
    fail("%s: unknown model_type %s (known: %s)", file, describe(values.model_type),
      table.concat(registry.model_types(), ", "))
  end
  return require("accelhost.models." .. found[1])[found[2]], values
end

return registry
