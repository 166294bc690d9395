--- CIFAR-10 and CIFAR-100: from the binary files or the pickled ones that Python users have.
--
-- A binary file is a row of records: the label (CIFAR-100: coarse label and label), then 32 x 32 bytes each of red,
-- green and blue. A pickled one holds the same as a dict of an array and a list; it is read without running anything.
-- https://www.cs.toronto.edu/~kriz/cifar.html
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local numpy = require "accelhost.io.numpy"
local pickle = require "accelhost.io.pickle"
local vision = require "accelhost.data.sets.vision"

local fail, signature = arguments.fail, arguments.signature
local cifar = {}

local PIXELS = 3 * 32 * 32

local function read_text(path)
  local file, reason = io.open(path, "rb")
  if not file then fail("cannot read '%s': %s", path, reason) end
  local text = file:read "*a"
  file:close()
  if not text then fail("cannot read '%s'", path) end
  return text
end

local function check_labels(path, labels, classes)
  if labels:numel() > 0 and labels:max():item() >= classes then
    fail("'%s': label %d, expected 0 to %d", path, labels:max():item(), classes - 1)
  end
end

-- A binary file: its pixels uint8 [n, 3, 32, 32] and labels int64 [n].
local function read_binary(path, kind)
  local text, width = read_text(path), kind.labels + PIXELS
  if #text == 0 or #text % width ~= 0 then
    fail("'%s': expected records of %d bytes, got %d bytes", path, width, #text)
  end
  local records = C.from_string(text, {#text / width, width}, "uint8")
  local labels = records:select(1, kind.labels - 1):to("int64")
  return records:narrow(1, kind.labels, PIXELS):contiguous():view(-1, 3, 32, 32), labels
end

local function read_pickle(path, kind)
  local value = pickle.run(read_text(path), {
    name = path, makers = numpy.makers(path), persistent = function() fail("'%s': a persistent id", path) end,
  })
  local batch = pickle.plain(value, path)
  local pixels, labels = type(batch) == "table" and batch.data, type(batch) == "table" and batch[kind.field]
  if not C.is_tensor(pixels) or pixels.dtype ~= "uint8" or type(labels) ~= "table" then
    fail("'%s': expected a dict with 'data' and '%s'", path, kind.field)
  end
  if pixels:numel() ~= #labels * PIXELS or #labels == 0 then
    fail("'%s': %d labels but %d bytes of pixels (expected %d each)", path, #labels, pixels:numel(), PIXELS)
  end
  return pixels:view(#labels, 3, 32, 32), C.tensor(labels, {dtype = "int64"})
end

local kinds = {
  CIFAR10 = {
    labels = 1, field = "labels", classes = 10, folders = {"", "/cifar10", "/cifar-10-batches-bin",
      "/cifar-10-batches-py"},
    train = {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"}, test = {"test_batch"},
  },
  CIFAR100 = {
    labels = 2, field = "fine_labels", classes = 100, folders = {"", "/cifar100", "/cifar-100-binary",
      "/cifar-100-python"},
    train = {"train"}, test = {"test"},
  },
}

local function is_file(path) return C.data.look(path) == "file" end

-- Return the paths of these files below root; else nil and the files that the first folder with some of them lacks.
local function find(root, kind, stems)
  local lacking
  for _, folder in ipairs(kind.folders) do
    for _, ending in ipairs {".bin", ""} do
      local paths, missing = {}, {}
      for _, stem in ipairs(stems) do
        local path = root .. folder .. "/" .. stem .. ending
        local list = is_file(path) and paths or missing
        list[#list + 1] = path
      end
      if #missing == 0 then return paths end
      if #paths > 0 or not lacking then lacking = missing end
    end
  end
  return nil, lacking
end

local function read_set(self, kind, root, train, transform, target_transform, names)
  root = root or os.getenv("ACCELHOST_DATA") or "data"
  local paths = {}
  for i, name in ipairs(names or {}) do paths[i] = name:find "^/" and name or root .. "/" .. name end
  if not names then
    local found, missing = find(root, kind, train and kind.train or kind.test)
    if not found then
      fail("%s: not in '%s': missing %s; pass the folder of its files as root", self._name, root,
        table.concat(missing, ", "))
    end
    paths = found
  elseif #names == 0 then
    fail("%s: files: expected at least one", self._name)
  end
  local images, labels = {}, {}
  for i, path in ipairs(paths) do
    local read = path:find "%.bin$" and read_binary or read_pickle
    images[i], labels[i] = read(path, kind)
    check_labels(path, labels[i], kind.classes)
  end
  self.root = root
  vision.ImageSet.init(self, C.cat(images, 0), C.cat(labels, 0), transform, target_transform)
end

local parameters = {
  {"root: string"}, {"train: flag", true}, {"transform: callable"}, {"target_transform: callable"}, {"files: list"},
}

local CIFAR10 = vision.ImageSet:extend "CIFAR10"
cifar.CIFAR10 = CIFAR10
CIFAR10.classes = {
  "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
}

local read_ten = signature("CIFAR10", parameters)

--- CIFAR-10: 50,000 images [3, 32, 32] to train on and 10,000 to test on, from data_batch_1 to 5 and test_batch,
--- binary (.bin) or pickled.
--
--   | local train = data.CIFAR10("folder", {transform = augment})
---@param root? string|table the folder of the files, or one above; default $ACCELHOST_DATA, or data
---@param transform? function|table default ToTensor
---@param files? string[] these files of the folder instead, for a part of the set
function CIFAR10:init(...) read_set(self, kinds.CIFAR10, read_ten(...)) end

local CIFAR100 = vision.ImageSet:extend "CIFAR100"
cifar.CIFAR100 = CIFAR100

local read_hundred = signature("CIFAR100", parameters)

--- CIFAR-100: as CIFAR10, with the 100 fine labels, from train and test.
--
--   | local train = data.CIFAR100("folder", {train = true})
---@param root? string|table the folder of the files, or one above; default $ACCELHOST_DATA, or data
---@param transform? function|table default ToTensor
---@param files? string[] these files of the folder instead
function CIFAR100:init(...) read_set(self, kinds.CIFAR100, read_hundred(...)) end

return cifar
