-- The largest batch that fits into memory, found by trying; longer accumulation windows keep the global batch.
--
--   accelhost launch --num_processes 2 --max_memory 300M examples/by_feature/automatic_batch_size.lua
--
-- --fits N pretends that memory runs out above N images, to see it work on a large machine. Without MNIST (see --data)
-- it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier of digits with the largest batch that fits into memory.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"batch_size", 512, "images per process to begin with", integer = true, minimum = 1},
  {"fits", 100, "pretend that more images than these do not fit; 0: try on the machine", integer = true, minimum = 0},
  {"train_size", 4000, "train on the first N images", integer = true, minimum = 1},
  {"epochs", 3, "passes over the training set", integer = true, minimum = 1},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.train_size, args.batch_size = 2, 1000, 128 end

local accelerator = accelhost.Accelerator()
local train_set, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
train_set, test_set = data.Subset(train_set, 0, args.train_size), data.Subset(test_set, 0, 1000)

-- Each try creates the objects that depend on the batch size again, after those of the previous try are freed.
local function train(batch_size)
  accelerator:free_memory()
  accelhost.set_seed(1)
  local model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(576, 10))
  local optimizer = optim.AdamW(model:parameters(), {lr = 2e-3})
  local train_loader = data.DataLoader(train_set, {batch_size = batch_size, shuffle = true})
  local test_loader = data.DataLoader(test_set, {batch_size = math.min(batch_size, 100)})
  model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)
  accelerator:print(("trying batches of %d, %d to a step"):format(batch_size, accelerator.gradient_accumulation_steps))

  for _ = 1, args.epochs do
    for images, labels in train_loader do
      if args.fits > 0 and #images > args.fits then error "out of memory (pretended)" end
      accelerator:accumulate(model, function()
        accelerator:backward(F.cross_entropy(model(images), labels), {weight = #images})
        optimizer:step()
        optimizer:zero_grad()
      end)
    end
  end

  local correct, count = 0, 0
  model:eval()
  accelhost.no_grad(function()
    for images, labels in test_loader do
      local guesses, truth = accelerator:gather_for_metrics(model(images):argmax(1), labels)
      correct, count = correct + guesses:eq(truth):sum():item(), count + #truth
    end
  end)
  return correct / count
end

local search = accelhost.find_executable_batch_size(train, {
  starting_batch_size = args.batch_size, accelerator = accelerator,
  reduce_batch_size_fn = function(size) return math.floor(size / 2) end,
})
accelerator:print(("Accuracy: %.2f"):format(100 * search()))
