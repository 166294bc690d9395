--- Mixtures of the images of a batch and of their labels: MixUp, CutMix. The weights are torchvision's.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local dirichlet = require "accelhost.data.transforms.dirichlet"
local rng_streams = require "accelhost.data.rng_streams"

local fail = arguments.fail
local mix = {}

-- The key of a batch's labels: "labels", else the first name that contains "label".
local function labels_key(batch)
  local found
  for _, key in ipairs(arguments.sorted_keys(batch)) do
    local name = type(key) == "string" and key:lower() or ""
    if name == "labels" then return key end
    if name:find "label" then found = found or key end
  end
  return found
end

-- Return one class index per row as one-hot rows, probabilities as floats.
local function rows_of(what, labels, classes)
  if labels:dim() == 1 then
    if not classes then fail("%s: num_classes: expected the number of classes, as labels are class indices", what) end
    return C.one_hot(labels, classes):to("float32")
  end
  if labels:dim() ~= 2 then
    fail("%s: labels: expected class indices [batch] or probabilities [batch, num_classes], got shape %s", what,
      arguments.shape_text(labels))
  end
  if classes and labels:size(1) ~= classes then
    fail("%s: labels: expected %d classes (num_classes), got %d", what, classes, labels:size(1))
  end
  return labels:is_floating_point() and labels or labels:to("float32")
end

local function check_images(what, images, labels)
  if not C.is_tensor(images) or images:dim() ~= 4 then
    fail("%s: images: expected a batch [batch, channels, rows, columns], got %s", what, arguments.describe(images))
  end
  if not C.is_tensor(labels) then
    fail("%s: labels: expected a tensor, got %s", what, arguments.describe(labels))
  end
  if labels:dim() > 0 and labels:size(0) ~= images:size(0) then
    fail("%s: expected a label for each of the %d images, got %d", what, images:size(0), labels:size(0))
  end
end

-- value * weight + the value of the row before * (1 - weight)
local function blended(value, weight) return value:roll(1, 0):mul(1 - weight):add(value:mul(weight)) end

-- Return the key of a batch's images: its only tensor of 4 dims.
local function images_key(what, batch, labels)
  local found
  for key, value in pairs(batch) do
    if C.is_tensor(value) and value ~= labels and value:dim() == 4 then
      if found then fail("%s: expected one batch of images, got '%s' and '%s'", what, found, key) end
      found = key
    end
  end
  return found or fail("%s: expected images [batch, channels, rows, columns] in the batch", what)
end

-- A transform of batches: `draw(self, images)` returns the weight of each image's own label and a function that mixes.
local function mixture(name, draw)
  local Mixture = class.new(name)
  local set = arguments.setter(name, {
    {"alpha: positive", 1}, {"num_classes: count"}, {"labels_getter: 'default'|function", "default"},
  })

  function Mixture:init(...) set(self, ...) end

  local function mixed(self, images, labels)
    check_images(name, images, labels)
    local rows = rows_of(name, labels, self.num_classes)
    local weight, made = draw(self, images)
    return made, blended(rows, weight)
  end

  -- A batch in a table, by names or as a list of images and labels, is returned as a new table.
  function Mixture:__call(batch, labels)
    if C.is_tensor(batch) or type(batch) ~= "table" then return mixed(self, batch, labels) end
    if C.is_tensor(batch[1]) then
      local result = arguments.copy(batch)
      result[1], result[2] = mixed(self, batch[1], batch[2])
      return result
    end
    local given = self.labels_getter ~= "default" and self.labels_getter(batch)
    local place = not given and labels_key(batch)
    if not given and not place then fail("%s: expected labels in the batch; set labels_getter", name) end
    for key, value in pairs(given and batch or {}) do
      if value == given then place = key end
    end
    if not place then fail("%s: labels_getter: expected a value of the batch", name) end
    local result, key = arguments.copy(batch), images_key(name, batch, batch[place])
    result[key], result[place] = mixed(self, batch[key], batch[place])
    return result
  end

  function Mixture:extra_repr()
    return ("alpha=%s, num_classes=%s"):format(self.alpha, tostring(self.num_classes))
  end
  return Mixture
end

--- Each image of a batch blended with the one before it, and their labels alike, as probabilities of classes.
--
--     local mixed, targets = transforms.MixUp{alpha = 0.2, num_classes = 10}(images, labels)
---@param alpha? number of the Beta distribution of the weight; default 1
---@param num_classes? integer needed for labels that are class indices
---@param labels_getter? function|string returns the labels of a batch with names; default: its "labels"
mix.MixUp = mixture("MixUp", function(self, images)
  if not images:is_floating_point() then
    fail("MixUp: images: expected floats, got %s; convert them, as by ToDtype('float32', {scale = true})",
      images.dtype)
  end
  local weight = dirichlet.sample(self.alpha, 1, 2):select(1, 0):item()
  return weight, blended(images, weight)
end)

--- A box of each image of a batch replaced by that of the image before it, and their labels blended by its area.
--
--     local mixed, targets = transforms.CutMix{num_classes = 10}(images, labels)
---@param alpha? number of the Beta distribution of the area; default 1
---@param num_classes? integer needed for labels that are class indices
---@param labels_getter? function|string returns the labels of a batch with names; default: its "labels"
mix.CutMix = mixture("CutMix", function(self, images)
  local rows, columns = images:size(-2), images:size(-1)
  local weight = dirichlet.sample(self.alpha, 1, 2):select(1, 0):item()
  local x, y = rng_streams.below(columns), rng_streams.below(rows)
  local half = 0.5 * math.sqrt(1 - weight)
  local wide, high = math.floor(half * columns), math.floor(half * rows)
  local left, top = math.max(x - wide, 0), math.max(y - high, 0)
  local width, height = math.min(x + wide, columns) - left, math.min(y + high, rows) - top
  local result = images:clone()
  local function box(of) return of:narrow(-2, top, height):narrow(-1, left, width) end
  box(result):copy_(box(images:roll(1, 0)))
  return 1 - width * height / (columns * rows), result
end)

return mix
