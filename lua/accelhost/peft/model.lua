--- PeftModel: a model whose weights are frozen, with adapters that are trained; their files are peft's.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local configs = require "accelhost.peft.config"
local files = require "accelhost.io"
local ia3_layer = require "accelhost.peft.ia3_layer"
local layers = require "accelhost.peft.adapter_layer"
local lora_layer = require "accelhost.peft.lora_layer"
local nn_utils = require "accelhost.nn.utils"
local prompt_model = require "accelhost.util.later" "accelhost.peft.prompt_model"
local stored = require "accelhost.checkpoint.stored"
local targets = require "accelhost.peft.targets"
local warn = require "accelhost.util.warn"
local weighted_adapter = require "accelhost.util.later" "accelhost.peft.weighted_adapter"
local Module = require("accelhost.nn.module").Module

local fail, describe = arguments.fail, arguments.describe
local FILE = "adapter_model.safetensors"

-- The holder of the model, so that names are peft's: base_model.model.NAME.
local LoraModel = Module:extend "LoraModel"

function LoraModel:init(model) self.model = model end

function LoraModel:forward(...) return self.model(...) end

local IA3Model = LoraModel:extend "IA3Model"

-- By peft_type: the holder, and the function that makes the layer of a target module.
local kinds = {
  LORA = {holder = LoraModel, wrap = lora_layer.wrap},
  IA3 = {holder = IA3Model, wrap = ia3_layer.wrap},
}

--- A model with adapters. It is called as the model is, and has its fields and methods too (config, generate).
---@field peft_config table<string, PeftConfig> by the adapters' names
---@field active_adapter string
local PeftModel = Module:extend "PeftModel"

PeftModel._item = function(self, key)
  local holder = self._fields.base_model
  if holder then return holder.model[key] end
end

local function is_adapted(module)
  return class.is(module, layers.AdapterLayer) or class.is(module, layers.SavedModule)
end

-- All layers with adapters, and their names in the model.
local function adapted(self)
  local list, names = {}, {}
  for name, module in self.base_model.model:named_modules() do
    if is_adapted(module) then list[#list + 1], names[#names + 1] = module, name end
  end
  return list, names
end

local function replace(model, name, module)
  local path, field = name:match "^(.-)%.?([^.]+)$"
  local owner = path == "" and model or model:get_submodule(path)
  local number = tonumber(field)
  owner[number and number + 1 or field] = module
end

PeftModel._replace = replace

-- Wrap the modules that an adapter trains and saves whole.
function PeftModel:_save_modules(model, config, name) -- luacheck: ignore 212
  local saved = {}
  for path, module in model:named_modules() do
    if targets.is_saved(path, config) then saved[#saved + 1] = {path, module} end
  end
  for _, pair in ipairs(saved) do
    local path, module = unpack(pair)
    if not class.is(module, layers.SavedModule) then
      local layer = layers.SavedModule(module)
      layer.training = module.training
      replace(model, path, layer)
      module = layer
    end
    module:add(name)
  end
end

local function insert(self, what, name, config)
  local model = self.base_model.model
  targets.complete(what, model, config)
  for _, target in ipairs(targets.names(what, model, config)) do
    if not target:find "%.base_layer$" and not target:find "%.lora_[AB]%." then
      local module = model:get_submodule(target)
      local layer = kinds[config.peft_type].wrap(what, target, module, config)
      layer.training = module.training
      if layer ~= module then replace(model, target, layer) end
      layer:add(name, config, target)
    end
  end
  self:_save_modules(model, config, name)
end

---@param config PeftConfig
---@param adapter_name? string default "default"
function PeftModel:init(model, config, adapter_name)
  self.peft_config = {}
  self.base_model = kinds[config.peft_type].holder(model)
  self.training = model.training
  model:requires_grad_(false)
  self:add_adapter(adapter_name or "default", config)
  self:set_adapter(adapter_name or "default")
end

---@param ... any the model's arguments
function PeftModel:forward(...) return self.base_model.model(...) end

--- Return the model with its present layers.
---@return Module
function PeftModel:get_base_model() return self.base_model.model end

--- Add an adapter; set_adapter selects it.
---@param config PeftConfig
function PeftModel:add_adapter(adapter_name, config)
  local what = "add_adapter"
  arguments.check(what, "adapter_name", "string", adapter_name)
  if adapter_name == "" or adapter_name:find(".", 1, true) then
    fail("%s: '%s' cannot be the name of an adapter (empty, or with a dot)", what, adapter_name)
  end
  if not class.is(config, configs.PeftConfig) or config.is_prompt_learning then
    fail("%s: config: expected a LoraConfig or IA3Config, got %s", what, describe(config))
  end
  local _, other = next(self.peft_config)
  if other and other.peft_type ~= config.peft_type then
    fail("%s: adapters of a model are of one kind: this is %s, those of the model are %s", what, config.peft_type,
      other.peft_type)
  end
  if self.peft_config[adapter_name] then fail("%s: there is an adapter '%s' already", what, adapter_name) end
  for _, layer in ipairs((adapted(self))) do
    if layer.merged and #layer.merged > 0 then fail("%s: adapters are merged; call unmerge_adapter first", what) end
  end
  insert(self, what, adapter_name, config)
  self.peft_config[adapter_name] = config
  if self.active_adapters then self:set_adapter(self.active_adapters) end
end

local holders = {
  "lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector", "ia3_l", "modules_to_save",
}

-- The name in an adapter's file of a tensor in the state dict; nil of other tensors.
local function file_name(name, adapter)
  for _, holder in ipairs(holders) do
    local first, last = name:find(("." .. holder .. "." .. adapter), 1, true)
    local rest = first and name:sub(last + 1)
    if rest == "" or rest and rest:sub(1, 1) == "." then
      if holder == "modules_to_save" then return name:sub(1, first - 1) .. rest end
      if holder == "lora_magnitude_vector" then rest = "" end
      return name:sub(1, first) .. holder .. rest
    end
  end
end

-- Is it the name of a bias that an adapter with this configuration trains?
local function is_trained_bias(name, config)
  local which = config.bias
  if which == nil or which == "none" or name:find(".modules_to_save.", 1, true) or not name:find "%.bias$" then
    return false
  end
  return which == "all" or name:find "%.base_layer%.bias$" ~= nil
end

-- The tensors of an adapter by their names in its file.
function PeftModel:_adapter_tensors(adapter_name)
  local list, config = {}, self.peft_config[adapter_name]
  for name, tensor in pairs(self:state_dict {keep_vars = true}) do
    local stored_name = file_name(name, adapter_name)
    if stored_name then
      list[stored_name] = tensor
    elseif is_trained_bias(name, config) then
      list[name] = tensor
    end
  end
  return list
end

-- A number for each frozen tensor, by which another base is recognised.
local SAMPLE, FINGERPRINT = 64, "frozen_weights"

local function fingerprint(tensors)
  local sums = {}
  for i, tensor in ipairs(tensors) do
    local first = tensor:detach():reshape(-1):narrow(0, 0, math.min(SAMPLE, tensor:numel()))
    sums[i] = first:double():sum()
  end
  return C.autograd.no_grad(C.stack, sums):cpu()
end

-- The tensors of all adapters by their names in the state dict, and the others in order, with their names.
local function divided(self)
  local state, adapters, frozen, names = self:state_dict {keep_vars = true}, {}, {}, {}
  for name, tensor in nn_utils.state_pairs(state) do
    local is_adapters = false
    for adapter, config in pairs(self.peft_config) do
      is_adapters = is_adapters or file_name(name, adapter) ~= nil or is_trained_bias(name, config)
    end
    if is_adapters then
      adapters[name] = tensor
    elseif tensor:numel() > 0 then
      frozen[#frozen + 1], names[#names + 1] = tensor, name
    end
  end
  return adapters, frozen, names
end

--- Return the state that checkpoints of a run store: the adapters alone, and the fingerprint of the base.
---@return table<string, Tensor>
function PeftModel:_checkpoint_state()
  local state, frozen = divided(self)
  if #frozen > 0 then state[FINGERPRINT] = fingerprint(frozen) end
  return state
end

--- Load such a state into a model with the same base.
---@param state table<string, Tensor>
function PeftModel:_load_checkpoint_state(state)
  local own, frozen, names = divided(self)
  local saved, mine = state[FINGERPRINT], #frozen > 0 and fingerprint(frozen) or nil
  state[FINGERPRINT] = nil
  if saved and mine and C.same_shape(saved, mine) then
    local differs = saved:ne(mine):nonzero()
    if differs:size(0) > 0 then
      fail("load_state: %s differs from the frozen weights of the saved run; load the same base model before",
        names[differs[0]:item() + 1])
    end
  elseif saved or mine then
    fail("load_state: the model has %d frozen tensors, that of the saved run %d", #frozen, saved and saved:numel() or 0)
  end
  for _, name in ipairs(arguments.sorted_keys(own)) do
    if state[name] == nil then fail("load_state: the saved run has no adapter tensor %s", name) end
  end
  self:load_state_dict(state, {strict = false})
end

--- Select the adapters that are added, and trained unless their configuration has inference_mode.
---@param adapter_name string|string[]
function PeftModel:set_adapter(adapter_name)
  local names = type(adapter_name) == "table" and adapter_name or {adapter_name}
  for _, name in ipairs(names) do
    if not self.peft_config[name] then
      fail("set_adapter: unknown adapter %s (known: %s)", describe(name),
        table.concat(arguments.sorted_keys(self.peft_config), ", "))
    end
  end
  self.active_adapter, self.active_adapters = names[1], arguments.copy(names)
  for _, layer in ipairs((adapted(self))) do layer.active = names end
  self:requires_grad_(false)
  for _, name in ipairs(names) do
    local config = self.peft_config[name]
    for _, tensor in pairs(self:_adapter_tensors(name)) do
      if tensor:is_floating_point() then tensor.requires_grad = not config.inference_mode end
    end
  end
end

--- Remove an adapter.
function PeftModel:delete_adapter(adapter_name)
  if not self.peft_config[adapter_name] then fail("delete_adapter: unknown adapter %s", describe(adapter_name)) end
  if self.active_adapter == adapter_name then
    fail("delete_adapter: '%s' is active; call set_adapter with another one first", adapter_name)
  end
  for _, layer in ipairs((adapted(self))) do layer:remove(adapter_name) end
  self.peft_config[adapter_name] = nil
end

--- Call a function with all adapters switched off.
--
--   | local before = model:disable_adapter(function() return model{input_ids = ids}.logits end)
---@param ... any its arguments
---@return any ... its results
function PeftModel:disable_adapter(fn, ...)
  local list = adapted(self)
  for _, layer in ipairs(list) do layer.is_disabled = true end
  local function finish(fine, ...)
    for _, layer in ipairs(list) do layer.is_disabled = false end
    if not fine then error((...), 0) end
    return ...
  end
  return finish(pcall(fn, ...))
end

--- Add the products of the active adapters to the weights, so that calls cost as much as without adapters.
---@param adapter_names? string[]
function PeftModel:merge_adapter(adapter_names)
  for _, layer in ipairs((adapted(self))) do
    if layer.merge and #layer.merged == 0 then layer:merge(adapter_names or layer.active) end
  end
end

--- Subtract the products that merge_adapter added.
function PeftModel:unmerge_adapter()
  for _, layer in ipairs((adapted(self))) do
    if layer.unmerge then layer:unmerge() end
  end
end

local function unload(self, merges, adapter_names)
  local list, names = adapted(self)
  for _, name in ipairs(adapter_names or {}) do
    if not self.peft_config[name] then fail("merge_and_unload: adapter_names: unknown adapter %s", describe(name)) end
  end
  local model = self.base_model.model
  for i, layer in ipairs(list) do
    if class.is(layer, layers.SavedModule) then
      replace(model, names[i], merges and layer:current() or layer.original_module)
    else
      if merges and #layer.merged == 0 then layer:merge(adapter_names or layer.active) end
      if not merges then layer:unmerge() end
      replace(model, names[i], layer.base_layer)
    end
  end
  for _, tensor in ipairs(model:parameters()) do
    if tensor:is_floating_point() then tensor.requires_grad = true end -- quantised weights are constants
  end
  return model
end

--- Add the active adapters, or those of the option adapter_names, to the weights and return the model without adapters.
--- This object is of no use afterwards.
---@param options? {adapter_names: string[]?}
---@return Module
function PeftModel:merge_and_unload(options)
  arguments.check_names("merge_and_unload", options or {}, {"adapter_names"})
  return unload(self, true, options and options.adapter_names)
end

--- Add an adapter that is the weighted sum of others, as peft computes it.
--
--   | model:add_weighted_adapter({"english", "poems"}, {0.7, 0.3}, "both", {combination_type = "linear"})
--   | model:set_adapter "both"
---@param adapters string[]
---@param weights number[] one for each
---@param adapter_name string
---@param options? {combination_type: string?, svd_rank: integer?, svd_clamp: number?, density: number?,
--- majority_sign_method: string?} combination_type: "svd" (default), "linear", "cat", "ties", "ties_svd",
--- "magnitude_prune", "magnitude_prune_svd", "dare_linear", "dare_linear_svd", "dare_ties" or "dare_ties_svd"
function PeftModel:add_weighted_adapter(adapters, weights, adapter_name, options)
  weighted_adapter.add(self, adapters, weights, adapter_name, options)
end

--- Return the model without adapters, as it was.
---@return Module
function PeftModel:unload() return unload(self, false) end

--- Return the number of parameters that are trained, and of all.
---@return integer trainable
---@return integer all
function PeftModel:get_nb_trainable_parameters()
  local trainable, all = 0, 0
  for _, tensor in ipairs(self:parameters()) do
    all = all + tensor:numel() * (tensor.dtype == "uint8" and 2 or 1) -- 4-bit codes: two in a byte
    if tensor.requires_grad then trainable = trainable + tensor:numel() end
  end
  return trainable, all
end

local function with_commas(count)
  return ((("%d"):format(count):reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", "")))
end

--- Print the number of parameters that are trained, and of all.
function PeftModel:print_trainable_parameters()
  local trainable, all = self:get_nb_trainable_parameters()
  print(("trainable params: %s || all params: %s || trainable%%: %.4f"):format(with_commas(trainable),
    with_commas(all), 100 * trainable / all))
end

--- Write adapters into a folder: adapter_config.json and adapter_model.safetensors; those other than "default" into
--- folders of their names in it.
---@param save_directory string made when it is not there
---@param options? {selected_adapters: string[]?}
function PeftModel:save_pretrained(save_directory, options)
  local what = "save_pretrained"
  arguments.check(what, "save_directory", "string", save_directory)
  arguments.check_names(what, options or {}, {"selected_adapters"})
  if C.data.look(save_directory) == "file" then fail("%s: '%s' is a file, not a folder", what, save_directory) end
  local selected = options and options.selected_adapters or arguments.sorted_keys(self.peft_config)
  for _, adapter in ipairs(selected) do
    local config = self.peft_config[adapter]
    if not config then fail("%s: unknown adapter %s", what, describe(adapter)) end
    local folder = adapter == "default" and save_directory or save_directory .. "/" .. adapter
    local made, reason = C.io.make_folder(folder)
    if not made then fail("%s: %s", what, reason) end
    local state = self:_adapter_tensors(adapter)
    local names, tensors = arguments.sorted_keys(state), {}
    for i, name in ipairs(names) do tensors[i] = stored.plain(state[name]) end
    C.io.write_safetensors(folder .. "/" .. FILE, names, tensors, {format = "pt"})
    config:save_pretrained(folder)
  end
end

local function list_text(names)
  local shown = {}
  for i = 1, math.min(3, #names) do shown[i] = names[i] end
  return table.concat(shown, ", ") .. (#names > 3 and (" and %d more"):format(#names - 3) or "")
end

local function base_text(config)
  local name = config.base_model_name_or_path
  return type(name) == "string" and ("its base model is '%s'"):format(name) or "it is of another base model"
end

-- Raise for a tensor of another shape: another rank, or another base model.
local function fail_shape(what, path, name, found, own, config)
  local rank_at = name:find "%.lora_A%." and 0 or name:find "%.lora_B%." and 1
  local is_rank = rank_at and found:dim() == 2 and own:dim() == 2 and found:size(1 - rank_at) == own:size(1 - rank_at)
  fail("%s: '%s': %s: expected shape %s, got %s: %s", what, path, name, arguments.shape_text(own),
    arguments.shape_text(found), is_rank and ("adapter_config.json has r = %d, the file r = %d"):format(
      own:size(rank_at), found:size(rank_at)) or base_text(config))
end

-- Copy the tensors of a file into an adapter.
local function load_tensors(self, what, folder, adapter_name)
  local config = self.peft_config[adapter_name]
  local path = folder .. "/" .. FILE
  if C.data.look(path) ~= "file" then fail("%s: '%s' has no %s", what, folder, FILE) end
  local state, own = files.load(path), self:_adapter_tensors(adapter_name)
  local missing, unexpected = {}, {}
  for _, name in ipairs(arguments.sorted_keys(own)) do
    if not C.is_tensor(state[name]) then
      missing[#missing + 1] = name
    elseif not C.same_shape(state[name], own[name]) then
      fail_shape(what, path, name, state[name], own[name], config)
    end
  end
  for _, name in ipairs(arguments.sorted_keys(state)) do
    -- peft also stores the weight of an embedding with an adapter
    if not own[name] and not name:find "%.base_layer%.weight$" then unexpected[#unexpected + 1] = name end
  end
  if #missing > 0 then fail("%s: '%s' lacks %s: %s", what, path, list_text(missing), base_text(config)) end
  if #unexpected > 0 then
    fail("%s: '%s' has tensors without a place: %s: %s", what, path, list_text(unexpected), base_text(config))
  end
  C.autograd.no_grad(function()
    for name, tensor in pairs(own) do tensor:copy_(state[name]) end
  end)
end

local load_options = {"adapter_name", "is_trainable", "config"}

local function read_options(what, options)
  options = options or {}
  arguments.check_names(what, options, load_options)
  if options.is_trainable ~= nil then arguments.check(what, "is_trainable", "flag", options.is_trainable) end
  return options
end

--- Add the adapter of a folder to a model: PeftModel.from_pretrained(model, "adapter").
--
--   | local model = peft.PeftModel.from_pretrained(models.AutoModelForCausalLM.from_pretrained("base"), "adapter")
---@param options? {adapter_name: string?, is_trainable: boolean?, config: PeftConfig?}
---@return PeftModel
function PeftModel.from_pretrained(model, path, options)
  local what = "PeftModel.from_pretrained"
  options = read_options(what, options)
  local config = options.config or configs.PeftConfig.from_pretrained(path)
  config.inference_mode = not options.is_trainable
  if config.is_prompt_learning then return prompt_model.read(what, model, config, path) end
  local name = options.adapter_name or "default"
  local made = PeftModel(model, config, name)
  load_tensors(made, what, path, name)
  return made
end

--- Add the adapter of a folder; set_adapter selects it.
---@param options? {is_trainable: boolean?}
function PeftModel:load_adapter(path, adapter_name, options)
  local what = "load_adapter"
  options = read_options(what, options)
  local config = configs.PeftConfig.from_pretrained(path)
  config.inference_mode = not options.is_trainable
  self:add_adapter(adapter_name, config)
  load_tensors(self, what, path, adapter_name)
end

-- Warn of weights that the model's folder lacked and that no folder of the adapter will have.
local function warn_of_new(what, model, new)
  local has_prompts, lost = model._trained ~= nil, {}
  local stored_names = has_prompts and model:_trained() or model:_adapter_tensors(model.active_adapter)
  local first = has_prompts and "base_model." or "base_model.model."
  for _, name in ipairs(new or {}) do
    if not stored_names[first .. name] then lost[#lost + 1] = name end
  end
  if #lost == 0 then return end
  warn(("%s: new weights that the adapter neither trains nor saves: %s; list their modules in modules_to_save"):format(
    what, list_text(lost)))
end

--- Freeze a model and add an adapter to it.
--
--   local config = {vocab_size = 9, n_positions = 8, n_embd = 8, n_layer = 1, n_head = 2}
--   local model = accelhost.models.GPT2LMHeadModel(config)
--   local adapted = accelhost.peft.get_peft_model(model, accelhost.peft.LoraConfig{r = 2})
--   (adapted:get_nb_trainable_parameters())  --> 64
---@param peft_config PeftConfig
---@param adapter_name? string default "default"
---@return PeftModel
local function get_peft_model(model, peft_config, adapter_name)
  local what = "get_peft_model"
  arguments.check(what, "model", "module", model)
  if not class.is(peft_config, configs.PeftConfig) then
    fail("%s: peft_config: expected a LoraConfig or IA3Config, got %s", what, describe(peft_config))
  end
  if class.is(model, PeftModel) then fail("%s: the model has adapters; use its add_adapter", what) end
  peft_config.base_model_name_or_path = model._fields.name_or_path or peft_config.base_model_name_or_path
  local new = model._fields.new_weights
  local made = peft_config.is_prompt_learning and prompt_model.make(model, peft_config)
    or PeftModel(model, peft_config, adapter_name)
  warn_of_new(what, made, new)
  return made
end

return {PeftModel = PeftModel, get_peft_model = get_peft_model}
