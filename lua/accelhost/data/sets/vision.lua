--- Image data sets in memory: MNIST, Fashion-MNIST, and generated digits of the same shape.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local dataset = require "accelhost.data.sets.dataset"
local plan = require "accelhost.data.transforms.plan"
local pointwise = require "accelhost.data.transforms.pointwise"

local fail, describe, signature, named = arguments.fail, arguments.describe, arguments.signature, arguments.named
local vision = {}

---@field data userdata uint8 [n, rows, columns] or [n, channels, rows, columns]
---@field targets userdata int64 [n]
---@field classes string[]
local ImageSet = dataset.Dataset:extend "ImageSet"
vision.ImageSet = ImageSet

local default_transform = pointwise.ToTensor()

local read_images = signature("ImageSet", {
  "images: tensor", "labels: tensor", {"transform: callable"}, {"target_transform: callable"},
})

--- uint8 images and their labels. Samples are the transformed image and the label; the default transform is ToTensor.
--
--   #data.ImageSet(accelhost.zeros({3, 28, 28}, {dtype = "uint8"}), accelhost.arange(3))  --> 3
---@param images userdata uint8 [n, rows, columns] or [n, channels, rows, columns]
---@param labels userdata int64 [n]
function ImageSet:init(...)
  local images, labels, transform, target_transform = read_images(...)
  if images.dtype ~= "uint8" or images:dim() < 3 or images:dim() > 4 then
    fail("%s: expected images as a uint8 tensor of 3 or 4 dimensions, got %s %s", self._name, images.dtype,
      arguments.shape_text(images))
  end
  if labels:dim() ~= 1 or labels:size(0) ~= images:size(0) then
    fail("%s: expected one label for each of the %d images, got labels of shape %s", self._name, images:size(0),
      arguments.shape_text(labels))
  end
  self.data, self.targets = images:cpu():contiguous(), labels:cpu()
  self.transform, self.target_transform = transform, target_transform
end

function ImageSet:len() return self.data:size(0) end

-- The images and labels, of which row i is complete.
function ImageSet:_rows(_) return self.data, self.targets end

function ImageSet:get(i)
  if type(i) ~= "number" or i % 1 ~= 0 or i < 0 or i >= self:len() then
    fail("%s: index %s is out of range (0 to %d)", self._name, tostring(i), self:len() - 1)
  end
  local images, labels = self:_rows(i)
  local label = labels:select(0, i):item()
  if self.target_transform then label = self.target_transform(label) end
  local column = self:_image_column(images)
  if not column or column[4] then return (self.transform or default_transform)(images:select(0, i)), label end
  if self._single_of ~= column then self._single, self._single_of = C.data.gather {column}, column end
  self._single:post {i}
  return self._single:take():select(0, 0), label
end

-- The images as a column to gather, nil when a loader cannot do the transform while it gathers.
function ImageSet:_image_column(images)
  local transform = self.transform or default_transform
  if self._column_of ~= transform then
    local channels = images:dim() == 4 and images:size(1) or 1
    local found = plan.of(transform, channels, images:size(-2), images:size(-1))
    local shape = found and {found.rows, found.columns}
    if found and (found.table or images:dim() == 4) then table.insert(shape, 1, channels) end
    self._column = found and {images, found.table, shape, found.grid, found.erase}
    self._column_of = transform
  end
  return self._column
end

-- The columns of native(), of these images and labels.
local function columns_of(self, images, labels)
  if self.target_transform then return nil end
  local column = self:_image_column(images)
  return column and {column, {labels, false, {}}}
end

function ImageSet:native() return columns_of(self, self.data, self.targets) end

-- IDX files.

local files = {
  train = {images = "train-images", labels = "train-labels"},
  test = {images = "t10k-images", labels = "t10k-labels"},
}
local dims = {images = "idx3", labels = "idx1"}

-- Does the file exist? Anything of that name that cannot be read as a file is an error: it is not missing.
local function exists(path)
  local kind, problem = C.data.look(path)
  if problem then fail("cannot read '%s': %s", path, problem) end
  if kind == "folder" then fail("cannot read '%s': it is a folder", path) end
  return kind ~= nil
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

-- Return the folder below `root` that holds the set; else nil and the files that the most likely one lacks.
local function find_below(name, root, given)
  local kind, problem = C.data.look(root)
  if problem then fail("%s: cannot read '%s': %s", name, root, problem) end
  if kind ~= "folder" then
    return nil, ("'%s' is %s"):format(root, kind and "not a folder" or "not there")
  end
  local likely, lacks
  for _, folder in ipairs(folders[name]) do
    -- Fashion-MNIST's files have MNIST's names: only a folder of that name, or one that was passed, counts.
    if given or not (name == "fashion_mnist" and folder == "") then
      local missing = missing_files(root .. folder)
      if not missing then return root .. folder end
      if not likely or #missing < #lacks then likely, lacks = root .. folder, missing end
    end
  end
  return nil, ("not in '%s': missing %s"):format(likely, table.concat(lacks, ", "))
end

local hint = "(`accelhost data %s%s` downloads its files)"

-- Find the set's folder: below `dir`, else below $ACCELHOST_DATA, else below data. A folder that either names must hold
-- the set, or it is an error; without one, nil and the reason.
local function find(name, dir)
  if dir ~= nil and (type(dir) ~= "string" or dir == "") then
    fail("find_%s: dir: expected a folder, got %s", name, describe(dir))
  end
  local variable = not dir and os.getenv("ACCELHOST_DATA") or nil
  if variable == "" then variable = nil end
  local found, reason = find_below(name, dir or variable or "data", dir ~= nil)
  if not found and (dir or variable) then
    fail("%s: %s%s " .. hint, name, variable and "$ACCELHOST_DATA: " or "", reason, name, dir and " --dir DIR" or "")
  end
  return found, reason
end

--- The folder that holds MNIST's four files: `dir`, dir/mnist or dir/MNIST/raw; without dir the same below
--- $ACCELHOST_DATA, or below data when that is not set. nil when they are not in data; an error that names the missing
--- ones when they are not in a folder that was passed.
---@param dir? string
---@return string?
function vision.find_mnist(dir) return (find("mnist", dir)) end

--- The folder that holds Fashion-MNIST's files, as find_mnist: dir, dir/fashion_mnist or dir/FashionMNIST/raw.
--
--   data.find_fashion_mnist() or "not here"  --> ...
---@param dir? string
---@return string?
function vision.find_fashion_mnist(dir) return (find("fashion_mnist", dir)) end

local function read_idx_set(self, name, root, train, transform, target_transform)
  local dir, reason = find(name, root)
  if not dir then
    fail("%s: %s; `accelhost data %s` downloads it, or pass the folder as root", self._name, reason, name)
  end
  local split = train and "train" or "test"
  local images = C.data.idx(find_file(dir, split, "images"), "images")
  local labels = C.data.idx(find_file(dir, split, "labels"), "labels")
  if images:size(0) ~= labels:size(0) then
    fail("%s: %d images but %d labels in '%s'", self._name, images:size(0), labels:size(0), dir)
  end
  self.root = dir
  ImageSet.init(self, images, labels:to("int64"), transform, target_transform)
end

local file_parameters = {
  {"root: string"}, {"train: flag", true}, {"transform: callable"}, {"target_transform: callable"},
}

local MNIST = ImageSet:extend "MNIST"
vision.MNIST = MNIST
MNIST.classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

local read_mnist = signature("MNIST", file_parameters)

--- MNIST from its IDX files (gzip-compressed or not).
--
--   | local train = data.MNIST{train = true, transform = transforms.ToTensor()}
---@param root? string|table default: see find_mnist
function MNIST:init(...) read_idx_set(self, "mnist", read_mnist(...)) end

local FashionMNIST = ImageSet:extend "FashionMNIST"
vision.FashionMNIST = FashionMNIST
FashionMNIST.classes = {
  "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
}

local read_fashion = signature("FashionMNIST", file_parameters)

--- Fashion-MNIST: as MNIST.
--
--   | local train = data.FashionMNIST{train = true}
function FashionMNIST:init(...) read_idx_set(self, "fashion_mnist", read_fashion(...)) end

local SyntheticDigits = ImageSet:extend "SyntheticDigits"
vision.SyntheticDigits = SyntheticDigits
SyntheticDigits.classes = MNIST.classes

local CHUNK = 500

local read_digits = signature("SyntheticDigits", {
  {"train: flag", true}, {"size: size"}, {"seed: size", 0}, {"transform: callable"}, {"target_transform: callable"},
})

--- Digits drawn from a seed, in MNIST's shapes: for machines without data. Every process draws the same ones.
--
--   local train = data.SyntheticDigits{size = 6000}
---@param size? integer default 60,000, or 10,000 with train = false
function SyntheticDigits:init(...)
  local train, size, seed, transform, target_transform = read_digits(...)
  size = size or (train and 60000 or 10000)
  local images = C.empty({size, 28, 28}, {dtype = "uint8", device = "cpu"})
  local labels = C.empty({size}, {dtype = "int64", device = "cpu"})
  ImageSet.init(self, images, labels, transform, target_transform)
  -- Digits are drawn in chunks, when one of a chunk is read; all of them when `data` or `targets` is.
  self.data, self.targets = nil, nil
  self._undrawn = {images = images, labels = labels, seed = seed, split = train and 0 or 1, size = size, drawn = {},
    chunks_left = math.ceil(size / CHUNK)}
end

-- With the last chunk the set becomes an ordinary one, whose rows a loader reads without asking for each of them.
local function draw_chunk(set, undrawn, chunk)
  if undrawn.drawn[chunk] then return end
  local first = chunk * CHUNK
  C.data.digits(undrawn.images, undrawn.labels, undrawn.seed, undrawn.split, first,
    math.min(CHUNK, undrawn.size - first))
  undrawn.drawn[chunk], undrawn.chunks_left = true, undrawn.chunks_left - 1
  if undrawn.chunks_left > 0 then return end
  set._undrawn = nil
  set.data, set.targets = undrawn.images, undrawn.labels
end

local function draw_all(fields)
  local undrawn = rawget(fields, "_undrawn")
  if not undrawn then return end
  for chunk = 0, math.ceil(undrawn.size / CHUNK) - 1 do draw_chunk(fields, undrawn, chunk) end
end

for _, name in ipairs {"data", "targets"} do
  class.property(SyntheticDigits, name, function(fields)
    draw_all(fields)
    return rawget(fields, name)
  end)
end

function SyntheticDigits.__newindex(fields, name, value)
  if name == "data" or name == "targets" then draw_all(fields) end
  rawset(fields, name, value)
end

function SyntheticDigits:len()
  local undrawn = self._undrawn
  return undrawn and undrawn.size or ImageSet.len(self)
end

function SyntheticDigits:_rows(i)
  local undrawn = self._undrawn
  if not undrawn then return self.data, self.targets end
  draw_chunk(self, undrawn, math.floor(i / CHUNK))
  return undrawn.images, undrawn.labels
end

function SyntheticDigits:native()
  local undrawn = self._undrawn
  if not undrawn then return ImageSet.native(self) end
  return columns_of(self, undrawn.images, undrawn.labels), function(i)
    draw_chunk(self, undrawn, math.floor(i / CHUNK))
    return i
  end
end

--- MNIST's training and test set, normalised by MNIST's mean and deviation. Where it is not found, generated digits;
--- but an error when `dir` or $ACCELHOST_DATA is set.
--
--   local train_set, test_set = data.mnist()
---@param dir? string|table the folder to search, see find_mnist
---@param announce? boolean print a line on stderr when digits are generated, default true
---@return ImageSet train
---@return ImageSet test
vision.mnist = named("mnist", {
  {"dir: string"}, {"announce: flag", true}, {"transform: callable"},
}, function(what, dir, announce, transform)
  transform = transform or pointwise.Compose {pointwise.ToTensor(), pointwise.Normalize(0.1307, 0.3081)}
  local found, reason = find(what, dir)
  if found then
    return MNIST {root = found, train = true, transform = transform},
      MNIST {root = found, train = false, transform = transform}
  end
  if announce then
    io.stderr:write(("MNIST is not here (%s; `accelhost data mnist` downloads it): training on generated digits\n")
      :format(reason))
  end
  return SyntheticDigits {train = true, transform = transform}, SyntheticDigits {train = false, transform = transform}
end)

return vision
