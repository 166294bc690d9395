-- Image processors against those of transformers and timm: scripts/fixtures/vision.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local C, models = require "accelhost._C", accelhost.models

local expected = require("spec.support.fixtures").load "models/image_processors"

-- The image of the fixture.
local function image(channels, rows, columns)
  local c = accelhost.arange(channels):view(-1, 1, 1)
  local y, x = accelhost.arange(rows):view(1, -1, 1), accelhost.arange(columns):view(1, 1, -1)
  return ((c * 37 + y * 11 + x * 23 + x * y * 5 + c * x * 3) % 256):to "uint8"
end

local function compare(numbers, output, of_pillow)
  local found = output.pixel_values
  assert.same(numbers.shape, found:shape())
  check.near(numbers.first, found:reshape(-1):narrow(0, 0, 6):double(), of_pillow and 1e-6 or 1e-10)
  check.near(numbers.sum, tensors.weighed(found), of_pillow and 1e-4 or 1e-10)
end

-- The filters of Pillow alone: its processors do not scale the means, so that results are equal to float32's rounding.
local of_pillow = {[4] = true, [5] = true}

describe("An image processor", function()
  for number, case in ipairs(expected.cases) do
    it(("makes transformers' images: %s %d"):format(case.class, number), function()
      local processor = models[case.class](case.fields)
      for i, size in ipairs(expected.sizes) do
        compare(case.results[i], processor(image(3, size[1], size[2])), of_pillow[case.fields.resample])
      end
    end)
  end

  it("makes three channels of gray and transparent images", function()
    local processor = models.BitImageProcessor {size = 22, crop_size = 16}
    compare(expected.gray, processor(image(1, 37, 53)))
    compare(expected.gray, processor(image(1, 37, 53):squeeze(0)))
    compare(expected.alpha, processor(image(4, 37, 53)))
  end)

  it("accepts images by rows, lists, batches and options of a call", function()
    local processor, options = models.ViTImageProcessor(), {size = {height = 8, width = 9}}
    local one, other = image(3, 37, 53), image(3, 20, 30)
    local both = processor({one, other:permute(1, 2, 0)}, options).pixel_values
    assert.same({2, 3, 8, 9}, both:shape())
    assert.is_true(both[1]:equal(processor(other, options).pixel_values[0]))
    assert.is_true(both[0]:equal(processor(accelhost.stack {one, one}, options).pixel_values[1]))
    assert.same({1, 3, 224, 224}, processor(one, {return_tensors = "pt"}).pixel_values:shape())
    assert.equal(224, processor.size.height)
    local floats = processor(one:float() / 255, {size = {height = 8, width = 9}, do_rescale = false})
    check.near(check.flat(both[0]), floats.pixel_values[0], 0.02)
  end)

  local refusals = {
    {"a field that is not known", function() models.ViTImageProcessor {sise = 3} end,
      "ViTImageProcessor: unknown option"},
    {"a size of one side", function() models.ViTImageProcessor {size = {height = 3}} end,
      "size: expected {height, width} or {shortest_edge}, as positive integers"},
    {"a longest edge", function() models.BitImageProcessor {size = {shortest_edge = 3, longest_edge = 5}} end,
      "size: expected"},
    {"a filter that is not known", function() models.ViTImageProcessor {resample = 6} end,
      "resample: expected 0 (nearest)"},
    {"a wrong factor", function() models.ViTImageProcessor {rescale_factor = "x"} end, "rescale_factor"},
    {"images of two channels", function() models.ViTImageProcessor()(image(2, 7, 9)) end, "with 1, 3 or 4 channels"},
    {"gray images, naming the remedy", function() models.ViTImageProcessor()(image(1, 9, 9)) end,
      "do_convert_rgb = true makes three channels"},
    {"results of several shapes", function()
      models.BitImageProcessor {do_center_crop = false}({image(3, 9, 9), image(3, 9, 12)})
    end, "images: expected results of one shape"},
    {"an empty list", function() models.ViTImageProcessor() {} end, "images: expected a tensor, the path of a file"},
    {"other results", function() models.ViTImageProcessor()(image(3, 9, 9), {return_tensors = "np"}) end,
      "return_tensors: expected pt"},
    {"the base class", function() models.AutoImageProcessor() end, "call AutoImageProcessor.from_pretrained"},
  }
  for _, row in ipairs(refusals) do
    it("refuses " .. row[1], function() check.raises(row[3], row[2]) end)
  end

  describe("in a folder", function()
    local leave
    before_each(function() leave = temporary.enter() end)
    after_each(function() leave() end)

    local function write(text)
      accelhost.utils.makedirs("made", {exist_ok = true})
      files.write("made/preprocessor_config.json", text)
      return models.AutoImageProcessor.from_pretrained "made"
    end

    it("is saved and read again", function()
      for _, name in ipairs {"ViTImageProcessor", "ConvNextImageProcessor", "BitImageProcessor"} do
        local processor = models[name] {resample = 1, do_rescale = false}
        processor:save_pretrained "out"
        local again = models.AutoImageProcessor.from_pretrained("out", {do_resize = false})
        assert.equal(name, again._name)
        assert.is_false(again.do_resize)
        again.do_resize = true
        assert.same(processor:to_dict(), again:to_dict())
      end
    end)

    it("has the names and the sizes of older files", function()
      local processor = write [[{"do_resize": true, "size": 224, "feature_extractor_type": "ConvNextFeatureExtractor",
        "resample": 3, "crop_pct": 0.875, "image_mean": [0.485, 0.456, 0.406], "do_center_crop": null}]]
      assert.equal("ConvNextImageProcessor", processor._name)
      assert.same({shortest_edge = 224}, processor.size)
      assert.same({0.5, 0.5, 0.5}, processor.image_std)
      processor = write [[{"size": 24, "feature_extractor_type": "ViTFeatureExtractor", "data_format": "first"}]]
      assert.same({height = 24, width = 24}, processor.size)
      assert.equal("ViTImageProcessor", write [[{"image_processor_type": "ViTImageProcessorFast"}]]._name)
      check.raises("image_processor_type: expected ViTImageProcessor", write,
        [[{"image_processor_type": "DetrImageProcessor"}]])
    end)

    it("follows timm's config.json", function()
      accelhost.utils.makedirs "timm"
      files.write("timm/config.json", [[{"architecture": "resnet18", "pretrained_cfg": {"input_size": [3, 24, 24],
        "interpolation": "bicubic", "crop_pct": 0.8, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}]])
      local processor = models.AutoImageProcessor.from_pretrained "timm"
      for i, size in ipairs(expected.timm) do
        local output = processor(image(3, expected.sizes[i][1], expected.sizes[i][2]))
        assert.same(size.shape, output.pixel_values:shape())
        check.near(size.first, output.pixel_values:reshape(-1):narrow(0, 0, 6):double(), 0.02) -- 1 of 255
      end
      check.raises("has neither preprocessor_config.json nor a config.json of timm",
        models.AutoImageProcessor.from_pretrained, ".")
    end)

    it("reads image files", function()
      local fine, bytes = pcall(C.data.encode_png, image(3, 20, 30))
      if not fine then return pending(bytes) end
      files.write("cat.png", bytes)
      local processor = models.ViTImageProcessor {size = 8}
      local wanted = processor(image(3, 20, 30)).pixel_values
      assert.is_true(processor("cat.png").pixel_values:equal(wanted))
      assert.is_true(processor({"cat.png", "cat.png"}).pixel_values[1]:equal(wanted[0]))
    end)
  end)
end)
