-- Trains two networks against each other: one draws digits, the other distinguishes them from real ones.
--
--   accelhost examples/gan.lua
--   accelhost launch --num_processes 2 examples/gan.lua
--
-- Without MNIST (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a generator and a discriminator of digits.",
  {"data", nil, "folder with the IDX files (default: $ACCELHOST_DATA, else data/)", type = "string", metavar = "DIR"},
  {"epochs", 3, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 64, "images per process and step", integer = true, minimum = 2},
  {"train_size", 10000, "train on the first N images", integer = true, minimum = 2},
  {"noise", 64, "size of the random vector of each drawing", integer = true, minimum = 1},
  {"lr", 2e-4, "learning rate of both networks"},
  {"seed", 1, "seed of weights, order and noise", integer = true, minimum = 0},
  {"samples", nil, "write 64 drawings as this file", type = "string", metavar = "FILE.png"},
  {"smoke", false, "the same in a few seconds, on a small part of the data"},
}
if args.smoke then args.epochs, args.train_size = 1, 640 end

local Generator = nn.Module:extend "Generator" -- (batch, noise) -> (batch, 1, 28, 28) in -1..1

function Generator:init()
  self.start = nn.Linear(args.noise, 64 * 7 * 7)
  self.norm1, self.norm2 = nn.BatchNorm2d(64), nn.BatchNorm2d(32)
  self.up1 = nn.ConvTranspose2d(64, 32, 4, {stride = 2, padding = 1})
  self.up2 = nn.ConvTranspose2d(32, 1, 4, {stride = 2, padding = 1})
end

function Generator:forward(z)
  local x = F.relu(self.norm1(self.start(z):view(-1, 64, 7, 7)))
  return self.up2(F.relu(self.norm2(self.up1(x)))):tanh()
end

local function Discriminator() -- images -> (batch, 1), above 0 for real ones
  return nn.Sequential(
    nn.Conv2d(1, 32, 4, {stride = 2, padding = 1}), nn.LeakyReLU(0.2),
    nn.Conv2d(32, 64, 4, {stride = 2, padding = 1}), nn.LeakyReLU(0.2),
    nn.Flatten(), nn.Linear(64 * 7 * 7, 1))
end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(args.seed)
local transforms = data.transforms
local to_range = transforms.Compose {transforms.ToTensor(), transforms.Normalize(0.5, 0.5)}
local set = data.mnist(args.data, {transform = to_range, announce = accelerator.is_main_process})
set = data.Subset(set, 0, math.min(args.train_size, set:len()))

local generator, discriminator = Generator(), Discriminator()
local options = {lr = args.lr, betas = {0.5, 0.999}}
local g_optimizer = optim.Adam(generator:parameters(), options)
local d_optimizer = optim.Adam(discriminator:parameters(), options)
local loader = data.DataLoader(set, {batch_size = args.batch_size, shuffle = true, drop_last = true})
generator, discriminator, g_optimizer, d_optimizer, loader =
  accelerator:prepare(generator, discriminator, g_optimizer, d_optimizer, loader)

local function loss_of(logits, real)
  return F.binary_cross_entropy_with_logits(logits, accelhost.full_like(logits, real and 1 or 0))
end

local g_loss, d_loss
for epoch = 1, args.epochs do
  local bar = accelhost.progress(loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)})
  for real in bar do
    local fake = generator(accelhost.randn {real:size(0), args.noise})

    d_loss = loss_of(discriminator(real), true) + loss_of(discriminator(fake:detach()), false)
    d_optimizer:zero_grad()
    accelerator:backward(d_loss)
    d_optimizer:step()

    g_loss = loss_of(discriminator(fake), true)
    g_optimizer:zero_grad()
    accelerator:backward(g_loss)
    g_optimizer:step()
  end
end

generator:eval()
accelhost.no_grad(function()
  local images = (generator(accelhost.randn {64, args.noise}) + 1) / 2
  local shades = {" ", ".", "+", "#"}
  for _, row in ipairs(F.avg_pool2d(images[0], {2, 1})[0]:tolist()) do
    for x, ink in ipairs(row) do row[x] = shades[math.max(1, math.ceil(4 * ink))] end
    accelerator:print(table.concat(row))
  end
  if args.samples and accelerator.is_main_process then data.save_image(images, args.samples) end
end)
local both = accelerator:reduce(accelhost.stack {d_loss:detach(), g_loss:detach()}, "mean")
accelerator:print(("Loss: %.4f discriminator, %.4f generator"):format(both[0]:item(), both[1]:item()))
