local accelhost = require "accelhost"
local check = require "spec.support.check"
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local lfs = require "lfs"
local fixtures = lfs.currentdir() .. "/spec/fixtures/"
local leave
local function estimate(...)
  return run.host({"estimate-memory", ...}, {timeout = 30})
end

-- {row = {values}} of the table that is printed.
local function rows(...)
  local result = estimate(...)
  assert.same({0, ""}, {result.code, result.stderr})
  local list = {}
  for line in result.stdout:gmatch "[^\n]+" do
    local name, rest = line:match "^(%l[^%d]-)  +([%d%-].*)$"
    if name then
      local values = {}
      for value in (rest .. "  "):gmatch "(%S.-)  +" do values[#values + 1] = value end
      list[name:gsub(" +$", "")] = values
    end
  end
  return list, result.stdout
end

local net = [[
local accelhost = require "accelhost"
local nn, F = accelhost.nn, accelhost.nn.functional
local Net = nn.Module:extend "Net"
function Net:init()
  self.conv = nn.Conv2d(1, 8, 3)
  self.bn = nn.BatchNorm2d(8)
  self.fc = nn.Linear(8 * 13 * 13, 10)
end
function Net:forward(x)
  x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
  return F.log_softmax(self.fc(F.dropout(x, 0.5):flatten(1)), 1)
end
return Net
]]

describe("accelhost estimate-memory", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("prints weights, gradients, the optimizer's state and the largest layer of a model, for each dtype", function()
    -- conv 80, bn 16 (and 17 in buffers, one of them int64), fc 13,530 parameters
    local list, text = rows(write("net.lua", net))
    assert.equal("net.lua: Net, 13,626 parameters (13,626 trained), 17 elements of buffers\n", text:match "^[^\n]*\n")
    assert.matches("\n +float32 +bfloat16 +float16\n", text)
    assert.same({"53.30 KiB", "26.65 KiB", "26.65 KiB"}, list.weights)
    assert.same({"52.85 KiB", "26.43 KiB", "26.43 KiB"}, list["largest layer (fc: Linear)"])
    assert.same({"53.23 KiB", "26.61 KiB", "26.61 KiB"}, list.gradients)
    -- AdamW counts its steps in a number of four bytes for each of the six parameters.
    assert.same({"106.48 KiB", "53.25 KiB", "53.25 KiB"}, list["state of AdamW"])
    assert.equal("213.00 KiB", list["training, without activations"][1])
  end)

  it("counts codes and scales of quantised weights, those of config.json and those of --dtypes nf4", function()
    local quantised = fixtures .. "quantized/"
    local function text_of(bytes) return ("%.2f KiB"):format(bytes / 1024) end
    local head = estimate(quantised .. "base").stdout:match ": (LlamaForCausalLM, [%d,]+ parameters)"
    for _, kind in ipairs {"nf4", "fp4", "int8"} do
      local model = accelhost.models.AutoModelForCausalLM.from_pretrained(quantised .. kind)
      local list, text = rows(quantised .. kind, "--dtypes", "float32", "--batch", "2x8:int64")
      assert.equal(text_of(model:get_memory_footprint()), list.weights[1])
      assert.equal(head, text:match ": (LlamaForCausalLM, [%d,]+ parameters)")
      assert.matches("KiB", list["peak of a training step"][1])
    end
    local config = accelhost.models.BitsAndBytesConfig {load_in_4bit = true, bnb_4bit_quant_type = "nf4"}
    local model = accelhost.models.AutoModelForCausalLM.from_pretrained(quantised .. "base",
      {quantization_config = config, dtype = "bfloat16"})
    local list = rows(quantised .. "base", "--dtypes", "float32,nf4")
    local maps = 0 -- the table of codes, which the layers of a new model have in common
    for _, module in ipairs(model:modules()) do maps = maps + (module.quant_state and 64 or 0) end
    assert.equal(text_of(model:get_memory_footprint() + maps - 64), list.weights[2])
    assert.equal("-", list.gradients[2])
    local result = estimate(write("net.lua", net), "--dtypes", "nf4")
    check.has(result.stderr, "--dtypes: nf4 is for a checkpoint's folder, whose linear maps are quantised")
    lfs.mkdir "gptq"
    write("gptq/config.json", '{"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}}')
    check.has(estimate("gptq").stderr, "gptq/config.json: quantization_config: quant_method: expected "
      .. "\"bitsandbytes\", got \"gptq\": read the folder of the model as it was before, with quantization_config")
  end)

  it("reads the folder of a checkpoint by its config.json, without weights", function()
    local config = '{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 9, "n_positions": 8, '
      .. '"n_embd": 8, "n_layer": 1, "n_head": 2}'
    local made = require("lfs").mkdir "checkpoint" and write("checkpoint/config.json", config)
    local _, text = rows("checkpoint", "--batch", "2x4:int64")
    assert.equal("checkpoint: GPT2LMHeadModel, 1,024 parameters (1,024 trained), 0 elements of buffers\n",
      text:match "^[^\n]*\n")
    assert.matches("\npeak of a training step ", text)
    _, text = rows(made, "--model", "GPT2Model")
    assert.matches("^checkpoint/config.json: GPT2Model, 1,024 parameters", text)
    local result = estimate("checkpoint", "--model", "GPT2Modell")
    assert.equal("accelhost estimate-memory: --model: accelhost.models has no 'GPT2Modell'\n", result.stderr)
    assert.equal(1, result.code)
  end)

  it("accepts other dtypes, optimizers and their options", function()
    local list = rows("net.lua", "--dtypes", "float64,int8,int4", "--optimizer", "SGD,momentum=0.9,nesterov=true")
    assert.same({"106.59 KiB", "13.33 KiB", "6.67 KiB"}, list.weights)
    assert.same({"106.45 KiB", "-", "-"}, list["state of SGD"])
    assert.equal("0 B", rows("net.lua", "--optimizer", "SGD")["state of SGD"][1])
    assert.equal("53.23 KiB", rows("net.lua", "--optimizer=Lion")["state of Lion"][1])
  end)

  it("prints the memory of a batch's forward and step, as the CPU then uses it", function()
    local list = rows("net.lua", "--batch", "16x1x28x28", "--dtypes", "float32", "--optimizer", "SGD")
    local script = net:gsub("return Net\n$", "") .. [[
local C = require "accelhost._C"
local net, x = Net(), accelhost.zeros(16, 1, 28, 28)
C.system.collect_stress(true)
collectgarbage()
local before = accelhost.memory_stats().live
local y = net(x)
collectgarbage()
local kept = accelhost.memory_stats().live - before
y:sum():backward()
print(kept / 1024, (accelhost.memory_stats().peak - before) / 1024)
]]
    local kept, peak = run.script(script, {timeout = 30}).stdout:match "([%d.]+)\t([%d.]+)"
    local told = tonumber(list["kept for backward by a forward"][1]:match "^([%d.]+) KiB")
    assert.equal(("%.2f"):format(kept), ("%.2f"):format(told))
    -- The CPU's kernels have workspaces too; MiB are printed with two digits.
    local most = tonumber(list["peak of a training step"][1]:match "^([%d.]+) MiB") * 1024 - 53.3
    assert.truthy(most <= peak + 6 and most > 0.9 * peak, most .. " " .. peak)
  end)

  it("allocates no tensors, however large the model", function()
    write("large.lua", [[
local nn = require("accelhost").nn
return function()
  local layers = {}
  for i = 1, 80 do layers[i] = nn.TransformerEncoderLayer(8192, 64, {dim_feedforward = 28672}) end
  return nn.Sequential(unpack(layers))
end]])
    local result = run.script([[
require "accelhost.estimate"(require "accelhost", "large.lua", {})
print("VmHWM", tonumber(io.open("/proc/self/status"):read("*a"):match "VmHWM:%s*(%d+)") / 1024)]], {timeout = 30})
    assert.equal(0, result.code, result.stderr)
    assert.matches("\nweights +%d%d%d%.%d+ GiB", result.stdout)
    assert.truthy(tonumber(result.stdout:match "VmHWM\t([%d.]+)") < 500, result.stdout)
  end)

  it("accepts several inputs, integers among them, and models that return tables", function()
    write("text.lua", [[
local accelhost = require "accelhost"
local nn = accelhost.nn
local Model = nn.Module:extend "Model"
function Model:init()
  self.table = nn.Embedding(100, 16)
  self.head = nn.Linear(16, 100)
  self.head.weight = self.table.weight
  self.scale = nn.Parameter(accelhost.ones(1), {requires_grad = false})
end
function Model:forward(tokens, mask)
  local hidden = self.table(tokens) * mask:unsqueeze(-1)
  return {logits = self.head(hidden), hidden = {hidden}}
end
return {small = Model, other = 3}]])
    local list, text = rows("text.lua", "--model", "small", "--batch", "4x7:int64,4x7", "--dtypes=float32")
    -- the tied weight counts once: 1600 + 100 + 1, of which the last is frozen
    assert.matches("Model, 1,701 parameters %(1,700 trained%)", text)
    assert.same({"6.64 KiB"}, list.gradients)
    assert.truthy(list["kept for backward by a forward"])
  end)

  it("refuses at once a script that returns nothing", function()
    local path = write("loop.lua", "while true do end")
    local result = run.host({"estimate-memory", path}, {timeout = 20})
    assert.equal(1, result.code)
    assert.matches("loop%.lua: expected the file to return a model .*was not run", result.stderr)
  end)

  it("keeps columns aligned below a long name", function()
    local name = ("deep"):rep(12)
    local path = write("long.lua", ([[local nn = require "accelhost".nn
      local Net = nn.Module:extend "Net"
      function Net:init() self.%s = nn.Linear(2, 2) end
      function Net:forward(x) return x end
      return Net]]):format(name))
    local width, count = nil, 0
    for line in select(2, rows(path)):gmatch "[^\n]+" do
      if line:find "%d i?B$" or line:find "%d [KMG]iB$" then
        assert.equal(width or #line, #line, line)
        width, count = #line, count + 1
      end
    end
    assert.truthy(count >= 5, count)
  end)

  it("reads files of weights by their headers", function()
    accelhost.save({["fc.weight"] = accelhost.zeros(100, 10), ["fc.bias"] = accelhost.zeros(100),
      steps = accelhost.zeros(3, {dtype = "int64"})}, "model.safetensors")
    local list, text = rows "model.safetensors"
    assert.equal("model.safetensors: 3 tensors of 1,103 elements\n", text:match "^[^\n]*\n")
    assert.same({"4.32 KiB", "2.17 KiB", "2.17 KiB"}, list.weights)
    assert.same({"4.30 KiB", "2.15 KiB", "2.15 KiB"}, list["largest layer (fc)"])
    accelhost.save({b = accelhost.zeros(2)}, "part-2.safetensors")
    write("all.safetensors.index.json",
      [[{"weight_map": {"fc.weight": "model.safetensors", "b": "part-2.safetensors"}}]])
    assert.matches("^all.safetensors.index.json: 4 tensors of 1,105 elements\n",
      select(2, rows "all.safetensors.index.json"))
  end)

  it("reports a wrong script, batch or option", function()
    write("nothing.lua", "local x = 1")
    write("broken.lua", "local x =")
    write("number.lua", "return function() return 3 end")
    write("trains.lua", [[local a = require "accelhost" print(a.ones(2):sum():item()) return a.nn.Linear(1, 1)]])
    write("no.safetensors", "no")
    for words, text in pairs {
      [{"nothing.lua"}] = "nothing.lua: expected the file to return a model (nn.Module), or a function or class " ..
        "that makes one, got nothing",
      [{"number.lua"}] = "number.lua: expected a function that returns a model (nn.Module), got one that returns " ..
        "a number",
      [{"broken.lua"}] = "broken.lua:1: unexpected symbol near '<eof>'",
      [{"text.lua"}] = "text.lua returns a table: name the model in it by --model (there are: other, small)",
      [{"text.lua", "--model", "big"}] = "--model: the result of text.lua has no 'big'",
      [{"trains.lua"}] = "let it return the model instead of using it",
      [{"net.lua", "--batch", "16xx2"}] = "--batch: expected shapes such as 64x1x28x28 or 8x128:int64, separated by " ..
        "commas, got '16xx2'",
      [{"net.lua", "--batch", "16x28x28"}] = "the model does not accept --batch: ",
      [{"net.lua", "--dtypes", "float7"}] = "--dtypes: expected names among float64, float32, bfloat16, float16, " ..
        "int8, int4, nf4, got 'float7'",
      [{"net.lua", "--optimizer", "Adm"}] = "--optimizer: accelhost.optim has no 'Adm'",
      [{"net.lua", "--optimizer", "SGD,momentum=much"}] = "--optimizer: momentum: expected a number, true or false, " ..
        "got 'much'",
      [{"net.lua", "--optimizer", "LBFGS"}] = "--optimizer: cannot infer the state of LBFGS from shapes: " ..
        "LBFGS:step: closure: expected a function",
      [{"net.lua", "--optimizer", "Adamw"}] = "accelhost.optim has no 'Adamw' (did you mean 'AdamW'?)",
      [{"net.lua", "--optimizer", "SGD,lr=-1"}] = "--optimizer: cannot infer the state of SGD from shapes: SGD: lr: ",
      [{"model.safetensors", "--batch", "3"}] = "--batch is for a model (a script or a checkpoint's folder)",
      [{"no.safetensors"}] = "no.safetensors",
    } do
      local result = estimate(unpack(words))
      assert.equal(1, result.code, text)
      assert.equal("accelhost estimate-memory: ", result.stderr:sub(1, 27))
      assert.truthy(result.stderr:find(text, 1, true), result.stderr)
      assert.is_nil(result.stderr:find "library frames")
    end
    for words, text in pairs {
      [{}] = "expected a model script, a checkpoint's folder or a file of weights",
      [{"none.lua"}] = "cannot read 'none.lua'",
      [{"net.lua", "more"}] = "unexpected argument 'more'",
      [{"net.lua", "--bacth", "3"}] = "unknown option '--bacth' (did you mean '--batch'?)",
    } do
      local result = estimate(unpack(words))
      assert.equal(2, result.code)
      assert.equal("accelhost estimate-memory: " .. text .. "\nTry 'accelhost estimate-memory --help'.\n",
        result.stderr)
    end
  end)
end)
