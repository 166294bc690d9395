local accelhost = require "accelhost"
local datasets = require "spec.support.datasets"
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local data = accelhost.data

local PIXELS = 3 * 32 * 32

-- The i-th pixels, and a file of one record per label.
local function pixels(i) return string.char(i):rep(PIXELS / 2) .. string.char(255 - i):rep(PIXELS / 2) end

local function records(labels)
  local parts = {}
  for i, label in ipairs(labels) do parts[i] = label .. pixels(i) end
  return table.concat(parts)
end

-- A pickle as Python 2 wrote the batches: {"data": numpy array, FIELD: labels}.
local function pickled(field, labels)
  local bytes, numbers = {}, {}
  for i, label in ipairs(labels) do bytes[i], numbers[i] = pixels(i), "K" .. string.char(label) end
  local function short(text) return "U" .. string.char(#text) .. text end
  local function size(n)
    return string.char(n % 256, math.floor(n / 256) % 256, math.floor(n / 65536) % 256, math.floor(n / 2 ^ 24))
  end
  local text = table.concat(bytes)
  local array = "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0t" .. short "b" .. "tR"
  local dtype = "cnumpy\ndtype\n(" .. short "u1" .. "K\0K\1tR(K\1Ntb"
  local shape = "(K" .. string.char(#labels) .. "J" .. size(PIXELS) .. "t"
  local state = "(K\1" .. shape .. dtype .. "\137T" .. size(#text) .. text
  return "\128\2}(" .. short "data" .. array .. state .. "tb" .. short(field) .. "](" .. table.concat(numbers) .. "eu."
end

-- The same as Python 3 writes it in protocol 2, where bytes are a text that is encoded.
local function pickled_anew(field, labels)
  local text = pickled(field, labels)
  local from, to = text:find("T[%z\1-\255][%z\1-\255][%z\1-\255][%z\1-\255]", (text:find("\137T", 1, true)))
  local count = #labels * PIXELS
  local bytes = text:sub(to + 1, to + count):gsub("[\128-\255]", function(byte)
    return string.char(192 + math.floor(byte:byte() / 64), 128 + byte:byte() % 64)
  end)
  local length = #bytes
  return text:sub(1, from - 1) .. "c_codecs\nencode\n(X" .. string.char(length % 256, math.floor(length / 256) % 256,
    math.floor(length / 65536), 0) .. bytes .. "X\6\0\0\0latin1tR" .. text:sub(to + 1 + count)
end

describe("CIFAR10", function()
  it("reads the binary files and the pickled ones alike", function()
    folder.with(function(dir)
      os.execute("mkdir -p " .. dir .. "/cifar-10-batches-bin " .. dir .. "/cifar-10-batches-py")
      for i = 1, 5 do
        write(("%s/cifar-10-batches-bin/data_batch_%d.bin"):format(dir, i), records {"\3", string.char(i)})
      end
      write(dir .. "/cifar-10-batches-py/test_batch", pickled("labels", {4, 9, 0}))
      local train, test = data.CIFAR10(dir), data.CIFAR10 {root = dir, train = false}
      assert.equal(10, #train)
      assert.same({3, 1, 3, 2, 3, 3, 3, 4, 3, 5}, train.targets:tolist())
      assert.same({4, 9, 0}, test.targets:tolist())
      assert.same({3, 3, 32, 32}, test.data:shape())
      assert.is_true(accelhost.equal(train.data:narrow(0, 0, 2), test.data:narrow(0, 0, 2)))
      local image, label = test:get(1)
      assert.equal(9, label)
      assert.equal("truck", test.classes[label + 1])
      assert.same({3, 32, 32}, image:shape())
      assert.equal("float32", image.dtype)
    end)
  end)

  it("reads pickles of newer Pythons", function()
    folder.with(function(dir)
      write(dir .. "/old", pickled("labels", {4, 9, 0}))
      write(dir .. "/new", pickled_anew("labels", {4, 9, 0}))
      local old, new = data.CIFAR10(dir, {files = {"old"}}), data.CIFAR10(dir, {files = {"new"}})
      assert.is_true(accelhost.equal(old.data, new.data))
      assert.same({4, 9, 0}, new.targets:tolist())
    end)
  end)

  it("reads a part of the set by the names of its files", function()
    folder.with(function(dir)
      write(dir .. "/part.bin", records {"\3"})
      assert.equal(1, #data.CIFAR10(dir, {files = {"part.bin"}}))
      assert.equal(2, #data.CIFAR10(dir, {files = {"part.bin", dir .. "/part.bin"}}))
      assert.error_matches(function() data.CIFAR10(dir, {files = {}}) end, "files: expected at least one")
    end)
  end)

  it("reports missing or damaged files", function()
    folder.with(function(dir)
      assert.error_matches(function() data.CIFAR10(dir) end, "CIFAR10: not in '.*': missing .*data_batch_1.bin, ")
      write(dir .. "/test_batch.bin", "\3" .. pixels(1) .. "x")
      assert.error_matches(function() data.CIFAR10(dir, false) end, "expected records of 3073 bytes, got 3074")
      write(dir .. "/test_batch.bin", "\10" .. pixels(1))
      assert.error_matches(function() data.CIFAR10(dir, false) end, "test_batch.bin': label 10, expected 0 to 9")
      os.remove(dir .. "/test_batch.bin")
      write(dir .. "/test_batch", "\128\2cos\nsystem\n(U\4boomtR.")
      assert.error_matches(function() data.CIFAR10(dir, false) end, "'os.system', whose code would have to run")
      write(dir .. "/test_batch", "\128\2}.")
      assert.error_matches(function() data.CIFAR10(dir, false) end, "expected a dict with 'data' and 'labels'")
      local text = pickled("labels", {1, 2})
      for _, cut in ipairs {1, 30, 100, 5000, #text - 1} do
        write(dir .. "/test_batch", text:sub(1, cut))
        assert.error_matches(function() data.CIFAR10(dir, false) end, "damaged")
      end
    end)
  end)

  datasets.it("reads the real set", "cifar10", function(dir)
    local set = data.CIFAR10(dir, {train = false, files = {"test_batch_first500.bin"}})
    assert.equal(500, #set)
    assert.same({3, 8, 8, 0, 6, 6, 1, 6, 3, 1}, set.targets:narrow(0, 0, 10):tolist())
    assert.is_true(math.abs(set.data:to("float32"):mean():item() / 255 - 0.47) < 0.03)
  end)
end)

describe("CIFAR100", function()
  it("reads the fine labels", function()
    folder.with(function(dir)
      write(dir .. "/train.bin", records {"\3\99", "\4\17"})
      write(dir .. "/test", pickled("fine_labels", {98}))
      assert.same({99, 17}, data.CIFAR100(dir).targets:tolist())
      assert.same({98}, data.CIFAR100(dir, false).targets:tolist())
    end)
  end)
end)
