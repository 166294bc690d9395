-- The examples of text classification on generated files.
local accelhost = require "accelhost"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local run = require "spec.support.run"

local scripts = {"text_classification.lua", "text_classification_trainer.lua"}
local quick = {
  ["text_classification.lua"] = {"--epochs", "4", "--batch_size", "8"},
  ["text_classification_trainer.lua"] = {"--num_train_epochs", "4", "--per_device_train_batch_size", "8",
    "--save_strategy", "no"},
}

local function write(path, lines)
  local file = assert(io.open(path, "w"))
  file:write(table.concat(lines, "\n"), "\n")
  file:close()
end

-- Pairs of sentences that are paraphrases or not, as marked by a word of the second.
local function pairs_file(path, count)
  local lines = {"label,sentence1,sentence2"}
  for i = 1, count do
    local same = i % 3 == 0
    lines[#lines + 1] = ('%s,"Number %d, they ran.",He read %s %d .'):format(same and "equivalent" or "not_equivalent",
      i % 7, same and "so :" or "no :", i % 5)
  end
  write(path, lines)
end

local function start(script, dir, words)
  local command = {lfs.currentdir() .. "/examples/" .. script}
  for _, list in ipairs {words, quick[script]} do
    for _, word in ipairs(list) do command[#command + 1] = word end
  end
  return run.host(command, {timeout = 60, dir = dir})
end

for _, script in ipairs(scripts) do
  describe(script, function()
    it("learns pairs of sentences with names for labels, from CSV files", function()
      local dir = folder.make()
      pairs_file(dir .. "/a.csv", 240)
      pairs_file(dir .. "/b.csv", 33)
      local result = start(script, dir, {"--data", "a.csv,b.csv"})
      folder.remove(dir)
      assert.equal(0, result.code, result.output)
      assert.matches("Accuracy: 100.00%f[;\n]", result.stdout)
    end)

    it("reports which file of a folder is missing", function()
      local dir = folder.make()
      write(dir .. "/train.tsv", {"sentence\tlabel", "fine\t1", "bad\t0"})
      local result = start(script, dir, {"--data", "."})
      folder.remove(dir)
      assert.equal(1, result.code)
      assert.matches("test%.tsv", result.output)
    end)
  end)
end

describe("text_classification.lua", function()
  it("learns from a folder of TSV files and saves a model that the library loads", function()
    local dir = folder.make()
    local lines = {"sentence\tlabel"}
    for i = 1, 320 do lines[#lines + 1] = ("%s number %d\t%d"):format(i % 2 == 0 and "good" or "poor", i % 9, i % 2) end
    write(dir .. "/train.tsv", lines)
    write(dir .. "/dev.tsv", lines)
    local result = start(scripts[1], dir, {"--data", dir, "--save", "out"})
    assert.equal(0, result.code, result.output)
    assert.matches("Accuracy: 100.00\n$", result.stdout)
    local tokenizer = accelhost.text.AutoTokenizer.from_pretrained(dir .. "/out")
    local model = accelhost.models.AutoModelForSequenceClassification.from_pretrained(dir .. "/out")
    local logits = model(tokenizer({"good number 4", "poor number 4"}, {padding = true})).logits
    assert.same({0, 1}, logits:argmax(1):tolist())
    local adapted = start(scripts[1], dir, {"--data", dir, "--model", "out", "--lora", "2", "--save", "merged"})
    assert.equal(0, adapted.code, adapted.output)
    assert.matches("Accuracy: 100.00\n$", adapted.stdout)
    local merged, moved = accelhost.models.AutoModelForSequenceClassification.from_pretrained(dir .. "/merged"), 0
    local before = model:state_dict()
    for name, tensor in pairs(merged:state_dict()) do
      if not tensor:equal(before[name]) then moved = moved + 1 end
      if name:find "embeddings" then assert.is_true(tensor:equal(before[name]), name) end
    end
    assert.is_true(moved > 10)
    folder.remove(dir)
  end)
end)
