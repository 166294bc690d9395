--- Prompt tuning: vectors in front of a text's embeddings are trained, and nothing else. Names and files are peft's.
---@param model PreTrainedModel
---@param config PromptTuningConfig
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local checkpoint_folder = require "accelhost.util.checkpoint_folder"
local class = require "accelhost.util.class"
local container = require "accelhost.nn.container"
local embeddings = require "accelhost.nn.embedding"
local files = require "accelhost.io"
local stored = require "accelhost.checkpoint.stored"
local Module = require("accelhost.nn.module").Module
local PeftModel = require("accelhost.peft.model").PeftModel

local fail = arguments.fail
local FILE, ENTRY, ADAPTER = "adapter_model.safetensors", "prompt_embeddings", "default"

-- The vectors, as rows of an embedding.
local PromptEmbedding = Module:extend "PromptEmbedding"

function PromptEmbedding:init(count, width) self.embedding = embeddings.Embedding(count, width) end

---@return Tensor [num_virtual_tokens, token_dim]
function PromptEmbedding:forward() return self.embedding.weight end

--- A model that continues texts, with trained vectors in front of them.
---@class PeftModelForCausalLM: PeftModel
local PromptModel = PeftModel:extend "PeftModelForCausalLM"

PromptModel._item = function(self, key)
  local base = self._fields.base_model
  if base then return base[key] end
end

-- Complete the sizes that follow from the model.
local function complete(what, model, config)
  if config.task_type ~= nil and config.task_type ~= "CAUSAL_LM" or not model.generate or model.encoder then
    fail("%s: prompt tuning is for models that continue texts (task_type \"CAUSAL_LM\")", what)
  end
  local sizes = model.config
  config.token_dim = config.token_dim or sizes.hidden_size or sizes.n_embd
  config.num_layers = config.num_layers or sizes.num_hidden_layers or sizes.n_layer
  config.num_attention_heads = config.num_attention_heads or sizes.num_attention_heads or sizes.n_head
  config.num_transformer_submodules = config.num_transformer_submodules or 1
  config.task_type = "CAUSAL_LM"
end

---@param is_read boolean the vectors are read from a file afterwards
function PromptModel:init(model, config, is_read)
  local what = "get_peft_model"
  complete(what, model, config)
  if not is_read and config.prompt_tuning_init ~= "RANDOM" then
    fail("%s: prompt_tuning_init: %s is not implemented; expected \"RANDOM\"", what, config.prompt_tuning_init)
  end
  self.peft_config = {[ADAPTER] = config}
  self.base_model, self.training = model, model.training
  self.active_adapter, self.active_adapters = ADAPTER, {ADAPTER}
  model:requires_grad_(false)
  local prompt = PromptEmbedding(config.num_virtual_tokens, config.token_dim)
  local weight = model:get_input_embeddings().weight
  prompt:to {device = weight.device, dtype = weight.dtype == "float64" and "float64" or "float32"}
  prompt:requires_grad_(not config.inference_mode)
  self.prompt_encoder = container.ModuleDict {[ADAPTER] = prompt}
end

---@return Module
function PromptModel:get_base_model() return self.base_model end

-- A tensor with `value` in front of each row, for each vector.
local function with_front(self, tensor, value)
  local front = C.full({tensor:size(0), self.peft_config[ADAPTER].num_virtual_tokens}, value,
    {dtype = tensor.dtype, device = tensor.device})
  return C.cat({front, tensor}, 1)
end

--- Call the model on the vectors and the text. Logits are those of both; labels are of the text.
---@param batch Tensor|table
---@param more? table
---@return table
function PromptModel:forward(batch, more)
  local given = {}
  for name, value in pairs(C.is_tensor(batch) and {input_ids = batch} or batch) do given[name] = value end
  for name, value in pairs(more or {}) do given[name] = value end
  if given.past_key_values ~= nil or given.position_ids ~= nil then
    fail("%s: past_key_values and position_ids are not for prompt tuning; call get_base_model()", self._name)
  end
  local vectors = given.inputs_embeds or self.base_model:get_input_embeddings()(given.input_ids)
  local prompt = self.prompt_encoder[ADAPTER]():to(vectors.dtype)
  given.input_ids = nil
  given.inputs_embeds = C.cat({prompt:unsqueeze(0):expand(vectors:size(0), -1, -1), vectors}, 1)
  if given.attention_mask then given.attention_mask = with_front(self, given.attention_mask, 1) end
  if given.labels then given.labels = with_front(self, given.labels, -100) end
  return self.base_model(given)
end

--- Continue texts, as the model's generate does. The vectors are tokens beyond its vocabulary while it runs.
---@param input_ids Tensor|table
---@param options? table
function PromptModel:generate(input_ids, options)
  local base, count = self.base_model, self.peft_config[ADAPTER].num_virtual_tokens
  local embedding, words = base:get_input_embeddings(), base.config.vocab_size
  local batch = {}
  for name, value in pairs(C.is_tensor(input_ids) and {input_ids = input_ids} or input_ids) do batch[name] = value end
  for name, value in pairs(options or {}) do
    if name == "attention_mask" then batch[name] = value end
  end
  local given = {}
  for name, value in pairs(options or {}) do given[name] = value end
  local ids = batch.input_ids
  local virtual = (C.arange(count, {device = ids.device}) + words):unsqueeze(0):expand(ids:size(0), -1)
  batch.input_ids = C.cat({virtual, ids}, 1)
  if batch.attention_mask then batch.attention_mask = with_front(self, batch.attention_mask, 1) end
  given.attention_mask = nil
  if given.max_length then given.max_length = given.max_length + count end
  local asked
  local before = embedding:register_forward_pre_hook(function(_, inputs)
    asked = inputs[1]
    return asked:clamp(0, words - 1)
  end)
  local after = embedding:register_forward_hook(function(_, _, found)
    local is_virtual = asked:ge(words)
    if not is_virtual:any():item() then return found end
    local rows = self.prompt_encoder[ADAPTER]()[(asked - words):clamp(0, count - 1)]:to(found.dtype)
    return C.where(is_virtual:unsqueeze(-1), rows, found)
  end)
  local fine, result = pcall(base.generate, base, batch, given)
  before:remove()
  after:remove()
  if not fine then error(result, 0) end
  if C.is_tensor(result) then return result:narrow(1, count, result:size(1) - count) end
  result.sequences = result.sequences:narrow(1, count, result.sequences:size(1) - count)
  return result
end

for _, name in ipairs {"add_adapter", "set_adapter", "delete_adapter", "load_adapter", "merge_adapter",
  "unmerge_adapter", "merge_and_unload"} do
  PromptModel[name] = function() fail("%s: not with prompt tuning, which has one adapter", name) end
end

--- Return the model, which is as it was.
---@return Module
function PromptModel:unload() return self.base_model end

local function weight_of(self) return self.prompt_encoder[ADAPTER].embedding.weight end

--- Return the state that checkpoints of a run store: the vectors alone.
---@return table<string, Tensor>
function PromptModel:_checkpoint_state() return {[ENTRY] = weight_of(self)} end

--- Load such a state.
---@param state table<string, Tensor>
function PromptModel:_load_checkpoint_state(state)
  if not C.is_tensor(state[ENTRY]) then fail("load_state: the saved run has no %s", ENTRY) end
  C.autograd.no_grad(function() weight_of(self):copy_(state[ENTRY]) end)
end

--- Write adapter_config.json and adapter_model.safetensors into a folder.
---@param save_directory string made when it is not there
function PromptModel:save_pretrained(save_directory)
  arguments.check("save_pretrained", "save_directory", "string", save_directory)
  local made, reason = C.io.make_folder(save_directory)
  if not made then fail("save_pretrained: %s", reason) end
  C.io.write_safetensors(save_directory .. "/" .. FILE, {ENTRY}, {stored.plain(weight_of(self))}, {format = "pt"})
  self.peft_config[ADAPTER]:save_pretrained(save_directory)
end

local prompt_model = {}

--- Make a model with new vectors.
---@return PeftModelForCausalLM
function prompt_model.make(model, config) return PromptModel(model, config, false) end

--- Make a model with the vectors of a folder.
---@param folder string
---@return PeftModelForCausalLM
function prompt_model.read(what, model, config, folder)
  local path = checkpoint_folder(what, folder) .. "/" .. FILE
  if C.data.look(path) ~= "file" then fail("%s: '%s' has no %s", what, folder, FILE) end
  local made, found = PromptModel(model, config, true), files.load(path)[ENTRY]
  local own = weight_of(made)
  if not C.is_tensor(found) or not C.same_shape(found, own) then
    fail("%s: '%s': %s: expected shape %s, got %s", what, path, ENTRY, arguments.shape_text(own),
      C.is_tensor(found) and arguments.shape_text(found) or "none")
  end
  C.autograd.no_grad(function() own:copy_(found) end)
  return made
end

--- Is it a model with prompt tuning?
function prompt_model.is_one(model) return class.is(model, PromptModel) end

return prompt_model
