-- Values of the wrong kind, shape or dtype.
local mistake = require "spec.support.mistake"

describe("The message tells expected and got for", function()
  mistake.each {
    {"a product of shapes that do not fit", "accelhost.randn(8, 784):matmul(accelhost.randn(100, 10))",
      "matmul: inner sizes differ: (8, 784) x (100, 10)", "b:t() swaps b's"},
    {"an input that a layer does not take", "model(accelhost.randn(8, 28, 28))", "in fc1 (Linear): linear: input",
      "(8, 28, 28) does not fit weight (3, 4) (out_features, in_features)",
      "the input's last dim has to be in_features", line = 5},
    {"labels that float", "F.cross_entropy(x, accelhost.randn(8))", "cross_entropy: a floating target holds class",
      "got input (8, 4) and target (8,)", 'class numbers are integers: target:to "int64"'},
    {"a label that is out of range", 'F.cross_entropy(x, accelhost.full({8}, 13, {dtype = "int64"}))',
      "cross_entropy: target 13 at position 0 is outside 0..3", "classes count from 0"},
    {"dtypes that differ", "model(x:double())", "in fc1 (Linear): linear: dtypes differ: float64 and float32",
      'as by x:to "float64"', line = 5},
    {"a dim that counts from 1", "x:softmax(2)", "softmax: dim 2 is out of range (expected -2..1)",
      "dims count from 0"},
    {"a position that counts from 1", "print(x[#x])", "index: 8 is out of range for dim 0 of size 8",
      "positions count from 0"},
    {"a text for a number", 'optim.SGD(model:parameters(), {lr = "0.1"})',
      "SGD: lr: expected a number of at least 0 or a tensor, got '0.1'"},
    {"a number for a parameter", "model.fc1.weight = 3",
      "Linear.weight is a parameter: expected an nn.Parameter or nil, got number 3"},
    {"a tensor with a hole", "accelhost.tensor{1, nil, 3}", "tensor: item 2 of the table is nil"},
    {"a model for parameters", "accelerator:clip_grad_norm_(model, 1)",
      "clip_grad_norm_: parameters: expected a tensor or a table of tensors, got a Net"},
    {"a model for an optimizer", "optim.lr_scheduler.StepLR(model, 1)",
      "StepLR: optimizer: expected an optimizer, got a Net"},
    {"a number for a loss", "accelerator:backward(3)", "backward: loss: expected a tensor, got number 3"},
    {"a loss that is no number", "model(x):backward()", "backward: a gradient is needed for a tensor of shape (8, 2)",
      "loss:mean() and loss:sum() are scalars"},
    {"a tensor in a format", 'print(("%.3f"):format(loss))', "number expected",
      "a tensor is no number: tensor:item() is"},
    {"a number for a gradient", "x.grad = 3", "grad: expected a tensor or nil, got number 3"},
    {"a number for a micro-step", "accelerator:accumulate(model, 3)",
      "accumulate: argument 2: expected a model (the last one may be a function), got number 3"},
    {"an option of an option", 'accelhost.parse_args{{"lr", 1, typ = "number"}}',
      "parse_args: --lr: unknown option 'typ'", "did you mean 'type'?"},
    {"a loss for a closure", "optimizer:step(loss)", "SGD:step: closure: expected a function or something callable",
      "got a tensor of shape ()"},
    {"a text that is gathered", 'accelerator:gather("x")',
      "a collective takes a tensor or a table of tensors, got 'x'"},
    {"a text that is looked for", 'accelhost.load "nowhere.safetensors"',
      "load: 'nowhere.safetensors': there is no such file"},
    {"an item of a tensor that has many", "x:item()", "item: expected a tensor with one element, got shape (8, 4)"},
    {"a shape that does not hold the elements", "x:view(5, 5)", "view: shape (5, 5)", "(8, 4)"},
    {"bytes without a shape", 'accelhost.from_string("abc")', "from_string: 'size' is missing"},
    {"a state of another model", "model:load_state_dict{}", "Missing key(s) in state_dict:", '"fc1.weight"'},
    {"a device that is not here", 'x:to "cuda"', 'device "cuda":', "is not here"},
  }
end)

describe("The message says how tensors are compared at", function()
  mistake.each {
    {"== of two tensors", "print((x == y):sum())", "== asks for the same tensor; a:eq(b)"},
    {"a tensor and a number", "print(x > 0)", "a tensor and a number are compared by tensor:lt(x)"},
    {"two tensors", "print(x > x)", "tensors are compared by methods: a:lt(b)"},
  }
end)
