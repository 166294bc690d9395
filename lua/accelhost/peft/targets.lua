--- The modules of a model that receive adapters, selected as by peft: by the ends of their names, or
--- by regular expressions.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local Conv1D = require("accelhost.models.decoders.gpt2").Conv1D
local Linear = require("accelhost.nn.linear").Linear
local class = require "accelhost.util.class"

local fail = arguments.fail
local targets = {}

local qv, kvd, qvd = {"q_proj", "v_proj"}, {"k_proj", "v_proj", "down_proj"}, {"q_proj", "v_proj", "down_proj"}
local query_value = {"query", "value"}
local down, dense = {"down_proj"}, {"output.dense"}

-- peft's defaults of a field by the type of the model: peft_type -> field -> type -> names.
local defaults = {
  LORA = {target_modules = {
    llama = qv, mistral = qv, qwen2 = qv, qwen3 = qv, gemma2 = qv, gemma3_text = qv, phi3 = {"qkv_proj"},
    gpt_neox = {"query_key_value"}, gpt2 = {"c_attn"}, bert = query_value, roberta = query_value,
    ["xlm-roberta"] = query_value, electra = query_value, distilbert = {"q_lin", "v_lin"}, t5 = {"q", "v"},
  }},
  IA3 = {
    target_modules = {
      llama = kvd, mistral = kvd, qwen2 = qvd, qwen3 = qvd, gemma2 = qvd, gemma3_text = qvd,
      gpt_neox = {"query_key_value", "dense_4h_to_h"}, gpt2 = {"c_attn", "mlp.c_proj"},
      bert = {"key", "value", "output.dense"}, roberta = {"key", "value", "output.dense"}, t5 = {"k", "v", "wo"},
    },
    feedforward_modules = {
      llama = down, mistral = down, qwen2 = down, qwen3 = down, gemma2 = down, gemma3_text = down,
      gpt_neox = {"dense_4h_to_h"}, gpt2 = {"mlp.c_proj"}, bert = dense, roberta = dense, t5 = {"wo"},
    },
  },
}

local heads = {"classifier", "score"}

-- task_type -> the heads that are trained with an adapter, by the ends of their names.
local heads_of = {SEQ_CLS = heads, TOKEN_CLS = heads, QUESTION_ANS = {"qa_outputs"}}

-- The layers that return the scores of words.
local word_scores = {
  lm_head = true, ["lm_head.decoder"] = true, ["cls.predictions.decoder"] = true, vocab_projector = true,
  generator_lm_head = true,
}

--- Does a module's name end with this name, at a dot?
---@param tail string
function targets.ends_with(name, tail)
  return name == tail or name:sub(-#tail - 1) == "." .. tail
end

local function is_listed(name, list)
  for _, tail in ipairs(list or {}) do
    if targets.ends_with(name, tail) then return true end
  end
  return false
end

--- Return a flag for each name: does a field select it, a list of ends or a regular expression of the whole name?
---@param pattern string[]|string?
---@return boolean[]
function targets.matches(what, names, pattern)
  if type(pattern) == "string" then
    local fine, flags = pcall(C.text.fullmatch, pattern, names)
    if not fine then
      local reason = tostring(flags):gsub("^.-: pattern .*\\z': ", ""):gsub("^character %d+: ", "")
      fail("%s: regular expression '%s': %s", what, pattern, reason)
    end
    return flags
  end
  local flags = {}
  for i, name in ipairs(names) do flags[i] = is_listed(name, pattern) end
  return flags
end

-- The heads that "all-linear" leaves out.
local function is_head(name, config)
  if word_scores[name] then return true end
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
  local patterns = config.layers_pattern
  if type(patterns) == "string" then patterns = {patterns} end
  for list, number in name:gmatch "([^.]+)%.(%d+)%." do
    if patterns == nil or is_listed(list, patterns) then
      for _, wanted in ipairs(layers) do
        if wanted == tonumber(number) then return true end
      end
      return false
    end
  end
  return false
end

--- Return the value of a pattern table for a module: that of the first key, in their order as texts, that is the end of
--- its name or a regular expression of it, at a dot; else the default.
---@param what string the caller and the field, for messages
---@param pattern table<string, number>
---@param default number
---@return number
function targets.value_of(what, pattern, name, default)
  for _, tail in ipairs(arguments.sorted_keys(pattern)) do
    local is_found = targets.ends_with(name, tail)
    if not is_found and tail:find "[^%w_.]" then
      is_found = targets.matches(what, {name}, "(.*\\.)?(" .. tail .. ")")[1]
    end
    if is_found then return pattern[tail] end
  end
  return default
end

--- Is a module trained and saved whole? As in peft, the name ends with one of modules_to_save, which need not begin at
--- a dot: "classifier" is for pre_classifier too.
---@param config PeftConfig
function targets.is_saved(name, config)
  for _, tail in ipairs(config.modules_to_save or {}) do
    if name:sub(-#tail) == tail then return true end
  end
  return false
end

--- Add the heads of the task to the modules that a configuration's adapter trains and saves whole.
---@param config PeftConfig
function targets.complete_saved(config)
  if not heads_of[config.task_type] then return end
  local saved, known = config.modules_to_save or {}, {}
  for _, name in ipairs(saved) do known[name] = true end
  for _, head in ipairs(heads_of[config.task_type]) do
    if not known[head] then saved[#saved + 1] = head end
  end
  config.modules_to_save = saved
end

--- Complete a configuration by the type of the model: its targets, and the heads of its task.
---@param config PeftConfig
function targets.complete(what, model, config)
  local kind = model.config and model.config.model_type
  for field, by_type in pairs(defaults[config.peft_type]) do
    if config[field] == nil then
      if not by_type[kind] then
        fail("%s: %s: there is no default for %s; list the ends of the modules' names%s", what, field,
          kind or model:class_name(), field == "target_modules" and ", or use \"all-linear\"" or "")
      end
      config[field] = arguments.copy(by_type[kind])
    end
  end
  targets.complete_saved(config)
end

local function fail_unmatched(what, config, linear)
  local pattern, shown = config.target_modules, table.concat(linear, ", ", 1, math.min(3, #linear))
  local there = #linear > 0 and "there are " .. shown .. ", ..." or "there are no linear maps"
  if type(pattern) == "string" and pattern ~= "all-linear" then
    fail("%s: target_modules: the regular expression '%s' matches no module's whole name (%s); for the ends of names "
      .. "use a list, {\"q_proj\"}", what, pattern, there)
  end
  fail("%s: target_modules: no module of the model ends with %s (%s)", what,
    type(pattern) == "table" and table.concat(pattern, ", ") or pattern, there)
end

--- Return the full names of the target modules, in order.
---@param config PeftConfig
function targets.names(what, model, config)
  local names, linear, wanted = {}, {}, {}
  for name, module in model:named_modules() do
    names[#names + 1] = name
    if class.is(module, Linear) or class.is(module, Conv1D) then
      linear[#linear + 1] = name
      wanted[#names] = config.target_modules == "all-linear" and not is_head(name, config)
    end
  end
  if config.target_modules ~= "all-linear" then wanted = targets.matches(what, names, config.target_modules) end
  local excluded, list = targets.matches(what, names, config.exclude_modules), {}
  for i, name in ipairs(names) do
    if wanted[i] and not excluded[i] and not targets.is_saved(name, config) and is_in_layers(name, config) then
      list[#list + 1] = name
    end
  end
  if #list == 0 then fail_unmatched(what, config, linear) end
  return list
end

return targets
