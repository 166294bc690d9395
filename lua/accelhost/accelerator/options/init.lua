--- The options of an accelerator: the constructor's arguments as one table, checked against each other.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local configuration = require "accelhost.accelerator.options.configuration"
local launched = require "accelhost.util.launched"
local later = require "accelhost.util.later"
local registry = later "accelhost.track.registry"

local fail = arguments.fail
local proportions = later "accelhost.accelerator.options.proportions"
local options = {}

-- The names and kinds of the arguments, in their order; an absent one has its default.
local rows = {
  {"device_placement: flag", true}, {"split_batches: flag"}, {"mixed_precision: 'no'|'bf16'|'fp16'|'fp8'"},
  {"gradient_accumulation_steps: count"}, {"cpu: flag"}, {"dataloader_config"}, {"rng_types: list"},
  {"log_with"}, {"project_dir: string"}, {"project_config"}, {"gradient_accumulation_plugin"},
  {"step_scheduler_with_optimizer: flag", true}, {"kwargs_handlers: list"}, {"even_batches: flag"},
  {"bucket_cap_mb: positive"}, {"scheduler_steps: 'optimizer'|'per_process'", "optimizer"}, {"virtual_shards: count"},
  {"sharding: 'none'|'optimizer'|'gradients'|'full'"}, {"shard_units"}, {"fsdp_plugin"},
  {"log_gpu: flag", false}, {"offload_optimizer_device: 'none'|'cpu'", "none"},
}

local read = arguments.signature("Accelerator", rows)

-- Options of Accelerate that are not supported, and why.
local whole = "a layer is computed by one process here"
local zero = "there is no DeepSpeed here: sharding = 'optimizer', 'gradients' or 'full' is its ZeRO stage 1, 2 or 3, "
  .. "offload_optimizer_device = 'cpu' its offload"
local refused = {
  deepspeed_plugin = zero, deepspeed_plugins = zero, megatron_lm_plugin = whole, torch_tp_plugin = whole,
  parallelism_config = whole,
  dynamo_backend = "nothing is compiled here", dynamo_plugin = "nothing is compiled here",
  logging_dir = "project_config = {logging_dir = ...} names it",
}

local function check_refused(...)
  local given = select(select("#", ...), ...)
  if not arguments.is_options(given) then return end
  for name, reason in pairs(refused) do
    if given[name] ~= nil then fail("Accelerator: %s: not supported: %s", name, reason) end
  end
end

-- The launcher's settings hold where the script sets nothing.
local launch_defaults = {mixed_precision = "no", gradient_accumulation_steps = 1, cpu = false}

local function settle(given, kinds_of)
  local steps = given.gradient_accumulation_steps
  if given.gradient_accumulation_plugin then
    if steps then fail("Accelerator: pass gradient_accumulation_steps or gradient_accumulation_plugin, not both") end
    given.gradient_accumulation_plugin = configuration.of("Accelerator: gradient_accumulation_plugin",
      configuration.GradientAccumulationPlugin, given.gradient_accumulation_plugin)
    given.gradient_accumulation_steps = given.gradient_accumulation_plugin.num_steps
  end
  for name, default in pairs(launch_defaults) do
    given[name] = launched.settle("Accelerator", name, kinds_of[name], given[name], default)
  end
end

-- A short form and the object that holds the same: one of them, or both of one mind.
local function merge(given, short, long, object, field)
  if given[short] == nil then return end
  if given[long] and object[field] ~= given[short] then
    fail("Accelerator: %s = %s, but %s sets %s = %s", short, tostring(given[short]), long, field,
      tostring(object[field]))
  end
  object[field] = given[short]
end

local function read_loaders(given)
  local config = configuration.of("Accelerator: dataloader_config", configuration.DataLoaderConfiguration,
    given.dataloader_config or {})
  config = configuration.DataLoaderConfiguration(arguments.copy(config)) -- the accelerator's own
  merge(given, "split_batches", "dataloader_config", config, "split_batches")
  merge(given, "even_batches", "dataloader_config", config, "even_batches")
  return config
end

local function read_project(given)
  local config = configuration.of("Accelerator: project_config", configuration.ProjectConfiguration,
    given.project_config or {})
  if given.project_dir then
    local placed = configuration.ProjectConfiguration(given.project_dir).project_dir
    if config.project_dir and config.project_dir ~= placed then
      fail("Accelerator: project_dir = '%s', but project_config sets '%s'", given.project_dir, config.project_dir)
    end
    config:set_directories(given.project_dir)
  end
  return config
end

local function read_accumulation(given)
  local plugin = given.gradient_accumulation_plugin or {num_steps = given.gradient_accumulation_steps}
  return configuration.GradientAccumulationPlugin(arguments.copy(plugin))
end

local function check_fp8(_, precision)
  return precision ~= "fp8" and "only mixed_precision = 'fp8' computes with 8-bit floats" or nil
end

-- class -> the field of the accelerator that holds the handler, and why it cannot be heeded with a mixed_precision, if
-- it cannot
local handlers = {
  DistributedDataParallelKwargs = {"ddp_handler"},
  InitProcessGroupKwargs = {"init_handler"},
  AutocastKwargs = {"autocast_handler", function(handler, precision)
    return precision == "no" and handler.enabled and "mixed_precision is 'no', so nothing is cast" or nil
  end},
  GradScalerKwargs = {"scaler_handler", function(_, precision)
    return precision ~= "fp16" and "only mixed_precision = 'fp16' scales losses" or nil
  end},
  ProfileKwargs = {"profile_handler"},
  TERecipeKwargs = {"fp8_recipe", check_fp8}, FP8RecipeKwargs = {"fp8_recipe", check_fp8},
}

local function read_handlers(given)
  local found = {}
  for i, handler in ipairs(given.kwargs_handlers or {}) do
    local kind = class.of(handler)
    local entry = kind and handlers[kind._name]
    if not entry then
      fail("Accelerator: kwargs_handlers: item %d: expected DistributedDataParallelKwargs, InitProcessGroupKwargs, "
        .. "AutocastKwargs, GradScalerKwargs, ProfileKwargs, TERecipeKwargs or FP8RecipeKwargs, got %s", i,
        arguments.describe(handler))
    end
    local reason = entry[2] and entry[2](handler, given.mixed_precision)
    if reason then fail("Accelerator: kwargs_handlers: %s: %s", kind._name, reason) end
    if found[entry[1]] then fail("Accelerator: kwargs_handlers: there are two %s", class.of(found[entry[1]])._name) end
    found[entry[1]] = handler
  end
  local ddp = found.ddp_handler
  if ddp and ddp.bucket_cap_mb and given.bucket_cap_mb and ddp.bucket_cap_mb ~= given.bucket_cap_mb then
    fail("Accelerator: bucket_cap_mb = %g, but kwargs_handlers sets %g", given.bucket_cap_mb, ddp.bucket_cap_mb)
  end
  found.ddp_handler = ddp or configuration.DistributedDataParallelKwargs {bucket_cap_mb = given.bucket_cap_mb}
  if ddp and given.bucket_cap_mb then ddp.bucket_cap_mb = given.bucket_cap_mb end
  return found
end

-- Return sharding and shard_units, which an fsdp_plugin may set.
local function read_sharding(given)
  if given.fsdp_plugin ~= nil then
    local plugin = configuration.of("Accelerator: fsdp_plugin", require("accelhost.accelerator.options.fsdp_plugin"),
      given.fsdp_plugin)
    for name, value in pairs(plugin:options()) do
      if given[name] ~= nil and given[name] ~= value then
        fail("Accelerator: %s = %s, but fsdp_plugin sets %s", name, tostring(given[name]), tostring(value))
      end
      given[name] = value
    end
    given.saves_parts = plugin.state_dict_type == "SHARDED_STATE_DICT"
  end
  given.sharding = given.sharding or "none"
  if given.shard_units ~= nil and (given.sharding == "none" or given.sharding == "optimizer") then
    fail("Accelerator: shard_units: units are of sharding = 'gradients' and 'full', got sharding = '%s'",
      given.sharding)
  end
  if given.sharding == "none" and given.offload_optimizer_device ~= "none" then
    fail("Accelerator: offload_optimizer_device: it is an option of sharded optimizer state: set sharding = "
      .. "'optimizer', 'gradients' or 'full', in one process too")
  end
  if given.sharding == "none" then return end
  local spread = given.sharding ~= "optimizer"
  if spread and given.virtual_shards then
    fail("Accelerator: virtual_shards: its tree of sums needs whole gradients, and sharding = '%s' shares them out; "
      .. "use sharding = 'optimizer'", given.sharding)
  end
  if spread and given.accumulation.sync_each_batch then
    fail("Accelerator: sync_each_batch: with sharding = '%s' the gradients of a window are averaged once, at its end",
      given.sharding)
  end
  if spread and given.ddp_handler.comm_hook ~= "no" then
    fail("Accelerator: comm_hook: with sharding = '%s' gradients are reduced into shares, which a hook does not do",
      given.sharding)
  end
end

local function read_rng_types(given)
  local types = {}
  for _, name in ipairs(given.rng_types or {"generator"}) do
    if name ~= "generator" and name ~= "torch" then
      fail("Accelerator: rng_types: expected 'generator' (a loader's draw) or 'torch' (the global generator), got %s",
        arguments.describe(name))
    end
    types[name] = true
  end
  return types
end

-- A name, "all", or an object, as items of log_with.
local function add_tracker(list, item, what)
  if registry.is_tracker(item) then
    list[#list + 1] = require("accelhost.track.tracker").check(what, item)
  elseif item == "all" then
    for _, name in ipairs(registry.names()) do list[#list + 1] = name end
  elseif type(item) == "string" then
    registry.class_of(what, item)
    list[#list + 1] = item
  else
    fail("%s: expected a name, a tracker or a table of them, got %s", what, arguments.describe(item))
  end
end

local function read_trackers(value, logging_dir)
  local what, list, seen = "Accelerator: log_with", {}, {}
  if value == nil then return list end
  local is_list = type(value) == "table" and getmetatable(value) == nil and value[1] ~= nil
  for _, item in ipairs(is_list and value or {value}) do add_tracker(list, item, what) end
  for _, item in ipairs(list) do
    local name = type(item) == "string" and item or item.name
    if seen[name] then fail("%s: '%s' is there twice", what, name) end
    seen[name] = true
    if type(item) == "string" and registry.class_of(what, item).requires_logging_directory and not logging_dir then
      fail("%s: '%s' needs a folder: pass project_dir, or logging_dir in project_config", what, name)
    end
  end
  return list
end

-- Check the options that depend on the number of processes, or that replace the averaging of gradients.
local function check_virtual_shards(given)
  if not given.virtual_shards then return end
  local kwargs = given.ddp_handler
  local reasons = {
    ["comm_hook = '" .. kwargs.comm_hook .. "'"] = kwargs.comm_hook ~= "no",
    ["broadcast_buffers = false"] = not kwargs.broadcast_buffers,
    ["dispatch_batches"] = given.dataloader_config.dispatch_batches == true,
    ["sync_each_batch"] = given.accumulation.sync_each_batch,
    ["scheduler_steps = 'per_process'"] = given.scheduler_steps == "per_process",
  }
  for _, name in ipairs(arguments.sorted_keys(reasons)) do
    if reasons[name] then
      fail("Accelerator: virtual_shards excludes %s, with which the number of processes changes the result", name)
    end
  end
end

-- Read the batch proportions that the launcher was configured with; nil: even.
local function read_proportions(given)
  local list = proportions.read()
  local other = list and (given.virtual_shards and "virtual_shards" or given.dataloader_config.dispatch_batches
    and "dispatch_batches")
  if other then
    fail("Accelerator: %s excludes a share for each process (%s): leave one out", other, table.concat(list, ":"))
  end
  return list
end

-- The recipe of FP8, and the options that exclude it.
local function read_fp8(given)
  if given.mixed_precision ~= "fp8" then return end
  local reasons = {
    virtual_shards = given.virtual_shards and "their sums do not depend on the number of processes, and scales do",
    ["sharding = 'full'"] = given.sharding == "full" and "each use of a parameter would gather it again in float32; "
      .. "'optimizer' and 'gradients' leave parameters whole",
    ["launch --recover live"] = C.recovery.is_on() and "a replaced process would begin with other scales",
  }
  for _, name in ipairs(arguments.sorted_keys(reasons)) do
    if reasons[name] then fail("Accelerator: mixed_precision = 'fp8' excludes %s: %s", name, reasons[name]) end
  end
  given.fp8_recipe = given.fp8_recipe or require("accelhost.accelerator.options.handlers").TERecipeKwargs()
end

--- The arguments by name, with the objects that were made of them: dataloader_config, project_configuration,
--- accumulation, rng_types (a set), log_with (a list), and the handlers.
---@return table<string, any>
function options.read(...)
  if select("#", ...) > 0 then check_refused(...) end
  local values, given, kinds_of = {read(...)}, {}, {}
  for i, row in ipairs(rows) do
    local name, kind = row[1]:match "^([%w_]+):? ?(.*)$"
    given[name], kinds_of[name] = values[i], kind
  end
  settle(given, kinds_of)
  given.dataloader_config, given.project_configuration = read_loaders(given), read_project(given)
  given.accumulation, given.rng_types = read_accumulation(given), read_rng_types(given)
  given.log_with = read_trackers(given.log_with, given.project_configuration.logging_dir)
  for name, handler in pairs(read_handlers(given)) do given[name] = handler end
  check_virtual_shards(given)
  given.share = read_proportions(given)
  read_sharding(given)
  read_fp8(given)
  local seconds = given.init_handler and given.init_handler.timeout
  if seconds then C.comm.timeout(seconds) end
  local backend = given.init_handler and given.init_handler.backend
  if backend then
    local groups = require "accelhost.distributed.groups"
    groups.check_backend("InitProcessGroupKwargs", backend)
    groups.choose_backend(C.comm.world(), backend)
  end
  return given
end

return options
