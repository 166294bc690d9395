--- The modules of a model that receive adapters, selected as by peft: by the ends of their names.
local arguments = require "accelhost.util.arguments"
local Conv1D = require("accelhost.models.gpt2").Conv1D
local Linear = require("accelhost.nn.linear").Linear
local class = require "accelhost.util.class"

local fail = arguments.fail
local targets = {}

-- The default targets by the type of the model.
local qv = {"q_proj", "v_proj"}
local query_value = {"query", "value"}
local by_type = {
  llama = qv, mistral = qv, qwen2 = qv, qwen3 = qv, gemma2 = qv, gemma3_text = qv, phi3 = {"qkv_proj"},
  gpt_neox = {"query_key_value"}, gpt2 = {"c_attn"}, bert = query_value, roberta = query_value,
  ["xlm-roberta"] = query_value, electra = query_value, distilbert = {"q_lin", "v_lin"}, t5 = {"q", "v"},
}

local heads = {"classifier", "score"}

--- Does a module's name end with this name, at a dot?
---@param name string
---@param tail string
---@return boolean
function targets.ends_with(name, tail)
  return name == tail or name:sub(-#tail - 1) == "." .. tail
end

local function is_listed(name, list)
  if type(list) == "string" then list = {list} end
  for _, tail in ipairs(list or {}) do
    if targets.ends_with(name, tail) then return true end
  end
  return false
end
targets.is_listed = is_listed

-- The heads that "all-linear" leaves out.
local function is_head(name, config)
  if name == "lm_head" or name == "cls.predictions.decoder" then return true end
  if config.task_type ~= "SEQ_CLS" then return false end
  for _, head in ipairs(heads) do
    if name == head or name:sub(1, #head + 1) == head .. "." then return true end
  end
  return false
end

-- Is the module in one of the layers that are asked for? The list of layers is the first name before a number.
local function is_in_layers(name, config)
  local layers = config.layers_to_transform
  if layers == nil then return true end
  if type(layers) == "number" then layers = {layers} end
  for list, number in name:gmatch "([^.]+)%.(%d+)%." do
    if config.layers_pattern == nil or is_listed(list, config.layers_pattern) then
      for _, wanted in ipairs(layers) do
        if wanted == tonumber(number) then return true end
      end
      return false
    end
  end
  return false
end

--- Return the value of a pattern table for a module: that of the key with which its name ends, else the default.
---@param pattern table<string, number>
---@param name string
---@param default number
---@return number
function targets.value_of(pattern, name, default)
  for _, tail in ipairs(arguments.sorted_keys(pattern)) do
    if targets.ends_with(name, tail) then return pattern[tail] end
  end
  return default
end

--- Complete a configuration by the type of the model: its targets, and the heads of classifiers.
---@param what string the function, for messages
---@param model Module
---@param config LoraConfig
function targets.complete(what, model, config)
  local kind = model.config and model.config.model_type
  if config.target_modules == nil then
    if not by_type[kind] then
      fail("%s: target_modules: there is no default for %s; list the ends of the modules' names, or use "
        .. "\"all-linear\"", what, kind or model:class_name())
    end
    config.target_modules = arguments.copy(by_type[kind])
  end
  if config.task_type == "SEQ_CLS" or config.task_type == "TOKEN_CLS" then
    local saved, known = config.modules_to_save or {}, {}
    for _, name in ipairs(saved) do known[name] = true end
    for _, head in ipairs(heads) do
      if not known[head] then saved[#saved + 1] = head end
    end
    config.modules_to_save = saved
  end
end

--- Return the full names of the target modules, in order.
---@param what string
---@param model Module
---@param config LoraConfig
---@return string[]
function targets.names(what, model, config)
  local list, all = {}, config.target_modules == "all-linear"
  local examples = {}
  for name, module in model:named_modules() do
    local is_linear = class.is(module, Linear) or class.is(module, Conv1D)
    if is_linear and #examples < 3 then examples[#examples + 1] = name end
    local wanted
    if all then
      wanted = is_linear and not is_head(name, config)
    else
      wanted = is_listed(name, config.target_modules)
    end
    if wanted and not is_listed(name, config.exclude_modules) and not is_listed(name, config.modules_to_save)
      and is_in_layers(name, config) then
      list[#list + 1] = name
    end
  end
  if #list == 0 then
    local tails = type(config.target_modules) == "table" and table.concat(config.target_modules, ", ")
      or config.target_modules
    fail("%s: target_modules: no module of the model ends with %s (there are %s)", what, tails,
      #examples > 0 and table.concat(examples, ", ") .. ", ..." or "no linear maps")
  end
  return list
end

return targets
