-- AutoAugment, RandAugment, TrivialAugmentWide, AugMix, MixUp and CutMix, against torchvision's.
local accelhost = require "accelhost"
local fixtures = require("spec.support.fixtures").read "transforms"
local images = require "spec.support.images"
local operations = require "accelhost.data.transforms.operations"
local T = accelhost.data.transforms

local MOST = {
  RandAugment = {shear = 0.3, shift = 150 / 331, angle = 30, factor = 0.9, bits = 4},
  AutoAugment = {shear = 0.3, shift = 150 / 331, angle = 30, factor = 0.9, bits = 4},
  TrivialAugmentWide = {shear = 0.99, pixels = 32, angle = 135, factor = 0.99, bits = 6},
}

describe("Operations of automatic augmentation", function()
  local image = images.bytes(3, 8, 7)

  it("have torchvision's numbers within one level", function()
    local count = 0
    for name in pairs(fixtures) do
      local operation, magnitude, mode = name:match "^(%u%a+) (%-?[%d.]+) (%a+)$"
      if mode == "nearest" or mode == "bilinear" then
        images.check(name, operations.apply(image, operation, tonumber(magnitude), mode, {5, 6, 7}), 1)
        count = count + 1
      end
    end
    assert.equal(34, count)
  end)

  it("have torchvision's magnitudes and signs", function()
    local count = 0
    for key, fixture in pairs(fixtures) do
      local class, name = key:match "^magnitudes (%a+) (%a+)$"
      for at = 0, class and 9 or -1 do
        local found = operations.magnitude(name, MOST[class], 10, at, 40, 50)
        assert.near(fixture[2][at + 1], found, 1e-6, key)
      end
      if class then
        assert.equal(fixture[1], operations.is_signed(name), key)
        count = count + 1
      end
    end
    assert.equal(42, count)
  end)

  it("equalize floats and images of one value", function()
    images.check("equalize float", T.functional.equalize(images.floats(3, 8, 7)), 1e-7)
    images.check("equalize batch", T.functional.equalize(accelhost.stack {
      images.bytes(1, 20, 26), accelhost.full({1, 20, 26}, 7, {dtype = "uint8"}),
    }))
    assert.error_matches(function() T.functional.equalize(images.bytes(2)) end, "expected 1 or 3 channels, got 2")
    assert.equal(0, T.functional.equalize(images.bytes(3, 0, 4)):numel())
  end)
end)

describe("Automatic augmentation", function()
  local makers = {
    RandAugment = function() return T.RandAugment() end,
    ["RandAugment 3 20"] = function() return T.RandAugment(3, 20, {fill = 128}) end,
    TrivialAugmentWide = function() return T.TrivialAugmentWide {interpolation = "bilinear"} end,
    AugMix = function() return T.AugMix() end,
    ["AugMix few"] = function() return T.AugMix(5, 2, 2, 0.5, false) end,
  }
  for _, policy in ipairs {"imagenet", "cifar10", "svhn"} do
    makers["AutoAugment " .. policy] = function() return T.AutoAugment(policy) end
  end

  it("draws the operations and signs that torchvision draws after the same seed", function()
    local image = images.bytes(3, 20, 24)
    for name, maker in pairs(makers) do
      for seed = 0, 5 do
        local fixture = fixtures[name .. " " .. seed]
        accelhost.manual_seed(seed)
        local made = maker()(image)
        local sums, row = made:to("int64"):sum({1, 2}):tolist(), made:select(0, 0):select(0, 5):tolist()
        for c = 1, 3 do assert.near(fixture[1][c], sums[c], 480, name .. " " .. seed) end
        for x = 1, #row do assert.near(fixture[2][x], row[x], 1, name .. " " .. seed) end
        assert.equal(fixture[3], accelhost.rand({}):item(), name .. " " .. seed)
      end
    end
  end)

  it("draws from each sample's own stream in a loader", function()
    local data = accelhost.data
    local set = data.ImageSet(images.bytes(3, 16, 16):unsqueeze(0):expand(8, 3, 16, 16):contiguous(),
      accelhost.arange(8), {transform = T.Compose {T.RandAugment(), T.TrivialAugmentWide(), T.ToTensor()}})
    local function pass(batch_size)
      local parts = {}
      for batch in data.DataLoader(set, {batch_size = batch_size, seed = 3}) do parts[#parts + 1] = batch end
      return accelhost.cat(parts)
    end
    local first = pass(3)
    assert.is_true(accelhost.equal(first, pass(8)))
    local different = accelhost.unique(first:flatten(1), {dim = 0}):size(0)
    assert.is_true(different > 4, different)
  end)

  it("changes float images of one channel, too", function()
    accelhost.manual_seed(0)
    for _, maker in pairs(makers) do
      local made = maker()(images.floats(1, 9, 9))
      assert.same({1, 9, 9}, made:shape())
      assert.equal("float32", made.dtype)
    end
  end)

  it("refuses magnitudes and policies that do not exist", function()
    assert.error_matches(function() T.RandAugment {magnitude = 31} end, "less than num_magnitude_bins = 31, got 31")
    assert.error_matches(function() T.RandAugment {num_ops = -1} end, "num_ops: expected an integer of at least 0")
    assert.error_matches(function() T.TrivialAugmentWide(1) end, "num_magnitude_bins: expected at least 2, got 1")
    assert.error_matches(function() T.AutoAugment "cifar100" end, "unknown policy 'cifar100'")
    assert.error_matches(function() T.AugMix(11) end, "severity: expected 1 to 10, got 11")
    assert.error_matches(function() T.RandAugment()(accelhost.ones(4)) end, "expected an image tensor")
  end)
end)

describe("MixUp and CutMix", function()
  local batch = accelhost.stack {
    images.bytes(2, 5, 6), images.bytes(2, 5, 6):div(2, "floor"), images.bytes(2, 5, 6):flip(-1),
  }
  local floats, labels = batch:to("float32"):div(255), accelhost.tensor({2, 0, 1}, {dtype = "int64"})

  it("have torchvision's weights, boxes and labels after the same seed", function()
    local either = T.RandomChoice {T.MixUp {num_classes = 4}, T.CutMix {alpha = 0.5, num_classes = 4}}
    local mixes = {mixup = T.MixUp {alpha = 0.4, num_classes = 4}, cutmix = T.CutMix {num_classes = 4}, either = either}
    for name, mix in pairs(mixes) do
      for seed = 0, 2 do
        accelhost.manual_seed(seed)
        local made, rows = mix(floats, labels)
        images.check(("%s %d"):format(name, seed), made, 1e-6)
        images.check(("%s %d labels"):format(name, seed), rows, 1e-6)
      end
    end
    accelhost.manual_seed(5)
    images.check("cutmix bytes", (T.CutMix {num_classes = 4}(batch, labels)))
    accelhost.manual_seed(6)
    images.check("mixup of rows", select(2, T.MixUp()(floats, accelhost.eye(3))), 1e-6)
  end)

  it("mix a batch with names, and leave the one that is passed", function()
    accelhost.manual_seed(0)
    local expected, rows = T.CutMix {num_classes = 3}(floats, labels)
    for _, key in ipairs {"labels", "Label", "class"} do
      local getter = key == "class" and function(given) return given.class end or nil
      local given = {pixel_values = floats, [key] = labels, ids = accelhost.arange(3)}
      accelhost.manual_seed(0)
      local made = T.CutMix {num_classes = 3, labels_getter = getter}(given)
      assert.is_true(accelhost.equal(expected, made.pixel_values))
      assert.is_true(accelhost.equal(rows, made[key]))
      assert.equal(given.ids, made.ids)
      assert.equal(labels, given[key])
    end
  end)

  it("mix a batch in a list, as default_collate returns it", function()
    local cutmix = T.CutMix {num_classes = 3}
    local function collate(samples) return unpack(cutmix(accelhost.data.default_collate(samples))) end
    local set = accelhost.data.TensorDataset(floats, labels)
    accelhost.manual_seed(0)
    local expected, rows = T.CutMix {num_classes = 3}(floats, labels)
    accelhost.manual_seed(0)
    for mixed, targets in accelhost.data.DataLoader(set, {batch_size = 3, seed = 1, collate_fn = collate}) do
      assert.is_true(accelhost.equal(expected, mixed))
      assert.is_true(accelhost.equal(rows, targets))
    end
  end)

  it("receive labels through Compose", function()
    accelhost.manual_seed(0)
    local expected, rows = T.CutMix {num_classes = 3}(floats:flip(-1), labels)
    accelhost.manual_seed(0)
    local steps = {T.Lambda(function(x) return x:flip(-1) end), T.CutMix {num_classes = 3}}
    local images_made, made = T.Compose(steps)(floats, labels)
    assert.is_true(accelhost.equal(expected, images_made))
    assert.is_true(accelhost.equal(rows, made))
    assert.equal(labels, select(2, T.Compose {T.Normalize(0.5, 0.5)}(floats, labels)))
  end)

  it("report wrong batches", function()
    local mix = T.MixUp {num_classes = 4}
    assert.error_matches(function() mix(batch, labels) end, "expected floats, got uint8")
    assert.error_matches(function() mix(floats) end, "MixUp: labels: expected a tensor, got nil")
    assert.error_matches(function() mix(floats[0], labels) end, "expected a batch %[batch, channels, rows, columns%]")
    assert.error_matches(function() mix(floats, labels:narrow(0, 0, 2)) end, "for each of the 3 images, got 2")
    assert.error_matches(function() T.CutMix()(floats, labels) end, "num_classes: expected the number of classes")
    assert.error_matches(function() mix(floats, accelhost.eye(3)) end, "expected 4 classes %(num_classes%), got 3")
    assert.error_matches(function() mix {images = floats} end, "expected labels in the batch")
    assert.error_matches(function() mix {labels = labels} end, "expected images %[batch, channels, rows, columns%]")
    assert.error_matches(function() mix {a = floats, b = floats:clone(), labels = labels} end, "one batch of images")
    assert.error_matches(function() T.MixUp(0) end, "alpha: expected a number above 0")
  end)
end)
