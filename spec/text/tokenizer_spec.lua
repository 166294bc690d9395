-- Tokenizers against Hugging Face's tokenizers: small vocabularies and hard texts from the fixture.
local accelhost = require "accelhost"
local datasets = require "spec.support.datasets"
local read = require("spec.support.files").read

local text, json = accelhost.text, accelhost.json

local fixture = json.decode(read "spec/fixtures/tokenizers.json")
local more = json.decode(read "spec/fixtures/tokenizers_more.json")

local function tokenizer_of(kind)
  local sections = {model = fixture.models[kind.model + 1]}
  for name, section in pairs(kind.sections) do sections[name] = section end
  return text.Tokenizer(json.encode(sections))
end

local function flat(list)
  local out = {}
  for _, item in ipairs(list) do
    for _, value in ipairs(item) do out[#out + 1] = value end
  end
  return out
end

local everything = {
  return_tensors = false, return_offsets_mapping = true, return_special_tokens_mask = true,
  return_token_type_ids = true,
}

local function check_row(row, batch)
  assert.same(row.ids, batch.input_ids)
  assert.same(row.ends, flat(batch.offset_mapping))
  if row.words then assert.same(row.words, batch:word_ids(0)) end
  if row.types then assert.same(row.types, batch.token_type_ids) end
  if row.specials then assert.same(row.specials, batch.special_tokens_mask) end
end

describe("a tokenizer of the kind", function()
  for _, kind in ipairs(fixture.kinds) do
    it(("'%s' returns the ids, places and texts of the tokenizers package"):format(kind.name), function()
      local tokenizer = tokenizer_of(kind)
      for _, row in ipairs(kind.texts) do
        local batch = tokenizer(row.text, everything)
        local fine, message = pcall(check_row, row, batch)
        assert(fine, ("text %q: %s"):format(row.text, tostring(message)))
        assert.equal(row.decoded, tokenizer:decode(batch.input_ids))
      end
    end)

    if #kind.pairs > 0 then
      it(("'%s' joins and cuts pairs as the tokenizers package"):format(kind.name), function()
        local tokenizer = tokenizer_of(kind)
        for _, row in ipairs(kind.pairs) do
          local options = accelhost.json.decode(json.encode(everything))
          options.truncation, options.max_length, options.text_pair = row.strategy, row.limit, row.second
          tokenizer.truncation_side = row.side
          if row.fails then
            assert.error_matches(function() tokenizer(row.first, options) end, "too many for max_length")
          else
            check_row(row, tokenizer(row.first, options))
          end
        end
      end)
    end
  end
end)

-- Sums of ids and of ends, by place.
local function total(batch)
  local ids, ends, at = 0, 0, 0
  for r, row in ipairs(batch.input_ids) do
    local offsets = batch.offset_mapping[r]
    for i, id in ipairs(row) do
      at = at % 9973 + 1
      ids = (ids + at * (id + 1)) % 2147483647
      ends = (ends + at * (3 * offsets[i][1] + offsets[i][2] + 1)) % 2147483647
    end
  end
  return {ids, ends}
end

local function utf8(code)
  if code < 0x80 then return string.char(code) end
  local out, limit = "", 0x40
  while code >= limit do
    out, code = string.char(0x80 + code % 64) .. out, math.floor(code / 64)
    limit = limit == 0x40 and 0x20 or limit / 2
  end
  return string.char((0x100 - 2 * limit) + code) .. out
end

-- 10,000 texts of characters from everywhere, as the fixture's script makes them.
local function random_texts()
  local state, texts = 1, {}
  for i = 1, 10000 do
    local parts = {}
    for k = 1, 12 do
      state = state * 16807 % 2147483647
      local kind, value = state % 8, math.floor(state / 8)
      local code = kind < 2 and 32 + value % 95 or kind < 4 and value % 0x3000 or kind < 6 and 0xC0 + value % 0x500
        or value % 0x32000
      parts[k] = code >= 0xD800 and code < 0xE000 and " " or utf8(code)
    end
    texts[i] = table.concat(parts)
  end
  return texts
end

local function kind_of(name)
  for _, kind in ipairs(fixture.kinds) do
    if kind.name == name then return kind end
  end
end

describe("a tokenizer with the normal form", function()
  for _, form in ipairs(more.forms) do
    it(form.form .. " equals the tokenizers package, for every character too", function()
      local kind = kind_of "gpt"
      local sections = {model = fixture.models[kind.model + 1]}
      for name, section in pairs(kind.sections) do sections[name] = section end
      sections.normalizer = {type = form.form}
      local tokenizer, blocks = text.Tokenizer(json.encode(sections)), {}
      for _, row in ipairs(form.texts) do
        local fine, message = pcall(check_row, row, tokenizer(row.text, everything))
        assert(fine, ("text %q: %s"):format(row.text, tostring(message)))
      end
      for begin = 0, 0x31fff, 64 do
        local characters = {}
        for code = begin, begin + 63 do
          if code < 0xD800 or code >= 0xE000 then characters[#characters + 1] = utf8(code) end
        end
        if characters[1] then blocks[#blocks + 1] = table.concat(characters) end
      end
      assert.same(form.blocks, total(tokenizer(blocks, {return_tensors = false, return_offsets_mapping = true})))
    end)
  end
end)

describe("truncation by a tokenizer", function()
  it("makes rows with the tokenizers package's tokens, in its order", function()
    local rows = 0
    for _, case in ipairs(more.cut) do
      local tokenizer = tokenizer_of(kind_of(case.kind))
      tokenizer.truncation_side = case.side
      local options = json.decode(json.encode(everything))
      options.truncation, options.max_length, options.text_pair = case.strategy, case.limit, case.second
      options.stride, options.return_overflowing_tokens = case.stride, true
      local batch = tokenizer(case.first, options)
      local name = ("%s of %s, %d and %d, %s"):format(case.strategy, case.kind, case.limit, case.stride, case.side)
      assert.equal(#case.rows, #batch.input_ids, name)
      for i, row in ipairs(case.rows) do
        assert.same(row.ids, batch.input_ids[i], name)
        assert.same(row.ends, flat(batch.offset_mapping[i]), name)
        assert.same(row.types, batch.token_type_ids[i], name)
        assert.same(row.specials, batch.special_tokens_mask[i], name)
        assert.same(row.words, batch:word_ids(i - 1), name)
        assert.equal(0, batch.overflow_to_sample_mapping[i])
        rows = rows + 1
      end
    end
    assert.is_true(rows > 300)
  end)
end)

describe("the vocabulary in", function()
  for _, real in ipairs(fixture.real) do
    local plain = {return_tensors = false, return_offsets_mapping = true}
    datasets.it(real.folder .. " has the tokens of the tokenizers package for SST-2, tinyshakespeare and random text",
      "tokenizers", function(dir)
        local root = dir:match "^(.*)/tokenizers$"
        local tokenizer = text.AutoTokenizer.from_pretrained(root .. "/" .. real.folder)
        local lines = {}
        for line in read(root .. "/sst2/train.tsv"):gmatch "([^\n]*)\n" do
          lines[#lines + 1] = line
          if #lines == 10001 then break end
        end
        table.remove(lines, 1)
        assert.same(real.sst2, total(tokenizer(lines, plain)))
        assert.same(real.random, total(tokenizer(random_texts(), plain)))
        assert.same(real.tinyshakespeare, total(tokenizer({read(root .. "/tinyshakespeare/input.txt")}, plain)))
      end)
  end
end)
