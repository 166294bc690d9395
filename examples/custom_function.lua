-- A function with its own gradient: the straight-through estimator, which lets a network of binary weights learn.
--
--   accelhost examples/custom_function.lua
--   accelhost launch --num_processes 2 examples/custom_function.lua
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
local autograd = accelhost.autograd

local args = accelhost.parse_args {
  description = "Trains a network of weights -1 and 1.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"epochs", 1, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 64, "images per process and step", integer = true, minimum = 1},
  {"lr", 1e-3, "learning rate"},
  {"seed", 1, "seed of weights and order", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds, on a small part of the data"},
}

-- The sign of x. Its derivative is 0 almost everywhere; the estimator uses that of x itself where |x| <= 1
-- (Bengio, Leonard, Courville: Estimating or propagating gradients through stochastic neurons, 2013).
local Binarize = autograd.Function:extend "Binarize"

function Binarize.forward(ctx, x)
  ctx:save_for_backward(x)
  return accelhost.where(x:ge(0), 1, -1):to(x.dtype)
end

function Binarize.backward(ctx, grad)
  local x = unpack(ctx.saved_tensors)
  return grad * x:abs():le(1)
end

local BinaryLinear = nn.Linear:extend "BinaryLinear"

function BinaryLinear:forward(x)
  return F.linear(x, Binarize.apply(self.weight), self.bias) / math.sqrt(self.in_features)
end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(args.seed)
local train_set, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
if args.smoke then train_set, test_set = data.Subset(train_set, 0, 2560), data.Subset(test_set, 0, 1000) end

local model = nn.Sequential(nn.Flatten(), BinaryLinear(784, 256), nn.BatchNorm1d(256), nn.Hardtanh(),
  BinaryLinear(256, 256), nn.BatchNorm1d(256), nn.Hardtanh(), BinaryLinear(256, 10))
local optimizer = optim.Adam(model:parameters(), {lr = args.lr})
local train_loader = data.DataLoader(train_set, {batch_size = args.batch_size, shuffle = true})
local test_loader = data.DataLoader(test_set, {batch_size = 200})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

for epoch = 1, args.epochs do
  for images, labels in accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)}) do
    accelerator:backward(F.cross_entropy(model(images), labels))
    optimizer:step()
    optimizer:zero_grad()
  end
end

model:eval()
local correct, count = 0, 0
accelhost.no_grad(function()
  for images, labels in test_loader do
    local predictions, truth = accelerator:gather_for_metrics(model(images):argmax(1), labels)
    correct, count = correct + predictions:eq(truth):sum():item(), count + truth:size(0)
  end
end)
accelerator:print(("Accuracy: %.2f"):format(100 * correct / count))
