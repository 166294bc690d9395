local accelhost = require "accelhost"
local help = require "accelhost.docs.help"
local run = require "spec.support.run"

-- The text of `accelhost help WORDS`, without a separate process.
local function shown(words)
  local text = assert(help.text(accelhost, {{"launch", "run a script"}}, words))
  return (text:gsub("\27%[%d*m", ""))
end

describe("accelhost help", function()
  it("shows functions of a class with a dot, methods with a colon", function()
    local auto = run.host({"help", "models.AutoModel"}).stdout
    assert.matches("\n    .from_pretrained(path, options = nil)\n", auto, 1, true)
    assert.matches("\n    .from_config(config) ", auto, 1, true)
    assert.matches("\n    :zero_grad(options) ", run.host({"help", "optim.Optimizer"}).stdout, 1, true)
    for _, name in ipairs {"models.AutoModel.from_pretrained", "models.AutoModel:from_pretrained"} do
      assert.matches("^models%.AutoModel%.from_pretrained%(path, options = nil%)\n", run.host({"help", name}).stdout)
    end
  end)

  it("lists modules, commands and topics", function()
    local result = run.host {"help"}
    run.succeeds(result)
    for _, word in ipairs {"nn.functional", "optim.lr_scheduler", "Tensor", "launch", "environment"} do
      assert.matches("\n    " .. word:gsub("%.", "%%.") .. " ", result.stdout)
    end
  end)

  it("prints signature, text, arguments and example of a class", function()
    local result = run.host {"help", "nn.Linear"}
    run.succeeds(result)
    assert.matches("^nn%.Linear%(in_features, out_features, bias = true, device = nil, dtype = nil%)\n", result.stdout)
    for _, text in ipairs {"y = x W^T", "local fc = nn.Linear(784, 10", "in_features   an integer of at least 0"} do
      assert.truthy(result.stdout:find(text, 1, true), text)
    end
  end)

  it("finds a name in every way in which a script writes it", function()
    for _, word in ipairs {"accelhost.relu", "relu", "F.relu", "nn.functional.relu", "Tensor:relu", "torch.relu",
      "Tensor:relu_"} do
      assert.matches("^accelhost%.relu%(input%)\n", shown(word))
    end
  end)

  it("lists the names in a module", function()
    local result = run.host {"help", "optim"}
    assert.matches("\n    AdamW ", result.stdout)
  end)

  it("describes every module in the list, and the modules in a module", function()
    local list = run.host({"help"}).stdout:match "\n  Modules\n(.-)\n\n"
    assert.is_nil(list:find("(0 names)", 1, true))
    assert.is_nil(list:find("(1 names)", 1, true))
    local count = 0
    for name in list:gmatch "%f[^\n%z]    (%S+)" do
      count = count + 1
      local text = list:match("%f[^\n%z]    " .. name:gsub("%.", "%%.") .. "%s+([^\n]+)")
      assert.matches("^%u", text or "", name)
    end
    assert.truthy(count > 40, count)
    assert.matches("\n    backends%.cuda%.matmul  How CUDA", shown("backends.cuda"))
    assert.matches("^accelhost%.nn%.utils%.prune\n", shown "prune")
  end)

  it("shows a command's own help and the environment variables", function()
    assert.equal(run.host({"launch", "--help"}).stdout, run.host({"help", "launch"}).stdout)
    assert.matches("\n  ACCELHOST_DATA\n", run.host({"help", "environment"}).stdout)
  end)

  it("suggests names near to an unknown one, and exits with code 1", function()
    local result = run.host {"help", "nn.Linaer"}
    assert.equal(1, result.code)
    run.prints("", result)
    assert.matches("nothing is called 'nn.Linaer'; near to it: nn%.Linear", result.stderr)
    assert.matches("nothing is called 'zzzqqq'\nTry", run.host({"help", "zzzqqq"}).stderr)
  end)

  it("finds a method by the variable that a script calls it on, and shows it without its tensor", function()
    for word, head in pairs {
      ["x.view"] = "Tensor:view(size)", ["loss:backward"] = "Tensor:backward(", ["model.train"] = "nn.Module:train(",
      ["nn.Module.apply"] = "nn.Module:apply(fn)", ["nn.Module.class_name"] = "nn.Module:class_name()",
      ["isinstance"] = "accelhost.isinstance(value, classinfo)",
      ["nn.ModuleList.append"] = "nn.ModuleList:append(item)",
      ["distributions.Categorical"] = "distributions.Categorical(probs = nil, logits = nil, validate_args = nil)",
      ["optimizer.zero_grad"] = "optim.Optimizer:zero_grad(",
      ["accelerator.prepare"] = "accelhost.Accelerator:prepare(",
    } do
      local text = shown(word)
      assert.equal(head, text:sub(1, #head))
    end
  end)

  it("distinguishes small letters from large ones only where that matters", function()
    assert.matches("^data%.DataLoader%(", shown("dataloader"))
    assert.matches("^nn%.functional%.linear%(", shown("linear"))
  end)

  it("names whose argument a word is, and other methods of the same name", function()
    local result = run.host {"help", "batch_size"}
    run.succeeds(result)
    assert.matches("^'batch_size' is an argument of .*data%.DataLoader", result.stdout)
    assert.matches("Of the same name: .*optim%.Optimizer:state_dict", (shown("state_dict")
      :gsub("%s+", " ")))
  end)

  it("shows both kinds of a convolution's padding", function()
    local text = run.host({"help", "conv1d"}).stdout:gsub("%s+", " ")
    assert.matches("padding = 0 an integer of at least 0 or a table of them or one of 'same', 'valid'", text, 1, true)
  end)

  it("answers for names of PyTorch and Accelerate that are not here", function()
    local result = run.host {"help", "torch.from_numpy"}
    run.succeeds(result)
    assert.matches("^torch%.from_numpy has another name here: accelhost%.tensor", result.stdout)
    assert.matches("^stft is not here %(of a complex dtype", shown("stft"))
    assert.matches("^tqdm has another name here: accelhost%.progress", shown("tqdm"))
  end)

  it("shows one environment variable, and a guide without the marks of its markup", function()
    assert.matches("^  ACCELHOST_DATA\n      The folder", shown("ACCELHOST_DATA"))
    local text = shown("indexing")
    assert.matches("^Indexing and counting\n", text)
    assert.is_nil(text:find("```", 1, true))
  end)

  it("searches words, and words that are no name, in names, texts, guides and options of commands", function()
    assert.matches("^Found for 'early stopping'", run.host({"help", "early", "stopping"}).stdout)
    for _, words in ipairs {"early stopping", "early_stopping"} do
      assert.matches("^Found for [^\n]+:\n  accelhost%.EarlyStoppingCallback ", shown(words))
    end
    assert.matches("\n  nn%.utils%.clip_grad_norm_ ", shown "gradient clipping")
    assert.is_nil(shown("lazy"):find "has_uninitialized_params")
    for _, word in ipairs {"--num_processes", "num_processes"} do
      assert.matches("\n  launch %-%-num_processes ", shown(word))
    end
    assert.matches("accelhost %-%-version", shown "version")
    assert.matches("^Nothing mentions 'learning rate finder'%. Found for '", shown "learning rate finder")
    assert.matches("^Nothing mentions 'gradeint cliping'%. Found for 'grad", shown "gradeint cliping")
    local partly = shown "confusion heatmap plot"
    assert.matches("^Nothing mentions all of 'confusion heatmap plot'%. Found for a part of the words:\n", partly)
    assert.matches("^[^\n]*\n  metrics%.confusion_matrix ", partly)
    local result = run.host {"help", "zzzqqq", "qqqzzz"}
    assert.equal(1, result.code)
    assert.matches("nothing is called 'zzzqqq qqqzzz'", result.stderr)
    assert.equal(2, run.host({"help", ("x"):rep(2000)}).code)
  end)

  it("names the folder of the examples", function()
    assert.matches("folder %S*/examples%. ", (run.host({"help", "examples"}).stdout:gsub("%s+", " ")))
  end)

  it("names the module that has a command's name", function()
    assert.matches("usage: accelhost data .*\nThe module of the same name: accelhost help accelhost%.data\n$",
      run.host({"help", "data"}).stdout)
  end)

  it("describes each argument of TrainingArguments as its help does", function()
    local text = shown("TrainingArguments"):gsub("%s+", " ")
    local count = 0
    for _, row in ipairs(require("accelhost.trainer.rows").taken) do
      assert.truthy(text:find(row[4]:gsub("%s+", " "), 1, true), row[1])
      count = count + 1
    end
    assert.truthy(count > 60, count)
  end)

  it("aligns the further lines of a result with its first", function()
    local text = shown("relu")
    local result = "x:relu()  --> tensor([[1., 0., 3., 0.],\n" .. (" "):rep(14) .. "-->         [0., 6."
    assert.truthy(text:find(result, 1, true), text)
  end)

  it("keeps to the width of COLUMNS", function()
    local longest = 0
    for line in run.host({"help", "environment"}, {env = {COLUMNS = "60"}}).stdout:gmatch "[^\n]+" do
      longest = math.max(longest, #line)
    end
    assert.truthy(longest <= 60 and longest > 50, longest)
  end)
end)

describe("accelhost types", function()
  local folder = require "spec.support.folder"
  local leave
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("writes definition files that are Lua", function()
    local result = run.host {"types", "here/types"}
    assert.equal("", result.output)
    run.succeeds(result)
    for _, name in ipairs {"accelhost", "accelhost/nn", "accelhost/nn/functional", "accelhost/tensor"} do
      local text = assert(io.open("here/types/" .. name .. ".lua")):read "*a"
      assert.matches("^%-%-%-@meta ", text)
      assert.truthy(loadstring(text))
    end
    local nn = io.open("here/types/accelhost/nn.lua"):read "*a"
    assert.truthy(nn:find("function nn.Linear(in_features, out_features, bias, device, dtype) end", 1, true))
    assert.truthy(nn:find("---@param in_features integer", 1, true))
  end)

  it("leaves out no public name, not even another name of a function", function()
    for path, namespace in pairs {
      ["accelhost"] = accelhost, ["accelhost/nn"] = accelhost.nn, ["accelhost/nn/functional"] = accelhost.nn.functional,
      ["accelhost/linalg"] = accelhost.linalg, ["accelhost/data"] = accelhost.data,
      ["accelhost/optim"] = accelhost.optim,
    } do
      local text = io.open("here/types/" .. path .. ".lua"):read "*a"
      for _, name in ipairs(getmetatable(namespace).names()) do
        if not name:find "^_" then
          assert.truthy(text:find("[%s%.]" .. path:match "%w+$" .. "%." .. name .. "[%s%(]"), path .. ": " .. name)
        end
      end
    end
    local text = io.open("here/types/accelhost/tensor.lua"):read "*a"
    for name in pairs(require "accelhost._C".methods) do
      local quoted = ('Tensor["%s"]'):format(name)
      assert.truthy(text:find("Tensor:" .. name .. "(", 1, true) or text:find(quoted, 1, true), name)
    end
  end)

  it("reports which folder cannot be made, and that one is required", function()
    local result = run.host {"types", "/proc/none"}
    assert.equal(1, result.code)
    assert.matches("accelhost types: cannot make the folder /proc/none", result.stderr)
    assert.equal(2, run.host({"types"}).code)
  end)
end)
