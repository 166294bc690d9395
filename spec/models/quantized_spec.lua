-- Quantised weights against bitsandbytes, transformers and peft: scripts/fixtures/quantized.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local run = require "spec.support.run"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local models, nn, optim, peft = accelhost.models, accelhost.nn, accelhost.optim, accelhost.peft

local root = require("lfs").currentdir() .. "/spec/fixtures/quantized/"
local expected = require("spec.support.fixtures").load "quantized/expected"
local formats = accelhost.load(root .. "formats.safetensors")
local ids = tensors.long(expected.ids)
local batch = {input_ids = ids, labels = ids}

local kinds = {
  int8 = {load_in_8bit = true},
  nf4 = {load_in_4bit = true, bnb_4bit_quant_type = "nf4", bnb_4bit_use_double_quant = true},
  fp4 = {load_in_4bit = true, llm_int8_skip_modules = {"lm_head", "down_proj"}},
}
local names = {"fp4", "int8", "nf4"}

local function near(wanted, found, tolerance, what)
  check.near(type(wanted) == "userdata" and check.flat(wanted) or wanted, found, tolerance, what)
end

local function load(kind, options)
  options = options or {}
  options.quantization_config = models.BitsAndBytesConfig(kinds[kind])
  options.dtype = options.dtype or "float32"
  return models.AutoModelForCausalLM.from_pretrained(root .. "base", options)
end

local function equal(a, b, what)
  assert(a.dtype == b.dtype and C.same_shape(a, b), what)
  assert(a:ne(b):sum():item() == 0, what .. " differs")
end

local function layer_of(kind, weight)
  local out, width = weight:size(0), weight:size(1)
  if kind == "int8" then return nn.Linear8bitLt(width, out, {bias = false}) end
  return nn.Linear4bit(width, out, {bias = false, quant_type = kind:sub(1, 3),
    compress_statistics = kind:find "nested" ~= nil})
end

describe("quantised linear maps", function()
  for number, shape in ipairs {"6 x 192", "5 x 7", "20 x 64"} do
    for _, dtype in ipairs {"float32", "bfloat16", "float16"} do
      local case = ("%d.%s."):format(number - 1, dtype)
      local weight, x = formats[case .. "weight"], formats[case .. "x"]

      for _, kind in ipairs {"nf4", "nf4.nested", "fp4", "fp4.nested"} do
        it(("have bitsandbytes' codes: %s of %s, %s"):format(kind, shape, dtype), function()
          local layer, found = layer_of(kind, weight), formats[case .. kind .. ".codes"]
          layer:load_state_dict {weight = weight}
          local state = layer:state_dict()
          equal(found, state.weight, "weight")
          for _, name in ipairs {"absmax", "quant_map", "nested_quant_map"} do
            local theirs = formats[("%s%s.state.%s"):format(case, kind, name)]
            assert.equal(theirs == nil, state["weight." .. name] == nil)
            if theirs then equal(theirs, state["weight." .. name], name) end
          end
          near(formats[case .. kind .. ".dequantized"], layer:dequantize():float(), 2e-8)
        end)

        it(("return its products from its state: %s of %s, %s"):format(kind, shape, dtype), function()
          local layer, state, prefix = layer_of(kind, weight), {}, case .. kind .. ".state."
          for name, tensor in pairs(formats) do
            if name:sub(1, #prefix) == prefix then state["weight." .. name:sub(#prefix + 1)] = tensor end
          end
          state.weight = formats[case .. kind .. ".codes"]
          layer:load_state_dict(state)
          equal(formats[case .. kind .. ".dequantized"], layer:dequantize(), "dequantized")
          near(formats[case .. kind .. ".product"], layer(x), 1e-6)
        end)
      end

      it(("have its int8 numbers: %s, %s"):format(shape, dtype), function()
        local layer = layer_of("int8", weight)
        layer:load_state_dict {weight = weight}
        equal(formats[case .. "int8.codes"], layer.weight.data, "weight")
        equal(formats[case .. "int8.scales"], layer:state_dict().SCB, "SCB")
        equal(formats[case .. "int8.dequantized"], layer:dequantize(), "dequantized")
        near(x:matmul(layer:dequantize():t()), layer(x), 1e-6)
      end)
    end
  end

  for _, kind in ipairs {"nf4", "nf4.nested", "fp4", "int8"} do
    it("compute products and gradients of any number of rows: " .. kind, function()
      for _, size in ipairs {{96, 64}, {70, 192}, {33, 130}, {7, 5}, {40, 4160}} do
        local layer = layer_of(kind, accelhost.randn(size[1], size[2]))
        local weight = layer:dequantize()
        for _, rows in ipairs {1, 2, 3, 4, 5, 17} do
          local x = accelhost.randn(rows, size[2]):requires_grad_()
          local grad = accelhost.randn(rows, size[1])
          local y = layer(x)
          y:backward(grad)
          local scale = size[2] ^ 0.5
          near(x:detach():matmul(weight:t()), y:detach(), 2e-6 * scale)
          near(grad:matmul(weight), x.grad, 2e-6 * scale)
          local half = layer(x:detach():bfloat16())
          assert.equal("bfloat16", half.dtype)
          near(x:detach():matmul(weight:t()), half:float(), 0.05 * (weight:std():item() + 0.01) * scale)
        end
      end
    end)
  end

  it("read strided inputs, and empty ones", function()
    for _, kind in ipairs {"nf4", "int8"} do
      local layer = layer_of(kind, accelhost.randn(6, 64))
      local x = accelhost.randn(2, 64, 3)
      local wanted = x:transpose(1, 2):matmul(layer:dequantize():t())
      near(wanted, layer(x:transpose(1, 2)), 1e-5)
      near(wanted:select(1, 0), layer(x:select(2, 0)), 1e-5)
      assert.same({0, 6}, layer(accelhost.empty(0, 64)):shape())
    end
  end)

  it("return NaN where an input is infinite or NaN", function()
    for _, kind in ipairs {"nf4", "int8"} do
      local layer = layer_of(kind, accelhost.randn(6, 64))
      local x = accelhost.ones(2, 64)
      x[0][3] = 0 / 0
      local y = layer(x)
      assert.equal(6, y[0]:isnan():sum():item())
      assert.equal(0, y[1]:isnan():sum():item())
    end
  end)

  it("have the largest int8 codes where the largest number is too small for a reciprocal", function()
    local codes = C.quantize_int8(accelhost.tensor {{1e-40, -1e-40, 0}})
    assert.same({{127, -127, 0}}, codes:tolist())
  end)

  it("have bias gradients and second derivatives of the input", function()
    local layer = nn.Linear4bit(64, 3, {quant_type = "nf4"})
    local x = accelhost.randn(2, 64):requires_grad_()
    local gradient = accelhost.autograd.grad(layer(x):pow(2):sum(), {x}, {create_graph = true})[1]
    local weight = layer:dequantize()
    near(2 * layer(x):detach():matmul(weight), gradient, 1e-4)
    gradient:sum():backward()
    near((2 * weight:t():matmul(weight)):sum(0):expand(2, 64), x.grad, 1e-4)
    layer.bias.grad = nil
    layer(x):sum():backward()
    near({2, 2, 2}, layer.bias.grad, 1e-6)
  end)

  it("keep their scales when a module changes its dtype, and are copied whole", function()
    local layer = nn.Linear4bit(64, 3, {quant_type = "nf4"})
    local before, copy = layer:dequantize(), layer:deepcopy()
    layer:bfloat16()
    equal(before, layer:dequantize(), "weight")
    assert.equal("bfloat16", layer.bias.dtype)
    layer:set_weight(accelhost.zeros(3, 64))
    equal(before, copy:dequantize(), "copy")
  end)

  it("refuse states and inputs that do not fit, in one line", function()
    local layer = nn.Linear4bit(64, 3, {quant_type = "nf4"})
    local function loading(change)
      return function()
        local state = layer:state_dict()
        change(state)
        layer:load_state_dict(state)
      end
    end
    local function text(fields) return C.tensor({fields:byte(1, -1)}, {dtype = "uint8"}) end
    local entry = "weight.quant_state.bitsandbytes__nf4"
    check.raises("weight: expected weight.absmax, quant_map and quant_state.bitsandbytes__nf4", loading(function(state)
      state["weight.absmax"] = nil
    end))
    check.raises("absmax: expected 3 uint8 numbers, got uint8 of shape (2,)", loading(function(state)
      state["weight.absmax"] = state["weight.absmax"]:narrow(0, 0, 2)
    end))
    check.raises("nested_code: expected 256 float32 numbers, got float32 of shape (16,)", loading(function(state)
      state["weight.nested_quant_map"] = state["weight.quant_map"]
    end))
    check.raises("quant_state: expected a JSON object", loading(function(state) state[entry] = text "[[" end))
    for field, value in pairs {blocksize = 48, ["shape"] = {64, 3}, dtype = "int64", nested_blocksize = 64,
      quant_type = "fp4"} do
      check.raises(field == "blocksize" and "block_size: expected a power of two" or "quant_state: " .. field,
        loading(function(state)
          local fields = C.json.decode(string.char(unpack(state[entry]:tolist())))
          fields[field] = value
          state[entry] = text(C.json.encode(fields))
        end))
    end
    check.raises("dequantize: expected code, nested_absmax and nested_code, or the first of them, or none", function()
      C.dequantize(nn.Linear8bitLt(4, 2).weight, accelhost.ones(2), nil, accelhost.ones(1), nil, 2, 4)
    end)
    check.raises("size mismatch for weight", function() layer:load_state_dict {weight = accelhost.ones(3, 65)} end)
    check.raises("quantized_matmul: input: expected float32, bfloat16 or float16, got float64", function()
      layer(accelhost.ones({1, 64}, {dtype = "float64"}))
    end)
    check.raises("Linear4bit: input (1, 65) does not fit weight (3, 64)", function() layer(accelhost.ones(1, 65)) end)
    check.raises("has_fp16_weights = true is not implemented", function()
      nn.Linear8bitLt(4, 2, {has_fp16_weights = true})
    end)
  end)
end)

for _, kind in ipairs(names) do
  local numbers = expected.cases[kind]

  describe("a model quantised as " .. kind, function()
    it("has transformers' numbers, from its folder and quantised while it is loaded", function()
      local saved = models.AutoModelForCausalLM.from_pretrained(root .. kind)
      local own, info = load(kind, {output_loading_info = true})
      assert.same({{}, {}, {}}, {info.missing_keys, info.unexpected_keys, info.mismatched_keys})
      for _, model in ipairs {saved, own} do
        local output = model(batch)
        near(numbers.loss, output.loss:item(), 2e-6)
        near(tensors.double(numbers.logits), output.logits:select(1, -1):double(), 2e-6)
        assert.equal("Linear", model.lm_head._name)
        assert.equal(kind == "int8", model.is_loaded_in_8bit)
      end
      assert.equal(tostring(saved), tostring(own))
      assert.equal(kind == "fp4" and "Linear" or kind == "nf4" and "Linear4bit" or "Linear8bitLt",
        own.model.layers[1].mlp.down_proj._name)
    end)

    it("is saved as it is", function()
      local target = os.getenv "ACCELHOST_SAVED"
      temporary.with(function(folder)
        local path = target and ("%s/%s"):format(target, kind) or folder
        local model = load(kind)
        model:save_pretrained(path)
        local again = models.AutoModelForCausalLM.from_pretrained(path)
        equal(model(batch).logits:detach(), again(batch).logits:detach(), "logits")
        assert.is_true(again:get_memory_footprint() < load("int8"):float():get_memory_footprint() * 1.2)
      end)
    end)

    it("trains adapters as peft does, and merges them", function()
      local model = peft.prepare_model_for_kbit_training(load(kind))
      assert.is_true(model.is_gradient_checkpointing)
      accelhost.manual_seed(5)
      model = peft.get_peft_model(model, peft.LoraConfig {r = 4, lora_alpha = 8, target_modules = "all-linear",
        task_type = "CAUSAL_LM"})
      assert.same({numbers.trainable, numbers.all}, {model:get_nb_trainable_parameters()})
      model:train()
      local optimizer = optim.AdamW(model:parameters(), {lr = 1e-2})
      for i, wanted in ipairs(numbers.losses) do
        local loss = model(batch).loss
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        near(wanted, loss:item(), 2e-5, "step " .. i)
      end
      local before = model(batch).loss:item()
      temporary.with(function(folder)
        model:save_pretrained(folder)
        local again = peft.PeftModel.from_pretrained(load(kind), folder)
        near(before, again(batch).loss:item(), 1e-6)
        local first, last = ids:narrow(1, 0, 4), nil
        for _, cached in ipairs {true, false} do
          local tokens = again:generate(first, {max_new_tokens = 5, do_sample = false, use_cache = cached})
          assert(not last or last:ne(tokens):sum():item() == 0)
          last = tokens
        end
      end)
      model:merge_adapter()
      near(numbers.merged, model(batch).loss:item(), 1e-4)
      model:unmerge_adapter()
      near(numbers.unmerged, model(batch).loss:item(), 2e-4)
      local merged = model:merge_and_unload()
      assert.equal(kind == "int8" and "Linear8bitLt" or "Linear4bit", merged.model.layers[1].mlp.up_proj._name)
      assert.is_false(merged.model.layers[1].mlp.up_proj.weight.requires_grad)
    end)
  end)
end

describe("damaged folders of quantised weights", function()
  it("are refused, or loaded and computed with, at any changed byte of the header and the states", function()
    temporary.with(function(folder)
      os.execute(("cp %s/* %s"):format(root .. "nf4", folder))
      local path = folder .. "/model.safetensors"
      local file = io.open(path, "rb")
      local bytes = file:read "*a"
      file:close()
      local length = bytes:byte(1) + 256 * bytes:byte(2) + 65536 * bytes:byte(3)
      local random = accelhost.randint(0, 2 ^ 30, {80, 2}):tolist()
      for i, draw in ipairs(random) do
        local state = bytes:find('{"quant_type', length, true) or bytes:find("quant_type", length, true)
        local place = i % 2 == 0 and 9 + draw[1] % length or state + draw[1] % 160
        local damaged = io.open(path, "wb")
        damaged:write(bytes:sub(1, place - 1), string.char(draw[2] % 256), bytes:sub(place + 1))
        damaged:close()
        local fine, reason = pcall(function()
          models.LlamaForCausalLM.from_pretrained(folder, {ignore_mismatched_sizes = true})(batch)
        end)
        assert(fine or type(reason) == "string")
      end
    end)
  end)
end)

describe("folders of quantised weights", function()
  it("with missing, short and foreign tensors are refused in a line with file, tensor and remedy", function()
    local up = "model.layers.0.mlp.up_proj."
    local function refuses(reason, kind, change)
      temporary.with(function(folder)
        os.execute(("cp %s/* %s"):format(root .. kind, folder))
        local path = folder .. "/model.safetensors"
        local state = accelhost.load(path)
        change(state)
        accelhost.save(state, path)
        local message = check.raises(("'%s': %sweight: %s"):format(path, up, reason), function()
          models.AutoModelForCausalLM.from_pretrained(folder)
        end)
        assert.matches("fetch the file again, or quantise the model again$", message)
        assert.is_nil(message:find "\n")
      end)
    end
    local function shortened(name, count)
      return function(state) state[up .. name] = state[up .. name]:narrow(0, 0, count):clone() end
    end
    local function removed(name) return function(state) state[up .. name] = nil end end
    refuses("weight: expected 2048 uint8 numbers, got uint8 of shape (10, 1)", "nf4", shortened("weight", 10))
    refuses("absmax: expected 64 uint8 numbers, got uint8 of shape (2,)", "nf4", shortened("weight.absmax", 2))
    refuses("code: expected 16 float32 numbers", "fp4", shortened("weight.quant_map", 3))
    refuses("expected model.layers.0.mlp.up_proj.weight.absmax", "nf4", removed "weight.absmax")
    refuses("weight: expected 4096 int8 numbers, got int8 of shape (10, 64)", "int8", shortened("weight", 10))
    refuses("absmax: expected 64 float32 numbers, got float32 of shape (3,)", "int8", shortened("SCB", 3))
    refuses("expected its scales, model.layers.0.mlp.up_proj.SCB, got nil", "int8", removed "SCB")
  end)

  it("of other libraries are refused with the remedy", function()
    for _, method in ipairs {"gptq", "awq"} do
      temporary.with(function(folder)
        os.execute(("cp %s/* %s"):format(root .. "nf4", folder))
        os.execute(([[sed -i 's/"quant_method": "bitsandbytes"/"quant_method": "%s"/' %s/config.json]]):format(method,
          folder))
        check.raises(("config.json: quantization_config: quant_method: expected \"bitsandbytes\", got \"%s\": read the "
          .. "folder of the model as it was before"):format(method), function()
          models.AutoModelForCausalLM.from_pretrained(folder)
        end)
      end)
    end
  end)
end)

describe("a prepared model with quantised weights", function()
  it("trains in several processes as in one, and resumes", function()
    temporary.with(function(folder)
      local function output(words, sharding)
        local result = run.host(words, {env = {SHARDING = sharding, FOLDER = folder .. "/" .. sharding .. #words}})
        run.succeeds(result)
        return result.stdout
      end
      local case = "spec/models/cases/quantized.lua"
      local alone = output({case}, "none")
      local first, second = alone:match "^(%d+%.%d+)\n(%d+%.%d+)\n$"
      assert.equal(first, second)
      for _, sharding in ipairs {"none", "optimizer", "gradients", "full"} do
        assert.equal(alone, output({"launch", "--num_processes", "2", case}, sharding))
      end
    end)
  end)
end)

describe("the codes of a prepared model", function()
  local case = "spec/models/cases/shared_codes.lua"

  it("are rank 0's, in memory that the ranks of a machine have in common", function()
    for _, sharding in ipairs {"none", "full"} do
      local result = run.host({"launch", "--num_processes", "3", case}, {env = {SHARDING = sharding}})
      run.succeeds(result)
      assert.equal("equal\ttrue\ttrue\nin common\ttrue\tfloat32\n", result.stdout)
    end
  end)

  it("are refused where ranks have other sizes", function()
    local result = run.host({"launch", "--num_processes", "2", case}, {env = {UNEQUAL = "1"}})
    assert.not_equal(0, result.code)
    assert.matches("prepare: the quantised weights of rank %d have other sizes than those of rank %d: load the same "
      .. "model on all ranks", result.stderr)
  end)
end)

describe("BitsAndBytesConfig", function()
  it("names wrong values", function()
    local function config(values) return function() models.BitsAndBytesConfig(values) end end
    check.raises("expected one of load_in_8bit and load_in_4bit to be true", config {})
    check.raises("expected one of load_in_8bit", config {load_in_4bit = true, load_in_8bit = true})
    check.raises("unknown bnb_4bit_quant_type 'nf5' (known: fp4, nf4)",
      config {load_in_4bit = true, bnb_4bit_quant_type = "nf5"})
    check.raises("bnb_4bit_quant_storage: expected \"uint8\"",
      config {load_in_4bit = true, bnb_4bit_quant_storage = "bfloat16"})
    check.raises("unknown option 'load_in_2bit'", config {load_in_2bit = true})
    check.raises("quantization_config: expected a BitsAndBytesConfig, got a table", function()
      models.AutoModelForCausalLM.from_pretrained(root .. "base", {quantization_config = {load_in_4bit = true}})
    end)
  end)

  it("rounds weights to the model's dtype first, as transformers does", function()
    local half, float = load("nf4", {dtype = "bfloat16"}), load "nf4"
    equal(float.model.layers[1].mlp.up_proj.weight.data, half.model.layers[1].mlp.up_proj.weight.data, "codes")
    assert.equal("bfloat16", half.lm_head.weight.dtype)
    assert.equal("float32", half.model.layers[1].mlp.up_proj.compute_dtype)
    assert.equal("bfloat16", half(batch).logits.dtype)
  end)
end)
