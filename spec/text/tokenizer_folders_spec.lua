-- AutoTokenizer on folders of each family against transformers: texts, pairs, and the names of the inputs.
local accelhost = require "accelhost"
local files = require "spec.support.files"
local temporary = require "spec.support.folder"

local fixture = require("spec.support.fixtures").load "tokenizer_folders"

local function names_of(batch)
  local names = {}
  for name in pairs(batch) do names[#names + 1] = name end
  table.sort(names)
  return names
end

describe("AutoTokenizer of a folder of", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  for _, kind in ipairs(fixture.kinds) do
    local title = kind.older and ", whose configuration does not name the tokenizer's class,"
      or kind.bare and ", whose configuration has model_max_length alone," or ""
    it(kind.family .. title .. " returns transformers' ids, masks and types of texts and of pairs", function()
      for name, content in pairs(kind.files) do files.write(name, content) end
      local tokenizer = accelhost.text.AutoTokenizer.from_pretrained "."
      local first, second = {}, {}
      for i, pair in ipairs(fixture.pairs) do first[i], second[i] = pair[1], pair[2] end
      for _, role in ipairs(require("accelhost.text.tokenizer").roles) do
        assert.equal(kind.roles[role], tokenizer[role], role)
      end
      local options = {padding = kind.pads, return_tensors = false}
      for _, row in ipairs {
        {kind.texts, tokenizer(fixture.texts, options)}, {kind.pairs, tokenizer(first, second, options)},
      } do
        local expected, batch = row[1], row[2]
        assert.same(names_of(expected), names_of(batch))
        for name, values in pairs(expected) do assert.same(values, batch[name], name) end
      end
    end)
  end
end)

describe("AutoTokenizer of a folder without a padding_side", function()
  local sides = require("spec.support.fixtures").load "padding_sides"
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  for _, kind in ipairs(fixture.kinds) do
    local variant = kind.older and ", older" or kind.bare and ", bare" or ""
    it(("pads on transformers' side: %s%s"):format(kind.family, variant), function()
      files.write("tokenizer.json", kind.files["tokenizer.json"])
      for _, row in ipairs(sides.rows) do
        if row.family == kind.family then
          local settings = accelhost.json.decode(kind.files["tokenizer_config.json"])
          settings.padding_side, settings.tokenizer_class = nil, row.class
          files.write("tokenizer_config.json", accelhost.json.encode(settings))
          files.write("config.json", row.typed and kind.files["config.json"] or "{}")
          local what = ("%s, %s config.json"):format(tostring(row.class), row.typed and "with" or "without")
          assert.equal(row.side, accelhost.text.AutoTokenizer.from_pretrained(".").padding_side, what)
        end
      end
    end)
  end
end)
