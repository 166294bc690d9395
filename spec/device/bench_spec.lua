--- The GPU benches in tiny sizes, on a card or a simulated one (ACCELHOST_TEST_DEVICE=cuda): none of them fails for a
--- reason that only a card would show.
local accelhost = require "accelhost"
local run = require "spec.support.run"

local there = os.getenv "ACCELHOST_TEST_DEVICE" == "cuda"
local folder = "scripts/bench/gpu/"
-- Numbers are drawn on the device, not as the specs of numbers want them.
local own = {ACCELHOST_CUDA_RANDOM = false, ACCELHOST_USE_CPU = false}

local function lines_of(text)
  local values = {}
  for name, value in text:gmatch "(%S+)\t(%S+)\n" do values[name] = tonumber(value) end
  return values
end

describe("The GPU benches", function()
  local function case(sentence, fn)
    it(sentence, function()
      if not there then return pending "needs ACCELHOST_TEST_DEVICE=cuda" end
      fn()
    end)
  end

  for _, net in ipairs {"mnist_cnn", "resnet18", "gpt2", "minilm"} do
    for _, dtype in ipairs {"float32", "bfloat16"} do
      for _, mode in ipairs {"eager", "compile"} do
        case(("train %s in %s, %s"):format(net, dtype, mode), function()
          local words = {folder .. "train.lua", net, 8, dtype, mode, "smoke"}
          local result = run.host(words, {timeout = 120, env = own})
          assert.equal(0, result.code, result.output)
          local values = lines_of(result.stdout)
          for _, name in ipairs {"step_ms", "items_per_s", "peak_mb"} do assert(values[name] > 0, result.stdout) end
          assert(values.loss < 10, result.stdout)
        end)
      end
    end
  end

  case("measure each kernel against the card", function()
    local result = run.host({folder .. "kernel_rates.lua", "smoke"}, {timeout = 120, env = own})
    assert.equal(0, result.code, result.output)
    local values = lines_of(result.stdout)
    for _, name in ipairs {"add_f32", "gelu_bf16", "layer_norm_bf16", "adamw_124m", "attention_both_bf16"} do
      assert(values[name .. "_us"] > 0 and values[name .. "_share"] > 0, name)
    end
    assert(values.copy_gbs > 0 and values.matrix_tflops > 0, result.stdout)
  end)

  case("run one row, print a table and list the goals", function()
    local base = os.tmpname()
    local result = run.host({folder .. "run.lua", "--smoke", "--no_peer", "--rows", "mnist_64", "--host", run.path,
      "--json", base .. ".json", "--goals", base}, {timeout = 120, env = own})
    assert.equal(0, result.code, result.output)
    assert.matches("mnist_64 ", result.stdout)
    local report = accelhost.json.decode(assert(io.open(base .. ".json")):read "*a")
    assert.is_true(report.rows.mnist_64.ours_eager.step_ms > 0)
    local told = assert(io.open(base)):read "*a"
    assert.matches("MNIST CNN, batch 64: 3 times PyTorch eager|%d+ images/s[^|]*|smoke|", told)
    assert.matches("GPT%-2 124M in bfloat16 level with torch.compile|not measured|open|", told)
    os.remove(base)
    os.remove(base .. ".json")
  end)
end)
