-- Transforms that resample an image, against torchvision's: sizes, rotations, colours, and random choices among them.
local accelhost = require "accelhost"
local images = require "spec.support.images"
local T = accelhost.data.transforms
local F = T.functional

local one, float = images.bytes(1), images.floats(1)

describe("Resize", function()
  it("has torchvision's numbers in every mode, of bytes and of floats, with antialias and without", function()
    for _, mode in ipairs {"nearest", "nearest-exact", "bilinear", "bicubic"} do
      for _, antialias in ipairs {true, false} do
        for _, size in ipairs {{3, 4}, {9, 8}} do
          local plain = antialias and "" or " plain"
          local name = ("resize %s%s %d %d"):format(mode, plain, size[1], size[2])
          if antialias or not mode:find "nearest" then
            images.check(name, F.resize(one, size, mode, {antialias = antialias}))
            images.check(name .. " float", F.resize(float, size, mode, {antialias = antialias}), 2e-6)
          end
        end
      end
    end
  end)

  it("resizes the shorter side, with a limit of the longer one", function()
    images.check("resize shorter", T.Resize(4)(one))
    images.check("resize shorter max", T.Resize(8, {max_size = 9})(one))
    assert.same({1, 14, 12}, T.Resize {max_size = 14}(one):shape())
  end)

  it("keeps the dtype, and the image where the size is right", function()
    for _, dtype in ipairs {"float64", "float16", "int64"} do
      local resized = F.resize(one:to(dtype), {3, 4})
      assert.equal(dtype, resized.dtype)
      assert.is_true(resized:to("float64"):sub(F.resize(one, {3, 4}):to("float64")):abs():max():item() < 1.3)
    end
    assert.equal(one, F.resize(one, {7, 6}))
    assert.same({2, 1, 3, 4}, F.resize(accelhost.stack({one, one}), {3, 4}):shape())
    images.check("resize bilinear 3 4", F.resize(one:transpose(1, 2):contiguous():transpose(1, 2), {3, 4}))
  end)

  it("refuses missing and contradictory sizes, and empty images", function()
    assert.error_matches(function() T.Resize() end, "expected a size or a max_size")
    assert.error_matches(function() F.resize(one, {3, 4}, {max_size = 9}) end, "leaves nothing to limit")
    assert.error_matches(function() F.resize(one, 8, {max_size = 8}) end, "expected more than the shorter side's 8")
    assert.error_matches(function() F.resize(one:narrow(1, 0, 0), 8) end, "an image of shape %(1, 0, 6%)")
    assert.error_matches(function() T.Resize(4, "cubic") end, "unknown interpolation 'cubic'")
  end)

  it("makes random crops as torchvision does", function()
    for seed = 0, 1 do
      accelhost.manual_seed(seed)
      images.check("resized crop " .. seed, T.RandomResizedCrop {4, 3}(one))
    end
    assert.error_matches(function() T.RandomResizedCrop(4, {scale = {1, 0.5}}) end, "two numbers, low and high")
  end)
end)

describe("Turned images", function()
  local two = images.bytes(2, 6, 7)

  it("are torchvision's", function()
    for _, mode in ipairs {"nearest", "bilinear"} do
      images.check("rotate 30 " .. mode, F.rotate(two, 30, mode))
      images.check(("rotate 30 %s fill"):format(mode), F.rotate(two, 30, mode, {fill = {9, 200}}))
      images.check(("rotate -50 %s expand"):format(mode), F.rotate(two:narrow(0, 0, 1), -50, mode, true))
      images.check(("rotate 10 %s float"):format(mode), F.rotate(float, 10, mode, {center = {1, 2}, fill = 0.5}), 1e-5)
      images.check("affine " .. mode, F.affine(two, 20, {1, -1}, 1.2, {10, 5}, mode, {fill = {3}}))
    end
    for _, angle in ipairs {90, 180, 270} do
      images.check(("rotate %d expand"):format(angle), F.rotate(two:narrow(0, 0, 1), angle, {expand = true}))
    end
  end)

  it("are drawn as torchvision draws them", function()
    for seed = 0, 1 do
      accelhost.manual_seed(seed)
      images.check("random rotation " .. seed, T.RandomRotation(40)(two:narrow(0, 0, 1)))
      images.check("random affine " .. seed, T.RandomAffine(30, {
        translate = {0.2, 0.3}, scale = {0.8, 1.2}, shear = {-10, 10, -5, 5}, interpolation = "bilinear", fill = 4,
      })(two:narrow(0, 0, 1)))
    end
  end)

  it("report wrong arguments", function()
    assert.error_matches(function() T.RandomRotation(-3) end, "must not be negative")
    assert.error_matches(function() T.RandomRotation {1, 2, 3} end, "a table of 2, got 3")
    assert.error_matches(function() T.RandomAffine(3, {translate = {2, 0}}) end, "item 1 is 2")
    assert.error_matches(function() T.RandomAffine(3, {scale = {0, 1}}) end, "expected numbers above 0")
    assert.error_matches(function() F.rotate(two, 3, {fill = {1, 2, 3}}) end, "3 values for an image of 2 channels")
    assert.error_matches(function() F.affine(two, 3, {1}, 1, 0) end, "translate: expected {x, y}")
    assert.error_matches(function() F.rotate(two:select(0, 0), 3) end, "channels, rows, columns")
  end)
end)

describe("Colours", function()
  local bytes, floats = images.bytes(3, 3, 4), images.floats(3, 3, 4)

  it("are torchvision's, of bytes and of floats", function()
    for name, image in pairs {[""] = bytes, [" float"] = floats} do
      local near, first = name == "" and 0 or 2e-6, image:narrow(0, 0, 1)
      images.check("grayscale" .. name, F.rgb_to_grayscale(image), near)
      images.check("brightness" .. name, F.adjust_brightness(image, 1.6), near)
      images.check("contrast" .. name, F.adjust_contrast(image, 0.4), near)
      images.check("saturation" .. name, F.adjust_saturation(image, 1.7), near)
      images.check("hue" .. name, F.adjust_hue(image, 0.3), near)
      images.check("blur" .. name, F.gaussian_blur(first, {3, 5}, {0.7, 1.1}), near)
      images.check("invert" .. name, F.invert(first), near)
      images.check("solarize" .. name, F.solarize(first, name == "" and 128 or 0.5), near)
      images.check("sharpness" .. name, F.adjust_sharpness(first, 2), near)
      images.check("autocontrast" .. name, F.autocontrast(image), near)
    end
    images.check("posterize", F.posterize(bytes:narrow(0, 0, 1), 3))
  end)

  it("are drawn as torchvision draws them", function()
    local flips = {T.RandomHorizontalFlip(1), T.Pad {1, 0, 0, 0}, T.Grayscale(3)}
    for seed = 0, 2 do
      accelhost.manual_seed(seed)
      images.check("jitter " .. seed, T.ColorJitter(0.4, 0.3, {0.5, 1.5}, 0.2)(bytes))
      images.check("random blur " .. seed, T.GaussianBlur(3)(bytes:narrow(0, 0, 1)))
      images.check("random gray " .. seed, T.RandomGrayscale(0.5)(bytes))
      images.check("erasing " .. seed, T.RandomErasing(0.8, {value = "random"})(floats), 2e-6)
      images.check("erasing value " .. seed, T.RandomErasing(0.8, {value = {0.1, 0.2, 0.3}})(floats), 2e-7)
      images.check("apply " .. seed, T.RandomApply(flips, 0.5)(bytes))
      images.check("order " .. seed, T.RandomOrder(flips)(bytes))
    end
  end)

  it("leave an image of one channel gray, and check the rest", function()
    local gray = bytes:narrow(0, 0, 1)
    assert.equal(gray, F.adjust_hue(gray, 0.2))
    assert.equal(gray, F.adjust_saturation(gray, 2))
    assert.same({3, 3, 4}, F.rgb_to_grayscale(gray, 3):shape())
    assert.error_matches(function() F.adjust_hue(bytes, 0.6) end, "expected a number from %-0.5 to 0.5")
    assert.error_matches(function() F.adjust_contrast(bytes:narrow(0, 0, 2), 1) end, "expected 1 or 3 channels, got 2")
    assert.error_matches(function() T.ColorJitter(-1) end, "brightness: one number must not be negative")
    assert.error_matches(function() T.ColorJitter {hue = 0.7} end, "hue: expected numbers from %-0.5 to 0.5")
    assert.error_matches(function() T.GaussianBlur(4) end, "expected odd integers, got 4")
    assert.error_matches(function() T.RandomErasing(0.5, {scale = {0, 2}}) end, "expected numbers from 0 to 1")
    assert.error_matches(function() T.RandomErasing(1, {value = {1, 2}})(floats) end, "2 values for an image of 3")
    assert.error_matches(function() T.RandomChoice({T.Pad(1)}, {1, 2}) end, "2 numbers for 1 transforms")
    assert.error_matches(function() T.RandomApply {} end, "expected at least one")
    assert.error_matches(function() F.posterize(bytes, 9) end, "an integer from 0 to 8")
    assert.error_matches(function() F.solarize(bytes, 300) end, "a number up to 255")
  end)

  it("choose by weight", function()
    local pick = T.RandomChoice({T.Lambda(function() return "a" end), T.Lambda(function() return "b" end)}, {1, 3})
    local count = 0
    accelhost.manual_seed(0)
    for _ = 1, 400 do count = count + (pick(bytes) == "b" and 1 or 0) end
    assert.is_true(count > 260 and count < 340)
  end)
end)

describe("Random transforms in a loader", function()
  it("draw from each sample's own stream, whatever the batches", function()
    local data = accelhost.data
    local set = data.ImageSet(accelhost.stack({images.bytes(), images.bytes():flip(0)}):repeat_interleave(4, 0),
      accelhost.arange(8), {transform = T.Compose {
        T.RandomResizedCrop(5), T.RandomApply({T.ColorJitter(0.4, 0.4, 0.4, 0.1)}, 0.8), T.RandomGrayscale(0.3),
        T.RandomRotation(20), T.GaussianBlur(3), T.RandomChoice {T.RandomHorizontalFlip(), T.RandomInvert()},
        T.RandomOrder {T.RandomSolarize(100), T.RandomPosterize(4)}, T.ToTensor(),
        T.RandomErasing(0.7, {value = "random"}),
      }})
    local function pass(batch_size)
      local parts = {}
      for batch in data.DataLoader(set, {batch_size = batch_size, seed = 3}) do parts[#parts + 1] = batch end
      return accelhost.cat(parts)
    end
    accelhost.manual_seed(1)
    local first, state = pass(3), accelhost.get_rng_state()
    accelhost.manual_seed(2)
    assert.is_true(accelhost.equal(first, pass(8)))
    accelhost.manual_seed(1)
    assert.is_true(accelhost.equal(state, accelhost.get_rng_state())) -- the global generator has not moved
    assert.is_false(accelhost.equal(first:select(0, 0), first:select(0, 1)))
  end)
end)
