-- Every family of models: the guide's table of comparisons, the fixtures behind its cells, and wrong inputs.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local fixtures = require "spec.support.fixtures"
local lfs = require "lfs"
local temporary = require "spec.support.folder"
local registry = require "accelhost.models.registry"
local models, json = accelhost.models, accelhost.json

local FOLDER = "spec/fixtures/models/"
local STEPS = 20

-- Model type -> group of the fixtures; others are decoders.
local group_of = {
  bert = "encoders", distilbert = "encoders", electra = "encoders", mpnet = "encoders", roberta = "encoders",
  ["xlm-roberta"] = "encoders", gpt2 = "gpt2", t5 = "t5", convnext = "vision", resnet = "vision", vit = "vision",
}

-- Return the checkpoint folders of a model type below the folder of its group, with config.json in transformers' form.
local function folders_of(model_type)
  local group, found = group_of[model_type] or "decoders", {}
  for name in lfs.dir(group == "gpt2" and FOLDER or FOLDER .. group) do
    local path = group == "gpt2" and FOLDER .. name or FOLDER .. group .. "/" .. name
    local config = lfs.attributes(path .. "/config.json") and json.decode(files.read(path .. "/config.json"))
    if config and config.model_type == model_type then found[#found + 1] = {name = name, path = path} end
  end
  table.sort(found, function(a, b) return a.name < b.name end)
  return found, group
end

-- Return the rows of the guide's table: model type -> cells by column.
local function guide_rows()
  local text = files.read "examples/guides/fine_tuning.md"
  local section = assert((text .. "\n## "):match "\n## Comparisons\n(.-)\n## ", "no section Comparisons")
  local columns, rows
  for line in section:gmatch "[^\n]+" do
    local cells = {}
    for cell in (line:match "^|(.*)|$" or ""):gmatch "([^|]+)" do cells[#cells + 1] = cell:match "^%s*(.-)%s*$" end
    if cells[1] and not columns then
      columns, rows = cells, {}
    elseif cells[1] and not cells[1]:find "^%-" then
      local row = {}
      for i, column in ipairs(columns) do row[column] = assert(cells[i], line) end
      for name in cells[1]:gmatch "`([^`]+)`" do
        assert.is_nil(rows[name], name .. " has two rows")
        rows[name] = row
      end
    end
  end
  return rows
end

local tokenizers = {}
for _, kind in ipairs(fixtures.load("tokenizer_folders").kinds) do tokenizers[kind.family] = true end

-- Return the losses of AdamW in the fixtures of a type: a list for each of its cases.
local function losses_of(model_type)
  local found, group = {}, group_of[model_type] or "decoders"
  if group == "gpt2" then return {fixtures.load("models/expected").gpt2_float64.steps} end
  local expected = fixtures.load("models/" .. group .. "/expected")
  for _, folder in ipairs((folders_of(model_type))) do
    local case = expected.cases[folder.name] or {}
    if group == "encoders" then
      for _, head in pairs(case) do found[#found + 1] = head.steps end
    else
      found[#found + 1] = case.steps or case.adamw
    end
  end
  return found
end

describe("The guide's table of comparisons", function()
  local rows = guide_rows()

  it("has a row for each type of the registry, and no other", function()
    local known = {["sentence-transformers"] = true}
    for _, model_type in ipairs(registry.model_types()) do
      assert.is_table(rows[model_type], model_type .. " has no row")
      known[model_type] = true
    end
    for name in pairs(rows) do assert.is_true(known[name], name .. " is no model_type") end
  end)

  for _, model_type in ipairs(registry.model_types()) do
    it("has fixtures for its cells: " .. model_type, function()
      local row, folders, group = rows[model_type], folders_of(model_type)
      assert.is_true(#folders > 0)
      local losses = losses_of(model_type)
      assert.is_true(#losses > 0)
      for _, list in ipairs(losses) do assert.equal(STEPS, #list) end
      local is_image = group == "vision"
      assert.equal(is_image and "images" or "yes", row.tokenizer)
      assert.equal(not is_image, tokenizers[model_type] or false)
      assert.equal((group == "vision" or group == "encoders") and "-" or "yes", row.generate)
    end)
  end
end)

-- Return the header of a safetensors file: name -> dtype, shape.
local function header_of(path)
  local bytes = files.read(path)
  local size = 0
  for i = 8, 1, -1 do size = size * 256 + bytes:byte(i) end
  return json.decode(bytes:sub(9, 8 + size))
end

describe("A saved folder has the tensors that transformers wrote, under their names:", function()
  for _, model_type in ipairs(registry.model_types()) do
    for _, folder in ipairs((folders_of(model_type))) do
      it(("%s (%s)"):format(model_type, folder.name), function()
        local config = json.decode(files.read(folder.path .. "/config.json"))
        local class = config.architectures[1]
        local theirs = header_of(folder.path .. "/model.safetensors")
        local model = models[class].from_pretrained(folder.path)
        temporary.with(function(out)
          model:save_pretrained(out)
          local ours = header_of(out .. "/model.safetensors")
          assert.same({format = "pt"}, ours.__metadata__)
          for _, list in ipairs {ours, theirs} do
            list.__metadata__ = nil
            for _, tensor in pairs(list) do tensor.data_offsets = nil end
          end
          assert.same(theirs, ours)
          local written = json.decode(files.read(out .. "/config.json"))
          assert.same({model_type, class}, {written.model_type, written.architectures[1]})
        end)
      end)
    end
  end
end)

describe("The row sentence-transformers of the guide's table", function()
  it("has fixtures for its cells", function()
    local row, expected = guide_rows()["sentence-transformers"], fixtures.load "models/sentences/expected"
    assert.same({"yes", "yes", "-", "yes"}, {row.config, row.saved, row.generate, row.tokenizer})
    local count = 0
    for name, case in pairs(expected.cases) do
      local path = FOLDER .. "sentences/" .. name
      for _, file in ipairs {"modules.json", "config.json", "tokenizer.json"} do
        assert.equal("file", lfs.attributes(path .. "/" .. file, "mode"), path .. "/" .. file)
      end
      assert.is_true(#case.embeddings > 0)
      for _, training in pairs(case.training) do
        assert.equal(STEPS, #training.losses)
        assert.equal("number", type(training.gradient))
        count = count + 1
      end
    end
    assert.is_true(count >= 3)
  end)
end)

describe("A wrong input is named in one line by", function()
  local function refused(model, input, reason)
    local message = check.raises(reason, model, input)
    assert.is_nil(message:find "\n", message)
  end

  for _, model_type in ipairs(registry.model_types()) do
    it(model_type, function()
      local folders, group = folders_of(model_type)
      local folder = folders[1].path
      if group == "vision" then
        local model = models.AutoModelForImageClassification.from_pretrained(folder)
        for _, shape in ipairs {{3}, {3, 40, 40}, {2, 2, 40, 40}} do
          refused(model, accelhost.ones(shape),
            ("pixel_values: expected shape (batch, 3, height, width), got (%s"):format(shape[1]))
        end
        refused(model, {pixel_value = accelhost.ones(1, 3, 40, 40)}, "unknown argument 'pixel_value'")
        return
      end
      local Auto = group == "encoders" and "AutoModelForMaskedLM" or group == "t5" and "AutoModelForSeq2SeqLM"
        or "AutoModelForCausalLM"
      local model = models[Auto].from_pretrained(folder)
      local ids = accelhost.ones({2, 3}, {dtype = "int64"})
      local function batch(more)
        local given = {input_ids = ids}
        if group == "t5" then given.decoder_input_ids = ids end
        for name, value in pairs(more) do given[name] = value end
        return given
      end
      local wider = accelhost.ones({2, 4}, {dtype = "int64"})
      refused(model, batch {input_ids = ids[0]}, "input_ids: expected 2 dims (batch, tokens), got shape (3,)")
      refused(model, batch {input_ids = ids:float()}, "input_ids: expected integers, got float32")
      refused(model, batch {attention_mask = wider}, "attention_mask: expected shape (2, 3), got (2, 4)")
      refused(model, batch {input_ids = ids * 999}, "embedding: index 999 at position 0 is outside 0..")
      refused(model, batch {input_idz = ids}, "unknown argument 'input_idz'")
      if group ~= "t5" then refused(model, batch {labels = wider}, "labels: expected shape (2, 3), got (2, 4)") end
    end)
  end
end)
