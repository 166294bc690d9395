--- TensorBoardTracker: values in TensorBoard's event files.
local GeneralTracker = require "accelhost.track.tracker"
local SummaryWriter = require "accelhost.track.summary_writer"
local arguments = require "accelhost.util.arguments"
local values = require "accelhost.track.values"

---@field writer SummaryWriter? nil until it is started
local TensorBoardTracker = GeneralTracker:extend "TensorBoardTracker"

TensorBoardTracker.name, TensorBoardTracker.requires_logging_directory = "tensorboard", true

--- log_with = "tensorboard": scalars, texts, plots of several scalars, images and hyperparameters in
-- LOGGING_DIR/PROJECT. Its init_kwargs are the options of a SummaryWriter; a run that is resumed sets purge_step.
--
--   local folder = os.tmpname() .. ".runs"
--   local own = accelhost.Accelerator{log_with = "tensorboard", project_dir = folder}
--   own:init_trackers("mnist", {lr = 0.1}, {tensorboard = {purge_step = 100}})
--   own:log({loss = 0.25, accuracy = {train = 0.9, valid = 0.8}}, {step = 100})
--   own:end_training()
---@param run_name string the project
---@param options? table
function TensorBoardTracker:init(run_name, logging_dir, options)
  GeneralTracker.init(self, run_name, logging_dir, options)
end

--- Make the folder and the event file.
function TensorBoardTracker:start()
  local options = arguments.copy(self.options or {})
  options.log_dir = options.log_dir or self.logging_dir .. "/" .. self.run_name
  self.writer = SummaryWriter(options)
  self.tracker = self.writer
end

--- Make the events from a step on void.
function TensorBoardTracker:purge(step) self.writer:_restart(step) end

--- Keep hyperparameters, as SummaryWriter:add_hparams does.
function TensorBoardTracker:store_init_configuration(given)
  self.writer:add_hparams(given, {})
end

--- Numbers become scalars, texts texts, tables of numbers scalars of one plot.
---@param given table<string, any>
---@param step? integer
---@param options? table walltime; tags: a function of a name that returns its tag
function TensorBoardTracker:log(given, step, options)
  local writer, wall_time, tag_of = self.writer, options and options.walltime, options and options.tags
  arguments.check_names("log: tensorboard", options or {}, {"walltime", "tags"})
  for _, key in ipairs(values.names("log: tensorboard", given)) do
    local value, name = given[key], tag_of and tag_of(key) or key
    if type(value) == "string" then
      writer:add_text(name, value, step, wall_time)
    elseif type(value) == "table" and getmetatable(value) == nil then
      writer:add_scalars(name, value, step, wall_time)
    else
      writer:add_scalar(name, values.number("log: tensorboard", key, value), step, wall_time)
    end
  end
end

--- Keep batches of images, as SummaryWriter:add_images does.
---@param given table<string, userdata>
---@param step? integer
---@param options? table walltime, dataformats
function TensorBoardTracker:log_images(given, step, options)
  arguments.check_names("log_images: tensorboard", options or {}, {"walltime", "dataformats"})
  for _, name in ipairs(values.names("log_images: tensorboard", given)) do
    local more = arguments.copy(options or {})
    more.global_step = step
    self.writer:add_images(name, given[name], more)
  end
end

--- Close the files.
function TensorBoardTracker:finish()
  if self.writer then self.writer:close() end
end

return TensorBoardTracker
