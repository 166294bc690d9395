-- Checkpoint folders: reading, reports, refusals and writing.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local temporary = require "spec.support.folder"
local models, write = accelhost.models, files.write

local fixtures = require("lfs").currentdir() .. "/spec/fixtures/models/"
local sizes = {vocab_size = 9, hidden_size = 12, num_hidden_layers = 1, intermediate_size = 8}

local function same(one, other)
  local left, right = one:state_dict(), other:state_dict()
  for name, tensor in pairs(left) do
    assert(right[name] and tensor:equal(right[name]), name)
  end
end

describe("A checkpoint", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  it("that was saved is read again, bit for bit", function()
    local model = models.BertForTokenClassification(models.BertConfig(sizes):with {num_labels = 5})
    model:save_pretrained "out"
    local read, told = models.AutoModelForTokenClassification.from_pretrained("out", {output_loading_info = true})
    same(model, read)
    assert.same({missing_keys = {}, unexpected_keys = {}, mismatched_keys = {}}, told)
    assert.equals(5, read.config.num_labels)
    assert.is_false(read.training)
  end)

  it("may consist of several files, and a smaller one replaces them", function()
    local model = models.GPT2LMHeadModel.from_pretrained(fixtures .. "gpt2")
    model:save_pretrained("out", {max_shard_size = "10KB"})
    assert.is_truthy(io.open "out/model.safetensors.index.json")
    same(model, models.AutoModelForCausalLM.from_pretrained "out")
    model:save_pretrained "out"
    assert.is_nil(io.open "out/model.safetensors.index.json")
    same(model, models.AutoModelForCausalLM.from_pretrained "out")
  end)

  it("of several files is refused where one is cut, changed or absent, and where the index is damaged", function()
    models.GPT2LMHeadModel.from_pretrained(fixtures .. "gpt2"):save_pretrained("out", {max_shard_size = "10KB"})
    local path, index = "out/model-00002-of-00004.safetensors", "out/model.safetensors.index.json"
    local bytes, list = files.read(path), files.read(index)
    local function refused(reason)
      local message = check.raises(reason, models.AutoModelForCausalLM.from_pretrained, "out")
      assert.is_nil(message:find "\n")
    end
    for _, row in ipairs {
      {"", "is in no format that is read here (safetensors, .npy, .npz, .pt), or cut"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "is a Git LFS pointer, not the file"},
      {bytes:sub(1, 100), "not a safetensors file, or cut: a header of"},
      {bytes:sub(1, -2), "tensor 'transformer.h.1.ln_1.weight': data_offsets [8640, 8704] are outside the 8703 bytes"},
      {bytes .. "x", "1 bytes after the last tensor"},
    } do
      write(path, row[1])
      refused(("load: '%s'"):format(path))
      refused(row[2])
    end
    assert(os.remove(path))
    refused(("load: '%s': there is no such file"):format(path))
    write(path, bytes)
    for _, text in ipairs {list:sub(1, 40), "{}", "[1]"} do
      write(index, text)
      refused(("'%s' is no index of weights (a JSON object with \"weight_map\")"):format(index))
    end
    write(index, '{"weight_map": {"lm_head.weight": "../model.safetensors"}}')
    refused "has '../model.safetensors' for lm_head.weight, which is no file in its folder"
    write(index, list)
    models.AutoModelForCausalLM.from_pretrained "out"
  end)

  it("has tied weights once and transformers' fields", function()
    models.GPT2LMHeadModel.from_pretrained(fixtures .. "gpt2"):save_pretrained "out"
    local state = accelhost.load "out/model.safetensors"
    assert.is_nil(state["lm_head.weight"])
    assert.is_truthy(state["transformer.wte.weight"])
    local config = accelhost.json.decode(io.open("out/config.json"):read "*a")
    assert.same({"GPT2LMHeadModel"}, config.architectures)
    assert.equals("gpt2", config.model_type)
    assert.equals(16, config.n_embd)
    assert.equals("float32", config.dtype)
  end)

  it("of a base model can be loaded into one with a head, and back", function()
    local base = models.BertModel(sizes)
    base:save_pretrained "base"
    local headed, told = models.BertForSequenceClassification.from_pretrained("base", {
      num_labels = 3, output_loading_info = true,
    })
    assert.same({"classifier.weight", "classifier.bias"}, told.missing_keys)
    assert.equals(0, headed.classifier.bias:abs():max():item())
    same(base, headed.bert)
    headed:save_pretrained "headed"
    local back, unused = models.BertModel.from_pretrained("headed", {output_loading_info = true})
    same(base, back)
    assert.same({"classifier.bias", "classifier.weight"}, unused.unexpected_keys)
  end)

  it("whose weights do not all fit is reported in lines that name them", function()
    local result = {
      missing_keys = {"classifier.weight", "classifier.bias"}, unexpected_keys = {"cls.weight"},
      mismatched_keys = {{"classifier.bias", {2}, {3}}},
    }
    local lines = require("accelhost.models.common.weights").differences(models.BertModel(sizes), "DIR", result)
    assert.same({
      "BertModel: new weights, not in 'DIR': classifier.weight; train the model before it is used",
      "BertModel: new weights, of another shape in 'DIR': classifier.bias (2 there, 3 here); "
        .. "train the model before it is used",
      "BertModel: unused weights of 'DIR': cls.weight",
    }, lines)
  end)

  it("may have the first models' names of norms", function()
    local base = models.BertModel(sizes)
    base:save_pretrained "old"
    local state = {}
    for name, tensor in pairs(accelhost.load "old/model.safetensors") do
      state["bert." .. name:gsub("LayerNorm%.weight$", "LayerNorm.gamma"):gsub("LayerNorm%.bias$", "LayerNorm.beta")] =
        tensor
    end
    accelhost.save(state, "old/model.safetensors")
    local read, told = models.BertModel.from_pretrained("old", {output_loading_info = true})
    same(base, read)
    assert.same({}, told.missing_keys)
  end)

  it("with another number of labels is refused, or initialised again with the option", function()
    models.BertForSequenceClassification(sizes):save_pretrained "two"
    check.raises("size mismatch for classifier.weight", function()
      models.BertForSequenceClassification.from_pretrained("two", {num_labels = 3})
    end)
    local model, told = models.BertForSequenceClassification.from_pretrained("two", {
      num_labels = 3, ignore_mismatched_sizes = true, output_loading_info = true,
    })
    assert.same({3, 12}, model.classifier.weight:shape())
    assert.equals("classifier.bias", told.mismatched_keys[1][1])
  end)

  it("is read in the dtype that is asked for, else in its own", function()
    models.BertModel(sizes):to("bfloat16"):save_pretrained "half"
    assert.equals("bfloat16", models.BertModel.from_pretrained("half").pooler.dense.weight.dtype)
    local model = models.BertModel.from_pretrained("half", {dtype = "float64"})
    assert.equals("float64", model.pooler.dense.weight.dtype)
    check.raises("dtype: expected \"auto\" or a dtype name", function()
      models.BertModel.from_pretrained("half", {dtype = "floaty"})
    end)
  end)

  it("is not changed by training the model that was read from it", function()
    models.BertModel(sizes):save_pretrained "kept"
    local before = accelhost.sha256(io.open("kept/model.safetensors", "rb"):read "*a")
    local model = models.BertModel.from_pretrained "kept"
    accelhost.no_grad(function()
      for _, parameter in ipairs(model:parameters()) do parameter:add_(1) end
    end)
    assert.equals(before, accelhost.sha256(io.open("kept/model.safetensors", "rb"):read "*a"))
  end)

  it("of a user's subclass is read by the subclass", function()
    local Tagger = models.BertForTokenClassification:extend "Tagger"
    Tagger(sizes):save_pretrained "out"
    assert.equals("Tagger", Tagger.from_pretrained("out")._name)
    assert.equals("Tagger", Tagger:from_pretrained("out")._name)
  end)

  it("is refused where there is none, with the reason", function()
    local load = models.AutoModel.from_pretrained
    check.raises("AutoModel.from_pretrained: 'bert-base-cased' is no folder (it does not exist); nothing is downloaded",
      function() load "bert-base-cased" end)
    require("lfs").mkdir "empty"
    check.raises("'empty' has no config.json: it is no folder of a model", function() load "empty" end)
    write("empty/adapter_config.json", "{}")
    check.raises("it is the folder of an adapter: read its base", function() load "empty" end)
    write("empty/config.json", "[1]")
    check.raises("config.json' is no JSON object", function() load "empty" end)
    write("empty/config.json", '{"model_type": "xlnet"}')
    check.raises("unknown model_type 'xlnet' (known: bert, ", function() load "empty" end)
    write("empty/config.json", '{"model_type": "bert", "hidden_size": "wide"}')
    check.raises("hidden_size: expected a positive integer, got 'wide'", function() load "empty" end)
    write("empty/config.json", '{"model_type": "bert", "id2label": 3}')
    check.raises("id2label: expected names by number, got number 3", function() load "empty" end)
    write("empty/config.json", '{"model_type": "bert", "id2label": {"0": "A", "2": "B"}}')
    check.raises("id2label: there are 2 names, but none for 1", function() load "empty" end)
    write("empty/config.json", '{"model_type": "bert", "tie_word_embeddings": "no"}')
    check.raises("tie_word_embeddings: expected true or false, got 'no'", function() load "empty" end)
    write("empty/config.json", '{"model_type": "bert"}')
    check.raises("'empty' has neither model.safetensors nor pytorch_model.bin nor an index",
      function() load "empty" end)
  end)

  it("of one type is refused by a class of another", function()
    check.raises("holds a model of type 'gpt2', not 'bert'", function()
      models.BertModel.from_pretrained(fixtures .. "gpt2")
    end)
    check.raises("AutoModelForMaskedLM.from_pretrained: models of type 'gpt2' have no such head; expected one of bert, "
      .. "distilbert, ", function()
      models.AutoModelForMaskedLM.from_pretrained(fixtures .. "gpt2")
    end)
  end)
end)

describe("A configuration", function()
  it("accepts names that it knows and suggests the nearest one", function()
    check.raises("BertConfig: unknown option 'hiden_size'", function() models.BertConfig {hiden_size = 3} end)
    check.raises("(did you mean 'hidden_size'?)", function() models.BertConfig {hiden_size = 3} end)
    check.raises("unknown option 'num_lables'", function()
      models.BertModel.from_pretrained(fixtures .. "bert", {num_lables = 3})
    end)
  end)

  it("counts labels by their names", function()
    local config = models.BertConfig {id2label = {[0] = "O", [1] = "PER", [2] = "LOC"}}
    assert.equals(3, config.num_labels)
    assert.equals("LOC", config:to_dict().id2label["2"])
    assert.equals("LABEL_3", config:with {num_labels = 4}.id2label[3])
  end)

  it("makes a model through AutoModel.from_config", function()
    assert.equals("BertForMaskedLM", models.AutoModelForMaskedLM.from_config(models.BertConfig(sizes))._name)
    check.raises("config: expected a configuration (BertConfig, GPT2Config), got a table", function()
      models.AutoModel.from_config {}
    end)
  end)
end)
