-- Metrics over all processes that are exact, although batches are filled up so that all processes have equally many.
--
-- `gather_for_metrics` returns each row once; `gather` would return the repeated rows too. Names and other values that
-- are no tensors are gathered the same way.
--
--   accelhost launch --num_processes 3 examples/by_feature/multi_process_metrics.lua
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier of digits and prints its correct predictions of each digit.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"train_size", 4000, "train on the first N images", integer = true, minimum = 1},
  {"test_size", 997, "images that are judged; need not divide by anything", integer = true, minimum = 1},
  {"epochs", 3, "passes over the training set", integer = true, minimum = 1},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.train_size = 1, 1000 end

local accelerator = accelhost.Accelerator()
accelhost.set_seed(1)
local train_set, test_set = data.mnist(args.data, {announce = accelerator.is_main_process})
train_set, test_set = data.Subset(train_set, 0, args.train_size), data.Subset(test_set, 0, args.test_size)
local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
local optimizer = optim.AdamW(model:parameters(), {lr = 2e-3})
local train_loader = data.DataLoader(train_set, {batch_size = 32, shuffle = true})
local test_loader = data.DataLoader(test_set, {batch_size = 64})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

for _ = 1, args.epochs do
  for images, labels in train_loader do
    accelerator:backward(F.cross_entropy(model(images), labels))
    optimizer:step()
    optimizer:zero_grad()
  end
end

-- right[d + 1], seen[d + 1]: of the digit d; mistakes in words.
local right, seen, mistakes = accelhost.zeros(10), accelhost.zeros(10), {}
local plainly_gathered = 0
model:eval()
accelhost.no_grad(function()
  for images, labels in test_loader do
    local guesses = model(images):argmax(1)
    local words = {}
    for i, guess in ipairs(guesses:tolist()) do
      words[i] = ("%d classified as %d"):format(labels[i - 1]:item(), guess)
    end
    plainly_gathered = plainly_gathered + #accelerator:gather(labels)
    local all_guesses, truth, all_words = accelerator:gather_for_metrics(guesses, labels, words)
    local hits = all_guesses:eq(truth)
    right = right + accelhost.bincount(truth[hits], {minlength = 10})
    seen = seen + accelhost.bincount(truth, {minlength = 10})
    for i, hit in ipairs(hits:tolist()) do
      if not hit then mistakes[#mistakes + 1] = all_words[i] end
    end
  end
end)

for digit = 0, 9 do
  accelerator:print(("digit %d: %3d of %3d"):format(digit, right[digit]:item(), seen[digit]:item()))
end
accelerator:print(("%d images were counted, %d rows were gathered"):format(seen:sum():item(), plainly_gathered))
accelerator:print("the first mistake: " .. (mistakes[1] or "none"))
assert(seen:sum():item() == args.test_size)
accelerator:print(("Accuracy: %.2f"):format(100 * right:sum():item() / seen:sum():item()))
