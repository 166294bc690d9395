--- Load models from a checkpoint folder and save them to one.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local configs = require "accelhost.models.common.config"
local later = require "accelhost.util.later"
local generation_config = later "accelhost.models.common.generation_config"
local init = require "accelhost.nn.initializers"
local nn_utils = require "accelhost.nn.utils"
local quantization = later "accelhost.models.common.quantization"
local recompute = require "accelhost.recompute"
local shards = require "accelhost.checkpoint.shards"
local skip = require "accelhost.nn.skip"
local stored = require "accelhost.checkpoint.stored"
local warn = require "accelhost.util.warn"
local weights = require "accelhost.models.common.weights"
local Module = require("accelhost.nn.module").Module

local fail, describe = arguments.fail, arguments.describe

--- The base of models: a class defines config_class, base_model_prefix, token_embedding (its path) and, in
--- build(config, options), its layers. Weights are drawn as the transformers library draws them.
--
--   local models = accelhost.models
--   local Tagger = models.BertForTokenClassification:extend "Tagger"
--   Tagger(models.BertConfig{hidden_size = 12, num_hidden_layers = 1, num_labels = 3}).config.num_labels  --> 3
---@field config PretrainedConfig
---@field is_gradient_checkpointing boolean
local PreTrainedModel = Module:extend "PreTrainedModel"
PreTrainedModel.is_gradient_checkpointing = false

-- name of a tied parameter -> name of the one that it is
PreTrainedModel.tied = {}

-- the class that config.json names, where it is another one
PreTrainedModel.architecture = nil

-- name of a parameter in checkpoints -> its name in the model, where they differ
PreTrainedModel.renamed = {}

-- ends of names of modules whose weights are never quantised
PreTrainedModel.keep_in_fp32 = {}

-- patterns of names in checkpoints of which the model is a part, and does not read the rest
PreTrainedModel.unread = {}

---@param config PretrainedConfig|table
---@param options? table options of `build`
function PreTrainedModel:init(config, options)
  local wanted = self.config_class
  if not wanted then fail("%s: call a model's class or AutoModel", self._name) end
  if config == nil or type(config) == "table" and getmetatable(config) == nil then config = wanted(config) end
  if not class.is(config, wanted) then
    fail("%s: config: expected a %s, got %s", self._name, wanted._name, describe(config))
  end
  self.config = config
  skip.make(self.build, self, config, options or {})
  self:tie_weights()
  if not skip.is_on() then self:init_weights() end
end

--- The tied weights of this configuration.
---@return table<string, string>
function PreTrainedModel:tied_weights()
  return self.config.tie_word_embeddings and self.tied or {}
end

--- Return a checkpoint's tensors in the model's names; a class that reads another library's files renames them.
---@param state table<string, Tensor>
---@param own table<string, Tensor> the model's tensors
---@return table<string, Tensor>
function PreTrainedModel:own_names(state, own) return state end -- luacheck: ignore 212

local function owner_of(self, name)
  local path, field = name:match "^(.-)%.?([^.]+)$"
  return path == "" and self or self:get_submodule(path), field
end

--- Make tied weights one parameter again, after one of them was replaced.
function PreTrainedModel:tie_weights()
  for name, source in pairs(self:tied_weights()) do
    local to, field = owner_of(self, name)
    local from, original = owner_of(self, source)
    to[field] = from[original]
  end
end

-- A norm's class -> the function that sets its weight.
local first_weights = {LayerNorm = init.ones_, RMSNorm = init.ones_, CentredRMSNorm = init.zeros_}

--- Initialise one parameter: N(0, initializer_range), norms 1, biases 0, the row of padding 0.
---@param module Module its owner
---@param tensor Tensor
---@param path string its name in the model
function PreTrainedModel:init_weight(module, name, tensor, path)
  if name == "bias" then
    init.zeros_(tensor)
  elseif first_weights[module._name] then
    first_weights[module._name](tensor)
  else
    init.normal_(tensor, 0, self:initial_deviation(path))
    if module.padding_idx then
      C.autograd.no_grad(function() tensor:select(0, module.padding_idx):zero_() end)
    end
  end
end

--- The initial standard deviation of a weight; a class with its own rules selects by the name.
---@return number
function PreTrainedModel:initial_deviation(path) -- luacheck: ignore 212
  return self.config.initializer_range
end

--- Draw all weights again, or those with the given names.
---@param names? string[]
function PreTrainedModel:init_weights(names)
  local wanted
  if names then
    wanted = {}
    for _, name in ipairs(names) do wanted[name] = true end
  end
  local tied = self:tied_weights()
  for path in self:named_parameters() do
    if not tied[path] and (not wanted or wanted[path]) then
      local module, name = owner_of(self, path)
      if name == "weight" and module.set_weight then
        local drawn = C.empty {module.out_features, module.in_features}
        self:init_weight(module, name, drawn, path)
        module:set_weight(drawn)
      else
        self:init_weight(module, name, module[name], path)
      end
    end
  end
end

--- The embedding of its tokens.
--
--   local config = {vocab_size = 9, n_positions = 8, n_embd = 8, n_layer = 1, n_head = 2}
--   accelhost.models.GPT2LMHeadModel(config):get_input_embeddings().num_embeddings  --> 9
---@return Embedding
function PreTrainedModel:get_input_embeddings()
  return (self[self.base_model_prefix] or self):get_submodule(self.token_embedding)
end

--- Return the embeddings of tokens as inputs_embeds has them.
---@param ids Tensor [batch, tokens]
---@return Tensor [batch, tokens, width]
function PreTrainedModel:token_vectors(ids) return self:get_input_embeddings()(ids) end

-- The parts of a model that call their layers by recompute.layer.
local function recomputing(self)
  local found = {}
  for _, module in ipairs(self:modules()) do
    if module.recomputes then found[#found + 1] = module end
  end
  return found
end

--- Drop the activations inside of each layer in training and compute them again in backward: less memory for one more
--- forward pass. Keys and values of earlier tokens are not kept then.
--
--   local config = {vocab_size = 9, n_positions = 8, n_embd = 8, n_layer = 2, n_head = 2}
--   local model = accelhost.models.GPT2LMHeadModel(config)
--   model:gradient_checkpointing_enable()
--   model.is_gradient_checkpointing  --> true
---@param gradient_checkpointing_kwargs? table options of accelhost.utils.checkpoint.checkpoint
function PreTrainedModel:gradient_checkpointing_enable(gradient_checkpointing_kwargs)
  local what = "gradient_checkpointing_enable"
  local options = recompute.check(what, gradient_checkpointing_kwargs or {})
  local parts = recomputing(self)
  if #parts == 0 then fail("%s: %s has no layers that can be computed again", what, self._name) end
  for _, part in ipairs(parts) do part._recompute = options end
  self.is_gradient_checkpointing = true
end

--- Keep the activations inside of the layers again.
function PreTrainedModel:gradient_checkpointing_disable()
  for _, part in ipairs(recomputing(self)) do part._recompute = nil end
  self.is_gradient_checkpointing = false
end

--- Return the bytes of the model's parameters and buffers, the scales of quantised weights included.
--
--   local config = {vocab_size = 9, n_positions = 8, n_embd = 8, n_layer = 1, n_head = 2}
--   accelhost.models.GPT2LMHeadModel(config):get_memory_footprint()  --> 4096
---@param return_buffers? boolean default true: buffers are counted
---@return integer
function PreTrainedModel:get_memory_footprint(return_buffers)
  local bytes, seen = 0, {}
  local function add(tensor)
    if not seen[tensor] then bytes = bytes + tensor:numel() * tensor:element_size() end
    seen[tensor] = true
  end
  for _, tensor in ipairs(self:parameters()) do add(tensor) end
  for _, tensor in ipairs(return_buffers == false and {} or self:buffers()) do add(tensor) end
  for _, module in ipairs(self:modules()) do
    for _, value in pairs(module.quant_state or {}) do
      if C.is_tensor(value) then add(value) end
    end
  end
  return bytes
end

local load_options = {
  "dtype", "torch_dtype", "output_loading_info", "ignore_mismatched_sizes", "quantization_config",
}

-- Options of the load and, apart, changes of the configuration.
local function split(what, options)
  if options == nil then return {}, nil end
  if not arguments.is_options(options) then fail("%s: expected a table of options, got %s", what, describe(options)) end
  local mine, changes = {}, {}
  for name, value in pairs(options) do changes[name] = value end
  for _, name in ipairs(load_options) do mine[name], changes[name] = changes[name], nil end
  if mine.dtype == nil then mine.dtype = mine.torch_dtype end
  if mine.dtype ~= nil and mine.dtype ~= "auto" and not C.is_dtype(mine.dtype) then
    fail("%s: dtype: expected \"auto\" or a dtype name such as \"float32\", got %s", what, describe(mine.dtype))
  end
  for _, name in ipairs {"output_loading_info", "ignore_mismatched_sizes"} do
    if mine[name] ~= nil then arguments.check(what, name, "flag", mine[name]) end
  end
  return mine, next(changes) and changes or nil
end

-- Is it the name of a quantised weight's scales?
local function is_scale(name)
  return name:find "%.weight%.[%w_]+$" ~= nil or name:find "%.SCB$" ~= nil
end

-- Return the dtype of the stored weights, the default.
local function dtype_of(state)
  for _, name in ipairs(arguments.sorted_keys(state)) do
    if C.is_tensor(state[name]) and state[name]:is_floating_point() and not is_scale(name) then
      return state[name].dtype
    end
  end
  return "float32"
end

-- Return the configuration by which a model is quantised: that of its folder, else the given one.
local function quantization_of(what, path, config, given)
  if given ~= nil and not class.is(given, quantization.BitsAndBytesConfig) then
    fail("%s: quantization_config: expected a BitsAndBytesConfig, got %s", what, describe(given))
  end
  if config.quantization_config == nil then return given end
  if given then warn(("%s: '%s' is quantised, by its own quantization_config"):format(what, path)) end
  return quantization.read(what, path, config.quantization_config)
end

-- Return the missing names, without those tied to a name that was loaded, and the counts of batches, which the first
-- versions of PyTorch did not store.
local function really_missing(model, names)
  local tied, missing = model:tied_weights(), {}
  for _, name in ipairs(names) do
    if not tied[name] and not name:find "%.num_batches_tracked$" then missing[#missing + 1] = name end
  end
  return missing
end

-- Replace the weights of a model that quantises; of those that do not fit, the error has the first one and its file.
local function assign_quantised(what, path, model, ...)
  local fine, result = pcall(weights.assign, model, ...)
  if fine then return result end
  local name, reason = tostring(result):match "\n\t([%w_.]+): ([^\n]+)"
  if not name then error(result, 0) end
  local _, lines = tostring(result):gsub("\n\t", "")
  fail("%s: '%s': %s: %s%s: fetch the file again, or quantise the model again", what, weights.file_of(what, path, name),
    name, (reason:gsub("^quantized_matmul: ", "")), lines > 1 and (" (and %d more)"):format(lines - 1) or "")
end

local function load(cls, path, options)
  local what = cls._name .. ".from_pretrained"
  arguments.check(what, "path", "string", path)
  local mine, changes = split(what, options)
  local config = configs.read(what, path, changes)
  if not cls.config_class then fail("%s: call it of a model's class or of AutoModel", what) end
  if not class.is(config, cls.config_class) then
    fail("%s: '%s' holds a model of type '%s', not '%s'", what, path, config.model_type, cls.config_class.model_type)
  end
  local state = weights.read(what, path)
  local dtype = (mine.dtype or "auto") == "auto" and dtype_of(state) or mine.dtype
  local model = skip.make(cls, config)
  local quantizes = quantization_of(what, path, config, mine.quantization_config)
  if quantizes then
    skip.make(quantization.replace, what, model, quantizes, dtype)
    model.config.quantization_config = quantizes:to_dict()
  end
  local ignored = mine.ignore_mismatched_sizes or false
  local result = quantizes and assign_quantised(what, path, model, state, ignored)
    or weights.assign(model, state, ignored)
  model:tie_weights()
  result.missing_keys = really_missing(model, result.missing_keys)
  model:init_weights(result.missing_keys)
  for _, line in ipairs(weights.differences(model, path, result)) do warn(line) end
  model:to(dtype)
  model:to{device = C.device.get_default_device()}
  model.config.dtype, model.name_or_path, model.new_weights = dtype, path, result.missing_keys
  model.generation_config = generation_config.read_file(what, path)
  model:eval()
  if mine.output_loading_info then return model, result end
  return model
end

--- A model from a checkpoint folder: config.json and model.safetensors, or several files and an index, or PyTorch's
--- pytorch_model.bin. It is in evaluation mode, on the default device.
--
-- The weights stay in the mapped files until they are written to. Older names (gamma, beta) and names with or without
-- the base model's prefix are accepted. Weights that the folder lacks or has in another shape are initialized; a
-- warning lists them and the folder's weights that the model does not use.
--
--   | local model = models.BertModel.from_pretrained("minilm", {dtype = "float32"})
--   | local tagger = models.BertForTokenClassification.from_pretrained("minilm", {num_labels = 9})
---@param options? table dtype or, its older name, torch_dtype ("auto", as stored, or a dtype), output_loading_info
--- (true: a table with missing_keys, unexpected_keys and mismatched_keys is the second result), ignore_mismatched_sizes
--- (true: other shapes are no error), quantization_config (a BitsAndBytesConfig: weights are quantised one by one as
--- they are read), and fields of the configuration
---@return PreTrainedModel
---@return table?
function PreTrainedModel.from_pretrained(path, options)
  return load(PreTrainedModel, path, options)
end

--- Make a subclass. Its from_pretrained is called with a dot, as PyTorch's; a colon does the same.
---@return PreTrainedModel
function PreTrainedModel:extend(name)
  local made = Module.extend(self, name)
  made.from_pretrained = function(first, ...)
    if first == made then return load(made, ...) end
    return load(made, first, ...)
  end
  return made
end

--- Write config.json and the weights into a folder, as the transformers library reads them. Tied weights are written
--- once; files of an earlier save that this one does not write are removed.
--
--   | model:save_pretrained("out", {max_shard_size = "500MB"})
---@param save_directory string made when it is not there
---@param max_shard_size? integer|string bytes of a file: a number, or "10GB" (10^9), "500MiB"
PreTrainedModel.save_pretrained = arguments.method("save_pretrained", {
  "save_directory: string", {"max_shard_size: number|string", "50GB"},
}, function(self, folder, size)
  local most = shards.bytes("save_pretrained: max_shard_size", size)
  if C.data.look(folder) == "file" then fail("save_pretrained: '%s' is a file, not a folder", folder) end
  local made, reason = C.io.make_folder(folder)
  if not made then fail("save_pretrained: %s", reason) end
  local state = self:state_dict {keep_vars = true}
  local names, tensors = stored.unique(nn_utils.state_pairs(state))
  for i, tensor in ipairs(tensors) do tensors[i] = stored.plain(tensor) end
  weights.restore_names(names, self.renamed)
  shards.write(folder, names, tensors, {}, most)
  local dtype
  for _, tensor in ipairs(self:parameters()) do
    dtype = dtype or tensor:is_floating_point() and tensor.dtype or nil
  end
  local changes = {architectures = {self.architecture or self._name}, dtype = dtype}
  self.config:with(changes):save_pretrained(folder)
  local generates = self.generation_config
  if generates then C.io.write_text(folder .. "/generation_config.json", C.json.encode(generates, 2) .. "\n") end
end)

return {PreTrainedModel = PreTrainedModel}
