--- Image data sets that lie in memory: MNIST, Fashion-MNIST, and generated digits of the same shape.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local kinds = require "accelhost.util.kinds"
local dataset = require "accelhost.data.dataset"
local transforms = require "accelhost.data.transforms"

local fail, describe, is_count = arguments.fail, arguments.describe, kinds.is_count
local vision = {}

---@class ImageSet: Dataset
---@field data userdata uint8 [n, rows, columns] or [n, channels, rows, columns]
---@field targets userdata int64 [n]
---@field classes string[]
local ImageSet = dataset.Dataset:extend "ImageSet"
vision.ImageSet = ImageSet

local default_transform = transforms.ToTensor()

--- uint8 images and their labels. Samples are the transformed image and the label; the default transform is ToTensor.
---@param images userdata uint8 [n, rows, columns] or [n, channels, rows, columns]
---@param labels userdata int64 [n]
---@param options? {transform?: function|table, target_transform?: function}
function ImageSet:init(images, labels, options)
  options = options or {}
  arguments.check_names(self._name, options, {"transform", "target_transform"})
  if not C.is_tensor(images) or images.dtype ~= "uint8" or images:dim() < 3 or images:dim() > 4 then
    fail("%s: expected images as a uint8 tensor of 3 or 4 dimensions", self._name)
  end
  if not C.is_tensor(labels) or labels:dim() ~= 1 or labels:size(0) ~= images:size(0) then
    fail("%s: expected one label for each of the %d images", self._name, images:size(0))
  end
  self.data, self.targets = images:cpu():contiguous(), labels:cpu()
  self.transform, self.target_transform = options.transform, options.target_transform
  for _, name in ipairs {"transform", "target_transform"} do
    local value = options[name]
    if value ~= nil and not kinds.is_callable(value) then
      fail("%s: %s: expected something callable, got %s", self._name, name, describe(value))
    end
  end
end

function ImageSet:len() return self.data:size(0) end

function ImageSet:get(i)
  if type(i) ~= "number" or i % 1 ~= 0 or i < 0 or i >= self:len() then
    fail("%s: index %s is out of range (0 to %d)", self._name, tostring(i), self:len() - 1)
  end
  local label = self.targets:select(0, i):item()
  if self.target_transform then label = self.target_transform(label) end
  local column = self:_image_column()
  if not column then return self.transform(self.data:select(0, i)), label end
  if self._single_of ~= column then self._single, self._single_of = C.data.gather {column}, column end
  self._single:post {i}
  return self._single:take():select(0, 0), label
end

-- The images as a column to gather, nil when the transform is not pointwise.
function ImageSet:_image_column()
  local transform = self.transform or default_transform
  if self._column_of ~= transform then
    local channels = self.data:dim() == 4 and self.data:size(1) or 1
    local values = transforms.table_of(transform, channels)
    self._column = values and {self.data, values, {channels, self.data:size(-2), self.data:size(-1)}}
    self._column_of = transform
  end
  return self._column
end

function ImageSet:native()
  if self.target_transform then return nil end
  local column = self:_image_column()
  return column and {column, {self.targets, false, {}}}
end

-- IDX files.

local files = {
  train = {images = "train-images", labels = "train-labels"},
  test = {images = "t10k-images", labels = "t10k-labels"},
}
local dims = {images = "idx3", labels = "idx1"}

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

-- The file of one part ("train", "images") in `dir`, under any of its customary names; nil when it is absent.
local function find_file(dir, split, part)
  local stem = dir .. "/" .. files[split][part]
  for _, separator in ipairs {"-", "."} do
    for _, ending in ipairs {".gz", ""} do
      local path = stem .. separator .. dims[part] .. "-ubyte" .. ending
      if exists(path) then return path end
    end
  end
end

-- The names of the files missing from `dir`, nil when all four are there.
local function missing_files(dir)
  local missing
  for _, split in ipairs {"train", "test"} do
    for _, part in ipairs {"images", "labels"} do
      if not find_file(dir, split, part) then
        missing = missing or {}
        missing[#missing + 1] = ("%s-%s-ubyte[.gz]"):format(files[split][part], dims[part])
      end
    end
  end
  return missing
end

local folders = {
  mnist = {"", "/mnist", "/MNIST/raw", "/raw"},
  fashion_mnist = {"/fashion_mnist", "/fashion-mnist", "/FashionMNIST/raw", ""},
}

local function find(name, dir)
  if dir ~= nil and (type(dir) ~= "string" or dir == "") then
    fail("find_%s: expected a folder, got %s", name, describe(dir))
  end
  local roots = {dir}
  if not dir then
    local environment = os.getenv("ACCELHOST_DATA")
    if environment and environment ~= "" then roots[1] = environment end
    roots[#roots + 1] = "data"
  end
  for _, root in ipairs(roots) do
    for _, folder in ipairs(folders[name]) do
      -- Without a folder of its own Fashion-MNIST has MNIST's file names: only a folder given for it counts.
      local bare = name == "fashion_mnist" and folder == ""
      if not (bare and not dir) and not missing_files(root .. folder) then return root .. folder end
    end
  end
  if not dir then return nil end
  local place = dir
  for _, folder in ipairs(folders[name]) do
    if #(missing_files(dir .. folder) or {}) < 4 then place = dir .. folder end
  end
  fail("%s: not in '%s': missing %s (`accelhost data %s --dir DIR` downloads them)", name, place,
    table.concat(missing_files(place), ", "), name)
end

--- The folder that holds MNIST's four files: `dir`, dir/mnist or dir/MNIST/raw; without dir the same below
--- $ACCELHOST_DATA, then below data. nil when they are in none; an error naming the files when dir is given.
---@param dir? string
---@return string?
function vision.find_mnist(dir) return find("mnist", dir) end

--- As find_mnist, for Fashion-MNIST (in dir, dir/fashion_mnist or dir/FashionMNIST/raw).
---@param dir? string
---@return string?
function vision.find_fashion_mnist(dir) return find("fashion_mnist", dir) end

local function read_idx_set(self, name, options)
  options = options or {}
  if type(options) == "string" then options = {root = options} end
  arguments.check_names(self._name, options, {"root", "train", "transform", "target_transform"})
  local dir = find(name, options.root)
  if not dir then
    fail("%s: not found below %s; `accelhost data %s` downloads it, or give the folder as root", self._name,
      os.getenv("ACCELHOST_DATA") and "$ACCELHOST_DATA and data" or "data (and $ACCELHOST_DATA is not set)", name)
  end
  local split = options.train == false and "test" or "train"
  local images = C.data.idx(find_file(dir, split, "images"), "images")
  local labels = C.data.idx(find_file(dir, split, "labels"), "labels")
  if images:size(0) ~= labels:size(0) then
    fail("%s: %d images but %d labels in '%s'", self._name, images:size(0), labels:size(0), dir)
  end
  self.root = dir
  ImageSet.init(self, images, labels:to("int64"), {
    transform = options.transform, target_transform = options.target_transform,
  })
end

---@class MNIST: ImageSet
local MNIST = ImageSet:extend "MNIST"
vision.MNIST = MNIST
MNIST.classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

--- MNIST from its IDX files (gzip-compressed or not).
--
--   local train = data.MNIST{train = true, transform = transforms.ToTensor()}
---@param options? {root?: string, train?: boolean, transform?: any, target_transform?: function} train: default true
function MNIST:init(options) read_idx_set(self, "mnist", options) end

---@class FashionMNIST: ImageSet
local FashionMNIST = ImageSet:extend "FashionMNIST"
vision.FashionMNIST = FashionMNIST
FashionMNIST.classes = {
  "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
}

--- Fashion-MNIST: as MNIST.
---@param options? {root?: string, train?: boolean, transform?: any, target_transform?: function}
function FashionMNIST:init(options) read_idx_set(self, "fashion_mnist", options) end

---@class SyntheticDigits: ImageSet
local SyntheticDigits = ImageSet:extend "SyntheticDigits"
vision.SyntheticDigits = SyntheticDigits
SyntheticDigits.classes = MNIST.classes

--- Digits drawn from a seed, in MNIST's shapes: for machines without data. Every process draws the same ones.
--
--   local train = data.SyntheticDigits{size = 6000}
---@param options? {train?: boolean, size?: integer, seed?: integer, transform?: any, target_transform?: function} size:
--- default 60,000, or 10,000 with train = false
function SyntheticDigits:init(options)
  options = options or {}
  arguments.check_names("SyntheticDigits", options, {"train", "size", "seed", "transform", "target_transform"})
  local train = options.train ~= false
  local size, seed = options.size or (train and 60000 or 10000), options.seed or 0
  for _, row in ipairs {{"size", size}, {"seed", seed}} do
    if not is_count(row[2], 0) then
      fail("SyntheticDigits: %s: expected an integer of at least 0, got %s", row[1], describe(row[2]))
    end
  end
  local images, labels = C.data.digits(size, seed, train and 0 or 1)
  ImageSet.init(self, images, labels, {transform = options.transform, target_transform = options.target_transform})
end

--- MNIST's training and test set, normalised by MNIST's mean and deviation; generated digits where it is not found (but
--- an error when `dir` was given and lacks it).
--
--   local train_set, test_set = data.mnist(args.data)
---@param dir? string where to look, see find_mnist
---@param options? {announce?: boolean, transform?: any} announce: say on stderr when digits are generated, default true
---@return ImageSet train
---@return ImageSet test
function vision.mnist(dir, options)
  options = options or {}
  arguments.check_names("mnist", options, {"announce", "transform"})
  local transform = options.transform
    or transforms.Compose {transforms.ToTensor(), transforms.Normalize(0.1307, 0.3081)}
  local found = find("mnist", dir)
  if found then
    return MNIST {root = found, train = true, transform = transform},
      MNIST {root = found, train = false, transform = transform}
  end
  if options.announce ~= false then
    io.stderr:write("MNIST is not here (`accelhost data mnist` downloads it): training on generated digits\n")
  end
  return SyntheticDigits {train = true, transform = transform}, SyntheticDigits {train = false, transform = transform}
end

return vision
