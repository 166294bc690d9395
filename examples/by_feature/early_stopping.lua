-- Stops when the validation loss has not fallen for some epochs, and goes back to the best weights, kept in a file.
--
-- A process that detects this sets a flag with set_trigger; check_trigger then returns true on all processes, so that
-- all stop together.
--
--   accelhost examples/by_feature/early_stopping.lua
--   accelhost launch --num_processes 2 examples/by_feature/early_stopping.lua
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier of digits until it gets no better.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"epochs", 50, "epochs at most", integer = true, minimum = 1},
  {"patience", 3, "epochs without a lower validation loss before it stops", integer = true, minimum = 1},
  {"train_size", 2000, "train on the first N images", integer = true, minimum = 1},
  {"batch_size", 64, "images per process and step", integer = true, minimum = 1},
  {"lr", 2e-3, "learning rate"},
  {"output", "runs/early_stopping", "folder for the best weights", metavar = "DIR"},
  {"seed", 1, "seed of weights and order", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds; on a small part of the data"},
}
if args.smoke then args.epochs = 8 end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(args.seed)
local images, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
local train_set = data.Subset(images, 0, args.train_size)
local validation_set = data.Subset(images, args.train_size, 1000)
if args.smoke then test_set = data.Subset(test_set, 0, 1000) end

local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr})
local scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, {patience = 1, factor = 0.5})
local function loader_of(set, shuffle)
  return data.DataLoader(set, {batch_size = args.batch_size, shuffle = shuffle})
end
local train_loader, validation_loader, test_loader = loader_of(train_set, true), loader_of(validation_set),
  loader_of(test_set)
model, optimizer, train_loader, validation_loader, test_loader =
  accelerator:prepare(model, optimizer, train_loader, validation_loader, test_loader)

--- Mean loss and share of right answers over a loader.
local function evaluate(loader)
  local loss, correct, count = 0, 0, 0
  model:eval()
  accelhost.no_grad(function()
    for inputs, labels in loader do
      local outputs, truth = accelerator:gather_for_metrics(model(inputs), labels)
      loss = loss + F.cross_entropy(outputs, truth, {reduction = "sum"}):item()
      correct, count = correct + outputs:argmax(1):eq(truth):sum():item(), count + truth:size(0)
    end
  end)
  model:train()
  return loss / count, correct / count
end

local best, waited = math.huge, 0
for epoch = 1, args.epochs do
  for inputs, labels in train_loader do
    accelerator:backward(F.cross_entropy(model(inputs), labels))
    optimizer:step()
    optimizer:zero_grad()
  end
  local loss, accuracy = evaluate(validation_loader)
  scheduler:step(loss)
  waited = loss < best and 0 or waited + 1
  accelerator:print(("epoch %2d: validation loss %.4f, accuracy %.2f%s"):format(epoch, loss, 100 * accuracy,
    waited == 0 and ", kept" or ""))
  if waited == 0 then
    best = loss
    accelerator:save_model(model, args.output)
  end
  if accelerator.is_main_process and waited == args.patience then accelerator:set_trigger() end
  if accelerator:check_trigger() then break end
end

accelerator:wait_for_everyone()
accelerator:unwrap_model(model):load_state_dict(accelhost.load(args.output .. "/model.safetensors"))
accelerator:wait_for_everyone()
local _, accuracy = evaluate(test_loader)
accelerator:print(("Accuracy: %.2f; weights in %s"):format(100 * accuracy, args.output))
