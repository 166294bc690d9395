--- Parts of the library that are made of many ops, on a CUDA device on the simulated GPU: results are on the device and
--- equal the CPU's. Each case is a separate program.
local sim = require "spec.support.sim"

-- check(name, f): f("cuda"), a tensor or several, is on the device and equals f("cpu") to 1e-4.
local compare = [[
  local accelhost = require "accelhost"
  local F, nn = accelhost.nn.functional, accelhost.nn
  local function randn(device, ...) return accelhost.randn({...}, {device = "cpu"}):to(device) end
  local function long(device, values) return accelhost.tensor(values, {dtype = "int64", device = device}) end
  local function check(name, f)
    accelhost.manual_seed(0)
    local there = {f "cuda"}
    accelhost.manual_seed(0)
    local here = {f "cpu"}
    assert(#here > 0 and #here == #there, name)
    for i, expected in ipairs(here) do
      local got = there[i]
      if not got.device:find "^cuda" then print(name, "result " .. i, got.device) end
      local far = (got:detach():cpu():double() - expected:detach():double()):abs():max():item()
      if not (far < 1e-4) then print(name, "result " .. i, far) end
    end
  end
  local function trained(layer, device, ...)
    layer:to(device)
    local y = layer(...)
    y:square():sum():backward()
    return y, layer:parameters()[1].grad
  end
  ]]

local function compared(code)
  local result = sim.host(compare .. code .. "\nprint 'compared'")
  assert.equal("compared\n", result.stdout, result.stderr)
end

local case = sim.case

describe("On a CUDA device", function()
  case("Fourier transforms are the CPU's", function()
    compared [[
      for _, name in ipairs {"fft", "ifft", "rfft", "irfft", "fft2", "rfft2", "fftn", "hfft", "ihfft", "fftshift"} do
        check(name, function(device) return accelhost.fft[name](randn(device, 4, 8)) end)
      end]]
  end)

  case("pruned, parametrized and lazy layers train", function()
    compared [[
      local prune, parametrizations = nn.utils.prune, nn.utils.parametrizations
      for name, change in pairs {
        l1 = function(layer) prune.l1_unstructured(layer, "weight", 0.5) end,
        structured = function(layer) prune.ln_structured(layer, "weight", 0.5, 2, 0) end,
        spectral = parametrizations.spectral_norm, weight = parametrizations.weight_norm,
        orthogonal = parametrizations.orthogonal,
      } do
        check(name, function(device)
          local layer = nn.Linear(6, 4)
          change(layer)
          return trained(layer, device, randn(device, 2, 6))
        end)
      end
      check("pruned there", function(device)
        local layer = nn.Linear(6, 4):to(device)
        prune.custom_from_mask(layer, "weight", accelhost.eye(4, 6, {device = device}))
        local y = layer(randn(device, 2, 6))
        prune.remove(layer, "weight")
        return y, layer.weight
      end)
      check("lazy", function(device)
        local layer = nn.LazyConv3d(3, 2)
        layer(randn("cpu", 1, 2, 4, 4, 4))
        return trained(layer, device, randn(device, 1, 2, 4, 4, 4))
      end)]]
  end)

  case("packed sequences are run by recurrent layers", function()
    compared [[
      local rnn = nn.utils.rnn
      for _, kind in ipairs {"RNN", "GRU", "LSTM"} do
        check(kind, function(device)
          local layer = nn[kind](3, 4, {batch_first = true, bidirectional = true}):to(device)
          local packed = rnn.pack_padded_sequence(randn(device, 3, 5, 3), {2, 5, 3},
            {batch_first = true, enforce_sorted = false})
          local y = rnn.pad_packed_sequence(layer(packed), {batch_first = true})
          y:square():sum():backward()
          return y, layer:parameters()[1].grad
        end)
      end
      check("pad", function(device) return rnn.pad_sequence({randn(device, 3, 2), randn(device, 5, 2)}) end)
      check("invert", function(device) return rnn.invert_permutation(long(device, {2, 0, 1})) end)]]
  end)

  case("embeddings and bags have gradients for their options", function()
    compared [[
      for name, options in pairs {plain = {}, padding = {padding_idx = 2}, norm = {max_norm = 1},
          frequency = {scale_grad_by_freq = true}} do
        check("Embedding " .. name, function(device)
          return trained(nn.Embedding(6, 3, options), device, long(device, {1, 2, 2, 5}))
        end)
        options.mode = "sum"
        check("EmbeddingBag " .. name, function(device)
          return trained(nn.EmbeddingBag(6, 3, options), device, long(device, {1, 2, 2, 5}), long(device, {0, 3}))
        end)
      end]]
  end)

  case("distributions draw and compute where their parameters are", function()
    compared [[
      local D = accelhost.distributions
      local function both(device) return accelhost.tensor({0.3, 0.7}, {device = device}) end
      for name, make in pairs {
        Normal = function(device) return D.Normal(both(device), both(device)) end,
        LogNormal = function(device) return D.LogNormal(both(device), both(device)) end,
        Uniform = function(device) return D.Uniform(both(device), both(device) + 1) end,
        Bernoulli = function(device) return D.Bernoulli(both(device)) end,
        Categorical = function(device) return D.Categorical(both(device)) end,
        OneHotCategorical = function(device) return D.OneHotCategorical(both(device)) end,
        Exponential = function(device) return D.Exponential(both(device)) end,
        Gamma = function(device) return D.Gamma(both(device), both(device)) end,
        Beta = function(device) return D.Beta(both(device), both(device)) end,
        Dirichlet = function(device) return D.Dirichlet(both(device)) end,
      } do
        check(name, function(device)
          local distribution = make(device)
          assert(distribution:sample().device:find(device, 1, true), name)
          accelhost.manual_seed(1)
          local value = make("cpu"):sample():to(device)
          return distribution:log_prob(value), distribution:entropy()
        end)
        assert(make("cuda").mean.device == "cuda:0", name)
      end]]
  end)

  case("generation with caches, without and by beams continues texts as on the CPU", function()
    compared [[
      local folder = require("lfs").currentdir() .. "/spec/fixtures/models/decoders/"
      for _, options in ipairs {{}, {use_cache = false}, {num_beams = 3}, {repetition_penalty = 1.3,
          no_repeat_ngram_size = 2, min_new_tokens = 3}} do
        options.max_new_tokens, options.do_sample = 4, false
        check("llama", function(device)
          local model = accelhost.models.AutoModelForCausalLM.from_pretrained(folder .. "llama"):to(device)
          return model:generate(long(device, {{3, 5, 7, 9}, {4, 6, 8, 2}}), options)
        end)
      end]]
  end)

  case("adapters and prompts of peft train", function()
    compared [[
      local peft = accelhost.peft
      local folder = require("lfs").currentdir() .. "/spec/fixtures/models/decoders/"
      for name, config in pairs {
        lora = peft.LoraConfig {r = 2, target_modules = {"q_proj", "v_proj"}},
        dora = peft.LoraConfig {r = 2, use_dora = true, target_modules = {"q_proj"}},
        ia3 = peft.IA3Config {target_modules = {"k_proj", "down_proj"}, feedforward_modules = {"down_proj"}},
        prompt = peft.PromptTuningConfig {num_virtual_tokens = 4},
      } do
        check(name, function(device)
          local model = peft.get_peft_model(accelhost.models.AutoModelForCausalLM.from_pretrained(folder .. "llama"),
            config):to(device)
          local ids, results = long(device, {{3, 5, 7, 9}, {4, 6, 8, 2}}), {}
          results[1] = model {input_ids = ids, labels = ids}.loss
          results[1]:backward()
          for _, parameter in ipairs(model:parameters()) do
            if parameter.requires_grad then results[#results + 1] = parameter.grad end
          end
          return unpack(results)
        end)
      end]]
  end)

  case("transforms change images, of floats and of bytes", function()
    compared [[
      local T = accelhost.data.transforms
      for name, arguments in pairs {Resize = {10}, CenterCrop = {10}, RandomCrop = {10}, RandomResizedCrop = {10},
          RandomHorizontalFlip = {1}, RandomRotation = {30}, Pad = {2}, Grayscale = {3}, GaussianBlur = {3},
          ColorJitter = {0.3, 0.3, 0.3, 0.1}} do
        for _, dtype in ipairs {"float32", "uint8"} do
          check(name .. " " .. dtype, function(device)
            local image = (accelhost.rand({3, 20, 24}, {device = "cpu"}) * (dtype == "uint8" and 255 or 1)):to(dtype)
            return T[name](unpack(arguments))(image:to(device))
          end)
        end
      end]]
  end)

  case("modes, defaults and gradient checks are those of the CPU", function()
    compared [[
      check("inference_mode", function(device)
        return accelhost.inference_mode(function() return randn(device, 2, 2):matmul(randn(device, 2, 2)) end)
      end)
      accelhost.set_default_dtype "float64"
      check("float64", function(device)
        local y = nn.Linear(2, 2):to(device)(accelhost.ones(1, 2, {device = device}))
        assert(y.dtype == "float64")
        return y
      end)
      local x = randn("cuda", 3):requires_grad_()
      assert(accelhost.autograd.gradgradcheck(function(value) return value:pow(3) end, {x}))]]
  end)

  case("quantised layers name the remedy in one line", function()
    local result = sim.host [[
      local accelhost = require "accelhost"
      accelhost.nn.Linear8bitLt(64, 64):to "cuda"(accelhost.ones(1, 64, {device = "cuda"}))]]
    assert.equal(1, result.code)
    assert.matches("Linear8bitLt: quantised weights are computed with on the CPU alone, this one is on cuda:0: keep",
      result.stderr:match "^[^\n]*", 1, true)
  end)
end)
