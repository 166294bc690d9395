-- A tokenizer of the characters of a text.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local folder = require "spec.support.folder"
local text = accelhost.text

describe("character_tokenizer", function()
  it("numbers the characters of a text in their order, of any number of bytes", function()
    local source = "naïve – “日本” 😀\n\n e"
    local tokenizer = text.character_tokenizer(source)
    local sorted = {"\n", " ", "a", "e", "n", "v", "ï", "–", "“", "”", "日", "本", "😀"}
    for i, c in ipairs(sorted) do assert.same({i - 1}, tokenizer:encode(c), c) end
    local ids = tokenizer:encode(source)
    assert.equal(18, #ids)
    assert.equal(source, tokenizer:decode(ids))
  end)

  it("has as many tokens as the text has characters when each is one byte", function()
    local tokenizer = text.character_tokenizer "First Citizen:\n"
    assert.equal(12, #tokenizer)
    assert.same({"input_ids", "attention_mask"}, tokenizer.model_input_names)
    assert.same({4}, tokenizer:encode "F")
  end)

  it("leaves out characters that the text lacks", function()
    local tokenizer = text.character_tokenizer "abc"
    assert.same({0, 2}, tokenizer:encode "aZc")
    assert.same({}, tokenizer:encode "ü")
  end)

  it("is the same when it was saved and read", function()
    folder.with(function(path)
      local tokenizer = text.character_tokenizer "déjà vu"
      tokenizer:save_pretrained(path)
      local again = text.AutoTokenizer.from_pretrained(path)
      assert.same(tokenizer:encode "vu déjà", again:encode "vu déjà")
      assert.equal("à vu", again:decode(again:encode "à vu"))
      local description = accelhost.json.decode(tokenizer._json)
      for _, name in ipairs {"added_tokens", "pre_tokenizer", "post_processor", "decoder", "model"} do
        assert.is_table(description[name], name) -- transformers reads none without them
      end
    end)
  end)

  it("reports the expected arguments", function()
    check.raises("character_tokenizer: text: it is empty", function() text.character_tokenizer "" end)
    check.raises("character_tokenizer: text: expected a string", function() text.character_tokenizer(3) end)
  end)
end)
