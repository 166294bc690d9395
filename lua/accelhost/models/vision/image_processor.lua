--- Image processors: images of any size as an image model reads them, by a checkpoint's preprocessor_config.json.
--- Names, fields and numbers are those of transformers' processors (its default, torchvision's functions).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local configs = require "accelhost.models.common.config"

local fail, describe = arguments.fail, arguments.describe
local image_processor = {}

-- Names in preprocessor_config.json, in the order of their use. A value is checked by its kind.
local kinds = {
  do_resize = "flag", size = "size", resample = "resample", crop_pct = "number", do_center_crop = "flag",
  crop_size = "size", do_rescale = "flag", rescale_factor = "number", do_normalize = "flag", image_mean = "numbers",
  image_std = "numbers", do_convert_rgb = "flag",
}

-- Pillow's numbers of filters.
local resamples = {
  [0] = "nearest-exact", "lanczos", "bilinear", "bicubic", "box", "hamming",
}

local IMAGENET_MEAN, IMAGENET_STD = {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}
local CLIP_MEAN, CLIP_STD = {0.48145466, 0.4578275, 0.40821073}, {0.26862954, 0.26130258, 0.27577711}

-- The class.

--- The base of image processors. A processor is called with an image or several: a uint8 or float tensor
--- [channels, rows, columns], [rows, columns, channels] or [rows, columns], the path of a PNG or JPEG file, a list of
--- them, or a tensor [N, ...] of them; options of the call override the processor's fields. It returns
--- {pixel_values = [N, channels, rows, columns]}.
--
--   local processor = accelhost.models.ViTImageProcessor{size = {height = 8, width = 8}}
--   processor(accelhost.zeros({3, 20, 30}, {dtype = "uint8"})).pixel_values:size(3)  --> 8
---@field do_resize boolean
---@field size table {height, width}, or {shortest_edge}
---@field resample integer 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic, 4 box, 5 hamming
---@field do_center_crop boolean
---@field crop_size table {height, width}
---@field do_rescale boolean
---@field rescale_factor number
---@field do_normalize boolean
---@field image_mean number[]
---@field image_std number[]
---@field do_convert_rgb boolean
local ImageProcessor = class.new "ImageProcessor"
image_processor.ImageProcessor = ImageProcessor

-- Return a size as a table: one number is a square, or the shorter side where a class has it so.
local function read_size(what, name, value, is_square)
  if type(value) == "number" then
    value = is_square and {height = value, width = value} or {shortest_edge = value}
  elseif type(value) == "table" and value[1] then
    value = {height = value[1], width = value[2]}
  end
  local fine = type(value) == "table"
  for _, part in pairs(fine and value or {}) do
    fine = fine and type(part) == "number" and part >= 1 and part % 1 == 0
  end
  if not fine or not (value.height and value.width or value.shortest_edge) or value.longest_edge then
    fail("%s: %s: expected {height, width} or {shortest_edge}, as positive integers, got %s", what, name,
      type(value) == "table" and C.json.encode(value) or describe(value))
  end
  return value
end

local function read_field(self, name, value)
  local what, kind = self._name, kinds[name]
  if value == C.json.null then return nil end
  if kind == "size" then
    return read_size(what, name, value, name == "crop_size" or self.is_square)
  elseif kind == "resample" then
    if not resamples[value] then
      fail("%s: resample: expected 0 (nearest), 1 (lanczos), 2 (bilinear), 3 (bicubic), 4 (box) or 5 (hamming), got %s",
        what, describe(value))
    end
    return value
  elseif kind == "numbers" then
    if type(value) == "number" then value = {value, value, value} end
    arguments.check(what, name, "numbers", value)
    return value
  end
  arguments.check(what, name, kind, value)
  return value
end

local function set_fields(self, values)
  for name in pairs(kinds) do
    if values[name] ~= nil then self[name] = read_field(self, name, values[name]) end
  end
end

---@param options? table fields that differ from the class's defaults
function ImageProcessor:init(options)
  if not self.defaults then
    fail("%s: call ViTImageProcessor, ConvNextImageProcessor or BitImageProcessor", self._name)
  end
  options = options or {}
  if not arguments.is_options(options) then
    fail("%s: expected a table of fields, got %s", self._name, describe(options))
  end
  arguments.check_names(self._name, options, arguments.sorted_keys(kinds))
  set_fields(self, self.defaults)
  set_fields(self, options)
end

-- Images.

local function transforms() return require "accelhost.data.transforms.functional" end

local channel_counts = {[1] = true, [3] = true, [4] = true}

-- Return an image as [channels, rows, columns].
local function channels_first(what, image)
  if image:dim() == 2 then return image:unsqueeze(0) end
  if image:dim() == 3 and channel_counts[image:size(0)] then return image end
  if image:dim() == 3 and channel_counts[image:size(2)] then return image:permute(2, 0, 1) end
  fail("%s: images: expected [channels, rows, columns] or [rows, columns, channels] with 1, 3 or 4 channels, got %s",
    what, arguments.shape_text(image))
end

-- Add the images of a call to a list.
local function collect(what, list, images)
  if type(images) == "string" then
    list[#list + 1] = C.data.read_image(images, "rgb")
  elseif C.is_tensor(images) and images:dim() == 4 then
    for i = 0, images:size(0) - 1 do list[#list + 1] = channels_first(what, images:select(0, i)) end
  elseif C.is_tensor(images) then
    list[#list + 1] = channels_first(what, images)
  elseif type(images) == "table" and getmetatable(images) == nil and images[1] ~= nil then
    for _, image in ipairs(images) do collect(what, list, image) end
  else
    fail("%s: images: expected a tensor, the path of a file, or a list of them, got %s", what, describe(images))
  end
end

-- Gray values as three channels; transparent pixels on white.
local function to_rgb(image)
  if image:size(0) == 1 then return image:expand(3, -1, -1) end
  if image:size(0) ~= 4 then return image end
  local convert = transforms().to_dtype
  local x = convert(image, {dtype = "float32", scale = true})
  local alpha = x:narrow(0, 3, 1)
  return convert(x:narrow(0, 0, 3) * alpha + (1 - alpha), {dtype = image.dtype, scale = true})
end

-- Return height and width of an image with this shorter side.
local function sides(image, short)
  local rows, columns = image:size(-2), image:size(-1)
  local long = math.floor(short * math.max(rows, columns) / math.min(rows, columns))
  if columns <= rows then return {long, short} end
  return {short, long}
end

local function resized(o, image, height_and_width)
  return transforms().resize(image, {size = height_and_width, interpolation = resamples[o.resample], antialias = true})
end

--- Return an image in `size`.
---@param o ImageProcessor with the options of the call
---@param image Tensor
---@return Tensor
function ImageProcessor.resize(o, image)
  local size = o.size
  return resized(o, image, size.shortest_edge and sides(image, size.shortest_edge) or {size.height, size.width})
end

--- Return the middle of an image; smaller ones are padded with 0.
---@param image Tensor
---@return Tensor
function ImageProcessor.center_crop(image, height, width)
  local rows, columns = image:size(-2), image:size(-1)
  local more_rows, more_columns = math.max(height - rows, 0), math.max(width - columns, 0)
  if more_rows > 0 or more_columns > 0 then
    local left, top = math.floor(more_columns / 2), math.floor(more_rows / 2)
    image = transforms().pad(image, {padding = {left, top, more_columns - left, more_rows - top}})
    rows, columns = rows + more_rows, columns + more_columns
  end
  return transforms().crop(image, math.floor((rows - height) / 2), math.floor((columns - width) / 2), height, width)
end

-- (image * rescale_factor - mean) / std, as transformers computes it: with scaled means.
local function normalised(o, image)
  if not o.do_normalize then return o.do_rescale and image:float() * o.rescale_factor or image end
  local function spread(numbers, name)
    if #numbers ~= image:size(0) then
      fail("%s: %s: expected %d numbers, as many as the image has channels, got %d%s", o._name, name, image:size(0),
        #numbers, #numbers == 3 and "; do_convert_rgb = true makes three channels" or "")
    end
    local x = C.tensor(numbers, {dtype = "float32", device = image.device})
    return (o.do_rescale and x * (1 / o.rescale_factor) or x):view(-1, 1, 1)
  end
  return (image:float() - spread(o.image_mean, "image_mean")) / spread(o.image_std, "image_std")
end

local function process(o, image)
  if o.do_convert_rgb then image = to_rgb(image) end
  if o.do_resize then image = o.resize(o, image) end
  if o.do_center_crop then
    local size = o.crop_size
    if not size or not size.height then fail("%s: crop_size: expected {height, width}", o._name) end
    image = o.center_crop(image, size.height, size.width)
  end
  return normalised(o, image)
end

-- Return the processor with the options of a call.
local function with_options(self, options)
  if options == nil then return self end
  local fields = arguments.copy(options)
  if fields.return_tensors ~= nil and fields.return_tensors ~= "pt" then
    fail("%s: return_tensors: expected pt, got %s", self._name, describe(fields.return_tensors))
  end
  fields.return_tensors = nil
  arguments.check_names(self._name, fields, arguments.sorted_keys(kinds))
  local o = setmetatable(arguments.copy(self), getmetatable(self))
  set_fields(o, fields)
  return o
end

---@param images Tensor|string|table
---@param options? table fields for this call, and return_tensors = "pt", which is the default
---@return {pixel_values: Tensor}
function ImageProcessor:__call(images, options)
  local o, list, values = with_options(self, options), {}, {}
  collect(self._name, list, images)
  for i, image in ipairs(list) do
    values[i] = process(o, image)
    if arguments.shape_text(values[i]) ~= arguments.shape_text(values[1]) then
      fail("%s: images: expected results of one shape, got %s and %s; do_resize with height and width, or "
        .. "do_center_crop, makes them so", self._name, arguments.shape_text(values[1]),
        arguments.shape_text(values[i]))
    end
  end
  return {pixel_values = C.stack(values)}
end

-- Files.

--- Return the fields as stored in preprocessor_config.json.
---@return table
function ImageProcessor:to_dict()
  local values = {image_processor_type = self.saved_as or self._name}
  for name in pairs(kinds) do values[name] = self[name] end
  return values
end

--- Write preprocessor_config.json into a folder, which is made where it is not there.
--
--   | processor:save_pretrained("out")
---@param save_directory string
function ImageProcessor:save_pretrained(save_directory)
  arguments.check("save_pretrained", "save_directory", "string", save_directory)
  local made, reason = C.io.make_folder(save_directory)
  if not made then fail("save_pretrained: %s", reason) end
  C.io.write_text(save_directory .. "/preprocessor_config.json", C.json.encode(self:to_dict(), 2) .. "\n")
end

-- A class with these defaults.
local function define(name, is_square, defaults)
  local made = ImageProcessor:extend(name)
  defaults.do_resize, defaults.do_rescale, defaults.do_normalize = true, true, true
  defaults.rescale_factor = 1 / 255
  made.defaults, made.is_square = defaults, is_square
  image_processor[name] = made
  return made
end

--- ViT's image processor: bilinear, to 224 x 224; means and deviations of 0.5.
--
--   accelhost.models.ViTImageProcessor().size.height  --> 224
---@param options? table fields
define("ViTImageProcessor", true, {
  size = 224, resample = 2, image_mean = {0.5, 0.5, 0.5}, image_std = {0.5, 0.5, 0.5},
})

--- BiT's image processor, which ResNets of torchvision's recipe use too: bicubic, the shorter side to 224, and the
--- middle 224 x 224.
--
--   accelhost.models.BitImageProcessor{crop_size = 160}.crop_size.width  --> 160
---@param options? table fields
define("BitImageProcessor", false, {
  size = 224, resample = 3, do_center_crop = true, crop_size = 224, do_convert_rgb = true, image_mean = CLIP_MEAN,
  image_std = CLIP_STD,
})

--- ConvNeXt's image processor, which transformers' ResNets use too. Below 384 the shorter side becomes
--- shortest_edge / crop_pct, and the middle is the result; else the image becomes a square.
--
--   accelhost.models.ConvNextImageProcessor{size = 224}.size.shortest_edge  --> 224
---@param options? table fields
---@field crop_pct number default 224 / 256
local ConvNext = define("ConvNextImageProcessor", false, {
  size = 384, resample = 3, crop_pct = 224 / 256, image_mean = {0.5, 0.5, 0.5}, image_std = {0.5, 0.5, 0.5},
})

--- Return an image in the shortest edge's square.
---@param o ImageProcessor
---@param image Tensor
---@return Tensor
function ConvNext.resize(o, image)
  local edge = o.size.shortest_edge
  if not edge then fail("ConvNextImageProcessor: size: expected {shortest_edge}") end
  if edge >= 384 then return resized(o, image, {edge, edge}) end
  return o.center_crop(resized(o, image, sides(image, math.floor(edge / o.crop_pct))), edge, edge)
end

-- timm's transforms, whose crops are rounded as torchvision's.
local Timm = define("TimmWrapperImageProcessor", false, {
  size = 224, resample = 3, do_center_crop = true, crop_size = 224, do_convert_rgb = true, image_mean = IMAGENET_MEAN,
  image_std = IMAGENET_STD,
})
Timm.saved_as = "BitImageProcessor"

function Timm.center_crop(image, height, width) return transforms().center_crop(image, {height, width}) end

local timm_resamples = {nearest = 0, lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5}

-- Return the processor of timm's pretrained_cfg.
local function from_timm(what, p)
  local size, mode = p.input_size or {3, 224, 224}, p.crop_mode or "center"
  local resample = timm_resamples[p.interpolation or "bicubic"]
  if mode ~= "center" or size[2] ~= size[3] then
    fail("%s: pretrained_cfg: expected crop_mode center and a square input_size, got %s and %d x %d", what,
      describe(mode), size[2], size[3])
  elseif not resample then
    fail("%s: pretrained_cfg: interpolation: expected one of %s, got %s", what,
      table.concat(arguments.sorted_keys(timm_resamples), ", "), describe(p.interpolation))
  end
  return Timm {
    size = math.floor(size[2] / (p.crop_pct or 0.875)), crop_size = size[2], resample = resample, image_mean = p.mean,
    image_std = p.std,
  }
end

--- The image processor of a checkpoint folder: from_pretrained(DIR, options).
local Auto = class.new "AutoImageProcessor"
image_processor.AutoImageProcessor = Auto

-- Older names of classes, and those of classes that compute the same.
local function class_of(what, path, values)
  local name = values.image_processor_type or values.feature_extractor_type
  local plain = type(name) == "string"
    and name:gsub("Fast$", ""):gsub("Pil$", ""):gsub("FeatureExtractor$", "ImageProcessor"):gsub("^CLIP", "Bit")
  local found = plain and image_processor[plain]
  if not found or not found.defaults then
    fail("%s: '%s': image_processor_type: expected ViTImageProcessor, ConvNextImageProcessor or BitImageProcessor, "
      .. "got %s", what, path, describe(name))
  end
  return found
end

local function load(what, wanted, path, options)
  arguments.check(what, "path", "string", path)
  local file = path .. "/preprocessor_config.json"
  local values = configs.read_object(what, file)
  if not values then
    local config = configs.read_object(what, path .. "/config.json")
    if not config or type(config.pretrained_cfg) ~= "table" then
      fail("%s: '%s' has neither preprocessor_config.json nor a config.json of timm", what, path)
    end
    local made = from_timm(what, config.pretrained_cfg)
    set_fields(made, options or {})
    return made
  end
  local found = wanted or class_of(what, file, values)
  local known = {}
  for name in pairs(kinds) do known[name] = values[name] end
  local made = found()
  for name in pairs(kinds) do
    if values[name] == C.json.null then made[name] = nil end
  end
  set_fields(made, known)
  if options ~= nil then arguments.check_names(what, options, arguments.sorted_keys(kinds)) end
  set_fields(made, options or {})
  return made
end

--- Read preprocessor_config.json, or timm's config.json.
--
--   | local processor = models.AutoImageProcessor.from_pretrained("vit-base-patch16-224")
--   | model(processor("cat.jpg"))
---@param options? table fields that shall be others
---@return ImageProcessor
function Auto.from_pretrained(path, options) return load("AutoImageProcessor.from_pretrained", nil, path, options) end

function Auto:init() fail("AutoImageProcessor: call AutoImageProcessor.from_pretrained") end

for _, name in ipairs {"ViTImageProcessor", "BitImageProcessor", "ConvNextImageProcessor"} do
  local made = image_processor[name]
  made.from_pretrained = function(path, options) return load(name .. ".from_pretrained", made, path, options) end
end

return image_processor
