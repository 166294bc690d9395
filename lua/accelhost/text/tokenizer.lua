--- Tokenizers, by the C of host/text, as PreTrainedTokenizerFast in transformers.
local C = require "accelhost._C"
local BatchEncoding = require("accelhost.text.batch_encoding").BatchEncoding
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local later = require "accelhost.util.later"
local warn = require "accelhost.util.warn"

local padder = later "accelhost.text.padding"
local chat = later "accelhost.text.chat"
local fail, describe = arguments.fail, arguments.describe
local module = {}

-- The special tokens that have names; each is also there as NAME_id.
local roles = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}
module.roles = roles

-- The options of a configuration: kind and default.
local settings = {
  {"model_max_length: number", math.huge}, {"padding_side: 'right'|'left'", "right"},
  {"truncation_side: 'right'|'left'", "right"}, {"pad_token_type_id: size", 0}, {"model_input_names: list"},
  {"clean_up_tokenization_spaces: flag", false}, {"chat_template: string|table"},
}

--- A tokenizer that a description in the format of tokenizer.json makes: normalizers BertNormalizer, Lowercase, NFC,
--- NFD, NFKC, NFKD, StripAccents, Strip, Nmt, Prepend, Replace, Precompiled; pre-tokenizers BertPreTokenizer,
--- Whitespace, WhitespaceSplit, ByteLevel, Metaspace, Split, Digits, Punctuation; models WordPiece, BPE, Unigram; added
--- tokens; post-processors TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel; decoders WordPiece,
--- ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip; Sequence of each. Anything else is refused by its name.
--- The sections truncation and padding are kept and not applied, as in transformers: the call sets both.
--
--   local vocabulary = {["[UNK]"] = 0, ["[PAD]"] = 1, deep = 2, ["##er"] = 3}
--   local model = {type = "WordPiece", vocab = vocabulary}
--   local tokenizer = accelhost.text.Tokenizer({model = model}, {pad_token = "[PAD]"})
--   print(tokenizer({"deeper", "deep"}, {padding = true}).input_ids[1])  --> tensor([2, 1])
---@field vocab_size integer texts of the model's vocabulary, without added tokens; #tokenizer counts those too
---@field model_max_length number most tokens that the model accepts, math.huge when unknown
---@field padding_side string "right" or "left"
---@field truncation_side string "right" or "left"
---@field model_input_names string[] the fields that a call returns
---@field chat_template? string|table a Jinja template, or several by name; see apply_chat_template
---@field pad_token? string and pad_token_id; so too bos_, eos_, unk_, sep_, cls_ and mask_token
local Tokenizer = class.sized "Tokenizer"
module.Tokenizer = Tokenizer

local absent = {"pad_token_type_id", "chat_template"}
for _, role in ipairs(roles) do
  absent[#absent + 1] = role
  absent[#absent + 1] = role .. "_id"
end

local function reopen(self, json)
  self._json = json
  self._c = C.text.open(json)
  self.vocab_size, self._length = self._c:counts()
end

local read_settings = arguments.signature("Tokenizer", settings)

--- Make a tokenizer from a tokenizer.json and the settings of tokenizer_config.json.
---@param description string|table the text of a tokenizer.json, or the table that it encodes
---@param config? table model_max_length, padding_side, truncation_side, pad_token_type_id, model_input_names,
--- clean_up_tokenization_spaces, chat_template, and special tokens by role: pad_token = "[PAD]"
function Tokenizer:init(description, config)
  local given, texts = {}, {}
  if type(description) ~= "string" and not arguments.is_options(description) then
    fail("Tokenizer: expected the text or the table of a tokenizer.json, got %s", describe(description))
  end
  for name, value in pairs(config or {}) do
    if type(name) == "string" and name:find "_token$" then texts[name] = value else given[name] = value end
  end
  arguments.check_names("Tokenizer", texts, roles)
  reopen(self, type(description) == "string" and description or C.json.encode(description))
  local names
  self.model_max_length, self.padding_side, self.truncation_side, self.pad_token_type_id, names,
    self.clean_up_tokenization_spaces, self.chat_template = read_settings(given)
  self.model_input_names = names or {"input_ids", "token_type_ids", "attention_mask"}
  for name, text in pairs(texts) do self[name] = arguments.check("Tokenizer", name, "string", text) end
end

--- The number of tokens, including added ones; equal to `#tokenizer`.
---@return integer
function Tokenizer:len() return self._length end

function Tokenizer:extra_repr()
  local parts = {("vocab_size=%d"):format(self.vocab_size), ("model_max_length=%g"):format(self.model_max_length)}
  for _, role in ipairs(roles) do parts[#parts + 1] = self[role] and ("%s='%s'"):format(role, self[role]) end
  return table.concat(parts, ", ")
end

-- A call.

local parameters = {
  "text: string|list", {"text_pair: string|list"}, {"add_special_tokens: flag", true},
  {"padding: flag|'longest'|'max_length'|'do_not_pad'", false},
  {"truncation: flag|'longest_first'|'only_first'|'only_second'|'do_not_truncate'"}, {"max_length: size"},
  {"stride: size", 0}, {"is_split_into_words: flag", false}, {"pad_to_multiple_of: count"},
  {"padding_side: 'right'|'left'"}, {"return_tensors: 'pt'|false", "pt"}, {"return_token_type_ids: flag"},
  {"return_attention_mask: flag"}, {"return_overflowing_tokens: flag", false},
  {"return_special_tokens_mask: flag", false}, {"return_offsets_mapping: flag", false}, {"return_length: flag", false},
}
local read_call = arguments.signature("tokenizer", parameters)

local function has_name(names, wanted)
  for _, name in ipairs(names) do
    if name == wanted then return true end
  end
  return false
end

-- Truncation and padding in the form that C expects, from the call's options (the rules of transformers).
local function strategies(self, options, padding, truncation, max_length, multiple)
  if max_length and padding == false and truncation == nil then truncation = "longest_first" end
  padding = padding == true and "longest" or padding ~= "do_not_pad" and padding or false
  truncation = truncation == true and "longest_first" or truncation ~= "do_not_truncate" and truncation or false
  if max_length and padding == "longest" and not truncation then
    warn "tokenizer: max_length does nothing when padding = true and nothing is cut; padding = 'max_length' pads to it"
  end
  if not max_length then
    if self.model_max_length > 1e20 then
      if padding == "max_length" then padding = false end
      truncation = false
    else
      max_length = self.model_max_length
    end
  end
  if padding and not self.pad_token_id then
    fail("tokenizer: padding: there is no pad_token; set tokenizer.pad_token = tokenizer.eos_token, or "
      .. "tokenizer:add_special_tokens{pad_token = '[PAD]'}")
  end
  if truncation and padding and multiple and max_length % multiple ~= 0 then
    fail("tokenizer: max_length %d is no multiple of pad_to_multiple_of %d", max_length, multiple)
  end
  options.truncation, options.most = truncation or "do_not_truncate", truncation and max_length or 0
  options.width = padding == "max_length" and max_length or padding or nil
  options.multiple = multiple
end

-- Return lists of texts that are lists of words. A single text is a list of words itself.
local function check_split(text, text_pair)
  if type(text) ~= "table" then
    fail("tokenizer: text: expected a list of words, or a list of such lists, with is_split_into_words, got %s",
      describe(text))
  end
  local is_one = type(text[1]) == "string"
  if text_pair and (type(text_pair) ~= "table" or not is_one and #text_pair ~= #text) then
    fail("tokenizer: text_pair: expected %s, got %s", is_one and "a list of words, as text is one"
      or ("%d lists of words, as many as in text"):format(#text), type(text_pair) == "table" and #text_pair
      or describe(text_pair))
  end
  if is_one then return {text}, text_pair and {text_pair}, true end
  return text, text_pair, false
end

local function check_texts(text, text_pair)
  if type(text) == "string" then
    if type(text_pair) == "table" then fail "tokenizer: text_pair: expected a string, as text is one, got a table" end
    return {text}, text_pair and {text_pair}, true
  end
  for i, item in ipairs(text) do
    if type(item) == "table" then
      fail("tokenizer: text %d is a table: pairs are two tables, tokenizer(firsts, seconds); lists of words need "
        .. "is_split_into_words = true", i - 1)
    end
  end
  if text_pair and (type(text_pair) ~= "table" or #text_pair ~= #text) then
    fail("tokenizer: text_pair: expected %d texts, as many as in text, got %s", #text,
      type(text_pair) == "table" and #text_pair or describe(text_pair))
  end
  return text, text_pair, false
end

-- Lists of one text lose their outer table.
local function unwrap(columns)
  for name, column in pairs(columns) do columns[name] = column[1] end
  return columns
end

--- Texts, or pairs of texts, as ids: int64 tensors with a row for each text (one text is one row). Bytes that are no
--- UTF-8 count as U+FFFD.
--
--   local vocabulary = {["[UNK]"] = 0, ["[PAD]"] = 1, deep = 2, ["##er"] = 3}
--   local model = {type = "WordPiece", vocab = vocabulary}
--   local tokenizer = accelhost.text.Tokenizer({model = model}, {pad_token = "[PAD]"})
--   local batch = tokenizer({"deeper", "deep"}, {padding = true, return_offsets_mapping = true})
--   print(batch.attention_mask)        --> tensor([[1, 1],
--   -->         [1, 0]])
--   print(batch.offset_mapping[0][1])  --> tensor([4, 6])
---@param text string|string[]|string[][]
---@param text_pair? string|string[]|string[][] second texts, as many
---@param add_special_tokens? boolean those of the template, as [CLS] and [SEP] (default true)
---@param padding? boolean|string true or "longest": to the longest of the batch; "max_length"; false (the default)
---@param truncation? boolean|string true or "longest_first", "only_first", "only_second"; false (the default, unless
--- max_length is given and padding is not)
---@param max_length? integer tokens of a row; by default model_max_length
---@param stride? integer with return_overflowing_tokens: tokens that each further row has of the one before (default 0)
---@param is_split_into_words? boolean a text is a list of words, each of which is encoded by itself: word_ids are their
--- numbers, offsets are of each word's characters
---@param pad_to_multiple_of? integer
---@param padding_side? string "right" or "left"; by default the tokenizer's
---@param return_tensors? string|false "pt" (the default): tensors; false: tables, of any lengths
---@param return_token_type_ids? boolean by default when model_input_names has them
---@param return_attention_mask? boolean by default when model_input_names has it
---@param return_overflowing_tokens? boolean the tokens cut off by truncation are further rows after the text's first,
---each with special tokens; `overflow_to_sample_mapping` is the index of each row's text
---@param return_special_tokens_mask? boolean 1 for special tokens and padding
---@param return_offsets_mapping? boolean [texts, tokens, 2]: the span of each token in its text, counted in characters
--- (code points) from 0, half open
---@param return_length? boolean `length`: number of tokens of each row, with padding
---@return BatchEncoding
function Tokenizer:__call(...)
  local text, text_pair, specials, padding, truncation, max_length, stride, split, multiple, side, tensors, types, mask,
    overflowing, special_mask, offsets, lengths = read_call(...)
  local texts, pairs_of, is_one = (split and check_split or check_texts)(text, text_pair)
  local options = {specials = specials, tables = tensors == false, input_ids = true, split = split}
  strategies(self, options, padding, truncation, max_length, multiple)
  if types == nil then types = has_name(self.model_input_names, "token_type_ids") end
  if mask == nil then mask = has_name(self.model_input_names, "attention_mask") end
  options.token_type_ids, options.attention_mask = types, mask
  options.special_tokens_mask, options.offset_mapping = special_mask, offsets
  options.pad_id, options.pad_type = self.pad_token_id or 0, self.pad_token_type_id
  options.pad_left = (side or self.padding_side) == "left"
  options.cut_left = self.truncation_side == "left"
  options.overflow, options.stride = overflowing, stride
  local columns, words, samples = self._c:encode(texts, pairs_of, options)
  local ids, count = columns.input_ids, words:len()
  if samples then columns.overflow_to_sample_mapping = tensors and samples or samples:tolist() end
  if lengths then
    local list = {}
    for i = 1, count do list[i] = tensors and columns.input_ids:size(1) or #columns.input_ids[i] end
    columns.length = tensors and C.tensor(list, {dtype = "int64"}) or list
  end
  if is_one and not tensors and not overflowing then unwrap(columns) end
  return BatchEncoding(columns, words, ids, self)
end

--- Pad texts that were encoded without padding: samples (tables by name, such as rows of a data set or results of a
--- call), or one table of columns. For collate functions: `collate_fn = function(rows) return tokenizer:pad(rows) end`.
--
--   local vocabulary = {["[UNK]"] = 0, ["[PAD]"] = 1, deep = 2, ["##er"] = 3}
--   local model = {type = "WordPiece", vocab = vocabulary}
--   local tokenizer = accelhost.text.Tokenizer({model = model}, {pad_token = "[PAD]"})
--   local rows = tokenizer({"deeper", "deep"}, {return_tensors = false})
--   print(tokenizer:pad(rows).input_ids)  --> tensor([[2, 3],
--   -->         [2, 1]])
---@param encoded_inputs table
---@param padding? boolean|string true or "longest" (default): to the longest sample; "max_length"; false: samples have
--- to be equally long
---@param max_length? integer with "max_length", by default model_max_length
---@param padding_side? string "right" or "left"; by default the tokenizer's
---@param return_attention_mask? boolean by default when model_input_names has it
---@param return_tensors? string|false "pt" (the default): int64 tensors; false: tables
---@return BatchEncoding
Tokenizer.pad = arguments.method("tokenizer.pad", {
  "encoded_inputs: any", {"padding: flag|'longest'|'max_length'|'do_not_pad'", true}, {"max_length: size"},
  {"pad_to_multiple_of: count"}, {"padding_side: 'right'|'left'"}, {"return_attention_mask: flag"},
  {"return_tensors: 'pt'|false", "pt"},
}, function(self, encoded, how, max_length, multiple, side, mask, tensors)
  local samples, single = padder.samples_of(encoded)
  if how == "max_length" and not max_length then
    if self.model_max_length > 1e20 then
      fail("tokenizer.pad: padding 'max_length' needs max_length: the model's is not known")
    end
    max_length = self.model_max_length
  end
  local columns = padder.batch("tokenizer.pad", self, samples,
    {padding = how, max_length = max_length, pad_to_multiple_of = multiple, padding_side = side})
  if mask == nil then mask = has_name(self.model_input_names, "attention_mask") end
  if not mask then columns.attention_mask = nil end
  for name, column in pairs(columns) do
    if single then column = column[0] end
    columns[name] = tensors and column or column:tolist()
  end
  return BatchEncoding(columns, nil, columns.input_ids, self)
end)

-- One text.

--- The ids of a text, or of a pair, as a table.
--
--   local vocabulary = {["[UNK]"] = 0, deep = 1, ["##er"] = 2}
--   local tokenizer = accelhost.text.Tokenizer{
--     pre_tokenizer = {type = "Whitespace"}, model = {type = "WordPiece", vocab = vocabulary},
--   }
--   print(unpack(tokenizer:encode("deeper deep")))  --> 1  2  1
---@param text_pair? string
---@param options? table as of a call
---@return integer[]
function Tokenizer:encode(text, text_pair, options)
  if arguments.is_options(text_pair) then text_pair, options = nil, text_pair end
  local named = arguments.copy(options or {})
  arguments.check("encode", "text", "string", text)
  named.return_tensors, named.text_pair = false, text_pair
  return self(text, named).input_ids
end

--- The tokens of a text, as texts, without special ones.
--
--   local vocabulary = {["[UNK]"] = 0, deep = 1, ["##er"] = 2}
--   local tokenizer = accelhost.text.Tokenizer{
--     pre_tokenizer = {type = "Whitespace"}, model = {type = "WordPiece", vocab = vocabulary},
--   }
--   print(unpack(tokenizer:tokenize("deeper still")))  --> deep  ##er  [UNK]
---@param text_pair? string
---@return string[]
function Tokenizer:tokenize(text, text_pair)
  arguments.check("tokenize", "text", "string", text)
  return self:convert_ids_to_tokens(self:encode(text, text_pair, {add_special_tokens = false}))
end

local function ids_of(what, ids)
  if C.is_tensor(ids) then ids = ids:tolist() end
  if type(ids) == "number" then ids = {ids} end
  if type(ids) ~= "table" then fail("%s: expected ids in a tensor or a table, got %s", what, describe(ids)) end
  for i, id in ipairs(ids) do
    if type(id) ~= "number" or id % 1 ~= 0 or math.abs(id) > 2 ^ 53 then
      fail("%s: item %d is %s, expected an id", what, i, describe(id))
    end
  end
  return ids
end

-- Blanks in front of marks and short forms.
local cleaning = {
  {" %.", "."}, {" %?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"},
  {" 've", "'ve"}, {" 're", "'re"},
}

--- Return the text of ids, which need not be whole characters: bytes that are no UTF-8 become U+FFFD. Ids without a
--- token are
--- passed over.
--
--   local tokenizer = accelhost.text.Tokenizer{
--     model = {type = "WordPiece", vocab = {["[UNK]"] = 0, deep = 1, ["##er"] = 2}}, decoder = {type = "WordPiece"},
--   }
--   print(tokenizer:decode({1, 2, 1}))  --> deeper deep
---@param token_ids integer|integer[]|userdata
---@param skip_special_tokens? boolean|table leave special tokens out (default false)
---@param clean_up_tokenization_spaces? boolean remove blanks in front of marks; by default the tokenizer's
---@return string
function Tokenizer:decode(token_ids, skip_special_tokens, clean_up_tokenization_spaces)
  local options = skip_special_tokens
  if type(options) == "table" then
    arguments.check_names("decode", options, {"skip_special_tokens", "clean_up_tokenization_spaces"})
    skip_special_tokens = options.skip_special_tokens
    clean_up_tokenization_spaces = options.clean_up_tokenization_spaces
  end
  if clean_up_tokenization_spaces == nil then clean_up_tokenization_spaces = self.clean_up_tokenization_spaces end
  local text = self._c:decode(ids_of("decode", token_ids), skip_special_tokens or false)
  for _, rule in ipairs(clean_up_tokenization_spaces and cleaning or {}) do text = text:gsub(rule[1], rule[2]) end
  return text
end

--- The text of each row of ids.
--
--   local tokenizer = accelhost.text.Tokenizer{
--     model = {type = "WordPiece", vocab = {["[UNK]"] = 0, deep = 1, ["##er"] = 2}}, decoder = {type = "WordPiece"},
--   }
--   print(unpack(tokenizer:batch_decode{{1, 2}, {1}}))  --> deeper  deep
---@param sequences userdata|table a tensor [texts, tokens] or a table of rows
---@param ... any as for decode
---@return string[]
function Tokenizer:batch_decode(sequences, ...)
  if C.is_tensor(sequences) then sequences = sequences:tolist() end
  if type(sequences) ~= "table" then fail("batch_decode: expected rows of ids, got %s", describe(sequences)) end
  local texts = {}
  for i, row in ipairs(sequences) do texts[i] = self:decode(row, ...) end
  return texts
end

-- A function of one value, or of each of a table.
local function each(value, convert)
  if type(value) ~= "table" then return convert(value) end
  local list = {}
  for i, item in ipairs(value) do list[i] = convert(item) end
  return list
end

--- The id of a token, or of each of a table; that of unk_token for a token that the vocabulary does not have, nil (in a
--- table an error) without one.
--
--   local tokenizer = accelhost.text.Tokenizer{model = {type = "WordPiece", vocab = {["[UNK]"] = 0, deep = 1}}}
--   print(tokenizer:convert_tokens_to_ids("deep"))  --> 1
---@param tokens string|string[]
---@return integer|integer[]|nil
function Tokenizer:convert_tokens_to_ids(tokens)
  return each(tokens, function(token)
    if type(token) ~= "string" then fail("convert_tokens_to_ids: expected a string, got %s", describe(token)) end
    local id = self._c:id(token) or (self.unk_token and self._c:id(self.unk_token))
    if not id and type(tokens) == "table" then
      fail("convert_tokens_to_ids: '%s' is not in the vocabulary, and there is no unk_token", token)
    end
    return id
  end)
end

--- The token of an id, or of each of a table or tensor.
--
--   local tokenizer = accelhost.text.Tokenizer{model = {type = "WordPiece", vocab = {["[UNK]"] = 0, deep = 1}}}
--   print(tokenizer:convert_ids_to_tokens(1))  --> deep
---@param ids integer|integer[]|userdata
---@param skip_special_tokens? boolean
---@return string|string[]|nil
function Tokenizer:convert_ids_to_tokens(ids, skip_special_tokens)
  if type(ids) == "number" then return self._c:token(ids_of("convert_ids_to_tokens", ids)[1]) end
  local tokens = {}
  for _, id in ipairs(ids_of("convert_ids_to_tokens", ids)) do
    local token = self._c:token(id)
    if not token then fail("convert_ids_to_tokens: there is no token %d (vocabulary of %d)", id, self._length) end
    if not (skip_special_tokens and self._c:is_special(id)) then tokens[#tokens + 1] = token end
  end
  return tokens
end

--- Return the number of special tokens that a call adds to a text, or to a pair.
--
--   local tokenizer = accelhost.text.Tokenizer{model = {type = "WordPiece", vocab = {["[UNK]"] = 0, deep = 1}}}
--   print(tokenizer:num_special_tokens_to_add())  --> 0
---@param pair? boolean
---@return integer
function Tokenizer:num_special_tokens_to_add(pair)
  return self._c:specials(pair or false)
end

-- Adding tokens builds the tokenizer again from its description with them.
local function add(self, tokens, special)
  local description, count = C.json.decode(self._json), 0
  local list = type(description.added_tokens) == "table" and description.added_tokens or {}
  for _, content in ipairs(tokens) do
    if not self._c:id(content) or special and not self._c:is_special(self._c:id(content)) then
      local id = self._c:id(content)
      count = count + (id and 0 or 1)
      for i = #list, 1, -1 do
        if list[i].content == content then table.remove(list, i) end
      end
      list[#list + 1] = {
        id = id or self._length + count - 1, content = content, special = special, normalized = not special,
        single_word = false, lstrip = false, rstrip = false,
      }
    end
  end
  description.added_tokens = #list > 0 and setmetatable(list, nil) or C.json.array(list)
  reopen(self, C.json.encode(description))
  return count
end

--- Add texts as tokens, with new ids after the others; the embedding has to grow with them.
--
--   local tokenizer = accelhost.text.Tokenizer{model = {type = "WordPiece", vocab = {["[UNK]"] = 0, deep = 1}}}
--   print(tokenizer:add_tokens({"sea"}), #tokenizer, tokenizer:encode("deepsea")[2])  --> 1  3  2
---@param new_tokens string|string[]
---@param special_tokens? boolean are they special? (default false)
---@return integer # number of new ones
function Tokenizer:add_tokens(new_tokens, special_tokens)
  if type(new_tokens) == "string" then new_tokens = {new_tokens} end
  arguments.check("add_tokens", "new_tokens", "list", new_tokens)
  for i, token in ipairs(new_tokens) do arguments.check("add_tokens", "item " .. i, "string", token) end
  return add(self, new_tokens, special_tokens or false)
end

--- Assign roles to special tokens, which are added where they are new.
--
--   local tokenizer = accelhost.text.Tokenizer{model = {type = "WordPiece", vocab = {["[UNK]"] = 0, deep = 1}}}
--   print(tokenizer:add_special_tokens{pad_token = "[PAD]"}, tokenizer.pad_token_id)  --> 1  2
---@param special_tokens_dict table<string, string> by role: pad_token = "[PAD]"
---@return integer # number of new ones
function Tokenizer:add_special_tokens(special_tokens_dict)
  arguments.check_names("add_special_tokens", special_tokens_dict, roles)
  local tokens = {}
  for i, role in ipairs(arguments.sorted_keys(special_tokens_dict)) do
    tokens[i] = arguments.check("add_special_tokens", role, "string", special_tokens_dict[role])
  end
  local count = add(self, tokens, true)
  for role, token in pairs(special_tokens_dict) do self[role] = token end
  return count
end

local read_chat = arguments.signature("apply_chat_template", {
  "conversation: list", {"chat_template: string"}, {"tools: list"}, {"documents: list"},
  {"add_generation_prompt: flag", false}, {"continue_final_message: flag", false}, {"tokenize: flag", true},
  {"padding: flag|'longest'|'max_length'|'do_not_pad'", false}, {"truncation: flag", false}, {"max_length: size"},
  {"return_tensors: 'pt'|false", "pt"}, {"return_dict: flag", true}, {"chat_template_kwargs: table"},
})

--- A conversation, or several, as the text of the model's chat template, and that as ids: a BatchEncoding as of a call,
--- without further special tokens, as the template has them.
--
--   local tokenizer = accelhost.text.Tokenizer({model = {type = "WordPiece", vocab = {["[UNK]"] = 0}}}, {
--     chat_template = "{% for message in messages %}<{{ message.role }}>{{ message.content | trim }}\n{% endfor %}"})
--   local messages = {{role = "user", content = "Which sea? "}, {role = "assistant", content = "The deep one."}}
--   print(tokenizer:apply_chat_template(messages, {tokenize = false}))  --> <user>Which sea?
--   -->     <assistant>The deep one.
---@param conversation table[] messages {role = ..., content = ...}, or a list of conversations
---@param chat_template? string a Jinja template instead of the tokenizer's
---@param tools? table[] descriptions of functions, for templates that show them
---@param documents? table[]
---@param add_generation_prompt? boolean end with the beginning of an answer (default false)
---@param continue_final_message? boolean end with the last message's text (default false)
---@param tokenize? boolean false: return the text, or the texts
---@param padding? boolean|string as of a call, with truncation, max_length and return_tensors
---@param return_dict? boolean false: return the ids alone (default true)
---@param chat_template_kwargs? table further values by name, as enable_thinking = false
---@return BatchEncoding|Tensor|integer[]|string|string[]
function Tokenizer:apply_chat_template(...)
  local conversation, template, tools, documents, prompt, continues, tokenize, padding, truncation, max_length, tensors,
    as_dict, more = read_chat(...)
  if prompt and continues then
    fail "apply_chat_template: add_generation_prompt and continue_final_message exclude each other"
  end
  local options = {
    chat_template = template, tools = tools, documents = documents, add_generation_prompt = prompt, roles = roles,
    continue_final_message = continues, chat_template_kwargs = more,
  }
  local several = type(conversation[1]) == "table" and type(conversation[1][1]) == "table"
  local texts = {}
  for i, messages in ipairs(several and conversation or {conversation}) do
    texts[i] = chat.render(self, messages, options, C.json.null)
  end
  if not tokenize then return several and texts or texts[1] end
  local encoded = self(several and texts or texts[1], {
    add_special_tokens = false, padding = padding, truncation = truncation or nil, max_length = max_length,
    return_tensors = tensors,
  })
  return as_dict and encoded or encoded.input_ids
end

--- Write tokenizer.json, tokenizer_config.json and special_tokens_map.json, which from_pretrained and transformers
--- read.
--
--   | tokenizer:save_pretrained("run/tokenizer")
---@param save_directory string made when it is not there
function Tokenizer:save_pretrained(save_directory)
  require("accelhost.text.files").save(self, arguments.check("save_pretrained", "save_directory", "string",
    save_directory))
end

for _, role in ipairs(roles) do
  class.property(Tokenizer, role .. "_id", function(self)
    local text = rawget(self, role)
    return text and self._c:id(text)
  end)
end

class.strict(Tokenizer, absent)

return module
