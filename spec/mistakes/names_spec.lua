-- Names that are not there.
local mistake = require "spec.support.mistake"

describe("The message names the nearest name for", function()
  mistake.each {
    {"a layer of nn", "nn.Linaer(4, 3)", "nn has no 'Linaer'", "did you mean 'Linear'?"},
    {"a function of F", "F.rellu(x)", "nn.functional has no 'rellu'", "did you mean 'relu'?"},
    {"an optimizer", "optim.Adma(model:parameters())", "optim has no 'Adma'", "did you mean 'Adam'?"},
    {"a scheduler", "optim.lr_scheduler.StpLR(optimizer, 1)", "optim.lr_scheduler has no 'StpLR'",
      "did you mean 'StepLR'?"},
    {"a class of data", "data.DataLaoder(dataset)", "data has no 'DataLaoder'", "did you mean 'DataLoader'?"},
    {"a function of accelhost", "accelhost.manul_seed(1)", "accelhost has no 'manul_seed'",
      "did you mean 'manual_seed'?"},
    {"a method of a tensor", "x:sigmod()", "a tensor has no field or method 'sigmod'", "did you mean 'sigmoid'?"},
    {"a method of a module", "model:paramters()", "model (Net) has no 'paramters'; did you mean 'parameters'?"},
    {"a layer of a module", "model.fc3(x)", "model (Net) has no 'fc3'; did you mean 'fc1'?"},
    {"a field of a layer", "print(model.fc1.wieght.grad)",
      "model.fc1 (Linear) has no 'wieght'; did you mean 'weight'?"},
    {"a layer inside of forward", "function Net:forward(z) return self.fc9(z) end model(x)",
      "self (Net) has no 'fc9'; did you mean 'fc1'?"},
    {"a field of the accelerator", "if accelerator.is_main_proces then end",
      "Accelerator has no field or method 'is_main_proces'", "did you mean 'is_main_process'?"},
    {"a method of the accelerator", "accelerator:bacward(loss)", "did you mean 'backward'?"},
    {"an option of an optimizer", "optim.AdamW(model:parameters(), {weight_decy = 1})",
      "AdamW: unknown option 'weight_decy'", "did you mean 'weight_decay'?"},
    {"an option of a group", "optim.SGD{{params = model:parameters(), momentun = 1}}",
      "SGD: unknown option 'momentun' in a parameter group", "did you mean 'momentum'?"},
    {"an option of a layer", "nn.Linear(4, 3, {bais = false})", "Linear: unknown option 'bais'",
      "did you mean 'bias'?"},
    {"an option of an op", 'x:sum{dimm = 1}', "sum: unknown option 'dimm'", "did you mean 'dim'?"},
    {"an option of a loader", "data.DataLoader(dataset, {batchsize = 4})", "DataLoader: unknown option 'batchsize'",
      "did you mean 'batch_size'?"},
    {"an option of the accelerator", 'accelhost.Accelerator{mixed_precison = "no"}', "did you mean 'mixed_precision'?"},
    {"a word for an option", 'F.mse_loss(x, x, {reduction = "maen"})', "reduction 'maen'", "did you mean 'mean'?"},
    {"a local", "print(modle(x))", "attempt to call global 'modle'", "did you mean 'model'?"},
    {"a dtype", 'x:to "flaot32"', "flaot32", "float32"},
  }
end)

describe("The message says what it is called here for", function()
  mistake.each {
    {"len", "print(len(dataset))", "#x is the length of x"},
    {"range", "for i in range(3) do print(i) end", "for i = 0, n - 1 do ... end counts"},
    {"cuda of a tensor", "x:cuda()", 'write tensor:to "cuda"'},
    {"numpy", "x:numpy()", "write tensor:tolist()"},
    {"torch", "torch.zeros(3)", 'local accelhost = require "accelhost"'},
    {"cuda of accelhost", "accelhost.cuda.is_available()", "accelhost has no cuda: tensors lie where device ="},
    {"a device", 'model:to(accelhost.device("cpu"))', 'a device is named by a string, "cpu"'},
    {"DataParallel", "nn.DataParallel(model)",
      "nn has no DataParallel: accelerator:prepare spreads a model over processes"},
    {"dist", 'dist.init_process_group("nccl")', "accelerator:gather, :reduce and :wait_for_everyone"},
    {"os.environ", 'print(os.environ["HOME"])', "write os.getenv(name)"},
    {"the load of a model", 'model:load "x.pt"', "write model:load_state_dict(accelhost.load(path))"},
    {"SparseAdam", "optim.SparseAdam(model:parameters())", "optim has no SparseAdam: gradients are dense here"},
    {"self outside of a method", "function Net.setup() self.a = 1 end Net.setup()",
      "define the method with a colon, function Net:forward(x)"},
  }
end)
