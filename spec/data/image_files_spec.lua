-- Pictures of several images, and images written to files. Pictures are compared with torchvision's.
local accelhost = require "accelhost"
local cases = require("spec.support.fixtures").load("image_grids").cases
local folder = require "spec.support.folder"
local data = accelhost.data

local fine, problem = pcall(data.write_png, accelhost.zeros(1, 1, 1):to "uint8", "/dev/null/no.png")
local here = fine or not problem:find("accelhost-image.so is not here", 1, true)

local function with_plugin(sentence, body)
  it(sentence, function()
    if not here then pending("needs accelhost-image.so, which is built where libpng and libjpeg are") end
    body()
  end)
end

local function input_of(case)
  local count = 1
  for _, size in ipairs(case.input) do count = count * size end
  local steps = accelhost.arange(count) * 37 % 101
  return (steps:to "float64" / 80 - 0.2):to "float32":view(unpack(case.input))
end

local function same(case, values, expected, near)
  assert.same(case.shape, values:shape())
  local wanted = accelhost.tensor(expected, {dtype = "float32", device = values.device})
  local far = (values:to "float32":reshape(-1) - wanted):abs():max():item()
  assert(far <= near, ("%s: differs by %g"):format(case.name, far))
end

describe("make_grid", function()
  for _, case in ipairs(cases) do
    it("equals torchvision's: " .. case.name, function()
      same(case, data.make_grid(input_of(case), case.options), case.values, 1e-6)
    end)
  end

  it("accepts a table of images, and keeps the dtype of bytes", function()
    local images = {accelhost.full({3, 2, 2}, 7, {dtype = "uint8"}), accelhost.full({3, 2, 2}, 9, {dtype = "uint8"})}
    local picture = data.make_grid(images, {padding = 1, pad_value = 255})
    assert.equal("uint8", picture.dtype)
    assert.same({3, 4, 7}, picture:shape())
    assert.equal(7, picture[{0, 1, 1}]:item())
    assert.equal(9, picture[{2, 2, 5}]:item())
    assert.equal(255, picture[{0, 0, 0}]:item())
  end)

  it("leaves its input unchanged, and has no gradient", function()
    local images = accelhost.rand(2, 1, 2, 2):requires_grad_()
    local before = images:detach():clone()
    assert.is_false(data.make_grid(images, {normalize = true, value_range = {0.2, 0.3}}).requires_grad)
    assert.is_true(accelhost.equal(before, images:detach()))
  end)

  it("refuses inputs without images and a range of another length", function()
    assert.error_matches(function() data.make_grid(accelhost.zeros(3)) end, "make_grid: tensor: expected an image")
    assert.error_matches(function() data.make_grid(accelhost.zeros(0, 3, 2, 2)) end, "got shape %(0, 3, 2, 2%)")
    local images = accelhost.rand(2, 3, 2, 2)
    assert.error_matches(function() data.make_grid(images, {normalize = true, value_range = {1}}) end,
      "value_range: expected a table of two numbers")
  end)
end)

describe("save_image", function()
  with_plugin("writes the pixels that torchvision writes", function()
    folder.with(function(root)
      local path = root .. "/picture.png"
      for _, case in ipairs(cases) do
        data.save_image(input_of(case), path, case.options)
        same(case, data.read_image(path, {mode = "rgb"}), case.pixels, 0)
      end
    end)
  end)

  with_plugin("writes bytes with their values", function()
    folder.with(function(root)
      local path, image = root .. "/bytes.png", accelhost.arange(12):to "uint8":view(3, 2, 2)
      data.save_image(image, path)
      assert.is_true(accelhost.equal(image:cpu(), data.read_image(path)))
    end)
  end)

  it("refuses other kinds of files before it writes", function()
    assert.error_matches(function() data.save_image(accelhost.rand(1, 2, 2), "picture.jpg") end,
      "expected the name of a .png file, got 'picture.jpg'")
  end)
end)

describe("write_png", function()
  with_plugin("writes gray, colours and alpha, and names a folder that is missing", function()
    folder.with(function(root)
      for channels = 1, 4 do
        local image = accelhost.arange(channels * 6):to "uint8":view(channels, 2, 3)
        data.write_png(image, root .. "/image.png")
        assert.is_true(accelhost.equal(image:cpu(), data.read_image(root .. "/image.png")))
      end
      assert.error_matches(function()
        data.write_png(accelhost.zeros(1, 1, 1):to "uint8", root .. "/missing/image.png")
      end, "missing/image.png")
    end)
  end)

  it("refuses floats and names save_image", function()
    assert.error_matches(function() data.write_png(accelhost.rand(3, 2, 2), "x.png") end,
      "expected a uint8 tensor .* got float32 %(3, 2, 2%); save_image writes floats")
  end)
end)
