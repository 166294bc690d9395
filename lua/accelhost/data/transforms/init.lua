--- accelhost.data.transforms: transforms of images, with torchvision's names, defaults, random draws and numbers
-- (transforms.v2, on tensors).
--
--   local augment = transforms.Compose{transforms.RandomHorizontalFlip(), transforms.ToTensor()}
--   augment(image).dtype  --> float32
--
-- An image is a tensor [channels, rows, columns] or [rows, columns], uint8 when read, or float from 0 to 1. Random
-- transforms draw from the global generator; within a loader from a stream of the sample's own.
local namespace = require "accelhost.util.namespace"

-- File -> the names that it defines.
local files = {
  pointwise = {"Compose", "Lambda", "ToTensor", "ToImage", "ToDtype", "ConvertImageDtype", "Normalize"},
  grid = {"Pad", "CenterCrop", "RandomCrop", "RandomHorizontalFlip", "RandomVerticalFlip"},
  geometry = {"Resize", "RandomResizedCrop", "RandomRotation", "RandomAffine"},
  color = {
    "Grayscale", "RandomGrayscale", "ColorJitter", "GaussianBlur", "RandomErasing", "RandomInvert", "RandomPosterize",
    "RandomSolarize", "RandomAdjustSharpness", "RandomAutocontrast", "RandomEqualize",
  },
  augment = {"AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix"},
  mix = {"MixUp", "CutMix"},
  choice = {"RandomApply", "RandomChoice", "RandomOrder"},
}

local lazy = {functional = {"accelhost.data.transforms.functional"}}
for file, names in pairs(files) do namespace.add(lazy, "accelhost.data.transforms." .. file, names) end

return namespace.new("data.transforms", {}, lazy)
