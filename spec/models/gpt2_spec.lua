-- GPT-2 against transformers: logits, loss, gradients, and generated text.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local models, optim, json = accelhost.models, accelhost.optim, accelhost.json

local folder = require("lfs").currentdir() .. "/spec/fixtures/models/"
local numbers = require("spec.support.fixtures").load "models/expected"
local expected, exact = numbers.gpt2, numbers.gpt2_float64

local ids = tensors.long

local weighed = tensors.weighed

local function flat(rows) return check.flat(tensors.double(rows)) end

local model = models.AutoModelForCausalLM.from_pretrained(folder .. "gpt2")
local prompt, mask = ids(expected.ids), ids(expected.mask)

describe("GPT2LMHeadModel", function()
  it("returns transformers' logits, loss and gradients", function()
    local own = models.GPT2LMHeadModel.from_pretrained(folder .. "gpt2")
    local output = own {input_ids = prompt, labels = prompt}
    check.near(flat(expected.logits), output.logits:select(1, -1), 2e-5)
    check.near(expected.loss, output.loss:item(), 1e-5)
    output.loss:backward()
    check.near(expected.grad_wte, weighed(own.transformer.wte.weight.grad), 1e-4)
    check.near(expected.grad_c_attn, weighed(own.transformer.h[1].attn.c_attn.weight.grad), 1e-4)
  end)

  it("returns transformers' logits, loss and gradients in float64", function()
    local own = models.GPT2LMHeadModel.from_pretrained(folder .. "gpt2", {dtype = "float64"})
    local output = own {input_ids = prompt, labels = prompt}
    check.near(flat(exact.logits), output.logits, 1e-10)
    check.near(exact.loss, output.loss:item(), 1e-10)
    output.loss:backward()
    for path, gradient in pairs(exact.gradients) do
      check.near(gradient, weighed(own:get_parameter(path).grad), 1e-9, path)
    end
  end)

  it("returns them in float32 to its rounding", function()
    local output = model {input_ids = prompt, labels = prompt}
    assert.equal("float32", output.logits.dtype)
    check.near(flat(exact.logits), output.logits, 1e-5)
    check.near(exact.loss, output.loss:item(), 1e-5)
  end)

  it("has transformers' losses in 20 steps of AdamW", function()
    local own, losses = models.GPT2LMHeadModel.from_pretrained(folder .. "gpt2", {dtype = "float64"}), {}
    local optimizer = optim.AdamW(own:parameters(), {lr = 1e-3, weight_decay = 0.1})
    for i = 1, 20 do
      local loss = own {input_ids = prompt, labels = prompt}.loss
      loss:backward()
      optimizer:step()
      optimizer:zero_grad()
      losses[i] = loss:item()
    end
    check.near(exact.steps, losses, 1e-9)
  end)

  it("is saved and read again, bit for bit, with the entries of its configuration", function()
    local kept = os.getenv "ACCELHOST_SAVED" -- for the fixture's script
    local leave = temporary.enter()
    local out = kept and kept .. "/gpt2" or "out"
    model:save_pretrained(out)
    local again, report = models.AutoModelForCausalLM.from_pretrained(out, {output_loading_info = true})
    assert.same({missing_keys = {}, unexpected_keys = {}, mismatched_keys = {}}, report)
    for path, tensor in pairs(model:state_dict()) do assert.is_true(again:state_dict()[path]:equal(tensor), path) end
    local before, after = json.decode(files.read(folder .. "gpt2/config.json")),
      json.decode(files.read(out .. "/config.json"))
    leave()
    before.transformers_version = nil
    for field, value in pairs(before) do
      if value ~= json.null then assert.same(value, after[field], field) end
    end
  end)

  it("leaves out labels of -100, and the last token of each row, which has no next one", function()
    local F = accelhost.nn.functional
    local logits = model(prompt).logits:narrow(1, 0, 4):reshape(-1, 37)
    local labels = prompt:masked_fill(mask:eq(0), -100)
    labels[1][3] = -100
    local expected_loss = F.cross_entropy(logits, labels:narrow(1, 1, 4):reshape(-1))
    check.near(expected_loss:item(), model {input_ids = prompt, labels = labels}.loss:item(), 1e-6)
    for _, dtype in ipairs {"int32", "uint8"} do
      check.near(expected.loss, model {input_ids = prompt, labels = prompt:to(dtype)}.loss:item(), 1e-5, dtype)
    end
    check.raises("cross_entropy: a floating target holds class probabilities", function()
      model {input_ids = prompt, labels = prompt:to "float64"}
    end)
    check.raises("GPT2LMHeadModel: labels: one token has no next one", function()
      local one = prompt:narrow(1, 0, 1)
      model {input_ids = one, labels = one}
    end)
  end)

  it("keeps one copy of the logits for its loss", function()
    local small = models.GPT2LMHeadModel {vocab_size = 20000, n_positions = 32, n_embd = 4, n_layer = 1, n_head = 1}
    local batch, size = accelhost.zeros({2, 32}, {dtype = "int64"}), 2 * 32 * 20000 * 4
    collectgarbage()
    collectgarbage() -- tensors that the first one's finalizers released
    local before = accelhost.memory_stats(batch.device).live
    local output = small {input_ids = batch, labels = batch}
    collectgarbage()
    local grown = accelhost.memory_stats(batch.device).live - before
    assert.is_true(grown >= size and grown < 1.5 * size, ("%.2f copies"):format(grown / size))
    assert.equal(2, output.logits:size(0))
  end)

  it("writes the gradient of the logits over them where they are not returned", function()
    local small = models.GPT2LMHeadModel {vocab_size = 20000, n_positions = 32, n_embd = 4, n_layer = 1, n_head = 1,
      resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
    local ids_of = accelhost.arange(64):view(2, 32)
    local size, weight = 2 * 32 * 20000 * 4, small.transformer.wte.weight
    local live -- when the gradient of the logits is there
    small.lm_head:register_forward_hook(function(_, _, logits)
      logits:register_hook(function() live = accelhost.memory_stats(ids_of.device).live end)
    end)
    local function backward(skip)
      collectgarbage()
      weight.grad = nil
      local output = small {input_ids = ids_of, labels = ids_of, skip_logits = skip}
      assert.equal(skip, output.logits == nil)
      local before = accelhost.memory_stats(ids_of.device).live
      output.loss:backward()
      return weight.grad, (live - before) / size
    end
    local wanted, more = backward(false)
    local found, less = backward(true)
    assert.is_true(wanted:equal(found))
    assert.is_true(more > 0.95 and less < 0.5, ("%.2f, %.2f copies"):format(more, less))
    check.raises("GPT2LMHeadModel: skip_logits: expected labels, without which there is no loss", function()
      small {input_ids = ids_of, skip_logits = true}
    end)
  end)

  it("computes the loss in chunks of tokens with skip_logits, in a captured step too", function()
    local function losses(skip, compiled)
      accelhost.manual_seed(4)
      local accelerator = accelhost.Accelerator {cpu = true}
      local net = models.GPT2LMHeadModel {vocab_size = 5000, n_positions = 32, n_embd = 16, n_layer = 1, n_head = 2,
        resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
      local prepared, optimizer = accelerator:prepare(net, accelhost.optim.SGD(net:parameters(), {lr = 0.5}))
      local function step(tokens)
        local output = prepared {input_ids = tokens, labels = tokens, skip_logits = skip}
        accelerator:backward(output.loss)
        optimizer:step()
        optimizer:zero_grad()
        return output.loss
      end
      local call, list = compiled and accelerator:compile(step) or step, {}
      for i = 1, 4 do list[i] = call(accelhost.randint(0, 5000, {16, 32})):item() end -- chunks of 210 of 512 tokens
      accelerator:free_memory()
      return list
    end
    local whole, chunked = losses(false), losses(true)
    check.near(whole, chunked, 1e-5)
    assert.same(chunked, losses(true, true))
  end)

  it("returns the same bits where hooks watch its parts, which receive PyTorch's tensors", function()
    local device = prompt.device:gsub(":.*", "")
    local function trial(precision, watched)
      local own = models.GPT2LMHeadModel.from_pretrained(folder .. "gpt2")
      local seen, names = {}, {"", "attn", "attn.c_attn", "mlp", "ln_1", "ln_2"}
      for _, name in ipairs(watched and names or {}) do
        own.transformer.h[1]:get_submodule(name):register_forward_hook(function(_, given, output)
          seen[name] = {given[1].dtype, type(output) == "userdata" and output.dtype or output}
        end)
      end
      local function forward() return own {input_ids = prompt, labels = prompt} end
      local output = precision and accelhost.autocast(device, {dtype = precision}, forward) or forward()
      output.loss:backward()
      local bits = {output.logits:float():tolist()}
      for name, parameter in own:named_parameters() do bits[name] = parameter.grad:tolist() end
      return bits, seen
    end
    for _, precision in ipairs {false, "bfloat16"} do
      local wanted, seen = trial(precision, true)
      assert.same(wanted, (trial(precision, false)))
      for _, name in ipairs {"attn", "attn.c_attn", "mlp"} do assert.equal("float32", seen[name][1]) end
      assert.equal("float32", seen.ln_1[2])
      assert.equal("float32", seen.ln_2[2])
    end
  end)

  it("does not see padding on the left", function()
    local positions = (mask:cumsum(-1) - 1):clamp_min(0)
    local output = model {input_ids = prompt, attention_mask = mask, position_ids = positions}
    check.near(flat(expected.masked_logits), output.logits:select(1, -1), 2e-5)
  end)

  it("returns the same with keys and values of earlier tokens as for all tokens at once", function()
    local whole = model {input_ids = prompt, use_cache = false}
    assert.is_nil(whole.past_key_values)
    local first = model(prompt:narrow(1, 0, 2))
    local second = model {input_ids = prompt:narrow(1, 2, 3), past_key_values = first.past_key_values}
    check.near(check.flat(whole.logits:narrow(1, 2, 3)), second.logits, 2e-5)
    assert.same({2, 2, 5, 8}, second.past_key_values[2][1]:shape())
  end)

  it("continues from the same keys and values in two ways, without a history and with one", function()
    local function go_on()
      local past = model(prompt:narrow(1, 0, 2)).past_key_values
      past = model {input_ids = prompt:narrow(1, 2, 1), past_key_values = past}.past_key_values
      local one = model {input_ids = prompt:narrow(1, 3, 1), past_key_values = past}
      local other = model {input_ids = ids {{7}, {8}}, past_key_values = past}
      return model {input_ids = prompt:narrow(1, 4, 1), past_key_values = one.past_key_values}, other
    end
    local whole = model(prompt).logits
    local changed = model(accelhost.cat({prompt:narrow(1, 0, 3), ids {{7}, {8}}}, 1)).logits
    for _, run in ipairs {go_on, function() return accelhost.no_grad(go_on) end} do
      local last, other = run()
      check.near(check.flat(whole:select(1, 4)), last.logits, 2e-5)
      check.near(check.flat(changed:select(1, 3)), other.logits, 2e-5)
    end
  end)

  it("returns the same logits with the weights of attention, whose rows sum to 1", function()
    local output = model {input_ids = prompt, attention_mask = mask, output_attentions = true}
    local plain = model {input_ids = prompt, attention_mask = mask}
    check.near(check.flat(plain.logits), output.logits, 2e-5)
    check.near(1, output.attentions[1][0][1][4]:sum():item(), 1e-6)
    assert.equals(0, output.attentions[1][0][1][4][0]:item())
  end)

  it("computes the last logits only when configured", function()
    local output = model {input_ids = prompt, logits_to_keep = 1}
    assert.same({2, 1, 37}, output.logits:shape())
    check.raises("logits_to_keep: expected 0 (all) to 5, got 6", function()
      model {input_ids = prompt, logits_to_keep = 6}
    end)
  end)

  it("draws its weights as transformers does", function()
    accelhost.manual_seed(1)
    local new = models.GPT2LMHeadModel {vocab_size = 500, n_positions = 64, n_embd = 64, n_layer = 8, n_head = 4}
    local block = new.transformer.h[1]
    check.near(0.02, new.transformer.wte.weight:std():item(), 5e-4)
    check.near(0.02, block.attn.c_attn.weight:std():item(), 5e-4)
    check.near(0.02 / 4, block.mlp.c_proj.weight:std():item(), 2e-4)
    assert.equals(0, block.mlp.c_fc.bias:abs():max():item())
    assert.equals(1, block.ln_1.weight:min():item())
    assert.equals(new.transformer.wte.weight, new.lm_head.weight)
  end)

  it("refuses keys and values that are not its own", function()
    check.raises("past_key_values: expected keys and values of 2 layers", function()
      model {input_ids = prompt, past_key_values = {{prompt, prompt}}}
    end)
    local one = model(prompt:narrow(0, 0, 1)).past_key_values
    check.raises("past_key_values: they are of 1 texts, the input of 2", function()
      model {input_ids = prompt, past_key_values = one}
    end)
  end)
end)

describe("generate writes transformers' tokens", function()
  local cases = {
    {"plain", "likeliest tokens, padded behind the end", {}},
    {"penalty", "with a penalty on repetition", {repetition_penalty = 1.7}},
    {"at_least", "with a least length", {min_new_tokens = 30}},
    {"padded", "after prompts of different lengths", {attention_mask = mask}},
    {"two_ends", "with two ends", {eos_token_id = {2, 7}, pad_token_id = 0}},
  }
  for _, case in ipairs(cases) do
    local name, title, options = unpack(case)
    it(title, function()
      for _, use_cache in ipairs {true, false} do
        local o = {max_new_tokens = 40, use_cache = use_cache}
        for key, value in pairs(options) do o[key] = value end
        assert.same(expected[name], model:generate(prompt, o):tolist())
      end
    end)
  end
end)

describe("generate", function()
  local function shares(options)
    accelhost.manual_seed(7)
    local o = {max_new_tokens = 1, do_sample = true, num_return_sequences = 4000}
    for name, value in pairs(options) do o[name] = value end
    local tokens = model:generate(prompt:narrow(0, 0, 1), o):select(1, -1)
    return accelhost.bincount(tokens, nil, 37):to("float64") / 4000
  end
  local logits = model(prompt:narrow(0, 0, 1)).logits[0][4]:detach():to "float64"

  local function close(wanted, found)
    assert((wanted - found):abs():max():item() < 0.03, tostring(found))
  end

  it("draws tokens by their probabilities", function()
    close(logits:softmax(-1), shares {top_k = 0})
  end)

  it("draws by a temperature among the likeliest k", function()
    local _, order = logits:sort(-1, true)
    local away = accelhost.ones(37, {dtype = "bool"})
    away:index_fill_(0, order:narrow(0, 0, 3), 0)
    close((logits / 2):masked_fill(away, -math.huge):softmax(-1), shares {top_k = 3, temperature = 2})
  end)

  it("draws among the fewest that hold a share p", function()
    local probabilities = logits:softmax(-1)
    local sorted, order = probabilities:sort(-1, true)
    local before = sorted:cumsum(-1) - sorted
    local count = before:lt(0.6):sum():item()
    local away = accelhost.ones(37, {dtype = "bool"})
    away:index_fill_(0, order:narrow(0, 0, count), 0)
    close(logits:masked_fill(away, -math.huge):softmax(-1), shares {top_k = 0, top_p = 0.6})
  end)

  it("draws the same from the same seed", function()
    local function draw()
      accelhost.manual_seed(3)
      return model:generate(prompt, {max_new_tokens = 10, do_sample = true}):tolist()
    end
    assert.same(draw(), draw())
  end)

  it("streams each column of tokens as it is written", function()
    local columns = {}
    local written = model:generate {
      input_ids = prompt, max_new_tokens = 4, on_token = function(tokens) columns[#columns + 1] = tokens end,
    }
    assert.equals(4, #columns)
    assert.same(columns[4]:tolist(), written:narrow(1, 8, 1):tolist())
  end)

  local refusals = {
    {"an unknown option", {max_tokens = 3}, "unknown option 'max_tokens' (known: "},
    {"no beams", {num_beams = 0}, "num_beams: expected a positive integer, got number 0"},
    {"more tokens than positions", {max_new_tokens = 44}, "49 tokens are more than the model's 48 positions"},
    {"a length that is used up", {max_length = 5}, "max_length 5 leaves nothing to write after 5 tokens"},
    {"a temperature of 0", {temperature = 0}, "temperature: expected a number above 0, got number 0"},
    {"several equal answers", {num_return_sequences = 2}, "without do_sample all 2 would be the same"},
    {"a mask of another shape", {attention_mask = ids {{1}}}, "attention_mask: expected shape (2, 5), got (1, 1)"},
  }
  for _, row in ipairs(refusals) do
    it("refuses " .. row[1], function()
      check.raises(row[3], function() model:generate(prompt, row[2]) end)
    end)
  end

  it("refuses a call without tokens", function()
    check.raises("expected shape (batch, tokens)", function() model:generate {max_new_tokens = 3} end)
  end)
end)
