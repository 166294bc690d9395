--- The configurations of adapters: the fields of peft's adapter_config.json.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local checkpoint_folder = require "accelhost.util.checkpoint_folder"
local class = require "accelhost.util.class"

local fail, describe = arguments.fail, arguments.describe
local null = C.json.null
local config = {}

-- Each kind of adapter has a table of fields: name -> {default, kind of the value}.
local common = {
  inference_mode = {false, "flag"}, base_model_name_or_path = {null, "string"},
  revision = {null, "string"},
  task_type = {null, "'CAUSAL_LM'|'SEQ_CLS'|'TOKEN_CLS'|'QUESTION_ANS'|'SEQ_2_SEQ_LM'|'FEATURE_EXTRACTION'"},
}

-- Those of adapters of layers.
local of_layers = {
  target_modules = {null, "string|table"}, exclude_modules = {null, "string|table"}, modules_to_save = {null, "table"},
  fan_in_fan_out = {false, "flag"},
}

-- Those of trained vectors in front of a text; the sizes are the model's where they are not given.
local of_prompts = {
  num_virtual_tokens = {null, "size"}, token_dim = {null, "size"}, num_layers = {null, "size"},
  num_attention_heads = {null, "size"}, num_transformer_submodules = {null, "size"}, modules_to_save = {null, "table"},
}

-- Fields that peft writes and that change no numbers, or none at these values; others are refused.
local inert = {
  peft_type = true, peft_version = true, auto_mapping = true, megatron_core = true, megatron_config = null,
  loftq_config = {}, eva_config = null, corda_config = null, lora_ga_config = null, kasa_config = null,
  velora_config = null, monteclora_config = null, arrow_config = null, alora_invocation_tokens = null,
  trainable_token_indices = null, layer_replication = null, use_qalora = false,
  qalora_group_size = true, use_bdlora = null, target_parameters = null, ensure_weight_tying = false,
}

--- The base of the configurations of all kinds of adapters.
local PeftConfig = class.new "PeftConfig"
config.PeftConfig = PeftConfig

-- peft_type -> the class of its configuration
local classes = {}

local function define(name, peft_type, ...)
  local made = PeftConfig:extend(name)
  made.peft_type, made._types = peft_type, {}
  made._fields = {}
  for _, list in ipairs {common, ...} do
    for field, entry in pairs(list) do made._fields[field] = entry end
  end
  made._names = arguments.sorted_keys(made._fields)
  classes[peft_type] = made
  config[name] = made
  return made
end

local function is_default(value, default)
  if default == true or value == default or value == null then return true end
  return type(value) == "table" and type(default) == "table" and next(value) == nil
end

---@param values? table fields by name
function PeftConfig:init(values)
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
      fail("%s: %s: not supported (%s)", self._name, name, describe(values[name]))
    end
  end
  arguments.check_names(self._name, known, self._names)
  for name, field in pairs(self._fields) do
    local value = known[name]
    if value == nil then value = arguments.copy(field[1]) end
    if value ~= null then
      if field[2] then arguments.check(self._name, name, field[2], value) end
      self[name] = value
    end
  end
  if self.check then self:check() end
end

--- Write adapter_config.json into a folder that exists.
function PeftConfig:save_pretrained(folder)
  local values = {peft_type = self.peft_type}
  for _, name in ipairs(self._names) do
    local value = self[name]
    if value == nil then value = null end
    values[name] = value
  end
  values.inference_mode = true
  C.io.write_text(folder .. "/adapter_config.json", C.json.encode(values, 2) .. "\n")
end

-- Read adapter_config.json of a folder; `cls` is the class that is expected, or PeftConfig.
local function read(cls, folder)
  local what = cls._name .. ".from_pretrained"
  local path = checkpoint_folder(what, folder) .. "/adapter_config.json"
  local values = require("accelhost.models.common.config").read_object(what, path)
  if not values then fail("%s: '%s' has no adapter_config.json: it is no folder of an adapter", what, folder) end
  local expected = cls.peft_type or table.concat(arguments.sorted_keys(classes), " or ")
  local found = classes[values.peft_type]
  if not found or cls.peft_type and found ~= cls then
    fail("%s: '%s': peft_type: expected %s, got %s", what, path, expected, describe(values.peft_type))
  end
  return found(values)
end

--- Read adapter_config.json of a folder: a configuration of the kind that its peft_type names.
--
--   | peft.PeftConfig.from_pretrained("adapter").peft_type
---@return PeftConfig
function PeftConfig.from_pretrained(folder) return read(PeftConfig, folder) end

--- The configuration of LoRA: each target module with weight W computes with W + scaling * B A; the two small
--- matrices A and B are trained. scaling is lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora.
--
--   accelhost.peft.LoraConfig{r = 4, target_modules = {"q_proj", "v_proj"}}.lora_alpha  --> 8
---@field r integer the rank of the products
---@field lora_alpha number
---@field lora_dropout number of the input of A
---@field target_modules string[]|string? ends of modules' names, "all-linear", or a regular expression of whole names;
---   default by the type of the model
---@field exclude_modules string[]|string? ends of names that are left out, or a regular expression
---@field modules_to_save string[]? ends of names of modules that are trained and saved whole; as in peft, "norm" is for
---   input_layernorm too
---@field bias string "none", "all" or "lora_only": the biases that are trained
---@field use_rslora boolean
---@field use_dora boolean train the length of each row of W + scaling * B A too
---@field lora_bias boolean B has a bias
---@field init_lora_weights boolean|string true (A as a linear map, B 0), "gaussian", false (both as linear maps),
---   "orthogonal", or "pissa" or "olora": from the weight, of which their product is subtracted
---@field layers_to_transform integer[]|integer? numbers of layers, from 0
---@field layers_pattern string[]|string? the names of the lists of layers
---@field rank_pattern table<string, integer> other ranks by ends of names, or regular expressions of them
---@field alpha_pattern table<string, number>
---@field task_type string? SEQ_CLS and TOKEN_CLS add the head (classifier, score) to modules_to_save, QUESTION_ANS
---   qa_outputs
---@field inference_mode boolean adapters are not trained
local LoraConfig = define("LoraConfig", "LORA", of_layers, {
  r = {8, "size"}, lora_alpha = {8, "positive"}, lora_dropout = {0, "number"},
  bias = {"none", "'none'|'all'|'lora_only'"}, use_rslora = {false, "flag"}, use_dora = {false, "flag"},
  lora_bias = {false, "flag"},
  init_lora_weights = {true}, rank_pattern = {{}, "table"},
  alpha_pattern = {{}, "table"}, layers_to_transform = {null, "number|table"}, layers_pattern = {null, "string|table"},
})

--- Refuse values outside of their range.
function LoraConfig:check()
  if self.r < 1 then fail("%s: r: expected a positive integer, got %d", self._name, self.r) end
  if self.lora_dropout < 0 or self.lora_dropout >= 1 then
    fail("%s: lora_dropout: expected 0 or more and less than 1, got %g", self._name, self.lora_dropout)
  end
  arguments.check(self._name, "init_lora_weights", "flag|'gaussian'|'pissa'|'olora'|'orthogonal'",
    self.init_lora_weights)
  if self.lora_bias and self.use_dora then fail("%s: lora_bias: not with use_dora", self._name) end
end

--- Read adapter_config.json of a folder.
--
--   | peft.LoraConfig.from_pretrained("adapter").r
---@return LoraConfig
function LoraConfig.from_pretrained(folder) return read(LoraConfig, folder) end

--- The configuration of IA3 (arXiv 2205.05638): the outputs of target modules are multiplied by a trained vector; those
--- that feedforward_modules name have their inputs multiplied.
--
--   local names = {target_modules = {"k_proj", "down_proj"}, feedforward_modules = {"down_proj"}}
--   accelhost.peft.IA3Config(names).init_ia3_weights  --> true
---@field target_modules string[]|string? as in LoraConfig
---@field feedforward_modules string[]|string? those of the target modules whose inputs are multiplied
---@field exclude_modules string[]|string?
---@field modules_to_save string[]? ends of names of modules that are trained and saved whole
---@field init_ia3_weights boolean true: vectors of ones; false: random numbers
---@field task_type string? as in LoraConfig
---@field inference_mode boolean adapters are not trained
local IA3Config = define("IA3Config", "IA3", of_layers, {
  feedforward_modules = {null, "string|table"}, init_ia3_weights = {true, "flag"},
})

--- Refuse feedforward modules that are no target modules.
function IA3Config:check()
  local within, all = self.feedforward_modules, self.target_modules
  if type(within) ~= "table" or type(all) ~= "table" then return end
  local known = {}
  for _, name in ipairs(all) do known[name] = true end
  for _, name in ipairs(within) do
    if not known[name] then
      fail("%s: feedforward_modules: '%s' is none of the target_modules (%s)", self._name, name,
        table.concat(all, ", "))
    end
  end
end

--- Read adapter_config.json of a folder.
--
--   | peft.IA3Config.from_pretrained("adapter").target_modules
---@return IA3Config
function IA3Config.from_pretrained(folder) return read(IA3Config, folder) end

-- Refuse a missing or wrong number of vectors.
local function check_prompts(self)
  local count = self.num_virtual_tokens
  if type(count) ~= "number" or count < 1 then
    fail("%s: num_virtual_tokens: expected a positive integer, got %s", self._name, describe(count))
  end
end

local function define_prompts(name, peft_type, fields)
  local made = define(name, peft_type, of_prompts, fields)
  made.is_prompt_learning, made.check = true, check_prompts
  return made
end

--- The configuration of prompt tuning (arXiv 2104.08691): num_virtual_tokens trained vectors in front of the embeddings
--- of a text; of a model with an encoder in front of the encoder's text. The sizes are those of the model where they
--- are not given.
--
--   accelhost.peft.PromptTuningConfig{num_virtual_tokens = 8}.prompt_tuning_init  --> RANDOM
---@field num_virtual_tokens integer
---@field prompt_tuning_init string "RANDOM"; folders may have others, whose vectors are read
---@field task_type string? CAUSAL_LM, SEQ_2_SEQ_LM, SEQ_CLS or TOKEN_CLS; default that of the model
---@field modules_to_save string[]? of classifiers: ends of names of modules that are trained and saved whole; the head
---   is one of them
---@field inference_mode boolean vectors are not trained
---@class PromptTuningConfig: PeftConfig
local PromptTuningConfig = define_prompts("PromptTuningConfig", "PROMPT_TUNING", {
  prompt_tuning_init = {"RANDOM", "'RANDOM'|'TEXT'|'SAMPLE_VOCAB'"}, prompt_tuning_init_text = {null, "string"},
  tokenizer_name_or_path = {null, "string"}, tokenizer_kwargs = {null, "table"},
})

--- Read adapter_config.json of a folder.
--
--   | peft.PromptTuningConfig.from_pretrained("prompt").num_virtual_tokens
---@return PromptTuningConfig
function PromptTuningConfig.from_pretrained(folder) return read(PromptTuningConfig, folder) end

--- The configuration of P-tuning (arXiv 2103.10385): prompt tuning whose vectors are computed by an MLP, or an LSTM and
--- an MLP, from trained ones. Folders have the computed vectors alone.
--
--   accelhost.peft.PromptEncoderConfig{num_virtual_tokens = 8}.encoder_reparameterization_type  --> MLP
---@field num_virtual_tokens integer
---@field encoder_reparameterization_type string "MLP" (default) or "LSTM"
---@field encoder_hidden_size integer? default that of the model
---@field encoder_num_layers integer of the LSTM
---@field encoder_dropout number between the layers of the LSTM
---@field task_type string? CAUSAL_LM, SEQ_2_SEQ_LM, SEQ_CLS or TOKEN_CLS; default that of the model
---@field modules_to_save string[]? of classifiers: ends of names of modules that are trained and saved whole; the head
---   is one of them
---@field inference_mode boolean vectors are not trained
---@class PromptEncoderConfig: PeftConfig
local PromptEncoderConfig = define_prompts("PromptEncoderConfig", "P_TUNING", {
  encoder_reparameterization_type = {"MLP", "'MLP'|'LSTM'"}, encoder_hidden_size = {null, "size"},
  encoder_num_layers = {2, "size"}, encoder_dropout = {0, "probability"},
})

--- Read adapter_config.json of a folder.
--
--   | peft.PromptEncoderConfig.from_pretrained("prompt").num_virtual_tokens
---@param folder string
---@return PromptEncoderConfig
function PromptEncoderConfig.from_pretrained(folder) return read(PromptEncoderConfig, folder) end

--- The configuration of prefix tuning (arXiv 2101.00190): trained keys and values of num_virtual_tokens tokens in front
--- of a text, in each layer; of a model with an encoder in front of the decoder's text. With prefix_projection an MLP
--- computes them from trained vectors; folders have the computed ones alone.
--
--   accelhost.peft.PrefixTuningConfig{num_virtual_tokens = 8}.prefix_projection  --> false
---@field num_virtual_tokens integer
---@field token_dim integer? numbers of a token's keys, the heads' widths added; default that of the model
---@field prefix_projection boolean
---@field encoder_hidden_size integer? width inside of the MLP; default token_dim
---@field init_weights string? "zero": keys and values of zeros
---@field task_type string? CAUSAL_LM, SEQ_2_SEQ_LM, SEQ_CLS or TOKEN_CLS; default that of the model
---@field modules_to_save string[]? of classifiers: as in PromptTuningConfig
---@field inference_mode boolean vectors are not trained
---@class PrefixTuningConfig: PeftConfig
local PrefixTuningConfig = define_prompts("PrefixTuningConfig", "PREFIX_TUNING", {
  encoder_hidden_size = {null, "size"}, prefix_projection = {false, "flag"}, init_weights = {null, "'zero'"},
})

--- Read adapter_config.json of a folder.
--
--   | peft.PrefixTuningConfig.from_pretrained("prefix").num_virtual_tokens
---@param folder string
---@return PrefixTuningConfig
function PrefixTuningConfig.from_pretrained(folder) return read(PrefixTuningConfig, folder) end

return config
