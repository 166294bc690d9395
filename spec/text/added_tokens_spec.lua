-- Added tokens: those that are found in a text, and the time of the search among many.
local accelhost = require "accelhost"
local check = require "spec.support.check"

local UNKNOWN = 0

-- A tokenizer whose added tokens are these, with the ids 1, 2, ...; all other words are unknown.
local function tokenizer_of(contents)
  local added = {}
  for i, content in ipairs(contents) do added[i] = {id = i, content = content, normalized = false} end
  return accelhost.text.Tokenizer(accelhost.json.encode {
    model = {type = "WordPiece", vocab = {["[UNK]"] = UNKNOWN}, unk_token = "[UNK]"},
    pre_tokenizer = {type = "Whitespace"}, added_tokens = added,
  })
end

local function ids(tokenizer, text) return tokenizer(text, {return_tensors = false}).input_ids end

-- The ids by comparing each place with each token.
local function expected(contents, text)
  local found, at, unknown = {}, 1, false
  while at <= #text do
    local best
    for i, content in ipairs(contents) do
      if text:sub(at, at + #content - 1) == content and (not best or #content > #contents[best]) then best = i end
    end
    if best then
      found[#found + 1] = best
    elseif not unknown then
      found[#found + 1] = UNKNOWN
    end
    unknown = not best
    at = at + (best and #contents[best] or 1)
  end
  return found
end

describe("Added tokens", function()
  it("are the leftmost ones, and of those the longest", function()
    assert.same({3, 0}, ids(tokenizer_of {"a", "ab", "abc"}, "abcb"))
    assert.same({0, 1}, ids(tokenizer_of {"abc", "bcde"}, "ababc"))
    assert.same({1, 0, 2}, ids(tokenizer_of {"ab", "bcd"}, "abcbcd"))
    assert.same({2, 1}, ids(tokenizer_of {"a", "aa"}, "aaa"))
    local function word(length)
      local letters = {}
      for i = 1, length do letters[i] = ("abc"):sub(math.random(3)):sub(1, 1) end
      return table.concat(letters)
    end
    math.randomseed(7)
    for _ = 1, 300 do
      local contents, seen = {}, {}
      for _ = 1, math.random(12) do
        local content = word(math.random(5))
        if not seen[content] then
          contents[#contents + 1] = content
          seen[content] = true
        end
      end
      local text = word(math.random(40))
      assert.same(expected(contents, text), ids(tokenizer_of(contents), text),
        text .. ": " .. table.concat(contents, " "))
    end
  end)

  it("are found in time that does not grow with their number", function()
    local contents = {}
    for i = 1, 50000 do contents[i] = ("aa%05d"):format(i) end
    local tokenizer = tokenizer_of(contents)
    local began = os.clock()
    assert.same({0, 25000, 0}, ids(tokenizer, ("a"):rep(50000) .. "aa25000" .. ("a"):rep(50000)))
    -- 0.02 s; 50,000 comparisons at each place need more than 10 s.
    assert.is_true(os.clock() - began < 2)
  end)

  it("are distinguished where 65,000 begin alike and many begin with others", function()
    local contents = {}
    for i = 1, 65000 do contents[i] = ("<|audio_%s|>"):format(("%d"):format(i) .. ("x"):rep(math.floor(i / 1000))) end
    local tokenizer = tokenizer_of(contents)
    local text, wanted = {}, {}
    for i = 1, 2000 do
      wanted[i] = (i * 7919) % 65000 + 1
      text[i] = contents[wanted[i]]
    end
    assert.same(wanted, ids(tokenizer, table.concat(text)))
  end)

  it("cost a few comparisons where a text has only the first character of 100,000 of them", function()
    local contents = {}
    for i = 1, 100000 do contents[i] = ("<|extra_%06d|>"):format(i) end
    local tokenizer = tokenizer_of(contents)
    local began = os.clock()
    assert.same({0, 777}, ids(tokenizer, ("<"):rep(300000) .. contents[777]))
    -- 0.02 s; 34 halvings at each place need 0.5 s.
    assert.is_true(os.clock() - began < 0.3)
  end)

  it("have at most 1024 characters", function()
    local longest = ("x"):rep(1024)
    assert.same({1}, ids(tokenizer_of {longest}, longest))
    check.raises("added_tokens: token 1 has 1025 characters, expected at most 1024", function()
      tokenizer_of {longest .. "x"}
    end)
  end)
end)
