-- Adapters against peft: each case of scripts/fixtures/adapters, each check.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local heads = require "spec.support.heads"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local models, peft, optim, json = accelhost.models, accelhost.peft, accelhost.optim, accelhost.json

local root = require("lfs").currentdir() .. "/spec/fixtures/"
local expected = require("spec.support.fixtures").load "peft/expected"
local ids = tensors.long(expected.ids)

local names = {}
-- Regular expressions need the plugin, which is built where PCRE2 is installed.
local has_expressions = pcall(require("accelhost._C").text.fullmatch, "a", {"a"})
for name in pairs(expected.cases) do
  if has_expressions or name ~= "expression" then names[#names + 1] = name end
end
table.sort(names)

local function base_of(name)
  local missing = expected.missing[name]
  local fields = #missing == 0 and {dtype = "float64"} or nil
  return heads.load(root .. "models/" .. expected.folders[name], expected.classes[name], missing, fields):to "float64"
end

local function config_of(name)
  local values = {}
  for field, value in pairs(expected.configs[name]) do values[field] = value end
  local cls = values.peft_type == "IA3" and peft.IA3Config or peft.LoraConfig
  values.peft_type = nil
  return cls(values)
end

local function load(name, options)
  return peft.PeftModel.from_pretrained(base_of(name), root .. "peft/" .. name, options)
end

local function outputs(model, name)
  if name == "answers" then
    local found = model {input_ids = ids % model.config.vocab_size, start_positions = tensors.long {1, 3},
      end_positions = tensors.long {4, 6}}
    return {logits = accelhost.stack({found.start_logits, found.end_logits}, -1), loss = found.loss}
  end
  local labels = name:find "sequence$" and tensors.long {2, 0} or ids
  return model {input_ids = ids % model.config.vocab_size, labels = labels}
end

local function last(logits) return logits:dim() == 3 and logits:select(1, -1) or logits end

local function flat(rows) return check.flat(tensors.double(rows)) end

local function train(model, name, steps)
  local trained = {}
  for _, parameter in ipairs(model:parameters()) do
    if parameter.requires_grad then trained[#trained + 1] = parameter end
  end
  local optimizer, losses = optim.AdamW(trained, {lr = 1e-2}), {}
  for i = 1, steps do
    local loss = outputs(model, name).loss
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    losses[i] = loss:item()
  end
  return losses
end

describe("get_peft_model", function()
  for _, name in ipairs(names) do
    it("draws peft's random numbers and trains the same parameters: " .. name, function()
      local numbers, config, base = expected.cases[name], config_of(name), base_of(name)
      accelhost.manual_seed(5)
      local model = peft.get_peft_model(base, config)
      local trained = {}
      for parameter, tensor in model:named_parameters() do
        if tensor.requires_grad then trained[parameter] = tensors.weighed(tensor) end
      end
      for parameter, value in pairs(numbers.drawn) do
        check.near(value, trained[parameter] or 0 / 0, 1e-6, parameter)
        trained[parameter] = nil
      end
      assert.is_nil((next(trained)))
      assert.same({numbers.trainable, numbers.all}, {model:get_nb_trainable_parameters()})
    end)
  end

  it("names a wrong value of a configuration", function()
    local function config(values) return function() return peft.LoraConfig(values) end end
    check.raises("LoraConfig: unknown option 'rank'", config {rank = 4})
    check.raises("LoraConfig: r: expected a positive integer", config {r = 0})
    check.raises("LoraConfig: lora_dropout: expected 0 or more and less than 1, got 1", config {lora_dropout = 1})
    check.raises("LoraConfig: eva_config: not supported", config {eva_config = {rho = 2}})
    check.raises("IA3Config: feedforward_modules: 'fc' is none of the target_modules (k)", function()
      peft.IA3Config {target_modules = {"k"}, feedforward_modules = {"fc"}}
    end)
    check.raises("LoraConfig: target_modules: expected ", config {target_modules = 3})
    check.raises("get_peft_model: peft_config: expected a LoraConfig or IA3Config, got a table", function()
      peft.get_peft_model(base_of "lora", {r = 4})
    end)
    check.raises("target_modules: no module of the model ends with query (there are model.layers.0", function()
      peft.get_peft_model(base_of "lora", peft.LoraConfig {target_modules = {"query"}})
    end)
    check.raises("add_adapter: target_modules: 'model.norm' is a RMSNorm; adapters are for linear maps", function()
      peft.get_peft_model(base_of "lora", peft.LoraConfig {target_modules = {"norm"}})
    end)
  end)

  it("names a wrong regular expression", function()
    if not has_expressions then return pending "needs accelhost-regex.so" end
    check.raises("the regular expression 'q_proj' matches no module's whole name (there are model.layers.0", function()
      peft.get_peft_model(base_of "lora", peft.LoraConfig {target_modules = "q_proj"})
    end)
    check.raises("add_adapter: regular expression '.*(q_proj': missing closing parenthesis", function()
      peft.get_peft_model(base_of "lora", peft.LoraConfig {target_modules = ".*(q_proj"})
    end)
  end)

  it("names modules that cannot have adapters, and adapters of another kind", function()
    check.raises("'model.norm' is a RMSNorm; vectors of IA3 are for linear maps", function()
      peft.get_peft_model(base_of "lora", peft.IA3Config {target_modules = {"norm"}, feedforward_modules = {}})
    end)
    check.raises("adapters of a model are of one kind: this is LORA, those of the model are IA3", function()
      load("ia3"):add_adapter("second", peft.LoraConfig())
    end)
    check.raises("there is no default for Linear", function()
      peft.get_peft_model(accelhost.nn.Linear(2, 2), peft.LoraConfig())
    end)
  end)

  it("freezes a model of any class, which then trains its adapters alone", function()
    local nn = accelhost.nn
    local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    local before = net[1].weight:clone()
    local model = peft.get_peft_model(net, peft.LoraConfig {r = 2, target_modules = {"0"}, modules_to_save = {"2"}})
    local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
    for _ = 1, 2 do
      optimizer:zero_grad()
      model(accelhost.ones(3, 4)):pow(2):sum():backward()
      optimizer:step()
    end
    assert.is_true(before:equal(model.base_model.model[1].base_layer.weight))
    assert.is_true(model.base_model.model[1].lora_B.default.weight:abs():sum():item() > 0)
    assert.is_false(model.base_model.model[3].original_module.weight:equal(
      model.base_model.model[3].modules_to_save.default.weight))
  end)
end)

-- A temporary folder around each sentence.
local function in_a_folder()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)
end

describe("An adapter of peft's files", function()
  in_a_folder()

  for _, name in ipairs(names) do
    local numbers = expected.cases[name]

    it("returns peft's outputs, and its losses in 20 steps of AdamW: " .. name, function()
      local model = load(name, {is_trainable = true})
      check.near(flat(numbers.logits), last(outputs(model, name).logits), 1e-10)
      local losses = train(model, name, 20)
      for i = 1, 20 do check.near(numbers.losses[i], losses[i], 1e-9, "step " .. i) end
      local merged = model:merge_and_unload()
      for parameter, value in pairs(numbers.merged) do
        check.near(value, tensors.weighed(merged:get_parameter(parameter)), 1e-8, parameter)
      end
    end)

    it("merges into the weights and out of them again: " .. name, function()
      local model = load(name)
      local plain = outputs(model, name).logits
      model:merge_adapter()
      check.near(check.flat(plain), outputs(model, name).logits, 1e-10)
      model:unmerge_adapter()
      check.near(check.flat(plain), outputs(model, name).logits, 1e-10)
      local without = model:disable_adapter(outputs, model, name).logits
      check.near(check.flat(outputs(base_of(name), name).logits), without, 1e-10)
      check.near(check.flat(without), outputs(model:unload(), name).logits, 1e-10)
    end)

    it("is saved and read back as it is: " .. name, function()
      local saved = os.getenv "ACCELHOST_SAVED"
      local folder = saved and saved .. "/" .. name or "out"
      local model = load(name)
      model:save_pretrained(folder)
      local again = peft.PeftModel.from_pretrained(base_of(name), folder)
      assert.is_true(outputs(model, name).logits:equal(outputs(again, name).logits))
      local config, stored = peft.PeftConfig.from_pretrained(folder), json.decode(files.read(folder
        .. "/adapter_config.json"))
      assert.equal(expected.configs[name].r, config.r)
      assert.equal(expected.configs[name].peft_type or "LORA", stored.peft_type)
      for _, parameter in ipairs(again:parameters()) do assert.is_false(parameter.requires_grad) end
    end)
  end

  it("is refused by name when a file is of another model", function()
    local folder = "out"
    load("lora"):save_pretrained(folder)
    local function read() return peft.PeftModel.from_pretrained(base_of "lora", folder) end
    local function change(field, value)
      local config = json.decode(files.read(folder .. "/adapter_config.json"))
      config[field] = value
      files.write(folder .. "/adapter_config.json", json.encode(config))
    end
    change("r", 2)
    check.raises("lora_A.weight: expected shape (2, 16), got (4, 16): adapter_config.json has r = 2, the file r = 4",
      read)
    change("r", 4)
    change("target_modules", {"q_proj", "v_proj", "o_proj"})
    check.raises("safetensors' lacks base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight", read)
    change("base_model_name_or_path", "llama")
    check.raises("and 1 more: its base model is 'llama'", read)
    change("target_modules", {"q_proj"})
    check.raises("has tensors without a place: base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight", read)
    change("peft_type", "LOHA")
    check.raises("peft_type: expected IA3 or LORA or PREFIX_TUNING or PROMPT_TUNING or P_TUNING, got 'LOHA'", read)
    check.raises("IA3Config.from_pretrained: 'out/adapter_config.json': peft_type: expected IA3, got 'LOHA'", function()
      peft.IA3Config.from_pretrained(folder)
    end)
    files.write(folder .. "/adapter_config.json", "[1]")
    check.raises("is no JSON object", read)
    os.remove(folder .. "/adapter_config.json")
    check.raises("has no adapter_config.json: it is no folder of an adapter", read)
  end)
end)

describe("The base of an adapter", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  it("is named in the adapter's folder, by which both are loaded", function()
    local names_of = {lora = "AutoPeftModelForCausalLM", sequence = "AutoPeftModelForSequenceClassification"}
    for name, Auto in pairs(names_of) do
      local base = base_of(name)
      local model = peft.get_peft_model(base, config_of(name))
      model:save_pretrained(name)
      assert.equal(root .. "models/" .. expected.folders[name], model.peft_config.default.base_model_name_or_path)
      local again = peft[Auto].from_pretrained(name, {dtype = "float64", is_trainable = true})
      check.near(check.flat(last(outputs(model, name).logits)), last(outputs(again, name).logits), 1e-12)
      assert.same({model:get_nb_trainable_parameters()}, {again:get_nb_trainable_parameters()})
    end
  end)

  it("is the configuration's where the model has no folder", function()
    local made = models.LlamaForCausalLM {vocab_size = 9, hidden_size = 8, intermediate_size = 8,
      num_hidden_layers = 1, num_attention_heads = 2}
    local config = peft.LoraConfig {r = 1, base_model_name_or_path = "elsewhere"}
    peft.get_peft_model(made, config):save_pretrained "out"
    check.raises("AutoPeftModelForCausalLM.from_pretrained: 'out/adapter_config.json': base_model_name_or_path: "
      .. "expected the folder of the base model, got 'elsewhere', which is no folder; load the base", function()
      peft.AutoPeftModelForCausalLM.from_pretrained "out"
    end)
    check.raises("'nowhere' is no folder", function() peft.AutoPeftModelForCausalLM.from_pretrained "nowhere" end)
  end)
end)

describe("Weights that the base's folder lacks", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  -- Return the warnings of get_peft_model for a BERT without a pooler and a classifier.
  local function warned(config)
    local base = base_of "sequence"
    base.new_weights = {"bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"}
    local text, stderr = "", io.stderr
    io.stderr = {write = function(_, ...) text = text .. table.concat {...} end} -- luacheck: ignore
    local fine, made = pcall(peft.get_peft_model, base, config)
    io.stderr = stderr -- luacheck: ignore
    assert(fine, made)
    return text, made
  end

  it("are named where the adapter neither trains nor saves them", function()
    local wanted = "warning: get_peft_model: new weights that the adapter neither trains nor saves: "
      .. "bert.pooler.dense.weight, bert.pooler.dense.bias; list their modules in modules_to_save"
    local text = warned(peft.LoraConfig {task_type = "SEQ_CLS"})
    assert.equal(wanted, text:sub(1, #wanted))
    assert.equal("", (warned(peft.LoraConfig {task_type = "SEQ_CLS", modules_to_save = {"pooler"}})))
    local saved, made = warned(peft.PromptTuningConfig {num_virtual_tokens = 2, modules_to_save = {"pooler"}})
    assert.equal("", saved)
    made:save_pretrained "out"
    local entries = {}
    for name in pairs(accelhost.load "out/adapter_model.safetensors") do entries[#entries + 1] = name end
    table.sort(entries)
    assert.same({"base_model.bert.pooler.dense.bias", "base_model.bert.pooler.dense.weight",
      "base_model.classifier.bias", "base_model.classifier.weight", "prompt_embeddings"}, entries)
  end)
end)

describe("Several adapters", function()
  in_a_folder()

  it("are selected by name, added to each other, and saved apart", function()
    local model = load "lora"
    local first = outputs(model, "lora").logits
    model:add_adapter("second", peft.LoraConfig {r = 2, target_modules = {"q_proj"}, init_lora_weights = false})
    assert.is_true(first:equal(outputs(model, "lora").logits))
    model:set_adapter "second"
    local second = outputs(model, "lora").logits
    assert.is_false(first:equal(second))
    model:set_adapter {"default", "second"}
    assert.is_false(second:equal(outputs(model, "lora").logits))
    model:set_adapter "default"
    assert.is_true(first:equal(outputs(model, "lora").logits))
    local folder = "out"
    model:save_pretrained(folder)
    local other = load "lora"
    other:load_adapter(folder .. "/second", "second")
    other:set_adapter "second"
    assert.is_true(second:equal(outputs(other, "lora").logits))
    check.raises("delete_adapter: 'default' is active", function() model:delete_adapter "default" end)
    model:delete_adapter "second"
    check.raises("set_adapter: unknown adapter 'second' (known: default)", function() model:set_adapter "second" end)
    check.raises("add_adapter: there is an adapter 'default' already", function()
      model:add_adapter("default", peft.LoraConfig())
    end)
  end)
end)

describe("Adapters are combined as by peft", function()
  local several = expected.several
  local function with_adapters()
    accelhost.manual_seed(5)
    local model
    for _, name in ipairs {"one", "two", "three"} do
      local rank, alpha = unpack(several.adapters[name])
      local config = peft.LoraConfig {r = rank, lora_alpha = alpha, target_modules = {"q_proj", "down_proj"},
        init_lora_weights = false}
      if model then
        model:add_adapter(name, config)
      else
        model = peft.get_peft_model(base_of "lora":double():eval(), config, name)
      end
    end
    return model
  end
  local function logits(model)
    return accelhost.no_grad(function() return outputs(model, "lora").logits:select(1, -1) end)
  end

  for i, case in ipairs(several.sums) do
    it(("in a weighted sum: %s of %s"):format(case.options.combination_type or "svd", table.concat(case.names, ", ")),
      function()
        local model = with_adapters()
        accelhost.manual_seed(6)
        model:add_weighted_adapter(case.names, case.weights, "sum" .. i, case.options)
        model:set_adapter("sum" .. i)
        check.near(case.logits, logits(model), 1e-5)
      end)
  end

  it("when several are active, and when they are merged", function()
    local model = with_adapters()
    model:set_adapter {"one", "three"}
    check.near(several.both, logits(model), 1e-5)
    check.near(several.merged, logits(model:merge_and_unload {adapter_names = {"two", "three"}}), 1e-5)
  end)

  it("or refused by name", function()
    local model = with_adapters()
    local function sum(...)
      local given = {...}
      return function() model:add_weighted_adapter(unpack(given)) end
    end
    check.raises("add_weighted_adapter: unknown adapter 'four'", sum({"one", "four"}, {1, 1}, "sum"))
    check.raises("expected a weight for each adapter, got 2 adapters and 1 weights", sum({"one", "two"}, {1}, "sum"))
    check.raises("adapters of one rank are expected with \"linear\", got r = 4, 2; use \"cat\" or \"svd\"",
      sum({"one", "three"}, {1, 1}, "sum", {combination_type = "linear"}))
    check.raises("density: expected a number from 0 to 1 with \"ties\"",
      sum({"one", "two"}, {1, 1}, "sum", {combination_type = "ties"}))
    check.raises("merge_and_unload: adapter_names: unknown adapter 'four'", function()
      model:merge_and_unload {adapter_names = {"four"}}
    end)
  end)
end)

describe("Factors that are made from the weight", function()
  for _, kind in ipairs {"pissa", "olora"} do
    it("leave the outputs as they are, and have their part of the weight: " .. kind, function()
      local base = base_of "lora":double():eval()
      local before, weight = outputs(base, "lora").logits, base.model.layers[1].self_attn.q_proj.weight:clone()
      local model = peft.get_peft_model(base, peft.LoraConfig {r = 3, target_modules = {"q_proj"},
        init_lora_weights = kind})
      check.near(check.flat(before), outputs(model, "lora").logits, 1e-10)
      local layer = model.base_model.model.model.layers[1].self_attn.q_proj
      local part = layer.lora_B.default.weight:matmul(layer.lora_A.default.weight) * layer.scaling.default
      check.near(check.flat(weight - layer.base_layer.weight), part, 1e-10)
      if kind == "pissa" then
        local u, s, v = accelhost.linalg.svd(weight:detach(), {full_matrices = false})
        check.near(check.flat((u:narrow(1, 0, 3) * s:narrow(0, 0, 3)):matmul(v:narrow(0, 0, 3))), part, 1e-10)
      end
    end)
  end

  it("have an even rank where they are orthogonal", function()
    check.raises("init_lora_weights = \"orthogonal\": expected an even r, got 3", function()
      peft.get_peft_model(base_of "lora", peft.LoraConfig {r = 3, init_lora_weights = "orthogonal"})
    end)
  end)
end)

describe("A model with adapters", function()
  in_a_folder()

  it("generates the tokens of its merged weights", function()
    local model = load "dora"
    local written = model:generate(ids, {max_new_tokens = 6, min_new_tokens = 6})
    assert.is_true(written:equal(model:merge_and_unload():generate(ids, {max_new_tokens = 6, min_new_tokens = 6})))
  end)

  it("has the same gradients with layers that are computed again", function()
    local plain, again = load("lora", {is_trainable = true}), load("lora", {is_trainable = true})
    again:gradient_checkpointing_enable()
    for _, model in ipairs {plain, again} do outputs(model:train(), "lora").loss:backward() end
    for name, parameter in plain:named_parameters() do
      if parameter.requires_grad then
        check.near(check.flat(parameter.grad), again:get_parameter(name).grad, 1e-12, name)
      end
    end
  end)

  it("keeps adapters in float32 over weights in bfloat16, and trains under bf16 autocast", function()
    local base = models.AutoModelForCausalLM.from_pretrained(root .. "models/decoders/llama", {dtype = "bfloat16"})
    local model = peft.get_peft_model(base, peft.LoraConfig {r = 2})
    local layer = model:get_submodule "base_model.model.model.layers.0.self_attn.q_proj"
    assert.equal("float32", layer.lora_A.default.weight.dtype)
    assert.equal("bfloat16", layer(accelhost.ones({1, 16}, {dtype = "bfloat16"})).dtype)
    local losses = train(model, "lora", 5)
    assert.is_true(losses[5] < losses[1])
  end)

  it("is saved in a run's checkpoint without its base, which has to be the same when the run resumes", function()
    local function start(name)
      local model = load(name, {is_trainable = true})
      local accelerator = accelhost.Accelerator()
      local optimizer = optim.AdamW(model:parameters(), {lr = 1e-2})
      model, optimizer = accelerator:prepare(model, optimizer)
      return model, optimizer, accelerator
    end
    local function step(model, optimizer)
      local loss = outputs(model, "lora").loss
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
      return loss:item()
    end
    local model, optimizer, accelerator, _ = start "lora"
    step(model, optimizer)
    accelerator:save_state "state"
    local expected_losses = {step(model, optimizer), step(model, optimizer)}
    local saved = accelhost.load "state/model.safetensors"
    for name in pairs(saved) do assert.is_true(name == "frozen_weights" or name:find "lora_" ~= nil, name) end
    model, optimizer, accelerator = start "lora"
    accelerator:load_state "state"
    assert.same(expected_losses, {step(model, optimizer), step(model, optimizer)})
    model, _, accelerator = start "lora"
    accelhost.no_grad(function()
      model:get_parameter "base_model.model.model.norm.weight":add_(1)
    end)
    check.raises("load_state: base_model.model.model.norm.weight differs from the frozen weights of the saved run",
      function() accelerator:load_state "state" end)
    _, _, accelerator = start "dora"
    check.raises("load_state: the ", function() accelerator:load_state "state" end)
  end)

  it("is prepared, trained by the Trainer, and saved as an adapter", function()
    local model = load("sequence", {is_trainable = true}):float()
    local rows = {}
    for i = 1, 8 do rows[i] = {input_ids = {i, i + 1, i % 3}, labels = i % 3} end
    local folder = "out"
    local trainer = accelhost.Trainer {
      model = model, train_dataset = rows,
      args = accelhost.TrainingArguments {output_dir = folder, max_steps = 3, save_strategy = "no", report_to = "none",
        disable_tqdm = true},
    }
    trainer:train()
    trainer:save_model(folder .. "/adapter")
    local again = peft.PeftModel.from_pretrained(base_of "sequence", folder .. "/adapter")
    local trained = trainer.model:get_submodule("base_model.model.classifier").modules_to_save.default.weight
    check.near(check.flat(trained:double()), again:get_submodule("base_model.model.classifier").modules_to_save.default
      .weight, 1e-7)
    assert.equal("file", accelhost.data and require("accelhost._C").data.look(folder .. "/adapter/adapter_config.json"))
  end)
end)
