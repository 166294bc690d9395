-- Image files and folders of them. The plugin that reads them is built where libpng and libjpeg are.
local accelhost = require "accelhost"
local fixtures = require("spec.support.fixtures").load "pictures"
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local data = accelhost.data
local T = data.transforms

local function bytes_of(name)
  return (fixtures[name].file:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

local fine, problem = pcall(data.decode_image, bytes_of "png gray")
local here = fine or not problem:find("accelhost-image.so is not here", 1, true)

local function with_plugin(sentence, body)
  it(sentence, function()
    if not here then pending("needs accelhost-image.so, which is built where libpng and libjpeg are") end
    body()
  end)
end

-- The same up to `near` in every value.
local function check(name, mode, found, near)
  local expected = accelhost.tensor(fixtures[name][mode][2], {dtype = "float32"}):view(unpack(fixtures[name][mode][1]))
  assert.same(expected:shape(), found:shape())
  local far = found:to("float32"):sub(expected):abs():max():item()
  assert(far <= near, ("%s as %s: differs by %d"):format(name, mode, far))
end

describe("decode_image", function()
  local MODES = {"unchanged", "gray", "gray_alpha", "rgb", "rgb_alpha"}

  with_plugin("reads PNG files of every kind as torchvision does", function()
    for name, fixture in pairs(fixtures) do
      for _, mode in ipairs(MODES) do
        if name:find "^png" and fixture[mode] then
          check(name, mode, data.decode_image(bytes_of(name), {mode = mode}), mode == "gray" and 1 or 0)
        end
      end
    end
    assert.equal("uint8", data.decode_image(bytes_of "png deep").dtype)
    assert.is_true(accelhost.equal(data.decode_image(bytes_of "png deep"), data.decode_image(bytes_of "png gray")))
  end)

  with_plugin("reads JPEG files as torchvision does", function()
    for name, fixture in pairs(fixtures) do
      for _, mode in ipairs(MODES) do
        if name:find "^jpeg" and fixture[mode] then
          check(name, mode, data.decode_image(bytes_of(name), mode), name == "jpeg inks" and 2 or 1)
        end
      end
    end
    local alpha = data.decode_image(bytes_of "jpeg rgb", "rgb_alpha")
    assert.equal(255, alpha:select(0, 3):min():item())
    assert.is_true(accelhost.equal(alpha:narrow(0, 0, 3), data.decode_image(bytes_of "jpeg rgb")))
  end)

  with_plugin("accepts a tensor of bytes", function()
    local text = bytes_of "png rgb"
    local tensor = accelhost.from_string(text, {#text}, "uint8")
    assert.is_true(accelhost.equal(data.decode_image(text), data.decode_image(tensor)))
    assert.error_matches(function() data.decode_image(accelhost.zeros(3)) end, "expected a uint8 tensor of one dim")
  end)

  with_plugin("finds files that are cut, wherever", function()
    for _, name in ipairs {"png rgb", "jpeg rgb", "jpeg progressive"} do
      local text = bytes_of(name)
      for cut = 0, #text - 20 do
        local read, message = pcall(data.decode_image, text:sub(1, cut))
        assert(not read, ("%s cut at %d of %d was read"):format(name, cut, #text))
        assert(message:find "damaged" or message:find "neither PNG" or message:find "file of", message)
      end
    end
  end)

  with_plugin("asks for no more memory than a file can fill", function()
    local text = bytes_of "png rgb"
    local huge = text:sub(1, 16) .. "\0\0\127\255\0\0\127\255" .. text:sub(25)
    assert.error_matches(function() data.decode_image(huge) end, "damaged PNG") -- the checksum
    local jpeg = bytes_of "jpeg rgb"
    local at = assert(jpeg:find("\255\192", 1, true))
    huge = jpeg:sub(1, at + 4) .. "\255\220\255\220" .. jpeg:sub(at + 9)
    assert.error_matches(function() data.decode_image(huge) end, "65500 x 65500 pixels in a file of %d+ bytes")
  end)
end)

describe("read_image", function()
  it("names the file that it cannot read", function()
    assert.error_matches(function() data.read_image "/nowhere/cat.png" end, "'/nowhere/cat.png': cannot read: No such")
    folder.with(function(dir)
      write(dir .. "/a.png", "GIF89a")
      assert.error_matches(function() data.read_image(dir .. "/a.png") end, "a.png': neither PNG nor JPEG %(6 bytes%)")
      write(dir .. "/b.png", "")
      assert.error_matches(function() data.read_image(dir .. "/b.png") end, "neither PNG nor JPEG %(0 bytes%)")
      assert.error_matches(function() data.read_image(dir) end, "it is a folder")
    end)
    assert.error_matches(function() data.read_image("a.png", "colour") end, "unknown mode 'colour'")
  end)
end)

describe("ImageFolder", function()
  local function photos(dir)
    for class, names in pairs {dog = {"b.png", "deep/er/a.JPG", "note.txt"}, cat = {"z.jpeg", "a.png"}} do
      for _, name in ipairs(names) do
        local path = dir .. "/" .. class .. "/" .. name
        os.execute("mkdir -p " .. path:match "^(.*)/")
        write(path, bytes_of(name:lower():find "png$" and "png gray" or "jpeg rgb"))
      end
    end
    write(dir .. "/readme", "no class")
  end

  with_plugin("numbers classes and files in the order of their names", function()
    folder.with(function(dir)
      photos(dir)
      local set = data.ImageFolder(dir)
      assert.same({"cat", "dog"}, set.classes)
      assert.same({cat = 0, dog = 1}, set.class_to_idx)
      assert.same({0, 0, 1, 1}, set.targets)
      assert.equal(4, #set)
      local names = {}
      for i = 1, 4 do names[i] = set.samples[i]:sub(#dir + 2) end
      assert.same({"cat/a.png", "cat/z.jpeg", "dog/b.png", "dog/deep/er/a.JPG"}, names)
      local image, label = set:get(2)
      assert.same({3, 5, 6}, image:shape())
      assert.equal("uint8", image.dtype)
      assert.equal(1, label)
      set = data.ImageFolder(dir, {
        transform = T.Compose {T.Resize {4, 4}, T.ToTensor()}, target_transform = function(class) return class + 10 end,
      })
      local images, labels = data.DataLoader(set, {batch_size = 4}):batches()()
      assert.same({4, 3, 4, 4}, images:shape())
      assert.same({10, 10, 11, 11}, labels:tolist())
    end)
  end)

  with_plugin("names the file that is damaged", function()
    folder.with(function(dir)
      photos(dir)
      write(dir .. "/cat/a.png", bytes_of("png gray"):sub(1, 60))
      assert.error_matches(function() data.ImageFolder(dir):get(0) end, "/cat/a.png': damaged PNG: the file ends early")
    end)
  end)

  it("reports missing files and folders", function()
    folder.with(function(dir)
      assert.error_matches(function() data.ImageFolder(dir) end, "holds no folder, expected one for each class")
      assert.error_matches(function() data.ImageFolder(dir .. "/no") end, "/no' is no folder")
      photos(dir)
      os.execute("mkdir " .. dir .. "/bird")
      assert.error_matches(function() data.ImageFolder(dir) end,
        "no file of the class bird %(known endings: .jpg, .jpeg, .png%)")
      local set = data.ImageFolder(dir, {allow_empty = true})
      assert.same({"bird", "cat", "dog"}, set.classes)
      assert.error_matches(function() set:get(4) end, "index 4 is out of range %(0 to 3%)")
    end)
  end)

  it("is a DatasetFolder, which loads files of any kind", function()
    folder.with(function(dir)
      photos(dir)
      local function base(path) return path:match "[^/]+$" end
      local set = data.DatasetFolder(dir .. "/", base, {extensions = {".TXT", ".png"}})
      assert.same({"a.png", 0}, {set:get(0)})
      assert.equal(3, #set)
      set = data.DatasetFolder(dir, base, {is_valid_file = function(path) return base(path):find "^a" ~= nil end})
      assert.equal(2, #set)
      assert.error_matches(function() data.DatasetFolder(dir, base) end, "either extensions or is_valid_file")
    end)
  end)
end)
