-- Tokenizers of the families of today's models against Hugging Face's tokenizers: small vocabularies and hard texts.
local accelhost = require "accelhost"
local read = require("spec.support.files").read

local json = accelhost.json
local fixture = json.decode(read "spec/fixtures/tokenizer_families.json")

local function tokenizer_of(kind)
  local sections = {model = fixture.models[kind.model + 1]}
  for name, section in pairs(kind.sections) do sections[name] = section end
  return accelhost.text.Tokenizer(json.encode(sections))
end

local function flat(list)
  local out = {}
  for _, item in ipairs(list) do
    for _, value in ipairs(item) do out[#out + 1] = value end
  end
  return out
end

local options = {return_tensors = false, return_offsets_mapping = true}

describe("a tokenizer of the family", function()
  for _, kind in ipairs(fixture.kinds) do
    it(("'%s' returns the ids, offsets and texts of the tokenizers package"):format(kind.name), function()
      local made, tokenizer = pcall(tokenizer_of, kind)
      -- Patterns that are not written out need the plugin, which is built where PCRE2 is installed.
      if not made and tostring(tokenizer):find("matched by PCRE2", 1, true) then return pending "no PCRE2" end
      assert(made, tokenizer)
      for _, row in ipairs(kind.texts) do
        local batch = tokenizer(row.text, options)
        local fine, message = pcall(function()
          assert.same(row.ids, batch.input_ids)
          assert.same(row.ends, flat(batch.offset_mapping))
          assert.equal(row.decoded, tokenizer:decode(batch.input_ids))
        end)
        assert(fine, ("text %q: %s"):format(row.text, tostring(message)))
      end
    end)
  end
end)

-- scripts/fixtures/tokenizer_words.py
describe("texts that are lists of words, by a tokenizer of the family", function()
  local words = require("spec.support.fixtures").load "tokenizer_words"
  local split = {return_tensors = false, return_offsets_mapping = true, is_split_into_words = true}
  local with_pair = {text_pair = words.pair[2]}
  for name, value in pairs(split) do with_pair[name] = value end

  local function same(row, batch, text)
    local fine, message = pcall(function()
      assert.same(row.ids, batch.input_ids)
      assert.same(row.ends, flat(batch.offset_mapping))
      assert.same(row.words, batch:word_ids(0))
    end)
    assert(fine, ("words %s: %s"):format(json.encode(text), tostring(message)))
  end

  for i, kind in ipairs(words.kinds) do
    it(("'%s' are encoded as by the tokenizers package"):format(kind.name), function()
      local made, tokenizer = pcall(tokenizer_of, fixture.kinds[i])
      if not made and tostring(tokenizer):find("matched by PCRE2", 1, true) then return pending "no PCRE2" end
      assert(made, tokenizer)
      for k, text in ipairs(words.texts) do
        local batch = tokenizer({text}, split)
        for name, column in pairs(batch) do batch[name] = column[1] end
        same(kind.rows[k], batch, text)
      end
      same(kind.pair, tokenizer(words.pair[1], with_pair), words.pair)
    end)
  end
end)
