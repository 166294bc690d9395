-- Trains a variational autoencoder on digits and draws one that it made up:
--
--   accelhost examples/vae.lua
--   accelhost launch --num_processes 2 examples/vae.lua
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a variational autoencoder on digits.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"epochs", 1, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 64, "images per process and step", integer = true, minimum = 1},
  {"latent", 16, "size of the latent code of an image", integer = true, minimum = 1},
  {"lr", 1e-3, "learning rate"},
  {"seed", 1, "seed of weights, order and samples", integer = true, minimum = 0},
  {"samples", nil, "write 64 drawings as this file", type = "string", metavar = "FILE.png"},
  {"smoke", false, "the same in a few seconds, on a small part of the data"},
}

local Vae = nn.Module:extend "Vae"

function Vae:init()
  self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU())
  self.mean, self.log_variance = nn.Linear(256, args.latent), nn.Linear(256, args.latent)
  self.decoder = nn.Sequential(nn.Linear(args.latent, 256), nn.ReLU(), nn.Linear(256, 784))
end

function Vae:forward(images)
  local h = self.encoder(images)
  local mean, log_variance = self.mean(h), self.log_variance(h)
  local z = mean + accelhost.randn_like(mean) * (log_variance * 0.5):exp()
  return self.decoder(z), mean, log_variance
end

--- The negative evidence lower bound, nats per image: the reconstruction loss and the information of the code.
local function loss_of(images, logits, mean, log_variance)
  local reconstruction = F.binary_cross_entropy_with_logits(logits, images:flatten(1), {reduction = "sum"})
  local divergence = (log_variance:exp() + mean * mean - 1 - log_variance):sum() * 0.5
  return (reconstruction + divergence) / images:size(0)
end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(args.seed)
local train_set, test_set = data.mnist(args.data,
  {transform = data.transforms.ToTensor(), announce = accelerator.is_main_process})
if args.smoke then train_set, test_set = data.Subset(train_set, 0, 2560), data.Subset(test_set, 0, 500) end

local model = Vae()
local optimizer = optim.Adam(model:parameters(), {lr = args.lr})
local train_loader = data.DataLoader(train_set, {batch_size = args.batch_size, shuffle = true})
local test_loader = data.DataLoader(test_set, {batch_size = 100})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

for epoch = 1, args.epochs do
  for images in accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)}) do
    accelerator:backward(loss_of(images, model(images)))
    optimizer:step()
    optimizer:zero_grad()
  end
end

model:eval()
local total, batches = 0, 0
accelhost.no_grad(function()
  for images in test_loader do
    total = total + accelerator:reduce(loss_of(images, model(images)), "mean"):item()
    batches = batches + 1
  end
  local shades = {" ", ".", "+", "#"}
  local images = accelerator:unwrap_model(model).decoder(accelhost.randn {64, args.latent}):sigmoid()
  images = images:view(64, 1, 28, 28)
  for _, row in ipairs(F.avg_pool2d(images[0], {2, 1})[0]:tolist()) do
    for x, ink in ipairs(row) do row[x] = shades[math.ceil(4 * ink)] end
    accelerator:print(table.concat(row))
  end
  if args.samples and accelerator.is_main_process then data.save_image(images, args.samples) end
end)
accelerator:print(("Loss: %.2f"):format(total / batches))
