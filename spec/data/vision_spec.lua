local accelhost = require "accelhost"
local datasets = require "spec.support.datasets"
local fixtures = require("spec.support.fixtures").load "data"
local write_file = require("spec.support.files").write
local run = require "spec.support.run"
local data = accelhost.data
local transforms = data.transforms

local function bytes(...)
  return accelhost.tensor({...}, {dtype = "uint8"})
end

-- All 256 bytes as one image per channel.
local function ramp(channels)
  return accelhost.arange(256, {dtype = "uint8"}):view(1, 16, 16):expand(channels, 16, 16):contiguous()
end

local function same_bits(expected, found)
  return found:eq(expected):all():item() and found.dtype == expected.dtype
end

local function word(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 65536) % 256, math.floor(n / 256) % 256, n % 256)
end

-- A folder with tiny MNIST files: `count` images of 2 x 2 in each part, label i for image i.
local function tiny_mnist(separator, count)
  local dir = os.tmpname()
  os.remove(dir)
  assert(os.execute("mkdir " .. dir) == 0)
  for _, split in ipairs {"train", "t10k"} do
    local images, labels = {}, {}
    for i = 1, count do
      images[i] = string.char(i, 2 * i, 3 * i, split == "train" and 0 or 1)
      labels[i] = string.char(i - 1)
    end
    write_file(("%s/%s-images%sidx3-ubyte"):format(dir, split, separator),
      word(2051) .. word(count) .. word(2) .. word(2) .. table.concat(images))
    write_file(("%s/%s-labels%sidx1-ubyte"):format(dir, split, separator),
      word(2049) .. word(count) .. table.concat(labels))
  end
  return dir
end

describe("transforms", function()
  it("ToTensor and Normalize return torchvision's values to the bit", function()
    local image = ramp(1):view(16, 16)
    assert.is_true(same_bits(accelhost.tensor(fixtures.to_tensor), transforms.ToTensor()(image):flatten()))
    local both = transforms.Compose {transforms.ToTensor(), transforms.Normalize(0.1307, 0.3081)}
    assert.is_true(same_bits(accelhost.tensor(fixtures.normalized), both(image):flatten()))
  end)

  it("become tables with the same values", function()
    for channels = 1, 3, 2 do
      local mean, std = {0.1, 0.2, 0.3}, {0.5, 0.25, 2}
      if channels == 1 then mean, std = 0.1307, 0.3081 end
      local both = transforms.Compose {transforms.ToTensor(), transforms.Normalize(mean, std)}
      local image = ramp(channels)
      local set = data.ImageSet(image:unsqueeze(0), accelhost.tensor({7}, {dtype = "int64"}), {transform = both})
      assert.is_not_nil(set:native())
      local batch, labels = data.DataLoader(set):batches()()
      assert.is_true(same_bits(both(image), batch:select(0, 0)))
      assert.is_true(same_bits((set:get(0)), batch:select(0, 0)))
      assert.same({7}, labels:tolist())
      assert.same({1, channels, 16, 16}, {batch:size(0), batch:size(1), batch:size(2), batch:size(3)})
    end
  end)

  it("are applied sample by sample when they are not pointwise", function()
    local flip = transforms.Lambda(function(image) return image:flip(-1) end)
    local images = bytes(0, 51, 102, 153):view(1, 2, 2)
    local set = data.ImageSet(images, accelhost.tensor({1}, {dtype = "int64"}), {
      transform = transforms.Compose {flip, transforms.ToTensor()},
    })
    assert.is_nil(set:native())
    local batch = data.DataLoader(set):batches()()
    assert.is_true(same_bits(bytes(51, 0, 153, 102):to("float32"):div(255):view(1, 1, 2, 2), batch))
  end)

  it("print themselves", function()
    assert.equal("Compose(\n    ToTensor()\n    Normalize(mean={0.5}, std={2})\n)",
      tostring(transforms.Compose {transforms.ToTensor(), transforms.Normalize(0.5, 2)}))
  end)

  it("refuse inputs that they cannot transform", function()
    assert.error_matches(function() transforms.ToTensor()(3) end, "expected a tensor, got number 3")
    assert.error_matches(function() transforms.ToTensor()(accelhost.zeros(3)) end, "got 1 dimensions")
    assert.error_matches(function() transforms.Normalize(0, 1)(ramp(1)) end, "insert ToTensor before it")
    assert.error_matches(function() transforms.Normalize({0, 0}, {1}) end, "2 means but 1 stds")
    assert.error_matches(function() transforms.Normalize(0, 0) end, "std%[1%] is 0")
    assert.error_matches(function() transforms.Normalize({0, 0}, {1, 1})(accelhost.zeros(3, 2, 2)) end,
      "expected 1 number, or 3 for the channels of an image %(3, 2, 2%), got 2")
    assert.error_matches(function() transforms.Compose {3} end, "got a table whose item 1 is number 3")
    assert.error_matches(function() transforms.Lambda(3) end, "expected a function")
  end)
end)

describe("SyntheticDigits", function()
  it("has MNIST's shapes and sizes", function()
    local set = data.SyntheticDigits {size = 12}
    assert.equal(12, set:len())
    local image, label = set:get(3)
    assert.same({1, 28, 28}, {image:size(0), image:size(1), image:size(2)})
    assert.equal("float32", image.dtype)
    assert.is_true(label >= 0 and label <= 9 and label % 1 == 0)
    assert.equal(10000, data.SyntheticDigits{train = false}:len())
  end)

  it("is the same for the same seed, whatever its size and the number of threads", function()
    local small, large = data.SyntheticDigits {size = 50}, data.SyntheticDigits {size = 200}
    assert.is_true(same_bits(small.data, large.data:narrow(0, 0, 50)))
    assert.same(small.targets:tolist(), large.targets:narrow(0, 0, 50):tolist())
    local threads = accelhost.get_num_threads()
    accelhost.set_num_threads(threads == 1 and 2 or 1)
    local again = data.SyntheticDigits{size = 200}.data
    accelhost.set_num_threads(threads)
    assert.is_true(same_bits(large.data, again))
  end)

  it("are read without a question for each row once all are drawn", function()
    local set = data.SyntheticDigits {size = 600, transform = data.transforms.ToTensor()}
    local _, before = set:native()
    assert.is_function(before)
    set:get(0)
    assert.is_function(select(2, set:native()))
    set:get(599)
    assert.is_nil((select(2, set:native())))
    assert.is_true(same_bits(set.data, data.SyntheticDigits{size = 600}.data))
  end)

  it("has the same digits in whatever order they are read", function()
    local whole = data.SyntheticDigits {size = 1200}
    local images, labels = whole.data:to("float32"):div(255):unsqueeze(1), whole.targets
    local set = data.SyntheticDigits {size = 1200}
    local image, label = set:get(1199)
    assert.is_true(same_bits(images:select(0, 1199), image))
    assert.equal(labels[1199]:item(), label)
    local batch, found = data.DataLoader(data.Subset(set, {3, 700, 1}), {batch_size = 3}):batches()()
    for k, i in ipairs {3, 700, 1} do
      assert.is_true(same_bits(images:select(0, i), batch:select(0, k - 1)))
      assert.equal(labels[i]:item(), found[k - 1]:item())
    end
    assert.is_true(same_bits(images, (data.DataLoader(set, {batch_size = 1200}):batches()())))
    assert.same(labels:tolist(), set.targets:tolist())
    local changed = data.SyntheticDigits {size = 4}
    changed.targets = labels:narrow(0, 8, 4)
    assert.equal(labels[9]:item(), (select(2, changed:get(1))))
  end)

  it("differs between seeds and between training and test set", function()
    local set = data.SyntheticDigits {size = 50}
    assert.is_false(same_bits(set.data, data.SyntheticDigits{size = 50, seed = 1}.data))
    assert.is_false(same_bits(set.data, data.SyntheticDigits{size = 50, train = false}.data))
    assert.error_matches(function() data.SyntheticDigits {size = 1.5} end, "size: expected an integer")
    assert.error_matches(function() data.SyntheticDigits {count = 1} end, "unknown option 'count'")
  end)
end)

describe("MNIST", function()
  it("is read from IDX files under either of their names", function()
    for _, separator in ipairs {"-", "."} do
      local dir = tiny_mnist(separator, 3)
      local train, test = data.MNIST {root = dir}, data.MNIST {root = dir, train = false}
      assert.same({3, 3}, {train:len(), test:len()})
      assert.same({{{3, 6}, {9, 0}}, {{3, 6}, {9, 1}}},
        {train.data:select(0, 2):tolist(), test.data:select(0, 2):tolist()})
      assert.same({0, 1, 2}, train.targets:tolist())
      assert.equal("int64", train.targets.dtype)
      assert.equal(dir, data.find_mnist(dir))
      os.execute("rm -r " .. dir)
    end
  end)

  it("is found in the folder, in its mnist and in MNIST/raw", function()
    local dir = tiny_mnist("-", 1)
    for _, folder in ipairs {"mnist", "MNIST/raw"} do
      os.execute(("mkdir -p %s/root && mkdir -p %s/root/%s && cp %s/*ubyte %s/root/%s")
        :format(dir, dir, folder, dir, dir, folder))
      assert.equal(("%s/root/%s"):format(dir, folder), data.find_mnist(dir .. "/root"))
      os.execute(("rm -r %s/root"):format(dir))
    end
    os.execute("rm -r " .. dir)
  end)

  it("names the files that a given folder lacks", function()
    local dir = tiny_mnist("-", 1)
    os.remove(dir .. "/t10k-labels-idx1-ubyte")
    assert.error_matches(function() data.find_mnist(dir) end, "missing t10k%-labels%-idx1%-ubyte%[.gz%] %(")
    assert.error_matches(function() data.MNIST {root = dir .. "/none"} end,
      "mnist: '.*/none' is not there %(`accelhost data mnist")
    assert.error_matches(function() data.mnist(dir) end, "missing t10k%-labels")
    write_file(dir .. "/t10k-labels-idx1-ubyte", word(2051))
    assert.error_matches(function() data.MNIST {root = dir, train = false} end,
      "t10k%-labels%-idx1%-ubyte: expected magic 2049 %(labels%), got 2051 %(images%)")
    write_file(dir .. "/t10k-labels-idx1-ubyte", word(2049) .. word(2) .. "\1\2")
    assert.error_matches(function() data.MNIST {root = dir, train = false} end, "1 images but 2 labels")
    os.execute("rm -r " .. dir)
    assert.error_matches(function() data.find_mnist(3) end, "expected a folder, got number 3")
  end)

  it("accepts root and options by position, as PyTorch does", function()
    local dir = tiny_mnist("-", 3)
    local function double(image) return image:to("float32") * 2 end
    local set = data.MNIST(dir, {train = false, transform = double})
    assert.equal(double, set.transform)
    assert.same(data.MNIST({root = dir, train = false}).targets:tolist(), set.targets:tolist())
    assert.equal(double, data.MNIST(dir, false, double).transform)
    assert.error_matches(function() data.MNIST(dir, {trian = false}) end,
      "unknown option 'trian' .*did you mean 'train'")
    os.execute("rm -r " .. dir)
  end)

  it("reports a file that cannot be read instead of calling it missing", function()
    local dir = tiny_mnist("-", 1)
    local path = dir .. "/t10k-labels-idx1-ubyte"
    os.remove(path)
    os.execute("mkfifo " .. path)
    assert.error_matches(function() data.find_mnist(dir) end,
      "cannot read '.*/t10k%-labels%-idx1%-ubyte': it is neither a file nor a folder")
    os.remove(path)
    os.execute("mkdir " .. path)
    assert.error_matches(function() data.mnist(dir) end, "cannot read '.*/t10k%-labels%-idx1%-ubyte': it is a folder")
    os.execute("rmdir " .. path .. " && ln -s " .. path .. " " .. path)
    assert.error_matches(function() data.mnist(dir) end, "cannot read '.*/t10k%-labels%-idx1%-ubyte': Too many levels")
    assert.error_matches(function() data.mnist(dir .. "/train-images-idx3-ubyte") end, "is not a folder")
    os.execute("rm -r " .. dir)
  end)

  it("must be in $ACCELHOST_DATA when that is set", function()
    local dir = tiny_mnist("-", 1)
    local function start(folder)
      return run.host({"-e", [[
        local data = require "accelhost".data
        print(pcall(data.find_mnist))
        print(#data.mnist())
      ]]}, {dir = dir, env = {ACCELHOST_DATA = folder}})
    end
    assert.matches("^true\t" .. dir:gsub("%p", "%%%0") .. "\n1\n$", start(dir).stdout)
    os.execute(("mkdir %s/data && cp %s/t* %s/data/"):format(dir, dir, dir))
    for folder, text in pairs {
      [dir .. "/none"] = "mnist: $ACCELHOST_DATA: '" .. dir .. "/none' is not there",
      [dir .. "/train-images-idx3-ubyte"] = "is not a folder",
    } do
      local result = start(folder)
      assert.equal(1, result.code)
      assert.truthy(result.stderr:find(text, 1, true), result.stderr)
      assert.matches("^false\t", result.stdout)
    end
    os.remove(dir .. "/t10k-images-idx3-ubyte")
    assert.matches("%$ACCELHOST_DATA: not in .*missing t10k%-images", start(dir).stderr)
    os.execute("rm -r " .. dir)
  end)

  datasets.it("holds the known images", "mnist", function(dir)
    local train, test = data.mnist(dir)
    assert.same({60000, 10000}, {train:len(), test:len()})
    local counts = {}
    for digit = 0, 9 do counts[digit + 1] = train.targets:eq(digit):sum():item() end
    assert.same({5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}, counts)
    assert.same({7, 2, 1, 0, 4}, test.targets:narrow(0, 0, 5):tolist())
    local mean = train.data:narrow(0, 0, 60000):to("float64"):mean():item() / 255
    assert.is_true(math.abs(mean - 0.1307) < 5e-5)
  end)

  it("is replaced by generated digits where it is not found", function()
    local dir = os.tmpname()
    os.remove(dir)
    os.execute("mkdir " .. dir)
    local result = run.host({"-e", [[
      local data = require "accelhost".data
      local train, test = data.mnist()
      print(data.find_mnist(), train:len(), test:len(), (train:get(0)):min():item() < 0)
    ]]}, {dir = dir, env = {ACCELHOST_DATA = false}})
    os.execute("rmdir " .. dir)
    run.prints("nil\t60000\t10000\ttrue\n", result)
    assert.matches("MNIST is not here %('data' is not there; .*%): training on generated digits", result.stderr)
  end)
end)

describe("ImageSet", function()
  it("checks images, labels and transforms", function()
    local images, labels = accelhost.zeros(2, 4, 4):to("uint8"), accelhost.zeros(2):to("int64")
    assert.error_matches(function() data.ImageSet(images:to("float32"), labels) end, "images as a uint8 tensor")
    assert.error_matches(function() data.ImageSet(images, labels:narrow(0, 0, 1)) end,
      "one label for each of the 2 images")
    assert.error_matches(function() data.ImageSet(images, labels, {transform = 3}) end,
      "transform: expected a function or something callable, got number 3")
    assert.error_matches(function() data.ImageSet(images, labels):get(2) end, "index 2 is out of range %(0 to 1%)")
  end)

  it("applies target_transform", function()
    local images, labels = accelhost.zeros(2, 4, 4):to("uint8"), accelhost.tensor({3, 4}, {dtype = "int64"})
    local set = data.ImageSet(images, labels, {target_transform = function(label) return label * 10 end})
    local _, batch_labels = data.DataLoader(set, {batch_size = 2}):batches()()
    assert.same({30, 40}, batch_labels:tolist())
  end)
end)
