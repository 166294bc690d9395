--- The configuration of a model: sizes, rates and names of labels, as config.json has them.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local checkpoint_folder = require "accelhost.util.checkpoint_folder"
local class = require "accelhost.util.class"
local registry = require "accelhost.models.registry"

local fail, describe = arguments.fail, arguments.describe
local null = C.json.null
local config = {}

-- Every model's; null means "none", so that the name is known.
local common = {
  architectures = null, dtype = null, problem_type = null, id2label = null, label2id = null, num_labels = null,
  output_hidden_states = false, output_attentions = false, tie_word_embeddings = true, bos_token_id = null,
  eos_token_id = null, pad_token_id = null,
}

--- The base of configurations: fields by name. A field that config.json does not have keeps its default.
---@field model_type string
---@field num_labels integer as many as id2label has, else 2
---@field id2label table<integer, string> from 0
local PretrainedConfig = class.new "PretrainedConfig"
PretrainedConfig.defaults = {}

-- name -> true: numbers and flags of the defaults that may be null.
PretrainedConfig.nullable = {}

-- name -> true: counts of the defaults that may be 0.
PretrainedConfig.may_be_zero = {}

-- Fields that transformers refuses as whole numbers: 30 is written as 30.0.
PretrainedConfig.floats = {}

-- Further names that the constructor accepts: older forms of fields.
PretrainedConfig.older_names = {}
config.PretrainedConfig = PretrainedConfig

-- Names of labels count from 0 here; JSON's keys are texts.
local function numbered(what, id2label)
  if type(id2label) ~= "table" then fail("%s: id2label: expected names by number, got %s", what, describe(id2label)) end
  local labels, count = {}, 0
  for key, name in pairs(id2label) do
    local id = tonumber(key)
    if not id or id < 0 or id % 1 ~= 0 or type(name) ~= "string" then
      fail("%s: id2label: expected names by number from 0, got %s for %s", what, describe(name), describe(key))
    end
    labels[id], count = name, count + 1
  end
  for id = 0, count - 1 do
    if not labels[id] then fail("%s: id2label: there are %d names, but none for %d", what, count, id) end
  end
  return labels, count
end

local function set_labels(self)
  local count = self.num_labels or 2
  if self.id2label ~= nil then
    local labels, known = numbered(self._name, self.id2label)
    if self.num_labels == nil or self.num_labels == known then
      self.num_labels, self.id2label = known, labels
      return
    end
  end
  if type(count) ~= "number" or count < 1 or count % 1 ~= 0 then
    fail("%s: num_labels: expected a positive integer, got %s", self._name, describe(count))
  end
  self.num_labels, self.id2label, self.label2id = count, {}, nil
  for id = 0, count - 1 do self.id2label[id] = "LABEL_" .. id end
end

local function set(self, values)
  for name, value in pairs(values) do
    if value == null then value = nil end
    self[name] = value
  end
end

local function names_of(self)
  local names = {}
  for name in pairs(common) do names[#names + 1] = name end
  for name in pairs(self.defaults) do
    if common[name] == nil then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

-- Check sizes and rates, since a broken file may have other values.
local function check(self)
  for _, name in ipairs(names_of(self)) do
    local value, default = self[name], self.defaults[name]
    if default == nil then default = common[name] end
    local is_checked = value ~= nil or not self.nullable[name]
    if is_checked and type(default) == "number" and not name:find "_token_id$" then
      local least = default >= 1 and not self.may_be_zero[name] and 1 or 0
      if type(value) ~= "number" or value < least or (default >= 1 and value % 1 ~= 0) then
        fail("%s: %s: expected %s, got %s", self._name, name,
          default >= 1 and "a positive integer" or "a number of at least 0", describe(value))
      end
    elseif is_checked and type(default) == "boolean" and type(value) ~= "boolean" then
      fail("%s: %s: expected true or false, got %s", self._name, name, describe(value))
    end
  end
end

local function set_values(self, values)
  set(self, common)
  set(self, self.defaults)
  set(self, values)
  self.dtype = self.dtype or self.torch_dtype
  self.torch_dtype, self.transformers_version = nil, nil
  set_labels(self)
  check(self)
  self:complete()
end

--- Check the fields together and set those that follow from others.
function PretrainedConfig:complete() end

-- Is it the entry of a model whose weights bitsandbytes quantised (quantization.lua)?
local function is_bitsandbytes(name, value)
  return name == "quantization_config" and type(value) == "table" and value.quant_method == "bitsandbytes"
end

--- Raise if an entry has a value that changes the numbers and is not implemented. Entries among the defaults are
--- implemented, unless `fields` is set.
---@param neutral table<string, any[]> entry -> the values with which it changes none
---@param fields? boolean
function PretrainedConfig:refuse_unimplemented(neutral, fields)
  for _, name in ipairs(arguments.sorted_keys(neutral)) do
    local value = rawget(self, name)
    local fine = value == nil or not fields and self.defaults[name] ~= nil or is_bitsandbytes(name, value)
    for _, same in ipairs(neutral[name]) do fine = fine or value == same end
    if not fine then
      fail("%s: %s = %s is not implemented; expected %s", self._name, name, describe(value),
        #neutral[name] > 0 and tostring(neutral[name][1]) or "no such entry")
    end
  end
end

-- Raise unless these are names of fields, or older names of some.
local function check_names(self, values)
  local names = names_of(self)
  for _, name in ipairs(self.older_names) do names[#names + 1] = name end
  arguments.check_names(self._name, values, names)
end

---@param values? table fields that differ from their defaults
function PretrainedConfig:init(values)
  values = values or {}
  if not arguments.is_options(values) then
    fail("%s: expected a table of fields, got %s", self._name, describe(values))
  end
  check_names(self, values)
  set_values(self, values)
end

--- Return the changes of `with`, and those of fields that follow from the changed ones.
---@return table
function PretrainedConfig:complete_changes(changes) return changes end

--- The same with some fields changed.
--
--   accelhost.models.BertConfig():with{num_labels = 3}.num_labels  --> 3
---@return PretrainedConfig
function PretrainedConfig:with(changes)
  check_names(self, changes)
  changes = self:complete_changes(changes)
  local values = {}
  for _, name in ipairs(names_of(self)) do values[name] = null end
  for name, value in next, self do values[name] = value end
  for name, value in pairs(changes) do values[name] = value end
  if changes.num_labels and changes.id2label == nil then values.id2label = nil end
  if changes.id2label and changes.num_labels == nil then values.num_labels = nil end
  local copy = setmetatable({}, getmetatable(self))
  set_values(copy, values)
  return copy
end

--- All fields as stored in config.json.
---@return table
function PretrainedConfig:to_dict()
  local values = {model_type = self.model_type}
  for _, name in ipairs(names_of(self)) do
    if self.defaults[name] ~= nil and self[name] == nil then values[name] = null end
  end
  for name, value in next, self do values[name] = value end
  values.num_labels, values.id2label, values.label2id = nil, nil, nil
  if self.num_labels ~= 2 or self.id2label[0] ~= "LABEL_0" or self.id2label[1] ~= "LABEL_1" then
    values.id2label, values.label2id = {}, {}
    for id, name in pairs(self.id2label) do
      values.id2label[("%d"):format(id)], values.label2id[name] = name, id
    end
  end
  return values
end

--- Write config.json into a folder that exists.
function PretrainedConfig:save_pretrained(folder)
  local text = C.json.encode(self:to_dict(), 2) .. "\n"
  local floats = {"llm_int8_threshold", unpack(self.floats)}
  for _, name in ipairs(floats) do text = text:gsub(('\n +"%s": %%d+%%f[,\n]'):format(name), "%0.0") end
  C.io.write_text(folder .. "/config.json", text)
end

--- GPT-2's configuration; the defaults are the sizes of the smallest published model.
--
--   accelhost.models.GPT2Config{n_layer = 2}.n_embd  --> 768
local GPT2Config = PretrainedConfig:extend "GPT2Config"
GPT2Config.model_type = "gpt2"
GPT2Config.defaults = {
  vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12, n_inner = null,
  activation_function = "gelu_new", resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1, layer_norm_epsilon = 1e-5,
  initializer_range = 0.02, scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false,
  reorder_and_upcast_attn = false, add_cross_attention = false, use_cache = true, bos_token_id = 50256,
  eos_token_id = 50256,
}
config.GPT2Config = GPT2Config

--- A JSON object in a folder's file; nil when the file is not there.
---@return table?
function config.read_object(what, path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  local fine, values = pcall(C.json.decode, text or "")
  if not fine or type(values) ~= "table" or values[1] ~= nil then
    fail("%s: '%s' is no JSON object", what, path)
  end
  return values
end

-- Raise for weights that another library quantised.
local function check_quantization(file, entry)
  local method = type(entry) == "table" and entry.quant_method
  if type(method) == "string" and method ~= "bitsandbytes" then
    fail("%s: quantization_config: quant_method: expected \"bitsandbytes\", got \"%s\": read the folder of the model "
      .. "as it was before, with quantization_config = models.BitsAndBytesConfig{...}", file, method)
  end
end

--- The configuration in a checkpoint folder, with some fields changed.
---@param changes? table
---@return PretrainedConfig
function config.read(what, folder, changes)
  local values = config.read_object(what, checkpoint_folder(what, folder) .. "/config.json")
  if not values then
    local adapter = C.data.look(folder .. "/adapter_config.json") == "file"
    fail("%s: '%s' has no config.json: it is %s", what, folder, adapter and "the folder of an adapter: read its base, "
      .. "and the adapter by peft.PeftModel.from_pretrained(model, folder); accelhost generate BASE --adapter FOLDER"
      or "no folder of a model")
  end
  local file = what .. ": " .. folder .. "/config.json"
  local cls
  cls, values = registry.class_of(file, values)
  check_quantization(file, values.quantization_config)
  local made = setmetatable({}, cls)
  values.model_type = nil
  set_values(made, values)
  return changes and made:with(changes) or made
end

--- The configuration of a checkpoint folder.
--
--   | models.AutoConfig.from_pretrained("minilm").hidden_size
local AutoConfig = class.new "AutoConfig"
config.AutoConfig = AutoConfig

--- Read config.json.
---@param changes? table fields that shall be others
---@return PretrainedConfig
function AutoConfig.from_pretrained(path, changes)
  return config.read("AutoConfig.from_pretrained", path, changes)
end

function AutoConfig:init()
  fail("%s: call %s.from_pretrained", self._name, self._name)
end

return config
