-- Trains BasicNet for some steps on 60,000 images in memory, evaluates, and prints how far the peak of the resident
-- size is above the data set's bytes.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local accelerator = accelhost.Accelerator()
local model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
  nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
local transforms = data.transforms
local normalise = transforms.Compose {transforms.ToTensor(), transforms.Normalize(0.1, 0.3)}
local set = data.SyntheticDigits {transform = normalise}
local loader = data.DataLoader(set, {batch_size = 64, shuffle = true})
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

local step = 0
for images, labels in loader do
  accelerator:backward(F.cross_entropy(model(images), labels))
  optimizer:step()
  optimizer:zero_grad()
  step = step + 1
  if step == 20 then break end
end
model:eval()
accelhost.no_grad(function()
  for images in loader do
    accelerator:gather_for_metrics(model(images):argmax(1))
    step = step + 1
    if step == 30 then break end
  end
end)
local bytes = set.data:numel() + 8 * set.targets:numel()
local above = accelerator:gather(accelhost.tensor(accelhost.memory_stats().max_rss - bytes, {dtype = "float64"}))
accelerator:print(above:max():item())
