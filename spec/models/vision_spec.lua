-- Image models against transformers, torchvision and timm: each case of scripts/fixtures/vision, each check.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local image_names = require "accelhost.models.vision.image_names"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local models, optim, json, F = accelhost.models, accelhost.optim, accelhost.json, accelhost.nn.functional

local fixtures = require("lfs").currentdir() .. "/spec/fixtures/models/vision/"
local expected = require("spec.support.fixtures").load "models/vision/expected"
local labels = tensors.long(expected.labels)

local names = {}
for name in pairs(expected.cases) do names[#names + 1] = name end
table.sort(names)

-- The images of the fixture, by its formula.
local function images(height, width)
  local places = accelhost.arange(4 * 3 * height * (width or height), {dtype = "float64"})
  return ((places * 0.37):sin() + (places * 0.011):cos()):view(4, 3, height, width or height)
end

local function load(name, dtype)
  local case = expected.cases[name]
  dtype = dtype or "float64"
  if case.scheme == "torchvision" then
    local options = {}
    for field, value in pairs(case.fields) do options[field] = value end
    options.num_classes, options.weights = 3, fixtures .. name .. "/weights.pth"
    return models[case.constructor](options):to(dtype):eval()
  end
  return models.AutoModelForImageClassification.from_pretrained(fixtures .. name, {dtype = dtype})
end

local function logits(model, x)
  local output = model(x)
  return accelhost.is_tensor(output) and output or output.logits
end

local function flat(rows) return check.flat(tensors.double(rows)) end

local function train_step(model, x)
  local loss = F.cross_entropy(logits(model, x), labels)
  loss:backward()
  return loss:item()
end

local function train(model, x, optimizer, steps)
  local losses = {}
  for i = 1, steps do
    losses[i] = train_step(model, x)
    optimizer:step()
    optimizer:zero_grad()
  end
  return losses
end

-- The checks: sentence -> function(name, the fixture's numbers), in their order.
local sentences = {}
local checks = setmetatable({}, {__newindex = function(self, sentence, run)
  sentences[#sentences + 1] = sentence
  rawset(self, sentence, run)
end})

checks["returns the library's logits in float64 and float32"] = function(name, numbers)
  check.near(flat(numbers.logits), logits(load(name), images(numbers.size)), 1e-10)
  local model = load(name, "float32")
  assert.equal("float32", model:parameters()[1].dtype)
  check.near(flat(numbers.logits), logits(model, images(numbers.size):float()), 1e-5)
end

checks["has the library's loss, gradients and running statistics in training"] = function(name, numbers)
  local model, x = load(name):train(), images(numbers.size):requires_grad_()
  check.near(numbers.loss, train_step(model, x), 1e-10)
  check.near(numbers.image_gradient, tensors.weighed(x.grad), 1e-9)
  local squares = 0
  for _, parameter in ipairs(model:parameters()) do squares = squares + parameter.grad:square():sum():item() end
  check.near(numbers.squares, squares, 1e-9)
  for path, gradient in pairs(numbers.gradients or {}) do
    local own = path:gsub("%.layers%.(%d+)%.attention%.([qkv])_proj", function(i, part)
      return (".encoder.layer.%s.attention.attention.%s"):format(i, ({q = "query", k = "key", v = "value"})[part])
    end):gsub("^vit%.layers%.(%d+)%.", "vit.encoder.layer.%1."):gsub("attention%.o_proj", "attention.output.dense")
      :gsub("mlp%.fc1", "intermediate.dense"):gsub("mlp%.fc2", "output.dense")
    check.near(gradient, tensors.weighed(model:get_parameter(own).grad), 1e-9, own)
  end
  local found, wanted = {}, {}
  for path, buffer in model:named_buffers() do
    if not path:find "num_batches_tracked" then found[#found + 1] = tensors.weighed(buffer) end
  end
  for _, value in pairs(numbers.statistics) do wanted[#wanted + 1] = value end
  table.sort(found)
  table.sort(wanted)
  check.near(wanted, found, 1e-10)
end

checks["has the library's losses in 20 steps of SGD and of AdamW"] = function(name, numbers)
  local x = images(numbers.size)
  local model = load(name):train()
  local sgd = optim.SGD(model:parameters(), {lr = 0.02, momentum = 0.9, weight_decay = 1e-3})
  check.near(numbers.sgd, train(model, x, sgd, #numbers.sgd), 1e-9)
  model = load(name):train()
  check.near(numbers.adamw, train(model, x, optim.AdamW(model:parameters(), {lr = 1e-3, weight_decay = 0.1}),
    #numbers.adamw), 1e-9)
end

checks["is saved and read again, bit for bit"] = function(name, numbers)
  local kept = os.getenv "ACCELHOST_SAVED" -- for `scripts/fixtures/vision read`
  local leave = temporary.enter()
  local folder = kept and kept .. "/" .. name or "out"
  local model = load(name, "float32")
  model:save_pretrained(folder)
  local again, report = models.AutoModelForImageClassification.from_pretrained(folder, {output_loading_info = true})
  assert.same({missing_keys = {}, unexpected_keys = {}, mismatched_keys = {}}, report)
  for path, tensor in pairs(model:state_dict()) do assert.is_true(again:state_dict()[path]:equal(tensor), path) end
  local after = json.decode(files.read(folder .. "/config.json"))
  leave()
  assert.same({again._name}, after.architectures)
  assert.equal(model.config.model_type, after.model_type)
  if numbers.scheme ~= "transformers" then return end
  for field, value in pairs(json.decode(files.read(fixtures .. name .. "/config.json"))) do
    if field ~= "dtype" and field ~= "transformers_version" and value ~= json.null then
      assert.same(value, after[field], field)
    end
  end
end

checks["computes in bfloat16, under autocast and of channels-last images"] = function(name, numbers)
  local x = images(numbers.size):float()
  local low = logits(load(name, "bfloat16"), x)
  assert.equal("bfloat16", low.dtype)
  check.near(flat(numbers.logits), low, 0.2)
  local model = load(name, "float32"):train()
  local loss = accelhost.autocast("cpu", function() return F.cross_entropy(logits(model, x), labels) end)
  loss:backward()
  check.near(numbers.loss, loss:item(), 0.1)
  assert.equal("float32", model:parameters()[1].grad.dtype)
  model = load(name, "float32"):to {memory_format = "channels_last"}
  check.near(flat(numbers.logits), logits(model, x:contiguous {memory_format = "channels_last"}), 1e-5)
end

checks["trains to the same bits in a captured step"] = function(name, numbers)
  local function losses(compiled)
    local accelerator = accelhost.Accelerator {cpu = true}
    local model = load(name, "float32"):train()
    local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
    model, optimizer = accelerator:prepare(model, optimizer)
    local function step(batch)
      local loss = F.cross_entropy(logits(model, batch), labels)
      accelerator:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      return loss
    end
    local call, found = compiled and accelerator:compile(step) or step, {}
    for i = 1, 5 do found[i] = call(images(numbers.size):float() * i):item() end
    return found
  end
  assert.same(losses(false), losses(true))
end

checks["is counted on the device meta"] = function(name, numbers)
  local before = accelhost.get_default_device()
  accelhost.set_default_device "meta"
  local ok, output = pcall(function()
    local config = numbers.scheme == "torchvision" and load(name).config
      or models.AutoConfig.from_pretrained(fixtures .. name)
    local model = models.AutoModelForImageClassification.from_config(config)
    local result = model {pixel_values = accelhost.zeros(4, 3, numbers.size, numbers.size), labels = labels:to "meta"}
    result.loss:backward()
    return result
  end)
  accelhost.set_default_device(before)
  assert(ok, output)
  assert.same({4, 3}, output.logits:shape())
end

for _, name in ipairs(names) do
  describe("The image model " .. name, function()
    for _, sentence in ipairs(sentences) do
      it(sentence, function() checks[sentence](name, expected.cases[name]) end)
    end
  end)
end

for _, name in ipairs(names) do
  local numbers = expected.cases[name]
  if numbers.scheme == "transformers" then
    describe("The transformers model " .. name, function()
      it("returns the hidden states and the attentions that are requested", function()
        local model, x = load(name), images(numbers.size)
        local output, states, weights = model {pixel_values = x, output_hidden_states = true}, {}, {}
        for i, state in ipairs(output.hidden_states) do states[i] = tensors.weighed(state) end
        check.near(numbers.hidden_states, states, 1e-9)
        if not numbers.attentions then return end
        output = model {pixel_values = x, output_attentions = true}
        for i, each in ipairs(output.attentions) do weights[i] = tensors.weighed(each) end
        check.near(numbers.attentions, weights, 1e-9)
        check.near(flat(numbers.logits), output.logits, 1e-10)
      end)
    end)
  end
end

describe("ViT", function()
  it("interpolates its positions for images of another size, and refuses them else", function()
    for _, name in ipairs {"vit", "vit_no_bias"} do
      local output = load(name) {pixel_values = images(20, 16), interpolate_pos_encoding = true}
      check.near(flat(expected.cases[name].interpolated), output.logits, 1e-9)
    end
    check.raises("expected images of 12 x 12, got 20 x 16; interpolate_pos_encoding = true accepts other sizes",
      load "vit", images(20, 16))
  end)

  it("has the pooled output of transformers", function()
    local model = models.AutoModel.from_pretrained(fixtures .. "vit_base", {dtype = "float64"})
    local output = model(images(12))
    check.near(flat(expected.pooled.pooler_output), output.pooler_output, 1e-10)
    check.near(expected.pooled.last_hidden_state, tensors.weighed(output.last_hidden_state), 1e-9)
    assert.equal(16, model:get_input_embeddings().projection.out_channels)
  end)

  it("has the same bits and gradients with layers computed again", function()
    local function step(enable)
      local model = load "vit":train()
      if enable then model:gradient_checkpointing_enable() end
      local found = {train_step(model, images(12))}
      for path, parameter in model:named_parameters() do found[path] = parameter.grad:tolist() end
      return found
    end
    assert.same(step(false), step(true))
    check.raises("has no layers that can be computed again", function()
      load "resnet_basic":gradient_checkpointing_enable()
    end)
  end)
end)

describe("ConvNeXt", function()
  it("drops layers by the draws of PyTorch", function()
    local config = models.AutoConfig.from_pretrained(fixtures .. "convnext", {drop_path_rate = 0.6})
    local model = models.ConvNextForImageClassification.from_pretrained(fixtures .. "convnext",
      {dtype = "float64", drop_path_rate = 0.6})
    assert.equal(0.6, config.drop_path_rate)
    local found = {}
    model:train()
    accelhost.manual_seed(11)
    for i = 1, 3 do found[i] = F.cross_entropy(model(images(24)).logits, labels):item() end
    check.near(expected.dropped, found, 1e-9)
  end)
end)

-- A number of the names and shapes of weights, as the fixture computes it.
local function digest(lines)
  table.sort(lines)
  local number = 0
  for _, line in ipairs(lines) do
    for i = 1, #line do number = (number * 31 + line:byte(i)) % 1000003 end
  end
  return number
end

describe("A network of full size", function()
  local scheme_of = {
    torchvision = {resnet = image_names.resnet[1], vit = image_names.vit[1], convnext = image_names.convnext[1]},
    timm = {resnet = image_names.resnet[1], vit = image_names.vit[2], convnext = image_names.convnext[2]},
  }
  for library, rows in pairs(expected.full) do
    for name, wanted in pairs(rows) do
      it(("has the names and shapes of %s's %s"):format(library, name), function()
        local before = accelhost.get_default_device()
        accelhost.set_default_device "meta"
        local model = models.create_model(name)
        accelhost.set_default_device(before)
        local config, lines, done, elements = model.config, {}, {}, 0
        for own, tensor in pairs(model:state_dict()) do
          if not own:find "num_batches_tracked$" then
            local stored, rule = image_names.stored_name(scheme_of[library][config.model_type], own,
              model.base_model_prefix)
            local shape = tensor:shape()
            if rule[3] then shape[1] = 3 * shape[1] end
            if stored:find "layer_scale$" then shape = {shape[1], 1, 1} end
            if not done[stored] then lines[#lines + 1] = ("%s %s\n"):format(stored, table.concat(shape, "x")) end
            done[stored], elements = true, elements + tensor:numel()
          end
        end
        assert.equal(wanted.elements, elements)
        assert.equal(wanted.count, #lines)
        assert.equal(wanted.digest, digest(lines))
      end)
    end
  end
end)

describe("A constructor of image models", function()
  it("initialises a head of other classes, if requested, and names it", function()
    local options = {
      embedding_size = 4, hidden_sizes = {8, 8, 12, 12}, depths = {1, 2, 1, 1}, num_classes = 5,
      weights = fixtures .. "torchvision_resnet18/weights.pth",
    }
    check.raises("classifier.1", models.resnet18, options)
    options.ignore_mismatched_sizes = true
    local model = models.resnet18(options)
    assert.same({5, 12}, model.classifier[2].weight:shape())
    assert.equal("ResNet", model._name)
  end)

  it("reads and replaces layers by torchvision's and timm's names", function()
    local nn, sizes = accelhost.nn, {embedding_size = 4, hidden_sizes = {8, 8, 12, 12}, depths = {1, 1, 1, 1}}
    local resnet = models.resnet18(sizes)
    assert.equal(12, resnet.fc.in_features)
    assert.equal(resnet.classifier[2], resnet.fc)
    assert.equal(resnet.resnet.encoder.stages[4], resnet.layer4)
    resnet.fc, resnet.maxpool = nn.Linear(12, 3), nn.Identity()
    resnet.conv1 = nn.Conv2d(3, 4, 3, {padding = 1, bias = false})
    assert.same({4, 3}, resnet(images(12)):shape())
    assert.equal(3, resnet.config.num_labels)
    assert.is_nil(resnet:state_dict()["fc.weight"])
    assert.same({4, 3, 3, 3}, resnet:state_dict()["resnet.embedder.embedder.convolution.weight"]:shape())
    check.raises("ResNet: there is no layer 'avgpool' to replace", function() resnet.avgpool = nn.Identity() end)
    local vit = models.vit_b_16 {
      num_classes = 4, image_size = 12, patch_size = 4, hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
      intermediate_size = 8,
    }
    vit.heads.head = nn.Linear(8, 2)
    assert.same({4, 2}, vit(images(12)):shape())
    assert.equal(vit.classifier, vit.heads.head)
    vit.head = nn.Identity()
    assert.same({4, 8}, vit(images(12)):shape())
    check.raises("VisionTransformer: heads has no layer 'fc'", function() vit.heads.fc = nn.Identity() end)
  end)

  it("accepts tensors by the library's names in load_state_dict", function()
    local state = accelhost.load(fixtures .. "torchvision_vit/weights.pth")
    local fields = {num_classes = 3}
    for name, value in pairs(expected.cases.torchvision_vit.fields) do fields[name] = value end
    local model = models.vit_b_16(fields):to "float64"
    model:load_state_dict(state)
    check.near(flat(expected.cases.torchvision_vit.logits), model:eval()(images(12)), 1e-10)
    check.raises("Missing key(s) in state_dict: \"vit.layernorm.weight\"", function()
      state["encoder.ln.weight"] = nil
      model:load_state_dict(state)
    end)
  end)

  it("reads the names of the layers in torchvision's first files", function()
    local state, older = accelhost.load(fixtures .. "torchvision_vit/weights.pth"), {}
    for name, tensor in pairs(state) do
      older[name:gsub("%.mlp%.0%.", ".mlp.linear_1."):gsub("%.mlp%.3%.", ".mlp.linear_2.")] = tensor
    end
    local fields = {num_classes = 3, weights = older}
    for name, value in pairs(expected.cases.torchvision_vit.fields) do fields[name] = value end
    check.near(flat(expected.cases.torchvision_vit.logits), models.vit_b_16(fields):to "float64":eval()(images(12)),
      1e-10)
  end)

  it("creates a model by timm's names with a tag", function()
    local model = models.create_model("vit_tiny_patch16_224.augreg_in21k", {num_hidden_layers = 1, num_classes = 2})
    assert.equal(192, model.config.hidden_size)
    assert.equal("VisionTransformer", model._name)
  end)

  it("refuses unknown names and values", function()
    check.raises("create_model: unknown architecture 'resnet19' (did you mean 'resnet18'?)", models.create_model,
      "resnet19")
    check.raises("create_model: unknown architecture", models.create_model, 5)
    check.raises("resnet18: expected a table of options, got number 5", models.resnet18, 5)
    check.raises("ResNetConfig: unknown option 'num_clases'", models.resnet18, {num_clases = 3})
    check.raises("resnet18: weights: expected a file of tensors by name", models.resnet18, {weights = 5})
  end)
end)

describe("An image model", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  -- A folder with the files of a case, changed.
  local function write(name, changes, change_state)
    accelhost.utils.makedirs("made", {exist_ok = true})
    local values = json.decode(files.read(fixtures .. name .. "/config.json"))
    for field, value in pairs(changes or {}) do values[field] = value end
    files.write("made/config.json", json.encode(values))
    local state = accelhost.load(fixtures .. name .. "/model.safetensors")
    if change_state then change_state(state) end
    accelhost.save(state, "made/model.safetensors")
    return "made"
  end

  local function report_of(folder, options)
    options = options or {}
    options.output_loading_info = true
    return select(2, models.AutoModelForImageClassification.from_pretrained(folder, options))
  end

  for name, weight in pairs {
    resnet_basic = "resnet.encoder.stages.0.layers.0.layer.0.convolution.weight", timm_vit = "blocks.1.attn.qkv.weight",
    convnext = "convnext.encoder.stages.0.layers.0.dwconv.bias", timm_resnet18 = "layer2.0.bn1.running_mean",
  } do
    it("names missing and unexpected tensors: " .. name, function()
      local report = report_of(write(name, nil, function(state)
        state[weight] = nil
        state.extra = accelhost.zeros(2)
      end))
      assert.same({"extra"}, report.unexpected_keys)
      assert.equal(name == "timm_vit" and 3 or 1, #report.missing_keys)
    end)
  end

  it("replaces the head for other labels", function()
    for _, name in ipairs {"resnet_basic", "vit", "convnext", "timm_vit", "timm_convnext"} do
      check.raises("classifier", report_of, write(name), {num_labels = 5})
      local report = report_of(write(name), {num_labels = 5, ignore_mismatched_sizes = true})
      assert.equal(2, #report.mismatched_keys)
      assert.equal(2, #report.missing_keys)
    end
  end)

  it("keeps the names of labels, timm's too", function()
    local config = models.AutoConfig.from_pretrained(write("vit", {
      id2label = {["0"] = "cat", ["1"] = "dog", ["2"] = "hen"}, label2id = {cat = 0, dog = 1, hen = 2}}))
    assert.equal("dog", config.id2label[1])
    assert.same({cat = 0, dog = 1, hen = 2}, config:to_dict().label2id)
    config = models.AutoConfig.from_pretrained(write("timm_vit", {label_names = {"cat", "dog", "hen"}}))
    assert.equal("hen", config.id2label[2])
  end)

  it("has no counts of batches in PyTorch's first files", function()
    local report = report_of(write("timm_resnet18", nil, function(state)
      for name in pairs(state) do
        if name:find "num_batches_tracked" then state[name] = nil end
      end
    end))
    assert.same({missing_keys = {}, unexpected_keys = {}, mismatched_keys = {}}, report)
  end)

  it("accepts torchvision's names below a configuration of transformers", function()
    local case = expected.cases.torchvision_convnext
    local fields = {num_labels = 3, layer_norm_eps = 1e-6}
    for name, value in pairs(case.fields) do fields[name] = value end
    accelhost.utils.makedirs("made", {exist_ok = true})
    models.ConvNextConfig(fields):save_pretrained "made"
    os.execute(("cp '%storchvision_convnext/weights.pth' made/pytorch_model.bin"):format(fixtures))
    local model = models.ConvNextForImageClassification.from_pretrained("made", {dtype = "float64"})
    check.near(flat(case.logits), model(images(24)).logits, 1e-10)
  end)

  it("computes the losses of several labels and of a regression", function()
    local model, x = load "vit", images(12)
    local many = tensors.double {{1, 0, 1}, {0, 0, 1}, {1, 1, 1}, {0, 1, 0}}
    local output = model {pixel_values = x, labels = many}
    check.near(F.binary_cross_entropy_with_logits(output.logits, many):item(), output.loss:item(), 1e-12)
    model.config = model.config:with {problem_type = "regression"}
    output = model {pixel_values = x, labels = many}
    check.near(F.mse_loss(output.logits, many):item(), output.loss:item(), 1e-12)
  end)

  local refusals = {
    {"resnet_basic", {layer_type = "wide"}, "ResNetConfig: layer_type: expected basic or bottleneck, got 'wide'"},
    {"resnet_basic", {depths = {1}}, "ResNetConfig: depths: expected 2 items, as many as hidden_sizes has, got 1"},
    {"resnet_basic", {hidden_sizes = {8, 1.5}},
      "ResNetConfig: hidden_sizes: expected positive integers, item 2 is number 1.5"},
    {"resnet_basic", {hidden_act = "softsign2"}, "ResNetConfig: hidden_act: unknown activation"},
    {"resnet_basic", {quantization_config = {bits = 4}}, "quantization_config is not implemented"},
    {"vit", {head_dim = 5}, "ViTConfig: head_dim = number 5 is not implemented; expected 8"},
    {"vit", {num_attention_heads = 3}, "ViTConfig: hidden_size 16 is no multiple of num_attention_heads 3"},
    {"vit", {patch_size = {4}}, "ViTConfig: patch_size: expected a positive integer or {height, width}"},
    {"convnext", {num_stages = 3}, "ConvNextConfig: num_stages: expected 2, as many as depths has items, got number 3"},
    {"timm_resnet18", {architecture = "resnet18d"}, "unknown architecture 'resnet18d'"},
    {"timm_resnet18", {model_args = {stem_width = 32}}, "model_args: 'stem_width' is not implemented"},
    {"timm_vit", {global_pool = "avg"}, "global_pool = 'avg' is not implemented; expected token"},
  }
  for _, row in ipairs(refusals) do
    it(("refuses an entry of %s: %s"):format(row[1], (next(row[2]))), function()
      check.raises(row[3], models.AutoModelForImageClassification.from_pretrained, write(row[1], row[2]))
    end)
  end

  it("refuses images of another form", function()
    local model = load "vit"
    check.raises("ViTForImageClassification: pixel_values: expected shape (batch, 3, height, width), got (4, 12, 12)",
      model, accelhost.zeros(4, 12, 12))
    check.raises("expected shape (batch, 3, height, width), got (4, 1, 12, 12)", model, accelhost.zeros(4, 1, 12, 12))
    check.raises("pixel_values: expected floats, got uint8: call the image processor first", model,
      accelhost.zeros({4, 3, 12, 12}, {dtype = "uint8"}))
    check.raises("ViTForImageClassification: expected pixel_values", model, {labels = labels})
    check.raises("expected tensors by name ({pixel_values = ...}) or the pixel_values, got number 5", model, 5)
  end)
end)
