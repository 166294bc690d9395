-- Trains a ResNet-18 on CIFAR-10 with cropped and mirrored images:
--
--   accelhost examples/resnet.lua --data cifar-10-batches-bin
--   accelhost launch --num_processes 2 examples/resnet.lua --data cifar-10-batches-bin
--
-- Without CIFAR-10 (see --data) it trains on generated digits.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
local transforms = data.transforms

local args = accelhost.parse_args {
  description = "Trains a ResNet-18 on CIFAR-10.",
  {"data", nil, "folder with the files of CIFAR-10 (default: generated digits)", type = "string", metavar = "DIR"},
  {"epochs", 10, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 64, "images per process and step", integer = true, minimum = 2},
  {"train_size", 0, "train on the first N images only (0: all)", integer = true, minimum = 0},
  {"width", 64, "channels of the first stage", integer = true, minimum = 1},
  {"lr", 0.1, "highest learning rate of the cosine schedule"},
  {"seed", 1, "seed of weights, order and augmentation", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds: a narrow network, few images"},
}
if args.smoke then args.epochs, args.train_size, args.width, args.batch_size = 2, 320, 8, 32 end

local accelerator = accelhost.Accelerator()
accelhost.manual_seed(args.seed)

local crop, flip = transforms.RandomCrop(32, {padding = 4}), transforms.RandomHorizontalFlip()
local channels, train_set, test_set = 3
if args.data then
  local normalise = transforms.Normalize({0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616})
  train_set = data.CIFAR10(args.data, {transform = transforms.Compose {crop, flip, transforms.ToTensor(), normalise}})
  test_set = data.CIFAR10(args.data,
    {train = false, transform = transforms.Compose {transforms.ToTensor(), normalise}})
else -- digits are not mirrored
  local edge = transforms.Pad(2)
  channels = 1
  train_set = data.SyntheticDigits {size = 2000, transform = transforms.Compose {edge, crop, transforms.ToTensor()}}
  test_set = data.SyntheticDigits {size = 500, train = false,
    transform = transforms.Compose {edge, transforms.ToTensor()}}
end
if args.train_size > 0 then train_set = data.Subset(train_set, 0, args.train_size) end

local width = args.width
local model = accelhost.models.resnet18 {num_classes = 10, num_channels = channels, embedding_size = width,
  hidden_sizes = {width, 2 * width, 4 * width, 8 * width}}
-- Images of 32x32: the first layer keeps their size.
model.resnet.embedder.embedder.convolution = nn.Conv2d(channels, width, 3, {padding = 1, bias = false})
model.resnet.embedder.pooler = nn.Identity()
local optimizer = optim.SGD(model:parameters(), {lr = args.lr, momentum = 0.9, weight_decay = 5e-4, nesterov = true})
local train_loader = data.DataLoader(train_set, {batch_size = args.batch_size, shuffle = true, drop_last = true})
local test_loader = data.DataLoader(test_set, {batch_size = 100})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)
-- The prepared loader has a process's share of the batches, which is how many steps an epoch has.
local scheduler = accelerator:prepare(optim.lr_scheduler.OneCycleLR(optimizer,
  {max_lr = args.lr, epochs = args.epochs, steps_per_epoch = train_loader:len()}))

for epoch = 1, args.epochs do
  for images, labels in accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)}) do
    accelerator:backward(F.cross_entropy(model(images), labels))
    optimizer:step()
    scheduler:step()
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
