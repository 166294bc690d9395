-- Embeddings of texts against sentence-transformers: scripts/fixtures/sentence_transformers_models.py.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local datasets = require "spec.support.datasets"
local files = require "spec.support.files"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local models, json, optim = accelhost.models, accelhost.json, accelhost.optim

local fixtures = require("lfs").currentdir() .. "/spec/fixtures/models/sentences/"
local expected = require("spec.support.fixtures").load "models/sentences/expected"
local texts = expected.texts

local function load(name, options)
  return models.SentenceTransformer(fixtures .. name, options):to(options and options.dtype or "float64")
end

local function flat(rows) return check.flat(tensors.double(rows)) end

local function columns_of(model)
  return {
    model:tokenize {texts[1], texts[2], texts[3]}, model:tokenize {texts[2], texts[3], texts[4]},
    model:tokenize {texts[4], texts[5], texts[6]},
  }
end

for _, name in ipairs {"mean", "dense"} do
  local numbers = expected.cases[name]

  describe("SentenceTransformer of the folder " .. name, function()
    local model = load(name)

    it("returns the embeddings of sentence-transformers, whatever the batches are", function()
      local vectors = model:encode(texts)
      check.near(flat(numbers.embeddings), vectors, 1e-10)
      check.near(flat(numbers.embeddings), model:encode(texts, {batch_size = 2}), 1e-10)
      assert.equal(vectors:size(1), model:get_sentence_embedding_dimension())
    end)

    it("returns those of texts with a prompt, and shortened ones of length 1", function()
      check.near(flat(numbers.prompted), model:encode(texts, {prompt_name = "query"}), 1e-10)
      check.near(flat(numbers.prompted), model:encode(texts, {prompt = "query: "}), 1e-10)
      check.near(flat(numbers.normalized), model:encode(texts, {normalize_embeddings = true, truncate_dim = 8}), 1e-10)
    end)

    it("returns a vector of one text, and a list", function()
      local one = model:encode(texts[2])
      check.near(numbers.embeddings[2], one, 1e-10)
      local list = model:encode(texts, {convert_to_tensor = false})
      assert.equal(#texts, #list)
      check.near(numbers.embeddings[6], list[6], 1e-10)
      assert.equal(0, #model:encode({}, {convert_to_tensor = false}))
    end)

    it("returns the similarities of embeddings", function()
      local vectors = model:encode(texts)
      check.near(flat(numbers.similarity), model:similarity(vectors:narrow(0, 0, 2), vectors), 1e-10)
    end)

    it("computes them in float32 to its rounding", function()
      check.near(flat(numbers.embeddings), load(name, {dtype = "float32"}):encode(texts), 1e-5)
    end)

    local labels = tensors.double {0.9, 0.1, 0.4}
    for loss, row in pairs(numbers.training) do
      it("is trained by " .. loss .. " as there", function()
        local trained = load(name)
        local loss_of, found = models[loss](trained), {}
        local optimizer = optim.AdamW(loss_of:parameters(), {lr = 1e-3})
        for i = 1, #row.losses do
          local columns = columns_of(trained)
          if loss == "CosineSimilarityLoss" then columns[3] = nil end
          local value = loss_of(columns, labels)
          value:backward()
          if i == 1 then
            check.near(row.gradient, tensors.weighed(trained.transformer:get_input_embeddings().weight.grad), 1e-9)
          end
          optimizer:step()
          optimizer:zero_grad()
          found[i] = value:item()
        end
        check.near(row.losses, found, 1e-9)
      end)
    end

    it("is saved and read again, bit for bit", function()
      local kept = os.getenv "ACCELHOST_SAVED" -- for the fixture's script
      local leave = temporary.enter()
      local folder = kept and kept .. "/" .. name or "out"
      local plain = load(name, {dtype = "float32"})
      plain:save_pretrained(folder)
      local again = models.SentenceTransformer(folder)
      leave()
      assert.is_true(plain:encode(texts):equal(again:encode(texts)))
      assert.same(plain.prompts, again.prompts)
      assert.equal(plain.max_seq_length, again.max_seq_length)
      assert.equal(plain.similarity_fn_name, again.similarity_fn_name)
    end)
  end)
end

describe("Pooling", function()
  local layers = require "accelhost.models.sentences.layers"
  local states = tensors.double(expected.poolings.states)
  for _, row in ipairs(expected.poolings.rows) do
    it(("returns the vectors of %s%s, with padding on the %s"):format(row.mode,
      row.prompt_length and " without a prompt" or "", row.mask[1][1] == 1 and "right" or "left"), function()
      local pooling = layers.Pooling {pooling_mode = row.mode, include_prompt = row.prompt_length == nil}
      local features = {
        token_embeddings = states, attention_mask = tensors.long(row.mask), prompt_length = row.prompt_length,
      }
      local found = check.flat(pooling(features).sentence_embedding)
      for i, value in ipairs(flat(row.result)) do
        if value == value then check.near(value, found[i], 1e-12) end
      end
    end)
  end

  it("reads the flags of older configurations", function()
    assert.same({"mean"}, layers.Pooling({word_embedding_dimension = 4, pooling_mode_mean_tokens = true}).modes)
    assert.same({"cls", "max"}, layers.Pooling({pooling_mode_max_tokens = true, pooling_mode_cls_token = true}).modes)
    assert.same({"mean"}, layers.Pooling({}).modes)
  end)
end)

describe("A folder of sentence-transformers", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  local function saved() load("mean", {dtype = "float32"}):save_pretrained "out" end

  it("with a model alone has the mean of its states", function()
    saved()
    for _, name in ipairs {"modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"} do
      assert(os.remove("out/" .. name))
    end
    local model = models.SentenceTransformer "out"
    local vectors = accelhost.nn.functional.normalize(model:encode(texts), {dim = 1})
    check.near(flat(expected.cases.mean.embeddings), vectors, 1e-5)
    assert.equal(9, model.max_seq_length)
  end)

  it("has a pooler that no embedding needs: it is not trained", function()
    saved()
    local model = models.SentenceTransformer "out"
    model(model:tokenize(texts)).sentence_embedding:sum():backward()
    local frozen = 0
    for name, parameter in model:named_parameters() do
      local in_pooler = name:find("pooler", 1, true) ~= nil
      assert.equal(not in_pooler, parameter.requires_grad, name)
      assert.equal(in_pooler, parameter.grad == nil, name)
      if in_pooler then frozen = frozen + 1 end
    end
    assert.equal(2, frozen)
  end)

  it("with a T5 has the states of its encoder", function()
    accelhost.utils.makedirs "t5"
    for _, name in ipairs {"config.json", "model.safetensors"} do
      files.write("t5/" .. name, files.read(fixtures .. "../t5/t5/" .. name))
    end
    for _, name in ipairs {"tokenizer.json", "tokenizer_config.json"} do
      files.write("t5/" .. name, files.read(fixtures .. "dense/" .. name))
    end
    local model = models.SentenceTransformer "t5"
    local ids = model:tokenize({texts[1]}).input_ids
    local states = models.T5EncoderModel.from_pretrained "t5"(ids).last_hidden_state
    check.near(check.flat(states:mean(1)), model:encode {texts[1]}, 1e-6)
    assert.equal(16, model:get_sentence_embedding_dimension())
  end)

  it("with a module that is not implemented is refused", function()
    saved()
    local list = json.decode(files.read "out/modules.json")
    list[2].type = "sentence_transformers.models.CNN"
    files.write("out/modules.json", json.encode(list))
    check.raises("modules of type 'CNN' are not implemented (known: Transformer, Dense, Normalize, Pooling)", function()
      models.SentenceTransformer "out"
    end)
  end)

  it("with settings that are not implemented is refused", function()
    saved()
    files.write("out/sentence_bert_config.json", '{"do_lower_case": true}')
    check.raises("do_lower_case is not implemented", function() models.SentenceTransformer "out" end)
    files.write("out/sentence_bert_config.json", '{"transformer_task": "fill-mask"}')
    check.raises("transformer_task: expected feature-extraction, got 'fill-mask'", function()
      models.SentenceTransformer "out"
    end)
    files.write("out/sentence_bert_config.json", "{}")
    files.write("out/1_Pooling/config.json", '{"pooling_mode": "median"}')
    check.raises("pooling_mode: expected one of cls, max, mean, ", function() models.SentenceTransformer "out" end)
  end)

  it("is asked for prompts and texts that exist", function()
    local model = load "mean"
    check.raises("prompt_name: expected one of the model's (document, query), got 'title'", function()
      model:encode("fox", {prompt_name = "title"})
    end)
    check.raises("encode: text 2: expected a string, got", function() model:encode {"fox", 3} end)
    check.raises("CosineSimilarityLoss: expected a list of the features of 2", function()
      models.CosineSimilarityLoss(model)({model:tokenize {"fox"}}, accelhost.ones(1))
    end)
  end)
end)

describe("all-MiniLM-L6-v2", function()
  datasets.it("finds the sentence with the same meaning", "minilm", function(dir)
    local model = models.SentenceTransformer(dir)
    local vectors = model:encode({"A man is eating food.", "The girl is carrying a baby.", "A man eats a meal."},
      {normalize_embeddings = true})
    assert.same({3, 384}, vectors:shape())
    local found = model:similarity(vectors[0], vectors)[0]
    assert.is_true(found[2]:item() > 0.8 and found[1]:item() < 0.2)
  end)
end)
