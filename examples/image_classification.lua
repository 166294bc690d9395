-- Fine-tunes an image model on a folder of images for each class, in one process or in many:
--
--   accelhost examples/image_classification.lua --data photos --model resnet-18
--   accelhost launch --num_processes 2 examples/image_classification.lua --data photos --model vit_tiny.timm
--
-- The images are photos/train/CLASS/*.jpg (or .png) and photos/test/CLASS/...; --model is a checkpoint's folder in the
-- layout of Hugging Face or of timm. Without it a small ResNet starts from random weights; without data there are
-- generated images of four shapes.
local accelhost = require "accelhost"
local data, metrics, models, optim = accelhost.data, accelhost.metrics, accelhost.models, accelhost.optim
local F, transforms = accelhost.nn.functional, data.transforms

local args = accelhost.parse_args {
  description = "Fine-tunes a classifier of images.",
  {"data", nil, "folder with train/CLASS and test/CLASS (default: generated images)", type = "string", metavar = "DIR"},
  {"model", nil, "folder of a checkpoint to begin with", type = "string", metavar = "DIR"},
  {"save", nil, "folder that the model and its image processor are written to", type = "string", metavar = "DIR"},
  {"epochs", 3, "passes over the training set", integer = true, minimum = 1},
  {"batch_size", 32, "images per process and step", integer = true, minimum = 2},
  {"workers", 0, "processes that read the images", integer = true, minimum = 0},
  {"freeze", false, "train the head alone"},
  {"augment", "none", "random changes in addition to flips", choices = {"none", "rand", "trivial", "auto"}},
  {"mix", 0, "alpha by which MixUp and CutMix blend the images of a batch (0: they do not)", minimum = 0},
  {"lr", nil, "learning rate (default: 5e-5 with --model, else 2e-3)", type = "number"},
  {"seed", 42, "seed of weights, order and augmentation", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs, args.batch_size = 2, 16 end
args.lr = args.lr or (args.model and 5e-5 or 2e-3)

local SHAPES = {"bar", "cross", "disc", "ring"}

-- An image of a shape, light on dark or dark on light, at a random place.
local function draw(class)
  local numbers = accelhost.rand(6):tolist()
  local x = accelhost.arange(32):view(1, 32) - 10 - 12 * numbers[1]
  local y = accelhost.arange(32):view(32, 1) - 10 - 12 * numbers[2]
  local size, square = 5 + 4 * numbers[3], x * x + y * y
  local inside
  if class == "bar" then
    inside = y:abs():lt(2):logical_and(x:abs():lt(size))
  elseif class == "cross" then
    inside = x:abs():minimum(y:abs()):lt(2):logical_and(x:abs():maximum(y:abs()):lt(size))
  else
    inside = square:lt(size * size)
    if class == "ring" then inside = inside:logical_and(square:gt((size - 3) * (size - 3))) end
  end
  local light, dark = 150 + 100 * numbers[4], 100 * numbers[5]
  if numbers[6] < 0.5 then light, dark = dark, light end
  local gray = inside:float() * (light - dark) + dark + accelhost.randn(32, 32) * 8
  return gray:clamp(0, 255):to("uint8"):view(1, 32, 32):expand(3, 32, 32)
end

local Generated = data.Dataset:extend "Generated"
function Generated:init(count, transform)
  self.images, self.transform, self.classes = {}, transform, SHAPES
  for i = 1, count do self.images[i] = draw(SHAPES[i % #SHAPES + 1]):contiguous() end
end
function Generated:len() return #self.images end
function Generated:get(i) return self.transform(self.images[i + 1]), (i + 1) % #SHAPES end

local accelerator = accelhost.Accelerator()
accelhost.set_seed(args.seed)

local processor = args.model and models.AutoImageProcessor.from_pretrained(args.model)
  or models.ViTImageProcessor {size = 32}
local changes = {
  rand = transforms.RandAugment, trivial = transforms.TrivialAugmentWide, auto = transforms.AutoAugment,
}
local change = transforms.Compose {transforms.RandomHorizontalFlip(), changes[args.augment] and changes[args.augment]()}
local function read(image) return processor(image).pixel_values:squeeze(0) end
local function augment(image) return read(change(image)) end

local train_set, test_set
if args.data then
  train_set = data.ImageFolder(args.data .. "/train", {transform = augment})
  test_set = data.ImageFolder(args.data .. "/test", {transform = read})
else
  train_set, test_set = Generated(args.smoke and 320 or 2000, augment), Generated(200, read)
end

local id2label, label2id = {}, {}
for i, class in ipairs(train_set.classes) do id2label[i - 1], label2id[class] = class, i - 1 end
local model
if args.model then -- the head of other classes is initialised again
  model = models.AutoModelForImageClassification.from_pretrained(args.model,
    {id2label = id2label, label2id = label2id, ignore_mismatched_sizes = true})
else
  model = models.ResNetForImageClassification {
    embedding_size = 16, hidden_sizes = {16, 32, 64}, depths = {1, 1, 1}, layer_type = "basic", id2label = id2label,
    label2id = label2id,
  }
end
if args.freeze then
  model:requires_grad_(false)
  model.classifier:requires_grad_(true)
end

local mix = args.mix > 0 and transforms.RandomChoice {
  transforms.MixUp {alpha = args.mix, num_classes = #train_set.classes},
  transforms.CutMix {alpha = args.mix, num_classes = #train_set.classes},
}

local trained = {}
for _, parameter in ipairs(model:parameters()) do
  if parameter.requires_grad then trained[#trained + 1] = parameter end
end
local train_loader = data.DataLoader(train_set,
  {batch_size = args.batch_size, shuffle = true, drop_last = true, num_workers = args.workers})
local test_loader = data.DataLoader(test_set, {batch_size = 2 * args.batch_size, num_workers = args.workers})
local optimizer = optim.AdamW(trained, {lr = args.lr, weight_decay = 0.01})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)
local schedule = accelerator:prepare(optim.get_scheduler("cosine", optimizer,
  {num_warmup_steps = #train_loader, num_training_steps = args.epochs * #train_loader}))

local function evaluate()
  local accuracy = metrics.accuracy {accelerator = accelerator}
  model:eval()
  accelhost.no_grad(function()
    for images, labels in test_loader do
      accuracy:add_batch {predictions = model {pixel_values = images}.logits:argmax(1), references = labels}
    end
  end)
  return accuracy:compute().accuracy
end

local accuracy
for epoch = 1, args.epochs do
  model:train()
  for images, labels in accelhost.progress(train_loader, {desc = ("epoch %d/%d"):format(epoch, args.epochs)}) do
    if mix then images, labels = mix(images, labels) end
    accelerator:backward(F.cross_entropy(model {pixel_values = images}.logits, labels))
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
  end
  accuracy = evaluate()
  accelerator:print(("epoch %d: accuracy %.4f"):format(epoch, accuracy))
end
if args.save and accelerator.is_main_process then
  accelerator:unwrap_model(model):save_pretrained(args.save)
  processor:save_pretrained(args.save)
end
accelerator:print(("Accuracy: %.2f"):format(100 * accuracy))
