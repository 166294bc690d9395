-- Cross-validation: as many models as folds, one after the other, and their votes on data that none has seen.
--
-- `free_memory` lets go of a fold's model before the next one is prepared.
--
--   accelhost launch --num_processes 2 examples/by_feature/cross_validation.lua --folds 5
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier of digits on each fold and lets them vote.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"folds", 3, "parts, each left out once", integer = true, minimum = 2},
  {"train_size", 3000, "the first N images are divided into folds", integer = true, minimum = 10},
  {"epochs", 2, "passes of each model", integer = true, minimum = 1},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.train_size = 1, 1200 end

local accelerator = accelhost.Accelerator()
local images, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
test_set = data.Subset(test_set, 0, 501)
local test_loader = accelerator:prepare_data_loader(data.DataLoader(test_set, {batch_size = 50}))

-- The images in fold k (from 0), and the others.
accelhost.set_seed(1)
local order = accelhost.randperm(args.train_size):tolist()
local function split(k)
  local inside, outside = {}, {}
  for i, index in ipairs(order) do table.insert(i % args.folds == k and inside or outside, index) end
  return inside, outside
end

-- The scores of a whole set in its order, and the labels.
local function scores_of(model, loader)
  local scores, labels = {}, {}
  model:eval()
  accelhost.no_grad(function()
    for inputs, truth in loader do
      scores[#scores + 1], labels[#labels + 1] = accelerator:gather_for_metrics(model(inputs), truth)
    end
  end)
  return accelhost.cat(scores, 0), accelhost.cat(labels, 0)
end

local function accuracy_of(scores, labels) return 100 * scores:argmax(1):eq(labels):sum():item() / #labels end

local votes, truth, validated = 0, nil, {}
for k = 0, args.folds - 1 do
  local inside, outside = split(k)
  local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
  local optimizer = optim.AdamW(model:parameters(), {lr = 3e-3})
  local train_loader = data.DataLoader(data.Subset(images, outside), {batch_size = 32, shuffle = true})
  local validation_loader = data.DataLoader(data.Subset(images, inside), {batch_size = 50})
  model, optimizer, train_loader, validation_loader =
    accelerator:prepare(model, optimizer, train_loader, validation_loader)
  for _ = 1, args.epochs do
    for inputs, labels in train_loader do
      accelerator:backward(F.cross_entropy(model(inputs), labels))
      optimizer:step()
      optimizer:zero_grad()
    end
  end
  validated[k + 1] = accuracy_of(scores_of(model, validation_loader))
  accelerator:print(("fold %d: %.1f of its %d images"):format(k, validated[k + 1], #inside))
  local scores
  scores, truth = scores_of(model, test_loader)
  votes = votes + F.softmax(scores, 1)
  accelerator:free_memory(model, optimizer)
  test_loader = accelerator:prepare_data_loader(data.DataLoader(test_set, {batch_size = 50}))
end
accelerator:print(("Accuracy: %.2f"):format(accuracy_of(votes, truth)))
