-- Dots for colons, calls forgotten and calls too many.
local mistake = require "spec.support.mistake"

describe("The message asks for a colon at", function()
  mistake.each {
    {"a module's method", "model.parameters()", "parameters: expected a Module as the object, got nil",
      "write model:parameters(...), with a colon"},
    {"a module's parameters within a call", "optim.SGD(model.parameters(), {lr = 0.1})",
      "write model:parameters(...), with a colon"},
    {"a module's forward", "print((model.forward(x)))", "forward: expected an object before it, got a tensor",
      "write ':' instead of '.' (model:forward(...)); inside of it, train.lua:5:"},
    {"a layer's forward", "print((model.fc1.forward(x)))", "write model.fc1:forward(...), with a colon"},
    {"an optimizer's step", "optimizer.step()", "step: expected an Optimizer as the object, got nil", "with a colon"},
    {"an optimizer's zero_grad", "optimizer.zero_grad()", "zero_grad: expected an Optimizer as the object"},
    {"a loss's backward", "loss.backward()", "backward: expected a tensor before it, got nothing",
      "':' instead of '.' (loss:backward(...))"},
    {"a tensor's method", "print((x.view(4, 8)))", "view: expected a tensor before it, got number 4",
      "(x:view(...))"},
    {"the accelerator's backward", "accelerator.backward(loss)", "expected an Accelerator as the object, got a tensor",
      "with a colon"},
    {"the accelerator's prepare", "accelerator.prepare(model)", "expected an Accelerator as the object, got a Net"},
    {"a loader's len", "print((loader.len()))", "len: expected a DataLoader as the object", "with a colon"},
    {"a scheduler's step", "local s = optim.lr_scheduler.StepLR(optimizer, 1) s.step()", "step: expected a",
      "with a colon"},
  }
end)

describe("The message names the module whose method it is:", function()
  mistake.each {
    {"shape", "print(x.shape[1])", "'shape' is a method: write x:shape()"},
    {"item", "print(loss.item + 1)", "'item' is a method: write loss:item()"},
  }
end)

describe("The message names the module whose field it is:", function()
  mistake.each {
    {"the accelerator", "if accelerator:is_main_process() then end",
      "'is_main_process' is a field: write accelerator.is_main_process"},
  }
end)

describe("print of a method that was not called", function()
  it("reports how it is called", function()
    assert.equal("method shape of tensors (x:shape() calls it)\n", mistake.run("print(x.shape)").stdout)
  end)
end)

describe("The message counts the arguments of", function()
  mistake.each {
    {"a layer with one too few", "nn.Linear(4)", "Linear: 'out_features' is missing",
      "its arguments are (in_features, out_features, bias, device, dtype)"},
    {"a layer with a wrong one", 'nn.Linear("784", 128)', "Linear: in_features: expected an integer of at least 0",
      "got '784'", "a number is written without quotes"},
    {"a layer with one too many", "nn.Linear(10, 10, true, 5)", 'Linear: device: expected a device name such as "cpu"',
      "got number 5", "its arguments are (in_features,"},
    {"a model that is called with one too many", "model(x, y)", "forward: expected at most 1 argument, got 2"},
    {"a layer that is called with one too many", "model.fc1(x, y)", "forward: expected at most 1 argument, got 2"},
    {"a model that is called with none", "model.fc1()", "linear: argument 1 (input): expected a tensor, got nil"},
    {"a class that was meant to be the model", "Net(x)", "Net: expected at most 0 arguments, got 1",
      "to call one that exists, call the object"},
    {"an activation that was meant to be called", "nn.ReLU(x)", "ReLU: inplace: expected true or false",
      "got a tensor of shape (8, 4)", "nn.ReLU()(x)"},
    {"a loss that was meant to be called", "nn.CrossEntropyLoss(model(x), y)", "nn.CrossEntropyLoss()(x)"},
    {"a list of modules without its table", "nn.ModuleList(nn.ReLU(), nn.ReLU())",
      "ModuleList: expected one table of modules, got 2 arguments", "ModuleList{a, b}"},
    {"transforms without their table",
      "data.transforms.Compose(data.transforms.ToTensor(), data.transforms.ToTensor())",
      "Compose: expected at most 1 argument", "Compose{a, b}"},
    {"a class for a module", "nn.Sequential(nn.Linear(4, 4), nn.ReLU)",
      "item 2: expected a module, got the class ReLU", "nn.ReLU()"},
    {"prepare with none", "local m = accelerator:prepare()",
      "prepare: expected models, optimizers, loaders or schedulers, got nothing"},
    {"backward with none", "accelerator:backward()", "backward: 'loss' is missing"},
    {"no_grad without a function", "accelhost.no_grad()", "no_grad: expected a function to run, got nothing"},
    {"a function that accepts a table of tensors", "accelhost.cat(x, x)",
      "cat: argument 1 (tensors): expected a table of", "write them in braces: {a, b}"},
    {"save with the path first", 'accelhost.save("m.safetensors", model:state_dict())',
      "save: expected the object first and then the path: save(object, 'm.safetensors')"},
    {"an argument by place and by name", "optim.SGD(model:parameters(), 0.1, {lr = 0.1})",
      "SGD: 'lr' is given twice, by place and by name"},
  }
end)

describe("The message explains a line that continues the one above:", function()
  mistake.each {
    {"a table", "local w = io.stdout:write 'a'\n{1, 2}", line = 13,
      "this line begins with {, so it is the argument of a call of the line above: end that line with ;"},
    {"a parenthesis", "local w = print 'a'\n(x * 2):sum()", line = 13,
      "this line continues the call of the line above: end that line with ;"},
  }
end)
