--- Prompt learning: vectors in front of a text (prompt tuning, P-tuning), or keys and values of them in each layer
--- (prefix tuning), are trained, and nothing else. Names and files are peft's.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local checkpoint_folder = require "accelhost.util.checkpoint_folder"
local container = require "accelhost.nn.container"
local encoders = require "accelhost.peft.prompt_encoders"
local files = require "accelhost.io"
local protect = require "accelhost.util.protect"
local stored = require "accelhost.checkpoint.stored"
local PeftModel = require("accelhost.peft.model").PeftModel

local fail = arguments.fail
local FILE, ENTRY, ADAPTER = "adapter_model.safetensors", "prompt_embeddings", "default"

--- A model that continues texts, with trained tokens in front of them: the virtual tokens.
---@class PeftModelForCausalLM: PeftModel
local PromptModel = PeftModel:extend "PeftModelForCausalLM"

PromptModel._item = function(self, key)
  local base = self._fields.base_model
  if base then return base[key] end
end

local function has_encoder(model) return model.encoder ~= nil and model.decoder ~= nil end

-- Set the sizes of a prefix: those of the keys of a token.
local function complete_prefix(what, model, config)
  local sizes = model.config
  local heads, width = sizes.num_key_value_heads, sizes.d_kv
  if heads and not config.token_dim then
    config.token_dim, config.num_attention_heads = heads * sizes:head_width(), heads
  end
  width = width or sizes.head_width and sizes:head_width() or sizes.n_embd / sizes.n_head
  config.token_dim = config.token_dim or sizes.hidden_size or sizes.n_embd or sizes.d_model
  config.num_attention_heads = config.num_attention_heads or sizes.num_attention_heads or sizes.n_head
    or sizes.num_heads
  config.encoder_hidden_size = config.encoder_hidden_size or config.token_dim
  heads = heads or sizes.num_attention_heads or sizes.n_head or sizes.num_heads
  if config.token_dim ~= heads * width or config.num_attention_heads ~= heads then
    fail("%s: prefix tuning: the keys of the model have %d heads of %d numbers, those of the configuration %d of %g; "
      .. "expected num_attention_heads = %d, token_dim = %d", what, heads, width, config.num_attention_heads,
      config.token_dim / config.num_attention_heads, heads, heads * width)
  end
end

-- Complete the sizes that follow from the model.
local function complete(what, model, config)
  local is_prefix, with_encoder = config.peft_type == "PREFIX_TUNING", has_encoder(model)
  local task = with_encoder and "SEQ_2_SEQ_LM" or "CAUSAL_LM"
  local name = is_prefix and "prefix tuning" or config.peft_type == "P_TUNING" and "P-tuning" or "prompt tuning"
  if not model.generate or with_encoder and not is_prefix or config.task_type ~= nil and config.task_type ~= task then
    fail("%s: %s is for models that continue texts (task_type \"CAUSAL_LM\")%s", what, name,
      is_prefix and " and T5 (\"SEQ_2_SEQ_LM\")" or "")
  end
  local sizes = model.config
  config.num_layers = config.num_layers or sizes.num_hidden_layers or sizes.n_layer or sizes.num_layers
  config.num_transformer_submodules = config.num_transformer_submodules or (with_encoder and 2 or 1)
  config.task_type = task
  if is_prefix then return complete_prefix(what, model, config) end
  config.token_dim = config.token_dim or sizes.hidden_size or sizes.n_embd
  config.num_attention_heads = config.num_attention_heads or sizes.num_attention_heads or sizes.n_head
  if config.peft_type == "P_TUNING" then config.encoder_hidden_size = config.encoder_hidden_size or config.token_dim end
end

---@param model PreTrainedModel
---@param config PeftConfig with is_prompt_learning
---@param source? string for messages: of a model whose vectors are read from a file afterwards
function PromptModel:init(model, config, source)
  local what = source or "get_peft_model"
  complete(what, model, config)
  if not source and (config.prompt_tuning_init or "RANDOM") ~= "RANDOM" then
    fail("%s: prompt_tuning_init: %s is not implemented; expected \"RANDOM\"", what, config.prompt_tuning_init)
  end
  self.peft_config = {[ADAPTER] = config}
  self.base_model, self.training = model, model.training
  self.active_adapter, self.active_adapters = ADAPTER, {ADAPTER}
  model:requires_grad_(false)
  local prompt = encoders.make(config, config.inference_mode)
  local weight = model:get_input_embeddings().weight
  prompt:to {device = weight.device, dtype = weight.dtype == "float64" and "float64" or "float32"}
  prompt:requires_grad_(not config.inference_mode)
  self.prompt_encoder = container.ModuleDict {[ADAPTER] = prompt}
end

---@return Module
function PromptModel:get_base_model() return self.base_model end

--- Return the number of virtual tokens, for generate.
---@return integer
function PromptModel:_virtual_tokens()
  return self.is_disabled and 0 or self.peft_config[ADAPTER].num_virtual_tokens
end

-- Return a tensor with `value` in front of each row, for each virtual token.
local function with_front(self, tensor, value)
  local front = C.full({tensor:size(0), self:_virtual_tokens()}, value, {dtype = tensor.dtype, device = tensor.device})
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

-- Put vectors in front of the embeddings of the texts; positions are those of both.
local function add_vectors(self, given)
  local vectors = given.inputs_embeds or self.base_model:token_vectors(given.input_ids)
  local prompt = self.prompt_encoder[ADAPTER]():to(vectors.dtype)
  given.input_ids = nil
  given.inputs_embeds = C.cat({prompt:unsqueeze(0):expand(vectors:size(0), -1, -1), vectors}, 1)
  if given.labels then given.labels = with_front(self, given.labels, -100) end
  local places = given.position_ids
  if places then
    local front = C.arange(self:_virtual_tokens(), {dtype = places.dtype, device = places.device})
    given.position_ids = C.cat({front:unsqueeze(0):expand(places:size(0), -1), places}, 1)
  end
end

--- Call the model on the virtual tokens and the texts: of a prefix logits are of the texts, of vectors of both. Labels,
--- masks and positions are of the texts; past_key_values are those of an earlier call.
---@param batch Tensor|table
---@param more? table
---@return table
function PromptModel:forward(batch, more)
  local given, base, mask = {}, self.base_model, "attention_mask"
  if self.is_disabled then return base(batch, more) end
  for name, value in pairs(C.is_tensor(batch) and {input_ids = batch} or batch) do given[name] = value end
  for name, value in pairs(more or {}) do given[name] = value end
  local ids = given.input_ids or given.inputs_embeds
  if has_encoder(base) then
    mask, ids = "decoder_attention_mask", ids or given.encoder_outputs.last_hidden_state
  end
  if given[mask] then given[mask] = with_front(self, given[mask], 1) end
  if given.position_ids then given.position_ids = given.position_ids + self:_virtual_tokens() end
  if not given.past_key_values then
    if self.peft_config[ADAPTER].peft_type ~= "PREFIX_TUNING" then
      add_vectors(self, given)
    else
      given.past_key_values = prefix_of(self, ids:size(0), base:get_input_embeddings().weight.dtype)
    end
  end
  return base(given)
end

for _, name in ipairs {"add_adapter", "set_adapter", "delete_adapter", "load_adapter", "merge_adapter",
  "unmerge_adapter", "merge_and_unload", "add_weighted_adapter"} do
  PromptModel[name] = function() fail("%s: not with prompt tuning, which has one adapter", name) end
end

--- Call a function with the model alone, without virtual tokens.
---@param ... any its arguments
---@return any ... its results
function PromptModel:disable_adapter(fn, ...)
  self.is_disabled = true
  return protect(function() self.is_disabled = false end, fn, ...)
end

--- Return the model, which is as it was.
---@return Module
function PromptModel:unload() return self.base_model end

-- Return the trained tensors by their names in a checkpoint.
local function trained(self)
  local list = {}
  for name, tensor in pairs(self.prompt_encoder[ADAPTER]:state_dict {keep_vars = true}) do
    list[name == "embedding.weight" and ENTRY or name] = tensor
  end
  return list
end

--- Return the state that checkpoints of a run store: the trained tensors alone.
---@return table<string, Tensor>
function PromptModel:_checkpoint_state() return trained(self) end

--- Load such a state.
---@param state table<string, Tensor>
function PromptModel:_load_checkpoint_state(state)
  local own = trained(self)
  for _, name in ipairs(arguments.sorted_keys(own)) do
    if not C.is_tensor(state[name]) then fail("load_state: the saved run has no %s", name) end
  end
  C.autograd.no_grad(function()
    for name, tensor in pairs(own) do tensor:copy_(state[name]) end
  end)
end

--- Write adapter_config.json and adapter_model.safetensors into a folder: the vectors, or the prefix, as computed.
---@param save_directory string made when it is not there
function PromptModel:save_pretrained(save_directory)
  arguments.check("save_pretrained", "save_directory", "string", save_directory)
  local made, reason = C.io.make_folder(save_directory)
  if not made then fail("save_pretrained: %s", reason) end
  local vectors = C.autograd.no_grad(function() return self.prompt_encoder[ADAPTER]():detach():contiguous() end)
  C.io.write_safetensors(save_directory .. "/" .. FILE, {ENTRY}, {stored.plain(vectors)}, {format = "pt"})
  self.peft_config[ADAPTER]:save_pretrained(save_directory)
end

local prompt_model = {}

--- Make a model with new vectors.
---@param model PreTrainedModel
---@param config PeftConfig with is_prompt_learning
---@return PeftModelForCausalLM
function prompt_model.make(model, config) return PromptModel(model, config) end

--- Make a model with the vectors of a folder.
---@param model PreTrainedModel
---@param config PeftConfig with is_prompt_learning
---@param folder string
---@return PeftModelForCausalLM
function prompt_model.read(what, model, config, folder)
  local path = checkpoint_folder(what, folder) .. "/" .. FILE
  if C.data.look(path) ~= "file" then fail("%s: '%s' has no %s", what, folder, FILE) end
  if not config.inference_mode and encoders.is_computed(config) then
    fail("%s: is_trainable: '%s' has the computed vectors and not the encoder's weights, which save_state stores", what,
      path)
  end
  local source = ("%s: '%s/adapter_config.json'"):format(what, folder)
  local made, found = PromptModel(model, config, source), files.load(path)[ENTRY]
  local own = made.prompt_encoder[ADAPTER].embedding.weight
  if not C.is_tensor(found) or not C.same_shape(found, own) then
    fail("%s: '%s': %s: expected shape %s, got %s: it is of another base model", what, path, ENTRY,
      arguments.shape_text(own), C.is_tensor(found) and arguments.shape_text(found) or "none")
  end
  C.autograd.no_grad(function() own:copy_(found) end)
  return made
end

return prompt_model
