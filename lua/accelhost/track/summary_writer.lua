--- SummaryWriter: TensorBoard's event files.
local C = require "accelhost._C"
local LogFile = require "accelhost.track.log_file"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local histogram = require "accelhost.track.histogram"
local messages = require "accelhost.track.messages"
local picture = require "accelhost.track.picture"
local values = require "accelhost.track.values"

local fail = arguments.fail

---@field log_dir string the folder of its file
---@field path string the file
local SummaryWriter = class.strict(class.new "SummaryWriter", {"_purge_step"})

local read_options = arguments.signature("SummaryWriter", {
  {"log_dir: string"}, {"comment: string", ""}, {"purge_step: size"}, {"max_queue: count", 10},
  {"flush_secs: positive", 120}, {"filename_suffix: string", ""},
})

local files = 0 -- of this process

-- Files are read in the order of their names: a run that continues is sorted after its earlier files, in the same
-- second too.
local function file_name(folder, suffix)
  local second = math.floor(C.system.time())
  for _, name in ipairs(C.data.list_folder(folder)) do
    local other = tonumber(name:match "^events%.out%.tfevents%.(%d+)%.")
    if other and other >= second and other < second + 1000 then second = other + 1 end
  end
  local name = ("events.out.tfevents.%010d.%s.%d.%d%s"):format(second, C.system.host_name(), C.system.process_id(),
    files, suffix)
  files = files + 1
  return name
end

--- Writes TensorBoard's data into a new event file in a folder. Steps count as the script counts them; a
-- value without a step is one of step 0.
--
--   local writer = accelhost.track.SummaryWriter(os.tmpname() .. ".runs")
--   for step = 0, 9 do writer:add_scalar("loss", 1 / (step + 1), step) end
--   writer:close()
--
-- Each event is written when it is added, in one piece: a run that is killed leaves all of them.
---@param log_dir? string the folder, made where it is missing; default: runs/ with date, time and host
---@param comment? string behind the default folder's name
---@param purge_step? integer the run is resumed: events in the folder from this step on are void
---@param max_queue? integer no difference here: nothing waits to be written
---@param flush_secs? number no difference here
---@param filename_suffix? string behind the file's name
function SummaryWriter:init(...)
  local folder, comment, purge_step, _, _, suffix = read_options(...)
  if suffix:find "/" then fail("SummaryWriter: filename_suffix: expected no '/', got '%s'", suffix) end
  folder = folder or ("runs/%s_%s%s"):format(os.date "%b%d_%H-%M-%S", C.system.host_name(), comment)
  self.log_dir = LogFile.folder("SummaryWriter", folder)
  self.path = folder .. "/" .. file_name(folder, suffix)
  self._file, self._inner = LogFile("SummaryWriter", self.path), {}
  self:_write(nil, nil, messages.version)
  if purge_step then self:_restart(purge_step) end
end

-- Make the folders' events from this step on void.
function SummaryWriter:_restart(step)
  self._purge_step = step
  self:_write(nil, step, messages.restart)
  for _, writer in pairs(self._inner) do writer:_restart(step) end
end

function SummaryWriter:_write(wall_time, step, content)
  self._file:append(messages.event(wall_time or C.system.time(), step, content))
end

local function summary(self, wall_time, step, ...)
  self:_write(wall_time, step, messages.summary(...))
end

--- Add a point of a curve.
--
--   writer:add_scalar("loss/train", 0.25, 3)
---@param tag string its name; the part before the first / groups curves
---@param scalar_value number|boolean|userdata a tensor of one element
---@param walltime? number seconds since 1970, default now
---@param new_style? boolean as a tensor
---@param double_precision? boolean in float64; with new_style
SummaryWriter.add_scalar = arguments.method("add_scalar", {
  "tag: string", "scalar_value", {"global_step: integer"}, {"walltime: number"}, {"new_style: flag", false},
  {"double_precision: flag", false},
}, function(self, tag, value, step, wall_time, new_style, double)
  value = values.number("add_scalar", values.text("add_scalar: tag", tag), value)
  summary(self, wall_time, step, messages.scalar(tag, value, new_style and (double and "double" or "float") or nil))
end)

-- The writer of a folder below, which is resumed as this one.
local function inner_writer(self, name)
  local writer = self._inner[name]
  if not writer then
    writer = SummaryWriter(self.log_dir .. "/" .. name, {purge_step = self._purge_step})
    self._inner[name] = writer
  end
  return writer
end

--- Add points of several curves that are shown in one plot: each is a separate run, the folder MAIN_TAG_NAME.
--
--   writer:add_scalars("loss", {train = 0.25, valid = 0.5}, 3)
---@param main_tag string the plot
---@param tag_scalar_dict table<string, number> values by name
SummaryWriter.add_scalars = arguments.method("add_scalars", {
  "main_tag: string", "tag_scalar_dict: table", {"global_step: integer"}, {"walltime: number"},
}, function(self, tag, given, step, wall_time)
  wall_time = wall_time or C.system.time()
  for _, name in ipairs(values.names("add_scalars: tag_scalar_dict", given)) do
    local value = values.number("add_scalars", tag .. "/" .. name, given[name])
    local folder = ("%s_%s"):format(tag, name):gsub("/", "_")
    inner_writer(self, folder):add_scalar(tag, value, step, wall_time)
  end
end)

--- Add a histogram of a tensor's values, such as a weight's or a gradient's.
--
--   writer:add_histogram("weights", accelhost.randn(100), 3)
---@param values userdata|number[] a tensor of any shape and dtype
---@param bins? string|integer|number[] "tensorflow" (widths that grow by a tenth), a number of bins of one width, or
--- edges
---@param max_bins? integer merge neighbours until there are about that many
SummaryWriter.add_histogram = arguments.method("add_histogram", {
  "tag: string", "values: tensor|numbers", {"global_step: integer"}, {"bins: 'tensorflow'|count|numbers", "tensorflow"},
  {"walltime: number"}, {"max_bins: count"},
}, function(self, tag, given, step, bins, wall_time, max_bins)
  if not C.is_tensor(given) then given = C.tensor(type(given) == "table" and given or {given}, {dtype = "float64"}) end
  values.text("add_histogram: tag", tag)
  summary(self, wall_time, step, messages.histogram(tag, histogram.of("add_histogram", given, bins, max_bins)))
end)

local function add_picture(self, what, tag, image, step, wall_time, layout)
  values.text(what .. ": tag", tag)
  image = picture(what, image, layout)
  local channels, rows, columns = unpack(image:shape())
  summary(self, wall_time, step, messages.image(tag, C.data.encode_png(image), rows, columns, channels))
end

--- Add an image: uint8, or floats from 0 to 1. Needs libpng's plugin.
--
--   writer:add_image("noise", accelhost.rand(3, 16, 16), 0)
---@param img_tensor userdata 1, 3 or 4 channels
---@param dataformats? string the order of its dims, such as "HWC" or "HW"
SummaryWriter.add_image = arguments.method("add_image", {
  "tag: string", "img_tensor: tensor", {"global_step: integer"}, {"walltime: number"}, {"dataformats: string", "CHW"},
}, function(self, tag, image, step, wall_time, layout)
  add_picture(self, "add_image", tag, image, step, wall_time, layout)
end)

--- Add a batch of images as one grid with 8 of them in a row.
--
--   writer:add_images("digits", accelhost.rand(16, 1, 28, 28), 0)
---@param dataformats? string the order of its dims
SummaryWriter.add_images = arguments.method("add_images", {
  "tag: string", "img_tensor: tensor", {"global_step: integer"}, {"walltime: number"}, {"dataformats: string", "NCHW"},
}, function(self, tag, images, step, wall_time, layout)
  add_picture(self, "add_images", tag, images, step, wall_time, layout)
end)

--- Add a text, which TensorBoard shows as Markdown.
--
--   writer:add_text("notes", "the learning rate was **halved**", 3)
SummaryWriter.add_text = arguments.method("add_text", {
  "tag: string", "text_string: string", {"global_step: integer"}, {"walltime: number"},
}, function(self, tag, text, step, wall_time)
  values.text("add_text: tag", tag)
  summary(self, wall_time, step, messages.text(tag, values.text(("add_text: '%s'"):format(tag), text)))
end)

-- Check the domain of each parameter: a list of values of its kind.
local function check_domains(domains, parameters)
  for _, name in ipairs(values.names("add_hparams: hparam_domain_discrete", domains)) do
    local value = parameters[name]
    if value == nil then fail("add_hparams: hparam_domain_discrete: '%s' is no parameter", name) end
    for i, item in ipairs(arguments.check("add_hparams: hparam_domain_discrete", name, "list", domains[name])) do
      if type(item) == "string" then values.text("add_hparams: hparam_domain_discrete: " .. name, item) end
      if type(item) ~= type(value) then
        fail("add_hparams: hparam_domain_discrete: '%s': item %d: expected a %s as the parameter is, got %s", name, i,
          type(value), arguments.describe(item))
      end
    end
  end
end

--- Add the hyperparameters of a run and its results, in a folder below: a row of TensorBoard's table.
--
--   writer:add_hparams({lr = 0.1, optimizer = "sgd"}, {["best/loss"] = 0.25})
---@param hparam_dict table<string, any> numbers, booleans, texts
---@param metric_dict table<string, number> each becomes a scalar of this tag
---@param hparam_domain_discrete? table<string, any[]> allowed values of a parameter
---@param run_name? string the folder, default the time
---@param global_step? integer of the metrics
SummaryWriter.add_hparams = arguments.method("add_hparams", {
  "hparam_dict: table", "metric_dict: table", {"hparam_domain_discrete: table"}, {"run_name: string"},
  {"global_step: integer"},
}, function(self, parameters, metrics, domains, run_name, step)
  local _, plain = values.flat("add_hparams: hparam_dict", parameters)
  local tags, numbers = values.names("add_hparams: metric_dict", metrics), {}
  for i, tag in ipairs(tags) do numbers[i] = values.number("add_hparams: metric_dict", tag, metrics[tag]) end
  check_domains(domains or {}, plain)
  local writer = SummaryWriter(("%s/%s"):format(self.log_dir, run_name or ("%.7f"):format(C.system.time())))
  for _, value in ipairs {messages.parameters(plain, tags, domains)} do summary(writer, nil, step, value) end
  for i, tag in ipairs(tags) do writer:add_scalar(tag, numbers[i], step) end
  writer:close()
end)

--- The folder of the file.
--
--   writer:get_logdir() == writer.log_dir  --> true
---@return string
function SummaryWriter:get_logdir() return self.log_dir end

--- Does nothing: each event is written when it is added.
--
--   writer:flush()
function SummaryWriter:flush() end -- luacheck: ignore self

--- Close the file, and those of the folders below; adding is an error afterwards.
--
--   writer:close()
function SummaryWriter:close()
  for _, name in ipairs(arguments.sorted_keys(self._inner)) do self._inner[name]:close() end
  self._file:close()
end

function SummaryWriter:__tostring() return ("SummaryWriter(%s)"):format(self.log_dir) end

return class.guard(SummaryWriter)
