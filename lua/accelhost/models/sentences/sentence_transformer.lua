--- Embeddings of texts: models in the layout of sentence-transformers.
local C = require "accelhost._C"
local F = require "accelhost.nn.functional"
local arguments = require "accelhost.util.arguments"
local auto = require "accelhost.models.auto"
local configs = require "accelhost.models.common.config"
local container = require "accelhost.nn.container"
local files = require "accelhost.io"
local layers = require "accelhost.models.sentences.layers"
local progress = require "accelhost.util.progress"
local text = require "accelhost.text"
local Module = require("accelhost.nn.module").Module

local fail, describe = arguments.fail, arguments.describe

-- Files of the first module's settings, by age.
local settings_files = {"sentence_bert_config.json"}
for _, kind in ipairs {"roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"} do
  settings_files[#settings_files + 1] = ("sentence_%s_config.json"):format(kind)
end

local function read_list(what, path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local fine, list = pcall(C.json.decode, file:read "*a")
  file:close()
  if not fine or type(list) ~= "table" then fail("%s: '%s' is no JSON list", what, path) end
  return list
end

-- JSON's null as nil.
local function plain(value)
  if value == C.json.null then return nil end
  return value
end

-- Return the settings of the model's tokenizer.
local function read_settings(what, folder)
  for _, name in ipairs(settings_files) do
    local found = configs.read_object(what, folder .. "/" .. name)
    if found then
      local task = plain(found.transformer_task)
      if task and task ~= "feature-extraction" then
        fail("%s: '%s/%s': transformer_task: expected feature-extraction, got %s", what, folder, name, describe(task))
      elseif plain(found.do_lower_case) then
        fail("%s: '%s/%s': do_lower_case is not implemented: the tokenizer should lower the case", what, folder, name)
      end
      return found
    end
  end
  return {}
end

local function join(folder, path) return path == "" and folder or folder .. "/" .. path end

-- Return a module after the model, with its weights.
local function read_layer(what, folder, kind)
  local Layer = layers[kind]
  if not Layer then
    fail("%s: '%s': modules of type %s are not implemented (known: Transformer, %s)", what, folder, describe(kind),
      table.concat(arguments.sorted_keys(layers), ", "))
  end
  local layer = Layer(configs.read_object(what, folder .. "/config.json") or {})
  if #layer:parameters() > 0 then
    local path = folder .. "/model.safetensors"
    if not C.data.look(path) then path = folder .. "/pytorch_model.bin" end
    layer:load_state_dict(files.load(path))
  end
  return layer
end

-- Return the paths and types of a folder's modules; those of a folder with a model alone are the model and a mean.
local function read_modules(what, folder)
  local list, found = read_list(what, folder .. "/modules.json"), {}
  if not list then return {{path = "", kind = "Transformer"}} end
  for i, row in ipairs(list) do
    if type(row) ~= "table" or type(row.type) ~= "string" or type(row.path) ~= "string" then
      fail("%s: '%s/modules.json': expected rows with type and path", what, folder)
    end
    found[i] = {path = row.path, kind = row.type:match "[%w_]+$"}
  end
  if not found[1] or found[1].kind ~= "Transformer" then
    fail("%s: '%s/modules.json': expected a Transformer first, got %s", what, folder,
      describe(found[1] and found[1].kind))
  end
  return found
end

local similarities = {
  cosine = function(a, b) return F.normalize(a, {dim = 1}):matmul(F.normalize(b, {dim = 1}):t()) end,
  dot = function(a, b) return a:matmul(b:t()) end,
  euclidean = function(a, b) return -C.cdist(a, b, 2) end,
  manhattan = function(a, b) return -C.cdist(a, b, 1) end,
}

local option_names = {
  "device", "prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name", "dtype",
}

--- A model of embeddings from a folder of sentence-transformers: modules.json, the model's files, 1_Pooling, 2_Dense,
--- 2_Normalize, sentence_bert_config.json and config_sentence_transformers.json. Of a folder with a model alone the
--- embedding is the mean of the last states. The model is in evaluation mode.
---
--- Called with the features of `tokenize`, it returns them with token_embeddings [texts, tokens, width] and
--- sentence_embedding [texts, dimension]; a loss such as MultipleNegativesRankingLoss trains it.
--
--   | local model = models.SentenceTransformer("all-MiniLM-L6-v2")
--   | local vectors = model:encode({"a fox", "a dog", "the stock market"})
--   | model:similarity(vectors, vectors)
---@param path string a folder; nothing is downloaded
---@param options? table device, dtype ("float32" of a folder in float16, ...), prompts (by name), default_prompt_name,
--- truncate_dim (the first values of each embedding), similarity_fn_name (cosine, dot, euclidean, manhattan)
---@field max_seq_length integer tokens of a text; longer ones are cut
---@field prompts table<string, string>
---@field tokenizer Tokenizer
local SentenceTransformer = Module:extend "SentenceTransformer"

local function add_layers(self, folder, modules)
  self.layers = container.ModuleList {}
  for i = 2, #modules do
    self.layers:append(read_layer("SentenceTransformer", join(folder, modules[i].path), modules[i].kind))
  end
  if #modules == 1 then
    local names = self.transformer.config.architectures
    local causal = type(names) == "table" and type(names[1]) == "string" and names[1]:find "ForCausalLM$"
    self.layers:append(layers.Pooling {pooling_mode = causal and "lasttoken" or "mean"})
  end
end

function SentenceTransformer:init(path, options)
  local what = "SentenceTransformer"
  arguments.check(what, "path", "string", path)
  options = options or {}
  arguments.check_names(what, options, option_names)
  if C.data.look(path) ~= "folder" then
    fail("%s: '%s' is no folder; nothing is downloaded: pass the folder of a model", what, path)
  end
  local modules = read_modules(what, path)
  local folder = join(path, modules[1].path)
  local settings = read_settings(what, folder)
  local config = configs.read_object(what, path .. "/config_sentence_transformers.json") or {}
  local is_t5 = configs.read(what, folder).model_type == "t5" -- its encoder alone
  local Model = is_t5 and require("accelhost.models.t5.t5").T5EncoderModel or auto.AutoModel
  self.transformer = Model.from_pretrained(folder, {dtype = options.dtype})
  if self.transformer._fields.pooler then self.transformer.pooler:requires_grad_(false) end -- nothing reads it
  self.tokenizer = text.AutoTokenizer.from_pretrained(folder)
  self.max_seq_length = plain(settings.max_seq_length)
    or math.min(self.tokenizer.model_max_length, self.transformer.most or math.huge)
  add_layers(self, path, modules)
  self.prompts = options.prompts or plain(config.prompts) or {}
  self.default_prompt_name = options.default_prompt_name or plain(config.default_prompt_name)
  self.truncate_dim = options.truncate_dim or plain(config.truncate_dim)
  self.similarity_fn_name = options.similarity_fn_name or plain(config.similarity_fn_name) or "cosine"
  if not similarities[self.similarity_fn_name] then
    fail("%s: similarity_fn_name: expected one of %s, got %s", what,
      table.concat(arguments.sorted_keys(similarities), ", "), describe(self.similarity_fn_name))
  end
  if options.device then self:to {device = options.device} end
  self:eval()
end

-- The tokens of a prompt, without the one that ends a text.
local function prompt_length(self, prompt)
  local ids = self.tokenizer(prompt, {return_tensors = false}).input_ids
  local last = ids[#ids]
  return (last == self.tokenizer.sep_token_id or last == self.tokenizer.eos_token_id) and #ids - 1 or #ids
end

--- Return the features of texts: input_ids, attention_mask and further results of the tokenizer, padded, on the model's
--- device.
---@param texts string[]
---@param prompt? string put before each text
---@return table
function SentenceTransformer:tokenize(texts, prompt)
  local rows = texts
  if prompt and prompt ~= "" then
    rows = {}
    for i, each in ipairs(texts) do rows[i] = prompt .. each end
  end
  local device = self:parameters()[1].device
  local features = {}
  local batch = self.tokenizer(rows, {padding = true, truncation = true, max_length = self.max_seq_length})
  for name, tensor in pairs(batch) do features[name] = tensor:to(device) end
  if prompt and prompt ~= "" then features.prompt_length = prompt_length(self, prompt) end
  return features
end

---@param features table of `tokenize`
---@return table # with token_embeddings and sentence_embedding
function SentenceTransformer:forward(features)
  local given, result = {}, {}
  for name, value in pairs(features) do
    result[name] = value
    if C.is_tensor(value) and name ~= "token_embeddings" and name ~= "sentence_embedding" then given[name] = value end
  end
  result.attention_mask = result.attention_mask or C.ones_like(result.input_ids)
  result.token_embeddings = self.transformer(given).last_hidden_state
  for _, layer in ipairs(self.layers) do result = layer(result) end
  return result
end

local function prompt_of(self, o)
  if o.prompt then return o.prompt end
  if not o.prompt_name then return self.default_prompt_name and self.prompts[self.default_prompt_name] end
  local found = self.prompts[o.prompt_name]
  if not found then
    fail("encode: prompt_name: expected one of the model's (%s), got '%s'",
      table.concat(arguments.sorted_keys(self.prompts), ", "), o.prompt_name)
  end
  return found
end

local read_encode = arguments.signature("encode", {
  "sentences: any", {"prompt_name: string"}, {"prompt: string"}, {"batch_size: count", 32},
  {"show_progress_bar: flag", false}, {"convert_to_tensor: flag", true}, {"normalize_embeddings: flag", false},
  {"truncate_dim: count"},
})

-- Return the vectors of texts, in the order of `order`, as rows of one tensor.
local function encode_sorted(self, texts, order, o)
  local parts, prompt = {}, prompt_of(self, o)
  local bar = o.show_progress_bar and progress(math.ceil(#texts / o.batch_size), {desc = "Batches"})
  for first = 1, #texts, o.batch_size do
    local batch = {}
    for i = first, math.min(first + o.batch_size - 1, #texts) do batch[#batch + 1] = texts[order[i]] end
    local vectors = self(self:tokenize(batch, prompt)).sentence_embedding
    if o.truncate_dim then vectors = vectors:narrow(1, 0, math.min(o.truncate_dim, vectors:size(1))) end
    if o.normalize_embeddings then vectors = F.normalize(vectors, {dim = 1}) end
    parts[#parts + 1] = vectors
    if bar then bar:update() end
  end
  if bar then bar:close() end
  return C.cat(parts, 0)
end

--- Return the embeddings of texts [texts, dimension], without gradients, in evaluation mode; that of one text is a
--- vector. Texts of similar length are computed together.
--
--   | local vectors = model:encode({"a fox", "a dog"}, {batch_size = 64, normalize_embeddings = true})
--   | local query = model:encode("where is the fox?", {prompt_name = "query"})
---@param sentences string|string[]
---@param prompt_name? string name of a prompt of the model, which is put before each text
---@param prompt? string the prompt itself
---@param convert_to_tensor? boolean default true: one tensor; false: a list of vectors
---@param normalize_embeddings? boolean vectors of length 1
---@param truncate_dim? integer the first values of each embedding; by default the model's
---@return Tensor|Tensor[]
function SentenceTransformer:encode(...)
  local o, sentences = {}
  sentences, o.prompt_name, o.prompt, o.batch_size, o.show_progress_bar, o.convert_to_tensor, o.normalize_embeddings,
    o.truncate_dim = read_encode(...)
  o.truncate_dim = o.truncate_dim or self.truncate_dim
  local texts = type(sentences) == "string" and {sentences} or sentences
  if type(texts) ~= "table" then fail("encode: expected a text or a list of texts, got %s", describe(sentences)) end
  local order = {}
  for i, each in ipairs(texts) do
    if type(each) ~= "string" then fail("encode: text %d: expected a string, got %s", i, describe(each)) end
    order[i] = i
  end
  if #texts == 0 then return o.convert_to_tensor and C.zeros {0} or {} end
  table.sort(order, function(a, b)
    if #texts[a] ~= #texts[b] then return #texts[a] > #texts[b] end
    return a < b
  end)
  local was_training, places = self.training, {}
  self:eval()
  local vectors = C.autograd.no_grad(encode_sorted, self, texts, order, o)
  if was_training then self:train() end
  for i, place in ipairs(order) do places[place] = i - 1 end
  vectors = vectors:index_select(0, C.tensor(places, {dtype = "int64", device = vectors.device}))
  if type(sentences) == "string" then return vectors[0] end
  return o.convert_to_tensor and vectors or vectors:unbind(0)
end

--- Return the similarities of all pairs [first, second] by similarity_fn_name.
--
--   | model:similarity(model:encode(questions), model:encode(answers)):argmax(1)
---@param first Tensor [texts, dimension]
---@param second Tensor
---@return Tensor
function SentenceTransformer:similarity(first, second)
  local function rows(x) return x:dim() == 1 and x:unsqueeze(0) or x end
  return similarities[self.similarity_fn_name](rows(first), rows(second))
end

--- Return the number of values of an embedding.
---@return integer
function SentenceTransformer:get_sentence_embedding_dimension()
  local width = self.transformer:get_input_embeddings().embedding_dim
  local config = self.transformer.config
  width = config.hidden_size or width
  for _, layer in ipairs(self.layers) do width = layer:dimension(width) end
  return self.truncate_dim and math.min(self.truncate_dim, width) or width
end

local function write_json(path, value) C.io.write_text(path, C.json.encode(value, 2) .. "\n") end

--- Write the model, its tokenizer and its layers into a folder, as sentence-transformers reads them.
--
--   | model:save_pretrained("out")
---@param path string made when it is not there
function SentenceTransformer:save_pretrained(path)
  self.transformer:save_pretrained(path)
  self.tokenizer:save_pretrained(path)
  local base = "sentence_transformers.models."
  local modules = {{idx = 0, name = "0", path = "", type = base .. "Transformer"}}
  for i, layer in ipairs(self.layers) do
    local folder = ("%d_%s"):format(i, layer._name)
    modules[i + 1] = {idx = i, name = ("%d"):format(i), path = folder, type = base .. layer._name}
    folder = path .. "/" .. folder
    local made, reason = C.io.make_folder(folder)
    if not made then fail("save_pretrained: %s", reason) end
    write_json(folder .. "/config.json", layer:to_dict(self.transformer.config.hidden_size))
    if #layer:parameters() > 0 then files.save(layer:state_dict(), folder .. "/model.safetensors") end
  end
  write_json(path .. "/modules.json", modules)
  write_json(path .. "/sentence_bert_config.json", {max_seq_length = self.max_seq_length, do_lower_case = false})
  write_json(path .. "/config_sentence_transformers.json", {
    prompts = self.prompts, default_prompt_name = self.default_prompt_name or C.json.null,
    similarity_fn_name = self.similarity_fn_name, truncate_dim = self.truncate_dim, model_type = "SentenceTransformer",
  })
end

return {SentenceTransformer = SentenceTransformer}
