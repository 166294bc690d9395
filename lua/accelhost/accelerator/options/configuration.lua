--- Configuration objects of an accelerator, with Accelerate's names and defaults. Where one is expected a plain table
--- of its options serves too.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

local fail = arguments.fail
local configuration = {}

local function text_of(self)
  local parts = {}
  for _, name in ipairs(arguments.sorted_keys(self)) do parts[#parts + 1] = name .. "=" .. tostring(self[name]) end
  return ("%s(%s)"):format(self._name, table.concat(parts, ", "))
end

--- Make a class of objects that are printed as their options.
---@param may_be_nil string[] fields that may be absent
---@return table
function configuration.class(name, may_be_nil)
  local made = class.strict(class.new(name), may_be_nil)
  made.__tostring = text_of
  return made
end

--- Make a class of objects that are made of checked options; one without a default may be absent.
---@param parameters (string|table)[] as of a signature
---@param complete? fun(object: table) checks the options against each other, and sets those that follow from others
---@return table
function configuration.define(name, parameters, complete)
  local set, may_be_nil = arguments.setter(name, parameters), {}
  for _, parameter in ipairs(parameters) do
    local option = type(parameter) == "table" and parameter[2] == nil and parameter[1]:match "^[%w_]+"
    may_be_nil[#may_be_nil + 1] = option or nil
  end
  local made = configuration.class(name, may_be_nil)
  function made:init(...)
    set(self, ...)
    if complete then complete(self) end
  end
  return made
end

local function new(name, ...) configuration[name] = configuration.define(name, ...) end

--- Options of gradient accumulation, in place of gradient_accumulation_steps.
--
--   local plugin = accelhost.GradientAccumulationPlugin{num_steps = 2, sync_with_dataloader = false}
--   accelhost.Accelerator{gradient_accumulation_plugin = plugin}.gradient_accumulation_steps  --> 2
---@param num_steps integer micro-steps of a window
---@param adjust_scheduler? boolean count the micro-steps of a window as steps of the scheduler that do not change the
--- rate: with scheduler_steps = "per_process" those with a total stop after that many
---@param sync_with_dataloader? boolean end a window at a loader's last batch
---@param sync_each_batch? boolean average after every micro-step
new("GradientAccumulationPlugin", {
  "num_steps: count", {"adjust_scheduler: flag", true}, {"sync_with_dataloader: flag", true},
  {"sync_each_batch: flag", false},
})

--- Options of prepared loaders: the distribution of batches over processes, seeds and copies.
--
--   local config = accelhost.DataLoaderConfiguration{split_batches = true}
--   accelhost.Accelerator{dataloader_config = config}.split_batches  --> true
---@param split_batches? boolean a loader's batch size is that of all processes together
---@param dispatch_batches? boolean the main process makes the batches of all; default: each makes its own
---@param even_batches? boolean fill up the last round, so that all processes have equally many
---@param use_seedable_sampler? boolean the order of a pass is a function of a seed and the epoch
---@param data_seed? integer that seed, default: the seed of the global generator
---@param non_blocking? boolean batches are copied to a device while its kernels compute (default); false: when they
--- have completed. The values are the same; Accelerate's default is false
---@param use_stateful_dataloader? boolean no difference here: every loader has state_dict and load_state_dict
new("DataLoaderConfiguration", {
  {"split_batches: flag", false}, {"dispatch_batches: flag"}, {"even_batches: flag", true},
  {"use_seedable_sampler: flag", false}, {"data_seed: size"}, {"non_blocking: flag", true},
  {"use_stateful_dataloader: flag", false},
}, function(self)
  if self.data_seed and not self.use_seedable_sampler then
    fail("DataLoaderConfiguration: data_seed needs use_seedable_sampler = true")
  end
end)

-- Return a path below the trial's folder, in a trial of a sweep.
local function placed(path)
  local folder = os.getenv "ACCELHOST_TRIAL_DIR"
  if not path or not folder or folder == "" or path:sub(1, 1) == "/" then return path end
  return path == "." and folder or folder .. "/" .. path
end

--- Options of a run's files: its folder and its checkpoints.
--
--   accelhost.ProjectConfiguration{project_dir = "run"}.logging_dir  --> run
---@param logging_dir? string default: project_dir
---@param automatic_checkpoint_naming? boolean number the states that are saved
---@param total_limit? integer largest number of states that are kept
---@param iteration? integer the number of the next one
---@param save_on_each_node? boolean save on every host, not on the first one only
new("ProjectConfiguration", {
  {"project_dir: string"}, {"logging_dir: string"}, {"automatic_checkpoint_naming: flag", false},
  {"total_limit: count"}, {"iteration: size", 0}, {"save_on_each_node: flag", false},
}, function(self)
  self.project_dir, self.logging_dir = placed(self.project_dir), placed(self.logging_dir)
  self.logging_dir = self.logging_dir or self.project_dir
end)

--- Keep the files in another folder.
--
--   local config = accelhost.ProjectConfiguration()
--   config:set_directories "run"
--   config.logging_dir  --> run
function configuration.ProjectConfiguration:set_directories(project_dir)
  self.project_dir = placed(arguments.check("set_directories", "project_dir", "string", project_dir))
  self.logging_dir = self.logging_dir or self.project_dir
end

--- Options of averaging the gradients of prepared models, for kwargs_handlers.
--
--   local kwargs = accelhost.DistributedDataParallelKwargs{bucket_cap_mb = 5}
--   accelhost.Accelerator{kwargs_handlers = {kwargs}}.ddp_handler.bucket_cap_mb  --> 5
---@param broadcast_buffers? boolean rank 0's buffers go to all with each average
---@param bucket_cap_mb? number size of the pieces in which gradients are averaged
---@param find_unused_parameters? boolean no difference here: unused parameters are always found
---@param gradient_as_bucket_view? boolean no difference here: gradients are always views of the buckets
---@param static_graph? boolean no difference here: which parameters are used may change at any time
---@param comm_hook? string compression of the gradients that are sent: "fp16" and "bf16" halve the bytes, "power_sgd"
--- and "batched_power_sgd" send thin matrices (accelhost.distributed.PowerSGDState); default "no"
---@param comm_wrapper? string "fp16" or "bf16": halve the bytes that the hook sends too; default "no"
---@param comm_state_option? table options of PowerSGDState, such as {matrix_approximation_rank = 2}
new("DistributedDataParallelKwargs", {
  {"broadcast_buffers: flag", true}, {"bucket_cap_mb: positive"}, {"find_unused_parameters: flag", false},
  {"gradient_as_bucket_view: flag", true}, {"static_graph: flag", false},
  {"comm_hook: 'no'|'fp16'|'bf16'|'power_sgd'|'batched_power_sgd'", "no"}, {"comm_wrapper: 'no'|'fp16'|'bf16'", "no"},
  {"comm_state_option: table"},
}, function(self)
  if self.comm_hook == "no" and (self.comm_wrapper ~= "no" or self.comm_state_option) then
    fail("DistributedDataParallelKwargs: comm_wrapper and comm_state_option need a comm_hook")
  end
  if self.comm_state_option and not self.comm_hook:find "power_sgd" then
    fail("DistributedDataParallelKwargs: comm_state_option is for comm_hook = 'power_sgd' and 'batched_power_sgd', "
      .. "got '%s'", self.comm_hook)
  end
end)

--- Return the configuration object of an argument: itself, or one made of a plain table of options.
---@param what string the function and argument, for messages
---@param wanted table the class
---@return table
function configuration.of(what, wanted, value)
  if class.is(value, wanted) then return value end
  if arguments.is_options(value) then return wanted(value) end
  fail("%s: expected a %s or a table of its options, got %s", what, wanted._name, arguments.describe(value))
end

return configuration
