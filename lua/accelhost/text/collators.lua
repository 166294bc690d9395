--- Batches of encoded texts for loaders and the Trainer, as transformers' data collators make them.
--
-- A sample is a table by name, of tensors [tokens] or tables of numbers: input_ids, attention_mask, token_type_ids and
-- special_tokens_mask are padded; `label` and `label_ids` become `labels`; texts are left out.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local padding = require "accelhost.text.padding"

local fail = arguments.fail
local collators = {}

local IGNORED = -100

local function pad(self, features) return padding.batch(self._name, self.tokenizer, features, self, true) end

---@class DataCollatorWithPadding
local WithPadding = class.new "DataCollatorWithPadding"
collators.DataCollatorWithPadding = WithPadding

local set_padding = arguments.setter("DataCollatorWithPadding", {
  "tokenizer", {"padding: flag|'longest'|'max_length'", true}, {"max_length: size"}, {"pad_to_multiple_of: count"},
})

--- A collate function that fills the texts of a batch up to the longest, on the tokenizer's padding_side.
--
--   local model = {type = "WordPiece", vocab = {["[UNK]"] = 0, ["[PAD]"] = 1, deep = 2}}
--   local tokenizer = accelhost.text.Tokenizer({model = model}, {pad_token = "[PAD]"})
--   local collate = accelhost.text.DataCollatorWithPadding(tokenizer)
--   local batch = collate{{input_ids = {2, 2, 0}, label = 1}, {input_ids = {2}, label = 0}}
--   print(batch.input_ids[1], batch.labels)  --> tensor([2, 1, 1])  tensor([1, 0])
---@param tokenizer table with pad_token_id, padding_side and pad_token_type_id
---@param padding? boolean|string true or "longest" (default), or "max_length"; false is refused, rows have to be equal
---@param max_length? integer with "max_length": smallest number of tokens
function WithPadding:init(...)
  set_padding(self, ...)
  if self.padding == false then
    fail("DataCollatorWithPadding: padding: false does not pad; accelhost.default_data_collator stacks equal samples")
  end
  if self.padding == "max_length" and not self.max_length then
    fail("DataCollatorWithPadding: padding \"max_length\" needs max_length")
  end
end

function WithPadding:__call(features) return pad(self, features) end

--- DataCollatorWithPadding under the name that it has in transformers for labels of tokens: a label of -100 for each
--- token of padding.
--
--   local model = {type = "WordPiece", vocab = {["[UNK]"] = 0, ["[PAD]"] = 1, deep = 2}}
--   local tokenizer = accelhost.text.Tokenizer({model = model}, {pad_token = "[PAD]"})
--   local collate = accelhost.text.DataCollatorForTokenClassification(tokenizer)
--   local batch = collate{{input_ids = {2, 2}, labels = {4, 0}}, {input_ids = {2}, labels = {4}}}
--   print(batch.labels[1])  --> tensor([   4, -100])
collators.DataCollatorForTokenClassification = WithPadding:extend "DataCollatorForTokenClassification"

---@class DataCollatorForLanguageModeling
local LanguageModeling = class.new "DataCollatorForLanguageModeling"
collators.DataCollatorForLanguageModeling = LanguageModeling

local set_modeling = arguments.setter("DataCollatorForLanguageModeling", {
  "tokenizer", {"mlm: flag", true}, {"mlm_probability: probability", 0.15}, {"mask_replace_prob: probability", 0.8},
  {"random_replace_prob: probability", 0.1}, {"pad_to_multiple_of: count"}, {"generator: generator"},
})

--- A collate function that pads and makes `labels`: of a masked model (mlm) the tokens chosen with mlm_probability, the
--- others -100, where of the chosen ones 80 % become the mask token and 10 % any token; of a causal one the tokens
--- themselves, padding -100. The draws are those of transformers with PyTorch: the same seed masks the same tokens.
--- Special tokens (those of special_tokens_mask, else the tokenizer's and padding) are never chosen.
--
--   local model = {type = "WordPiece", vocab = {["[UNK]"] = 0, ["[PAD]"] = 1, deep = 2}}
--   local tokenizer = accelhost.text.Tokenizer({model = model}, {pad_token = "[PAD]"})
--   local collate = accelhost.text.DataCollatorForLanguageModeling(tokenizer, {mlm = false})
--   print(collate{{input_ids = {2, 2, 0}}, {input_ids = {2}}}.labels[1])  --> tensor([   2, -100, -100])
---@param tokenizer table with pad_token_id, mask_token_id and len()
---@param generator? userdata default the global one
function LanguageModeling:init(...)
  set_modeling(self, ...)
  if self.mlm and not self.tokenizer.mask_token_id then
    fail("DataCollatorForLanguageModeling: mlm: the tokenizer has no mask_token; causal models require mlm = false")
  end
  if self.mask_replace_prob + self.random_replace_prob > 1 then
    fail("DataCollatorForLanguageModeling: mask_replace_prob and random_replace_prob add up to more than 1")
  end
end

local roles = {"bos", "eos", "unk", "sep", "pad", "cls", "mask"}

local function special_of(tokenizer, ids)
  local special = C.zeros(ids:shape(), {dtype = "bool", device = "cpu"})
  for _, role in ipairs(roles) do
    local id = tokenizer[role .. "_token_id"]
    if id then special = special:logical_or(ids:eq(id)) end
  end
  return special
end

local function drawn(ids, probability, generator)
  if not C.is_tensor(probability) then
    probability = C.full(ids:shape(), probability, {dtype = "float32", device = "cpu"})
  end
  return C.bernoulli(probability, {generator = generator}):to("bool")
end

function LanguageModeling:__call(features)
  local batch, tokenizer, generator = pad(self, features), self.tokenizer, self.generator
  local ids, special = batch.input_ids, batch.special_tokens_mask
  batch.special_tokens_mask = nil
  if not self.mlm then
    batch.labels = ids:masked_fill(ids:eq(tokenizer.pad_token_id), IGNORED)
    return batch
  end
  special = special and special:to("bool") or special_of(tokenizer, ids)
  local chance = C.full(ids:shape(), self.mlm_probability, {dtype = "float32", device = "cpu"}):masked_fill(special, 0)
  local chosen = drawn(ids, chance, generator)
  batch.labels = ids:masked_fill(chosen:logical_not(), IGNORED)
  local replaced = drawn(ids, self.mask_replace_prob, generator):logical_and(chosen)
  batch.input_ids = ids:masked_fill(replaced, tokenizer.mask_token_id)
  local left = 1 - self.mask_replace_prob
  if left > 0 and self.random_replace_prob > 0 then
    local random = drawn(ids, math.min(1, self.random_replace_prob / left), generator):logical_and(chosen)
      :logical_and(replaced:logical_not())
    local words = C.randint(0, tokenizer:len(), ids:shape(), {generator = generator, dtype = "int64"})
    batch.input_ids = C.where(random, words, batch.input_ids)
  end
  return batch
end

---@class DataCollatorForSeq2Seq
local ForSeq2Seq = class.new "DataCollatorForSeq2Seq"
collators.DataCollatorForSeq2Seq = ForSeq2Seq

local set_seq2seq = arguments.setter("DataCollatorForSeq2Seq", {
  "tokenizer", {"model: any"}, {"padding: flag|'longest'|'max_length'", true}, {"max_length: size"},
  {"pad_to_multiple_of: count"}, {"label_pad_token_id: number", IGNORED},
})

--- A collate function that pads texts, and their labels apart from them by label_pad_token_id. Of a model such as
--- T5ForConditionalGeneration the decoder's inputs are made from the labels, too.
--
--   local model = {type = "WordPiece", vocab = {["[UNK]"] = 0, ["[PAD]"] = 1, deep = 2}}
--   local tokenizer = accelhost.text.Tokenizer({model = model}, {pad_token = "[PAD]"})
--   local collate = accelhost.text.DataCollatorForSeq2Seq(tokenizer)
--   local batch = collate{{input_ids = {2}, labels = {2, 2}}, {input_ids = {2}, labels = {2}}}
--   print(batch.labels[1])  --> tensor([   2, -100])
---@param tokenizer table with pad_token_id and padding_side
---@param model? table with prepare_decoder_input_ids_from_labels
---@param padding? boolean|string true or "longest" (default), or "max_length"
---@param max_length? integer with "max_length": number of tokens of texts and of labels
---@param pad_to_multiple_of? integer
---@param label_pad_token_id? integer default -100
function ForSeq2Seq:init(...)
  set_seq2seq(self, ...)
  if self.padding == false then fail "DataCollatorForSeq2Seq: padding: false does not pad" end
end

function ForSeq2Seq:__call(features)
  local texts, labels = {}, {}
  for i, row in ipairs(features) do
    texts[i] = {}
    for name, value in pairs(row) do
      if name == "label" or name == "labels" then labels[i] = {input_ids = value} else texts[i][name] = value end
    end
  end
  local batch = padding.batch(self._name, self.tokenizer, texts, self)
  if #labels == 0 then return batch end
  local filler = {pad_token_id = self.label_pad_token_id, padding_side = self.tokenizer.padding_side}
  batch.labels = padding.batch(self._name, filler, labels, self).input_ids
  local model = self.model
  if model and model.prepare_decoder_input_ids_from_labels then
    batch.decoder_input_ids = model:prepare_decoder_input_ids_from_labels(batch.labels)
  end
  return batch
end

---@class DataCollatorWithFlattening
local WithFlattening = class.new "DataCollatorWithFlattening"
collators.DataCollatorWithFlattening = WithFlattening

local set_flattening = arguments.setter("DataCollatorWithFlattening", {
  {"return_position_ids: flag", true}, {"separator_id: number", IGNORED},
})

--- A collate function that makes one row of all texts of a batch, without padding: input_ids and labels [1, tokens],
--- and position_ids that begin at 0 in each text, by which decoders keep the texts apart. The label of a text's first
--- token, which nothing in the text predicts, is separator_id. Without labels the ids are the labels.
--
--   local collate = accelhost.text.DataCollatorWithFlattening()
--   local batch = collate{{input_ids = {7, 8, 9}}, {input_ids = {4, 5}, labels = {-100, 5}}}
--   print(batch.position_ids, batch.labels)  --> tensor([[0, 1, 2, 0, 1]])  tensor([[-100,    8,    9, -100,    5]])
---@param return_position_ids? boolean default true; false lets tokens see the texts before theirs
---@param separator_id? integer default -100
function WithFlattening:init(...) set_flattening(self, ...) end

local function ids_of(value) return C.is_tensor(value) and value:tolist() or value end

function WithFlattening:__call(features)
  local ids, labels, positions, at = {}, {}, {}, 0
  for _, feature in ipairs(features) do
    local own = ids_of(feature.input_ids)
    local wanted = ids_of(feature.labels) or own
    if #wanted ~= #own then
      fail("DataCollatorWithFlattening: labels: expected %d, one for each of the input_ids, got %d", #own, #wanted)
    end
    for i = 1, #own do
      at = at + 1
      ids[at], positions[at], labels[at] = own[i], i - 1, i > 1 and wanted[i] or self.separator_id
    end
  end
  local batch = {input_ids = ids, labels = labels, position_ids = self.return_position_ids and positions or nil}
  for name, row in pairs(batch) do batch[name] = C.tensor({row}, {dtype = "int64", device = "cpu"}) end
  return batch
end

return collators
