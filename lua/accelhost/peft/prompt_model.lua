--- Prompt learning: vectors in front of a text (prompt tuning, P-tuning), or keys and values of them in each layer
--- (prefix tuning), are trained, and of a classifier its head. Names and files are peft's.
local C = require "accelhost._C"
local adapter_layer = require "accelhost.peft.adapter_layer"
local arguments = require "accelhost.util.arguments"
local checkpoint_folder = require "accelhost.util.checkpoint_folder"
local class = require "accelhost.util.class"
local container = require "accelhost.nn.container"
local encoders = require "accelhost.peft.prompt_encoders"
local files = require "accelhost.io"
local protect = require "accelhost.util.protect"
local stored = require "accelhost.checkpoint.stored"
local targets = require "accelhost.peft.targets"
local PeftModel = require("accelhost.peft.model").PeftModel

local fail = arguments.fail
local FILE, ENTRY, ADAPTER = "adapter_model.safetensors", "prompt_embeddings", "default"

--- A model with trained tokens in front of its texts: the virtual tokens.
---@class PromptModel: PeftModel
local PromptModel = PeftModel:extend "PromptModel"

PromptModel._item = function(self, key)
  local base = self._fields.base_model
  if base then return base[key] end
end

-- task_type -> the class of the model with virtual tokens.
local classes = {
  CAUSAL_LM = PromptModel:extend "PeftModelForCausalLM", SEQ_2_SEQ_LM = PromptModel:extend "PeftModelForSeq2SeqLM",
  SEQ_CLS = PromptModel:extend "PeftModelForSequenceClassification",
  TOKEN_CLS = PromptModel:extend "PeftModelForTokenClassification",
}

local function has_encoder(model) return model.encoder ~= nil and model.decoder ~= nil end

local function is_prefix(config) return config.peft_type == "PREFIX_TUNING" end

-- Return the number of heads of a layer's keys, and their width.
local function heads_of(sizes)
  local queries = sizes.num_attention_heads or sizes.n_head or sizes.num_heads
  if sizes.d_kv then return queries, sizes.d_kv end
  if sizes.head_width then return sizes.num_key_value_heads or queries, sizes:head_width() end
  return queries, (sizes.hidden_size or sizes.n_embd) / queries
end

-- Set the sizes of a prefix: those of the keys of a token.
local function complete_prefix(what, model, config)
  local sizes = model.config
  local heads, width = heads_of(sizes)
  if sizes.num_key_value_heads and not config.token_dim then
    config.token_dim, config.num_attention_heads = heads * width, heads
  end
  config.token_dim = config.token_dim or sizes.hidden_size or sizes.n_embd or sizes.d_model
  config.num_attention_heads = config.num_attention_heads or sizes.num_attention_heads or sizes.n_head
    or sizes.num_heads
  config.encoder_hidden_size = config.encoder_hidden_size or config.token_dim
  if config.token_dim ~= heads * width or config.num_attention_heads ~= heads then
    fail("%s: prefix tuning: the keys of the model have %d heads of %d numbers, those of the configuration %d of %g; "
      .. "expected num_attention_heads = %d, token_dim = %d", what, heads, width, config.num_attention_heads,
      config.token_dim / config.num_attention_heads, heads, heads * width)
  end
end

-- Set the sizes of vectors: those of the embeddings of tokens.
local function complete_vectors(what, name, model, config)
  local sizes, width = model.config, model:get_input_embeddings().embedding_dim
  config.token_dim = config.token_dim or width
  config.num_attention_heads = config.num_attention_heads or (heads_of(sizes))
  if config.peft_type == "P_TUNING" then config.encoder_hidden_size = config.encoder_hidden_size or config.token_dim end
  if config.token_dim ~= width then
    fail("%s: %s: token_dim: expected %d, the width of the model's embeddings, got %d", what, name, width,
      config.token_dim)
  end
end

-- Return the task of a model; nil where it has none of those with virtual tokens.
local function task_of(model)
  if model.generate then return has_encoder(model) and "SEQ_2_SEQ_LM" or "CAUSAL_LM" end
  local head = model.config and model:class_name():match "For(%a+)Classification$"
  return head == "Sequence" and "SEQ_CLS" or head == "Token" and "TOKEN_CLS" or nil
end

-- Complete the fields that follow from the model.
local function complete(what, model, config)
  local name = is_prefix(config) and "prefix tuning" or config.peft_type == "P_TUNING" and "P-tuning"
    or "prompt tuning"
  local task = task_of(model)
  if not task or config.task_type ~= nil and config.task_type ~= task then
    fail("%s: %s is for models that continue texts (task_type \"CAUSAL_LM\"), T5 (\"SEQ_2_SEQ_LM\") and classifiers of "
      .. "texts or tokens (\"SEQ_CLS\", \"TOKEN_CLS\"); got %s%s", what, name, model:class_name(),
      config.task_type and (" with task_type \"%s\""):format(config.task_type) or "")
  elseif is_prefix(config) and not model.generate and not model.accepts_prefix then
    fail("%s: prefix tuning: %s has no keys and values in front of a text; expected P-tuning or prompt tuning", what,
      model:class_name())
  elseif config.modules_to_save and model.generate then
    fail("%s: %s: modules_to_save: expected none, for a model that continues texts", what, name)
  end
  local sizes = model.config
  config.num_layers = config.num_layers or sizes.num_hidden_layers or sizes.n_layer or sizes.num_layers
  config.num_transformer_submodules = config.num_transformer_submodules or (has_encoder(model) and 2 or 1)
  config.task_type = task
  targets.complete_saved(config)
  if is_prefix(config) then return complete_prefix(what, model, config) end
  complete_vectors(what, name, model, config)
end

---@param model PreTrainedModel
---@param config PeftConfig with is_prompt_learning
---@param source? string for messages: of a model whose vectors are read from a file afterwards
function PromptModel:init(model, config, source)
  if not source and (config.prompt_tuning_init or "RANDOM") ~= "RANDOM" then
    fail("get_peft_model: prompt_tuning_init: %s is not implemented; expected \"RANDOM\"", config.prompt_tuning_init)
  end
  self.peft_config = {[ADAPTER] = config}
  self.base_model, self.training = model, model.training
  self.active_adapter, self.active_adapters = ADAPTER, {ADAPTER}
  model:requires_grad_(false)
  local prompt = encoders.make(config, config.inference_mode)
  local weight = model:get_input_embeddings().weight
  prompt:to {device = weight.device, dtype = weight.dtype == "float64" and "float64" or "float32"}
  self.prompt_encoder = container.ModuleDict {[ADAPTER] = prompt}
  self:_save_modules(model, config, ADAPTER)
  for _, module in ipairs(self:_saved_modules()) do module.active = {ADAPTER} end
  for _, tensor in pairs(self:_trained()) do tensor.requires_grad = not config.inference_mode end
end

-- Return the modules that are trained and saved whole, and their names.
function PromptModel:_saved_modules()
  local list, names = {}, {}
  for name, module in self.base_model:named_modules() do
    if class.is(module, adapter_layer.SavedModule) then list[#list + 1], names[#names + 1] = module, name end
  end
  return list, names
end

-- Return the trained tensors by their names in a checkpoint.
function PromptModel:_trained()
  local list = {}
  for name, tensor in pairs(self.prompt_encoder[ADAPTER]:state_dict {keep_vars = true}) do
    list[name == "embedding.weight" and ENTRY or name] = tensor
  end
  local saved, names = self:_saved_modules()
  for i, module in ipairs(saved) do
    for name, tensor in pairs(module:current():state_dict {keep_vars = true}) do
      list[("base_model.%s.%s"):format(names[i], name)] = tensor
    end
  end
  return list
end

---@return Module
function PromptModel:get_base_model() return self.base_model end

--- Return the number of virtual tokens in front of the tokens that are written, for generate.
---@return integer
function PromptModel:_virtual_tokens()
  local config = self.peft_config[ADAPTER]
  return (self.is_disabled or has_encoder(self.base_model) and not is_prefix(config)) and 0
    or config.num_virtual_tokens
end

-- Return a tensor with `value` in front of each row, for each virtual token.
local function with_front(self, tensor, value)
  local front = C.full({tensor:size(0), self.peft_config[ADAPTER].num_virtual_tokens}, value,
    {dtype = tensor.dtype, device = tensor.device})
  return C.cat({front, tensor}, 1)
end

-- Return the keys and values of the virtual tokens for a number of texts. Layers of a model with an encoder use every
-- second pair, from the first again after the last, as in peft.
local function prefix_of(self, rows, dtype)
  local config = self.peft_config[ADAPTER]
  local layers, heads, past = config.num_layers, config.num_attention_heads, {}
  local all = self.prompt_encoder[ADAPTER]():to(dtype):view(config.num_virtual_tokens, 2 * layers, heads, -1)
  all = all:permute(1, 2, 0, 3):unsqueeze(1):expand(-1, rows, -1, -1, -1)
  for i = 1, self.base_model.config.num_decoder_layers or layers do
    local at = 2 * config.num_transformer_submodules * (i - 1) % (2 * layers)
    past[i] = {all[at], all[at + 1], seen = config.num_virtual_tokens}
  end
  return past
end

-- Put vectors in front of the embeddings of the texts; positions are those of both. A model with an encoder has as many
-- again for its decoder, which peft does not use.
local function add_vectors(self, given)
  local config = self.peft_config[ADAPTER]
  local vectors = given.inputs_embeds or self.base_model:token_vectors(given.input_ids)
  local prompt = self.prompt_encoder[ADAPTER]():narrow(0, 0, config.num_virtual_tokens):to(vectors.dtype)
  given.input_ids = nil
  given.inputs_embeds = C.cat({prompt:unsqueeze(0):expand(vectors:size(0), -1, -1), vectors}, 1)
  if given.attention_mask then given.attention_mask = with_front(self, given.attention_mask, 1) end
  if given.token_type_ids then given.token_type_ids = with_front(self, given.token_type_ids, 0) end
  if given.labels and (config.task_type == "CAUSAL_LM" or config.task_type == "TOKEN_CLS") then
    given.labels = with_front(self, given.labels, -100)
  end
  local places = given.position_ids
  if places then
    local front = C.arange(config.num_virtual_tokens, {dtype = places.dtype, device = places.device})
    given.position_ids = C.cat({front:unsqueeze(0):expand(places:size(0), -1), places + config.num_virtual_tokens}, 1)
  end
end

-- Put keys and values of the virtual tokens in front of those of the texts.
local function add_prefix(self, given)
  local base, ids = self.base_model, given.input_ids or given.inputs_embeds
  if not given.past_key_values then
    ids = ids or given.encoder_outputs.last_hidden_state
    given.past_key_values = prefix_of(self, ids:size(0), base:get_input_embeddings().weight.dtype)
  end
  local mask = has_encoder(base) and "decoder_attention_mask" or "attention_mask"
  if given[mask] then given[mask] = with_front(self, given[mask], 1) end
  if given.position_ids then given.position_ids = given.position_ids + self:_virtual_tokens() end
end

--- Call the model on the virtual tokens and the texts: of a prefix logits are of the texts, of vectors of both. Labels,
--- masks, types and positions are of the texts; past_key_values are those of an earlier call.
---@param batch Tensor|table
---@param more? table
---@return table
function PromptModel:forward(batch, more)
  local given, base = {}, self.base_model
  if self.is_disabled then return base(batch, more) end
  for name, value in pairs(C.is_tensor(batch) and {input_ids = batch} or batch) do given[name] = value end
  for name, value in pairs(more or {}) do given[name] = value end
  if is_prefix(self.peft_config[ADAPTER]) then
    add_prefix(self, given)
  elseif given.past_key_values and not has_encoder(base) then -- they have the vectors
    if given.attention_mask then given.attention_mask = with_front(self, given.attention_mask, 1) end
    if given.position_ids then given.position_ids = given.position_ids + self:_virtual_tokens() end
  elseif not given.encoder_outputs then
    add_vectors(self, given)
  end
  return base(given)
end

--- Return the start of a run of generate: an encoder reads the vectors and the texts.
---@param o table all options of generate
---@return table
function PromptModel:_begin(batch, o)
  local base, given = self.base_model, {}
  if is_prefix(self.peft_config[ADAPTER]) or self.is_disabled or not has_encoder(base) then
    return base._begin(self, batch, o)
  end
  for name, value in pairs(batch) do given[name] = value end
  add_vectors(self, given)
  return base._begin(self, given, o)
end

for _, name in ipairs {"add_adapter", "set_adapter", "delete_adapter", "load_adapter", "merge_adapter",
  "unmerge_adapter", "merge_and_unload", "add_weighted_adapter"} do
  PromptModel[name] = function() fail("%s: not with prompt tuning, which has one adapter", name) end
end

-- Switch the virtual tokens, and the heads trained with them, off or on.
local function set_disabled(self, is_disabled)
  self.is_disabled = is_disabled
  for _, module in ipairs((self:_saved_modules())) do module.is_disabled = is_disabled end
end

--- Call a function with the model alone, without virtual tokens.
---@param ... any its arguments
---@return any ... its results
function PromptModel:disable_adapter(fn, ...)
  set_disabled(self, true)
  return protect(function() set_disabled(self, false) end, fn, ...)
end

--- Return the model, which is as it was.
---@return Module
function PromptModel:unload()
  local saved, names = self:_saved_modules()
  for i, module in ipairs(saved) do self._replace(self.base_model, names[i], module.original_module) end
  return self.base_model
end

--- Return the state that checkpoints of a run store: the trained tensors alone.
---@return table<string, Tensor>
function PromptModel:_checkpoint_state() return self:_trained() end

--- Load such a state.
---@param state table<string, Tensor>
function PromptModel:_load_checkpoint_state(state)
  local own = self:_trained()
  for _, name in ipairs(arguments.sorted_keys(own)) do
    if not C.is_tensor(state[name]) then fail("load_state: the saved run has no %s", name) end
  end
  C.autograd.no_grad(function()
    for name, tensor in pairs(own) do tensor:copy_(state[name]) end
  end)
end

-- Return the tensors of a folder by their names: the vectors, or the prefix, and the saved modules' tensors.
local function tensors_of_folder(self)
  local list = {}
  for name, tensor in pairs(self:_trained()) do
    if name:find "^base_model%." then list[name] = tensor end
  end
  return list
end

--- Write adapter_config.json and adapter_model.safetensors into a folder: the vectors, or the prefix, as computed, and
--- of a classifier the head.
---@param save_directory string made when it is not there
function PromptModel:save_pretrained(save_directory)
  arguments.check("save_pretrained", "save_directory", "string", save_directory)
  local made, reason = C.io.make_folder(save_directory)
  if not made then fail("save_pretrained: %s", reason) end
  local list, tensors = tensors_of_folder(self), {}
  list[ENTRY] = C.autograd.no_grad(function() return self.prompt_encoder[ADAPTER]():detach():contiguous() end)
  local names = arguments.sorted_keys(list)
  for i, name in ipairs(names) do tensors[i] = stored.plain(list[name]) end
  C.io.write_safetensors(save_directory .. "/" .. FILE, names, tensors, {format = "pt"})
  self.peft_config[ADAPTER]:save_pretrained(save_directory)
end

local prompt_model = {}

local function new(model, config, source)
  complete(source or "get_peft_model", model, config)
  return classes[config.task_type](model, config, source)
end

--- Make a model with new vectors.
---@param model PreTrainedModel
---@param config PeftConfig with is_prompt_learning
---@return PromptModel
function prompt_model.make(model, config) return new(model, config) end

--- Make a model with the vectors of a folder.
---@param model PreTrainedModel
---@param config PeftConfig with is_prompt_learning
---@param folder string
---@return PromptModel
function prompt_model.read(what, model, config, folder)
  local path = checkpoint_folder(what, folder) .. "/" .. FILE
  if C.data.look(path) ~= "file" then fail("%s: '%s' has no %s", what, folder, FILE) end
  if not config.inference_mode and encoders.is_computed(config) then
    fail("%s: is_trainable: '%s' has the computed vectors and not the encoder's weights, which save_state stores", what,
      path)
  end
  local made, state = new(model, config, ("%s: '%s/adapter_config.json'"):format(what, folder)), files.load(path)
  local own = tensors_of_folder(made)
  own[ENTRY] = made.prompt_encoder[ADAPTER].embedding.weight
  for _, name in ipairs(arguments.sorted_keys(own)) do
    local found = state[name]
    if not C.is_tensor(found) or not C.same_shape(found, own[name]) then
      fail("%s: '%s': %s: expected shape %s, got %s: it is of another base model", what, path, name,
        arguments.shape_text(own[name]), C.is_tensor(found) and arguments.shape_text(found) or "none")
    end
  end
  C.autograd.no_grad(function()
    for name, tensor in pairs(own) do tensor:copy_(state[name]) end
  end)
  return made
end

return prompt_model
