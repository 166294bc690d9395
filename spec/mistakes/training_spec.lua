-- Loops that train in a wrong way.
local mistake = require "spec.support.mistake"

describe("The message has the remedy for", function()
  mistake.each {
    {"a second backward", "loss:backward() loss:backward()", "the graph was already used by a backward",
      "pass retain_graph = true to the first one"},
    {"a leaf that is changed in place", "model.fc1.weight:add_(1)",
      "add_: a leaf that requires grad cannot be changed in place (use no_grad, or a copy)"},
    {"a saved tensor that was changed", "local h = model.fc1(x):sigmoid() local l = h:sum() h:add_(1) l:backward()",
      "was changed in place after it was saved", "h = h * 2 in place of h:mul_(2)"},
    {"the line of an op whose result was changed",
      "accelhost.autograd.detect_anomaly(function() local h = model.fc1(x):sigmoid() local l = h:sum() h:add_(1) " ..
      "l:backward() end)", "; the op was called at train.lua:12"},
    {"a loss that was detached", "loss:detach():backward()", "does not require grad and has no history",
      "it is from :detach(), from no_grad"},
    {"a loss that is a number", "accelerator:backward(loss:item())", "a number has no history"},
    {"a forward without return",
      "function Net:forward(z) self.fc1(z) end F.cross_entropy(model(x), y)", "expected a tensor, got nil",
      "model(...) returned nothing: end its forward with `return`"},
    {"a gradient before backward", "print(model.fc1.weight.grad:norm())", "model.fc1.weight has no gradient"},
    {"a list of losses", "print(accelhost.mean({loss, loss}))", "accelhost.stack(list) makes one of tensors"},
    {"a plain table of layers", "local M = nn.Module:extend 'M' function M:init() self.layers = {nn.ReLU()} end M()",
      "M.layers is a plain table that holds modules", "use nn.ModuleList or nn.ModuleDict"},
    {"layers of a Sequential by name", "nn.Sequential{conv = nn.ReLU()}",
      'Sequential: items of a table have no order by name: write {{"conv", ...}, ...}'},
    {"a model without forward", "local M = nn.Module:extend 'M' M()(x)", "M has no forward: define function M:forward"},
    {"a class without a name", "nn.Module:extend()", "extend: expected the name of the class, got nil"},
    {"an optimizer without parameters", "optim.SGD({})", "SGD: got an empty list of parameters"},
    {"an optimizer of a model", "optim.SGD(model)", "SGD: expected a table of parameters (net:parameters())",
      "got a Net"},
    {"a search without a closure", "optim.LBFGS(model:parameters()):step()",
      "LBFGS:step: closure: expected a function or something callable, got nil"},
    {"the first group by 0", "optimizer.param_groups[0].lr = 1", "Lua's tables count from 1",
      "optimizer.param_groups[1] is the first"},
    {"the first size by 0", "print(x:shape()[0] * 2)", "Lua's tables count from 1", "x:shape()[1] is the first"},
  }
end)

describe("The message shows the loop for", function()
  mistake.each {
    {"a loader, at ipairs", "for i, b in ipairs(loader) do print(i, b) end", "for batch in loader do",
      "accelhost.enumerate(loader)"},
    {"a loader, at pairs", "for i, b in pairs(loader) do print(i, b) end", "for batch in loader do"},
    {"a tensor", "for i, row in ipairs(x) do print(i, row) end", "for i = 0, #x - 1 do local row = x[i]"},
    {"parameters", "for p in model:parameters() do print(p) end",
      "it returns a table, which ipairs iterates over: for i, value in ipairs(model:parameters()) do"},
    {"named parameters", "for n, p in ipairs(model:named_parameters()) do print(n, p) end",
      "it is an iterator already: for name, value in model:named_parameters() do"},
    {"a batch in one variable", "for batch in loader do local a, b = batch[0], batch[1] model(a):bogus(b) end",
      "batch is the first part of each batch: write for inputs, labels in loader do"},
    {"a batch in one variable, from within the model",
      "for batch in loader do\n local a, b = batch[0], batch[1]\n print(model(a:double()), b) end",
      "line 14: batch is the first part of each batch", line = 5},
    {"an unpacked batch", "for i, b in accelhost.enumerate(loader) do local p, q = unpack(b) print(i, p, q) end",
      "for inputs, labels in loader do"},
    {"a count", "for i in 10 do print(i) end", "counting is for i = 1, 10 do"},
    {"a list", "for k, v in {1, 2} do print(k, v) end", "ipairs iterates over a list"},
    {"a position of a loader", "local b = loader[0]", "DataLoader: there is no [0]",
      "for inputs, labels in loader do iterates over the batches"},
    {"a position behind a data set", "local b = dataset[1000]", "TensorDataset: index 1000 is out of range"},
    {"a data set", "for image in dataset do print(image) end", "dataset is a data set: data.DataLoader(dataset)"},
  }
end)

describe("The message of a data set's or a loader's", function()
  mistake.each {
    {"samples of unequal shapes names both",
      "for b in data.DataLoader({get = function(_, i) return accelhost.ones(i + 1) end, " ..
      "len = function() return 2 end}, {batch_size = 2}) do print(b) end",
      "stack: tensor 1 has shape (2,), tensor 0 (1,)", "need a collate_fn"},
    {"list that is counted from 0 is named as such",
      "local list = {x} for b in data.DataLoader{get = function(_, i) return list[i].z end, " ..
      "len = function() return 1 end} do print(b) end", "i is 0, and Lua's tables count from 1", "write list[i + 1]"},
    {"class without len is reported",
      "local S = data.Dataset:extend 'S' function S:get(i) return x[i] end data.DataLoader(S(), {shuffle = true})",
      "S has no method len(): define function S:len()"},
    {"class without get is reported",
      "local S = data.Dataset:extend 'S' function S:len() return 2 end for b in data.DataLoader(S()) do print(b) end",
      "S has no method get(i): define function S:get(i), which returns sample i, counted from 0"},
    {"tensor in place of a data set: the message names the class", "data.DataLoader(x)",
      "DataLoader: dataset: expected a data set", "data.TensorDataset makes one of tensors"},
  }
end)
