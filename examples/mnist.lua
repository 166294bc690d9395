-- Trains BasicNet on MNIST, in one process or in many:
--
--   accelhost examples/mnist.lua
--   accelhost launch --num_processes 2 examples/mnist.lua
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains BasicNet on MNIST.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"epochs", 1, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 64, "images per process and step", integer = true, minimum = 1},
  {"lr", 1e-3, "learning rate"},
  {"seed", 1, "seed of weights, shuffling and dropout", integer = true, minimum = 0},
  {"train_size", 0, "train on the first N images only (0: all)", integer = true, minimum = 0},
  {"optimizer", "adamw", "optimizer", choices = {"adamw", "sgd"}},
  {"no_dropout", false, "leave dropout out"},
  {"dtype", "float32", "dtype of weights and inputs", choices = {"float32", "float64"}},
  {"log_losses", nil, "write every step's global mean loss to this file", type = "string", metavar = "FILE"},
  {"smoke", false, "the same in a few seconds, on a small part of the data"},
}

local BasicNet = nn.Module:extend "BasicNet"

function BasicNet:init()
  self.conv1 = nn.Conv2d(1, 32, 3, 1)
  self.conv2 = nn.Conv2d(32, 64, 3, 1)
  self.dropout1 = nn.Dropout(args.no_dropout and 0 or 0.25)
  self.dropout2 = nn.Dropout(args.no_dropout and 0 or 0.5)
  self.fc1 = nn.Linear(9216, 128)
  self.fc2 = nn.Linear(128, 10)
end

function BasicNet:forward(x)
  x = F.relu(self.conv1(x))
  x = F.relu(self.conv2(x))
  x = F.max_pool2d(x, 2)
  x = self.dropout1(x)
  x = x:flatten(1)
  x = F.relu(self.fc1(x))
  x = self.dropout2(x)
  return F.log_softmax(self.fc2(x), 1)
end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(args.seed)

local train_set, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
if args.smoke then test_set = data.Subset(test_set, 0, 1000) end
if args.smoke or args.train_size > 0 then
  train_set = data.Subset(train_set, 0, args.train_size > 0 and args.train_size or 640)
end

local model = BasicNet():to{dtype = args.dtype}
local optimizer = args.optimizer == "sgd" and optim.SGD(model:parameters(), {lr = args.lr})
  or optim.AdamW(model:parameters(), {lr = args.lr})
local train_loader = data.DataLoader(train_set, {batch_size = args.batch_size, shuffle = true})
local test_loader = data.DataLoader(test_set, {batch_size = args.batch_size})

model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

local log = args.log_losses and accelerator.is_main_process and assert(io.open(args.log_losses, "w"))

for epoch = 1, args.epochs do
  model:train()
  local bar = accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)})
  for images, labels in bar do
    local loss = F.nll_loss(model(images:to(args.dtype)), labels)
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    local mean = args.log_losses and accelerator:reduce(loss:detach(), "mean")
    if log then assert(log:write(("%.17g\n"):format(mean:item()))) end
  end
end
if log then assert(log:close()) end

model:eval()
local correct, count = 0, 0
accelhost.no_grad(function()
  for images, labels in test_loader do
    local predictions = model(images:to(args.dtype)):argmax(1)
    predictions, labels = accelerator:gather_for_metrics(predictions, labels)
    correct = correct + predictions:eq(labels):sum():item()
    count = count + #labels
  end
end)
accelerator:print(("Accuracy: %.2f"):format(100 * correct / count))
