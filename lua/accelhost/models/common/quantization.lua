--- Models with quantised weights: the configuration, the layers that are replaced, and the entry of config.json.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local linears = require "accelhost.nn.linear"
local quantized = require "accelhost.nn.quantized"
local skip = require "accelhost.nn.skip"

local fail, describe = arguments.fail, arguments.describe
local null = C.json.null
local quantization = {}

-- field -> {default, kind of the value}
local fields = {
  load_in_8bit = {false, "flag"}, load_in_4bit = {false, "flag"}, llm_int8_threshold = {6.0, "number"},
  llm_int8_skip_modules = {nil, "table"}, llm_int8_has_fp16_weight = {false, "flag"},
  llm_int8_enable_fp32_cpu_offload = {false, "flag"}, bnb_4bit_compute_dtype = {"float32", "dtype"},
  bnb_4bit_quant_type = {"fp4", "'fp4'|'nf4'"}, bnb_4bit_use_double_quant = {false, "flag"},
  bnb_4bit_quant_storage = {"uint8", "string"},
}
local names = arguments.sorted_keys(fields)

--- The configuration by which from_pretrained quantises the weights of linear maps, as in transformers.
---
--- Inputs are not quantised: llm_int8_threshold, and llm_int8_enable_fp32_cpu_offload, change nothing.
--
--   accelhost.models.BitsAndBytesConfig{load_in_4bit = true, bnb_4bit_quant_type = "nf4"}.load_in_4bit  --> true
---@field load_in_8bit boolean int8 numbers, a scale for each row
---@field load_in_4bit boolean 4-bit codes, a scale for each 64 of them
---@field bnb_4bit_quant_type string "fp4" (default) or "nf4"
---@field bnb_4bit_use_double_quant boolean 8-bit codes for the scales too
---@field bnb_4bit_compute_dtype string the dtype of products with 4-bit codes; default "float32"
---@field llm_int8_skip_modules string[]? beginnings or ends of names of modules that stay as they are; default the head
---@field llm_int8_threshold number
local BitsAndBytesConfig = class.new "BitsAndBytesConfig"
quantization.BitsAndBytesConfig = BitsAndBytesConfig

---@param values? table fields by name
function BitsAndBytesConfig:init(values)
  local what = self._name
  values = values or {}
  if not arguments.is_options(values) then fail("%s: expected a table of fields, got %s", what, describe(values)) end
  arguments.check_names(what, values, names)
  for name, field in pairs(fields) do
    local value = values[name]
    if value == nil then value = field[1] end
    if value ~= nil then arguments.check(what, name, field[2], value) end
    self[name] = value
  end
  if self.load_in_8bit == self.load_in_4bit then
    fail("%s: expected one of load_in_8bit and load_in_4bit to be true", what)
  end
  if self.bnb_4bit_quant_storage ~= "uint8" then
    fail("%s: bnb_4bit_quant_storage: expected \"uint8\", got %s", what, describe(self.bnb_4bit_quant_storage))
  end
  if self.llm_int8_has_fp16_weight then fail("%s: llm_int8_has_fp16_weight: expected false", what) end
end

--- Return the entry of config.json.
---@return table
function BitsAndBytesConfig:to_dict()
  local values = {quant_method = "bitsandbytes", _load_in_8bit = self.load_in_8bit, _load_in_4bit = self.load_in_4bit}
  for _, name in ipairs(names) do
    values[name] = self[name] == nil and null or self[name]
  end
  return values
end

--- Return the configuration that an entry of a folder's config.json has.
---@return BitsAndBytesConfig
function quantization.read(what, folder, entry)
  local where = ("%s: '%s/config.json': quantization_config"):format(what, folder)
  if type(entry) ~= "table" then fail("%s: expected an object, got %s", where, describe(entry)) end
  if entry.quant_method ~= "bitsandbytes" and (entry.quant_method ~= nil or not (entry.load_in_4bit
    or entry.load_in_8bit)) then
    fail("%s: quant_method: expected \"bitsandbytes\", got %s", where, describe(entry.quant_method))
  end
  local values = {}
  for _, name in ipairs(names) do
    if entry[name] ~= nil and entry[name] ~= null then values[name] = entry[name] end
  end
  return BitsAndBytesConfig(values)
end

-- Does a pattern name the module: the beginning of its name, up to a dot, or the end?
local function is_named(name, pattern)
  return name:sub(-#pattern) == pattern or name:sub(1, #pattern + 1) == pattern .. "."
end

-- The modules that stay as they are where the configuration names none: tied ones, the head, the last one.
local function default_skips(model)
  local skips, last = {"lm_head"}, nil
  for name, source in pairs(model:tied_weights()) do
    skips[#skips + 1], skips[#skips + 2] = name:gsub("%.weight$", ""), source:gsub("%.weight$", "")
  end
  for name in model:named_parameters() do last = name end
  skips[#skips + 1] = last and last:gsub("%.weight$", "") or nil
  return skips
end

local function layer_of(config, module, dtype)
  local is_conv = module._name == "Conv1D"
  local inputs = is_conv and module.nx or module.in_features
  local outputs = is_conv and module.nf or module.out_features
  local made
  if config.load_in_8bit then
    made = quantized.Linear8bitLt(inputs, outputs, {bias = module.bias ~= nil})
  else
    made = quantized.Linear4bit(inputs, outputs, {
      bias = module.bias ~= nil, compute_dtype = config.bnb_4bit_compute_dtype,
      compress_statistics = config.bnb_4bit_use_double_quant, quant_type = config.bnb_4bit_quant_type,
    })
  end
  made.is_transposed, made.weight_dtype = is_conv, dtype
  return made
end

--- Replace the linear maps of a model whose weights are not read yet by quantised ones.
---@param model PreTrainedModel
---@param config BitsAndBytesConfig
---@param dtype string of the model: weights are rounded to it first
function quantization.replace(what, model, config, dtype)
  local skips = config.llm_int8_skip_modules or default_skips(model)
  local kept, found = model.keep_in_fp32, {}
  for name, module in model:named_modules() do
    local skipped = module._name ~= "Conv1D" and getmetatable(module) ~= linears.Linear
    for _, list in ipairs {skips, kept} do
      for _, pattern in ipairs(list) do skipped = skipped or is_named(name, pattern) end
    end
    if not skipped then found[#found + 1] = {name, module} end
  end
  if #found == 0 then fail("%s: quantization_config: the model has no linear maps to quantise", what) end
  for _, pair in ipairs(found) do
    local path, field = pair[1]:match "^(.-)%.?([^.]+)$"
    local owner = path == "" and model or model:get_submodule(path)
    local number = tonumber(field)
    owner[number and number + 1 or field] = layer_of(config, pair[2], dtype)
  end
  model.is_loaded_in_8bit, model.is_loaded_in_4bit = config.load_in_8bit, config.load_in_4bit
end

--- Replace the linear maps of a model on the device "meta" by those that loading it would make.
---@param model PreTrainedModel
---@param config BitsAndBytesConfig
function quantization.replace_on_meta(what, model, config)
  skip.make(quantization.replace, what, model, config, "float32")
  for _, module in ipairs(model:modules()) do
    if quantized.is_quantized(module) then module.weight.requires_grad = false end
  end
end

return quantization
