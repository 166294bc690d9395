-- Chat templates against transformers: published ones, and one that uses each part of the language.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local read = require("spec.support.files").read

local json = accelhost.json
local fixture = json.decode(read "spec/fixtures/chat_templates.json")
local model = {type = "WordPiece", vocab = {["[UNK]"] = 0, ["<s>"] = 1, hello = 2, there = 3, ["</s>"] = 4}}
local description = json.encode {model = model, pre_tokenizer = {type = "WhitespaceSplit"}}

local function tokenizer_with(template)
  return accelhost.text.Tokenizer(description, {bos_token = "<s>", eos_token = "</s>", chat_template = template})
end

describe("apply_chat_template", function()
  for name in pairs(fixture.templates) do
    it("returns the texts of transformers by the template of " .. name, function()
      local tokenizer, cases = tokenizer_with(fixture.templates[name]), 0
      for _, case in ipairs(fixture.cases) do
        if case.template == name then
          local options = {
            tokenize = false, add_generation_prompt = case.prompt, chat_template_kwargs = case.more,
            tools = case.tools ~= json.null and case.tools or nil,
          }
          local fine, text = pcall(function()
            return tokenizer:apply_chat_template(fixture.conversations[case.conversation + 1], options)
          end)
          cases = cases + 1
          assert.equal(case.text ~= nil, fine, tostring(text))
          if fine then assert.equal(case.text, text) end
          if case.error and case.error:find "^[CSO]" then
            assert.is_truthy(tostring(text):find(case.error, 1, true), tostring(text))
          end
        end
      end
      assert.equal(10, cases)
    end)
  end

  it("returns ids without further special tokens, of one or several conversations", function()
    local tokenizer = tokenizer_with("{{ bos_token }} {{ messages[0].content }}"
      .. "{% if add_generation_prompt %} </s>{% endif %}")
    local one, two = {{role = "user", content = "hello"}}, {{role = "user", content = "hello there"}}
    assert.same({{1, 2, 4}}, tokenizer:apply_chat_template(one, {add_generation_prompt = true}).input_ids:tolist())
    assert.same({1, 2}, tokenizer:apply_chat_template(one, {return_dict = false, return_tensors = false}))
    assert.same({{1, 2}}, tokenizer:apply_chat_template(one, {return_dict = false}):tolist())
    tokenizer.pad_token = "[UNK]"
    assert.same({{1, 2, 0}, {1, 2, 3}}, tokenizer:apply_chat_template({one, two}, {padding = true}).input_ids:tolist())
    assert.same({"<s> hello", "<s> hello there"}, tokenizer:apply_chat_template({one, two}, {tokenize = false}))
  end)

  it("ends with the last message to continue it", function()
    local tokenizer = tokenizer_with "{% for m in messages %}[{{ m.content | trim }}]</s>{% endfor %}"
    local messages = {{role = "user", content = "hello"}, {role = "assistant", content = "hello "}}
    assert.equal("[hello]</s>[hello", tokenizer:apply_chat_template(messages, {
      tokenize = false, continue_final_message = true}))
  end)

  it("is written and read again with the tokenizer", function()
    local folder = os.tmpname()
    os.remove(folder)
    tokenizer_with("{{ messages[0].content }}\n"):save_pretrained(folder)
    local again = accelhost.text.AutoTokenizer.from_pretrained(folder)
    assert.equal("{{ messages[0].content }}\n", again.chat_template)
    tokenizer_with({default = "d", tool_use = "t"}):save_pretrained(folder)
    os.remove(folder .. "/chat_template.jinja")
    again = accelhost.text.AutoTokenizer.from_pretrained(folder)
    assert.same({default = "d", tool_use = "t"}, again.chat_template)
    local messages = {{role = "user", content = "x"}}
    assert.equal("t", again:apply_chat_template(messages, {tools = {{name = "f"}}, tokenize = false}))
    os.execute("rm -r " .. folder)
  end)

  it("names the part of a template that is wrong or not supported, and ends each template", function()
    local function refused(message, template)
      check.raises(message, function()
        tokenizer_with(template):apply_chat_template({{role = "user", content = "x"}}, {tokenize = false})
      end)
    end
    refused("apply_chat_template: the tokenizer has no chat_template", nil)
    refused("line 2: the statement 'include' is not supported", "a\n{% include 'x' %}")
    refused("line 1: the filter 'pprint' is not supported", "{{ x | pprint }}")
    refused("line 1: the test 'odder' is not supported", "{{ 1 is odder }}")
    refused("line 1: 'missing' is undefined", "{{ missing.field }}")
    refused("line 3: expected 'endfor'", "\n\n{% for x in [1] %}a")
    refused("line 1: a tag without '}}'", "{{ 1 +")
    refused("line 1: '+': expected two strings, numbers or lists, got a string and a none", "{{ 'a' + none }}")
    refused("line 1: more than 500000 steps",
      "{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}")
    refused("bytes of text", "{{ 'aaaaaaaaaa' * 100000000 }}")
    refused("range: too many items", "{{ range(1000000000) }}")
    refused("calls nested more than 64 deep", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")
    refused("nested more than 100 deep", "{{ " .. ("("):rep(200) .. "1" .. (")"):rep(200) .. " }}")
    refused("a value of the wrong kind", "{{ 'a'.split(1, 'b') }}")
    check.raises("message 0: expected a table with role and content", function()
      tokenizer_with("x"):apply_chat_template({{content = "x"}}, {tokenize = false})
    end)
  end)
end)
