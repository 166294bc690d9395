--- data.write_tokens: token files from ids or from texts, as a stream.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local protect = require "accelhost.util.protect"

local fail, describe = arguments.fail, arguments.describe
local module = {}

local PIECE = 256 * 1024 -- bytes of a text file that are tokenized at once
local NARROW = 65536     -- tokens that uint16 can represent

local read = arguments.signature("write_tokens", {
  "path: string", "source: tensor|list|string|callable", {"tokenizer: callable"}, {"dtype: 'uint16'|'uint32'"},
  {"vocab_size: count"}, {"append_eos: flag", false},
})

local blanks = {[9] = true, [10] = true, [11] = true, [12] = true, [13] = true, [32] = true}

-- May a text be cut before byte i? Where a blank follows something else: no model's vocabulary joins the two (an added
-- token that includes the blanks behind it would), and all blanks of a run stay together. Bytes outside ASCII may be a
-- blank of Unicode.
local function is_border(text, i)
  local before = text:byte(i - 1)
  return blanks[text:byte(i)] and before < 128 and not blanks[before]
end

-- A file's text in pieces that are tokenized as the whole would be.
local function pieces(path)
  local file, reason = io.open(path, "rb")
  if not file then fail("write_tokens: cannot read '%s': %s", path, (tostring(reason):gsub("^.-: ", "", 1))) end
  local left = ""
  return function()
    while file do
      local more, problem = file:read(PIECE)
      if not more then
        file:close()
        file = nil
        if problem then fail("write_tokens: cannot read '%s': %s", path, problem) end
        return left ~= "" and left or nil
      end
      local text = left .. more
      local cut = #text
      while cut > 1 and not is_border(text, cut) do cut = cut - 1 end
      left = cut > 1 and text:sub(cut) or text
      if cut > 1 then return text:sub(1, cut - 1) end
    end
  end
end

-- The source as a function that returns one value after the other.
local function each(list)
  local i = 0
  return function()
    i = i + 1
    return list[i]
  end
end

local encoding = {add_special_tokens = false, return_attention_mask = false, return_token_type_ids = false}

-- From texts: the functions of files, or of the script's own source.
local function write_texts(out, source, tokenizer, append_eos)
  local eos = append_eos and tokenizer.eos_token_id
  if append_eos and not eos then fail "write_tokens: append_eos: the tokenizer has no eos_token" end
  eos = eos and C.tensor({eos}, {dtype = "int64"})
  local function add(text) out(tokenizer(text, encoding).input_ids:reshape(-1)) end
  if type(source) == "function" then
    for text in source do
      if type(text) ~= "string" then fail("write_tokens: source: expected texts, got %s", describe(text)) end
      add(text)
      if eos then out(eos) end
    end
    return
  end
  for path in each(type(source) == "string" and {source} or source) do
    if type(path) ~= "string" then
      fail("write_tokens: source: expected the paths of text files, got %s", describe(path))
    end
    for text in pieces(path) do add(text) end
    if eos then out(eos) end
  end
end

local integral = {int64 = true, int32 = true, uint8 = true}

local function write_ids(out, source)
  if type(source) == "string" then
    fail("write_tokens: source: a text file ('%s') needs a tokenizer", source)
  end
  for ids in type(source) == "function" and source or each {source} do
    if not C.is_tensor(ids) then
      local fine, made = pcall(C.tensor, ids, {dtype = "int64", device = "cpu"})
      if type(ids) ~= "table" or not fine then
        fail("write_tokens: source: expected ids in tensors or tables, got %s", describe(ids))
      end
      ids = made
    elseif not integral[ids.dtype] then
      fail("write_tokens: source: expected integers, got a tensor of %s", ids.dtype)
    end
    out(ids)
  end
end

local function dtype_of(path, dtype, vocab_size)
  if dtype then return dtype end
  if not vocab_size or vocab_size <= NARROW then return "uint16" end
  if path:find "%.npy$" then return "uint32" end
  fail("write_tokens: '%s': %d tokens need uint32, which a file without header cannot record: name it .npy, or set "
    .. "dtype = 'uint32' here and to TokenFile", path, vocab_size)
end

--- Write a token file: ids, or a tokenizer's ids of texts, which are read and written piece by piece. The file
--- is renamed to its final name when it is complete. In a job, on one rank: accelerator:main_process_first.
--
--   local path = os.tmpname() .. ".npy"
--   print(data.write_tokens(path, {3, 1, 4}), data.TokenFile(path, 3):get(0).input_ids)  --> 3  tensor([3, 1, 4])
---@param path string ends in .npy: NumPy's format; else numbers alone, as nanoGPT's
---@param source any ids: an integer tensor, a table of integers, or a function that returns such until nil; with a
--- tokenizer the path of a text file, a list of paths, or a function that returns texts until nil
---@param tokenizer? Tokenizer special tokens are not added
---@param dtype? string "uint16" or "uint32"; by default as vocab_size needs it
---@param vocab_size? integer ids that are not below it are errors; for the dtype the tokenizer's number serves
---@param append_eos? boolean the tokenizer's eos_token behind each file, or each text of a function
---@return integer # the tokens that were written
function module.write_tokens(...)
  local path, source, tokenizer, dtype, vocab_size, append_eos = read(...)
  if append_eos and not tokenizer then fail "write_tokens: append_eos: it is a tokenizer's" end
  dtype = dtype_of(path, dtype, vocab_size or tokenizer and tokenizer:len())
  local writer = C.data.token_writer(path, dtype == "uint16" and 2 or 4)
  local what = ("write_tokens: '%s'"):format(path)
  local function out(ids)
    writer:add(ids:detach():cpu():to("int64"):reshape(-1):contiguous(), vocab_size or 0, what)
  end
  protect(function() writer:abandon() end, function()
    if tokenizer then
      write_texts(out, source, tokenizer, append_eos)
    else
      write_ids(out, source)
    end
    writer:commit(what)
  end)
  return writer:len()
end

return module
