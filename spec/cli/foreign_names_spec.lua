-- Names of PyTorch, transformers, Accelerate, torchvision, Lightning and Python as `accelhost help` answers them.
local accelhost = require "accelhost"
local answers = require "accelhost.docs.answers"
local check = require "spec.support.check"
local help = require "accelhost.docs.help"
local run = require "spec.support.run"

-- The first line of an entry, or the words of the answer; lines joined.
local function answer_for(name)
  local text, problem = help.text(accelhost, {}, name)
  assert.truthy(text, problem)
  return (text:gsub("\27%[%d*m", ""):gsub("%s+", " "))
end

-- Name -> the beginning of its answer.
local expected = {
  -- Here, by the module's name too.
  ["transformers.Trainer"] = "accelhost.Trainer(model = nil, args = nil,",
  ["transformers.TrainingArguments"] = "accelhost.TrainingArguments(output_dir",
  ["transformers.AutoModel"] = "models.AutoModel()",
  ["accelerate.Accelerator"] = "accelhost.Accelerator(",
  ["accelerate.notebook_launcher"] = "accelhost.notebook_launcher(",
  ["torch.cuda.amp.GradScaler"] = "amp.GradScaler(",
  ["torch.cuda.amp.autocast"] = "accelhost.autocast(",
  ["torch.autograd.functional.jacobian"] = "autograd.functional.jacobian(func, inputs,",
  ["torchvision.transforms.Resize"] = "data.transforms.Resize(",
  ["torchvision.transforms.v2.MixUp"] = "data.transforms.MixUp(",
  ["torchvision.models.resnet18"] = "models.resnet18(",
  ["timm.create_model"] = "models.create_model(model_name",
  ["torch"] = "accelhost Tensors",
  ["torch.nn.functional.relu"] = "accelhost.relu(input)",
  -- By another name.
  ["pytorch_lightning.Trainer"] = "pytorch_lightning.Trainer is not here by that name. Instead of pytorch_lightning: "
    .. "accelhost.Trainer",
  ["torch.distributed.fsdp"] = 'torch.distributed.fsdp has another name here: accelhost.Accelerator{sharding = "full"}',
  ["torch.multiprocessing.Process"] = "torch.multiprocessing.Process is not here by that name. Instead of "
    .. "torch.multiprocessing: accelhost.launcher(fn, {num_processes = 2})",
  ["torch.accelerator.is_available"] = "torch.accelerator.is_available has another name here: "
    .. "accelhost.cuda.is_available().",
  ["torch.FloatTensor"] = "torch.FloatTensor has another name here: accelhost.tensor(values, {dtype = \"float32\"})",
  ["torchvision.transforms.v2.InterpolationMode"] = "torchvision.transforms.v2.InterpolationMode has another name "
    .. "here: a string",
  ["time.perf_counter"] = "time.perf_counter is not here by that name. Instead of time: accelhost.time",
  ["wandb"] = "wandb has another name here: log_with and accelhost.track",
  ["wandb.log"] = "wandb.log is not here by that name. Instead of wandb: log_with and accelhost.track",
  ["copy.deepcopy"] = "nn.Module:deepcopy()",
  ["isinstance"] = "accelhost.isinstance(value, classinfo)",
  -- Not here, and why.
  ["torch.compile"] = "torch.compile is not here (no compiler: ops are native code",
  ["torch.jit.script"] = "torch.jit.script is not here (no compiler: ops are native code",
  ["torch.jit.trace"] = "torch.jit.trace is not here (no compiler",
  ["torch.export"] = "torch.export is not here (no export of graphs",
  ["torch.onnx"] = "torch.onnx is not here (no export of graphs",
  ["torch.onnx.export"] = "torch.onnx.export is not here (no export of graphs",
  ["torch.func"] = "torch.func is not here (function transforms such as vmap: "
    .. "accelhost.autograd.functional has jacobian",
  ["torch.distributed.rpc"] = "torch.distributed.rpc is not here (calls of functions in other processes",
  ["torch.nested"] = "torch.nested is not here (tensors of unequal rows",
  ["torch.hub.load"] = "torch.hub.load is not here (downloads of code",
  ["torchvision.models.vgg16"] = "torchvision.models.vgg16 is not here by that name. Instead of torchvision.models: "
    .. "models.resnet18, models.vit_b_16",
  ["torch.ao"] = "torch.ao is not here (quantised tensors",
  ["torch.serialization.safe_globals"] = "torch.serialization.safe_globals is not here (nothing in a file is run",
  ["torch.no_such_module.thing"] = "torch.no_such_module.thing is not here (a module without an equal here).",
}

-- Modules that may be here: the name is an entry then.
local either = {
  ["torch.distributions.Categorical"] = {"distributions", "torch.distributions.Categorical is not here (probability"},
}

-- Public names in a text: "accelhost.cuda.is_available()", "data.mnist".
local function names_in(text)
  local list = {}
  for name in text:gmatch "%f[%w_]accelhost%.([%w_%.]+)" do list[#list + 1] = (name:gsub("%.+$", "")) end
  for name in text:gmatch "%f[%w_%.](data%.[%w_%.]+)" do list[#list + 1] = (name:gsub("%.+$", "")) end
  return list
end

describe("accelhost help for a name of another package", function()
  it("shows the name, its other name or the reason, and nothing that is only spelt alike", function()
    for name, beginning in pairs(expected) do
      assert.equal(beginning, answer_for(name):sub(1, #beginning))
    end
  end)

  it("shows a module that is here, and else the reason", function()
    for name, row in pairs(either) do
      local is_here = pcall(function() return accelhost[row[1]] end)
      if is_here then
        assert.is_nil(answer_for(name):find("is not here", 1, true))
      else
        assert.equal(row[2], answer_for(name):sub(1, #row[2]))
      end
    end
  end)

  it("leads from PyTorch's tensor class to empty, and the version is a field", function()
    check.raises("Tensor: expected accelhost.empty(2, 3) for a tensor of a size", function()
      return accelhost.Tensor(3, 4)
    end)
    assert.equal(run.host({"--version"}).stdout:match "%d+%.%d+%.%d+", accelhost.__version__)
  end)

  it("corrects a misspelt name of a module that is here", function()
    local text, problem = help.text(accelhost, {}, "torch.nn.Linaer")
    assert.is_nil(text)
    assert.matches("near to it: nn%.Linear", problem)
  end)

  it("names nothing that is not here", function()
    local count = 0
    for _, row in ipairs(answers.modules()) do
      for _, name in ipairs(names_in(row[2])) do
        local value = accelhost
        for step in name:gmatch "[%w_]+" do value = value[step] end
        assert.truthy(value, row[1] .. ": " .. name)
        count = count + 1
      end
    end
    assert.truthy(count > 40, count)
  end)
end)
