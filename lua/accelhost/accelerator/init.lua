--- accelhost.Accelerator: the same script in one process and in many.
--
--   local accelerator = accelhost.Accelerator{gradient_accumulation_steps = 4}
--   model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
--   for inputs, labels in loader do
--     accelerator:accumulate(model, function()
--       accelerator:backward(F.cross_entropy(model(inputs), labels % 2))
--       optimizer:step()
--       optimizer:zero_grad()
--     end)
--   end
--
-- A gradient is the mean over the global batch: sum(w g) / sum(w) over ranks and micro-steps, where w is 1 unless
-- `backward` has a weight. A plain loss:backward() on a prepared model averages over the ranks too, and adds up
-- over micro-steps, as with PyTorch's DDP.
local class = require "accelhost.util.class"
local options = require "accelhost.accelerator.options"
local place = require "accelhost.accelerator.process.place"
local state = require "accelhost.accelerator.process.state"
require "accelhost.averaging" -- warns of backwards that average nothing

---@field device string of models and batches: this process's GPU, "cuda:0", else "cpu"; a default device that is
--- neither has priority
---@field process_index integer this process's rank, from 0
---@field num_processes integer
---@field local_process_index integer
---@field is_main_process boolean rank 0
---@field is_local_main_process boolean
---@field is_last_process boolean
---@field use_distributed boolean are there several processes?
---@field distributed_type string "NO", "MULTI_CPU" or "MULTI_GPU"
---@field multi_device boolean does each process have its own GPU?
---@field state AcceleratorState
---@field gradient_state GradientState its position in its window and its loops
---@field sync_gradients boolean does the current micro-step end an accumulation window? (settable)
---@field gradient_accumulation_steps integer micro-steps of a window (settable)
---@field step integer micro-steps since the last window ended
---@field step_scheduler_with_optimizer boolean
---@field scheduler_steps string "optimizer" or "per_process"
---@field optimizer_step_was_skipped boolean did a prepared optimizer leave out its last step?
---@field device_placement boolean
---@field mixed_precision string "no", "bf16", "fp16" or "fp8"
---@field fp8_backend string "TE" with mixed_precision = "fp8", else "NO"
---@field scaler GradScaler? of mixed_precision = "fp16"
---@field virtual_shards integer? number of shards of a global batch
---@field share integer[]? part of a global batch of each process, as set by `launch --share`; nil: all the same
---@field split_batches boolean
---@field dispatch_batches boolean?
---@field even_batches boolean (settable: for loaders that are prepared from now on)
---@field use_seedable_sampler boolean
---@field non_blocking boolean
---@field use_stateful_dataloader boolean
---@field dataloader_config DataLoaderConfiguration
---@field project_configuration ProjectConfiguration
---@field project_dir string?
---@field logging_dir string?
---@field save_iteration integer the number of the next state that is saved by number
---@field should_save_model boolean is this the process that writes models?
---@field log_with any[] the trackers' names, or the trackers
---@field log_gpu boolean
---@field trackers GeneralTracker[] those that init_trackers has started; none on other processes than the main one
---@field ddp_handler DistributedDataParallelKwargs
---@field sharding string "none", "optimizer", "gradients" or "full"
---@field offload_optimizer_device string "none" or "cpu"
local Accelerator = class.strict(class.new "Accelerator")

Accelerator.__newindex = class.assign
Accelerator._is_accelerator = true

function Accelerator:__tostring()
  return ("Accelerator(process %d of %d, %s)"):format(self.process_index, self.num_processes, self.device)
end

require "accelhost.accelerator.fields"(Accelerator)

-- Every other method is in one of these files, which is loaded by the first use.

-- Parts of an accelerator: field -> the file of a class with its own state, the methods that are delegated to it,
-- and the field of its options. free_memory resets those that have a method reset.
local parts = {
  _prepared = {"training.prepare", {
    "prepare", "prepare_model", "prepare_data_loader", "prepare_optimizer", "prepare_scheduler", "skip_first_batches",
    "get_state_dict", "unwrap_model", "free_memory", "clear",
  }},
  _precision = {"training.precision", {"autocast"}, "_autocast_handler"},
  _gradients = {"training.gradients", {
    "backward", "accumulate", "no_sync", "trigger_sync_in_backward", "join_uneven_inputs", "clip_grad_norm_",
    "clip_grad_value_",
  }},
  _loss_scaler = {"training.loss_scaler", {"unscale_gradients"}, "_scaler_handler"},
  _checkpointer = {"checkpoint.checkpointer", {
    "save_state", "wait_for_checkpoint", "load_state", "register_for_checkpointing", "register_save_state_pre_hook",
    "register_load_state_pre_hook",
  }},
  _recovery = {"checkpoint.recovery", {}},
  _signal_watch = {"checkpoint.signals", {"save_on_signal", "check_signal"}},
  _trackers = {"tracking", {"init_trackers", "get_tracker", "log", "log_images", "end_training"}},
  _processes = {"process.processes", state.methods},
}

for field, part in pairs(parts) do
  class.part(Accelerator, field, "accelhost.accelerator." .. part[1], part[2], part[3])
end

-- Files of methods without further state.
local stateless = {
  ["process.metrics"] = {"gather", "gather_for_metrics", "keep_for_metrics", "reduce", "pad_across_processes"},
  ["checkpoint.saving"] = {"save", "save_model"},
  profile = {"profile"},
  ["training.compile"] = {"compile"},
}

for file, methods in pairs(stateless) do class.methods(Accelerator, "accelhost.accelerator." .. file, methods) end

--- An accelerator, configured by how the script was launched.
--
--   accelhost.Accelerator{gradient_accumulation_steps = 4}.num_processes  --> 1
---@param device_placement? boolean models and batches go to the accelerator's device
---@param split_batches? boolean a loader's batch size is that of all processes together
---@param mixed_precision? string "bf16" or "fp16": prepared models run under autocast and return float32, weights and
--- gradients stay float32; in "fp16" losses are scaled; "fp8": as "bf16", with the products of nn.Linear in 8-bit
--- floats (TERecipeKwargs), for which a GPU needs compute capability 8.9. "no" (default): ops keep the dtypes of their
--- inputs
---@param gradient_accumulation_steps? integer micro-steps of a window, see accumulate; default 1
---@param cpu? boolean use the CPU even where there are GPUs
---@param dataloader_config? DataLoaderConfiguration|table how prepared loaders share their batches
---@param rng_types? string[] the random state that rank 0 sends to the others when a pass begins: "generator", a
--- loader's draw (default), and "torch", the state of the global generator
---@param log_with? any "tensorboard", "jsonl", "csv", the name of a registered class, "all" for all of them, an
--- object of a subclass of GeneralTracker, a plain table with a `name` and functions, or a list; see init_trackers
---@param project_dir? string folder of the run's files
---@param project_config? ProjectConfiguration|table
---@param gradient_accumulation_plugin? GradientAccumulationPlugin|table in place of gradient_accumulation_steps
---@param step_scheduler_with_optimizer? boolean a prepared scheduler steps when the optimizer does
---@param kwargs_handlers? table[] DistributedDataParallelKwargs, InitProcessGroupKwargs, AutocastKwargs,
--- GradScalerKwargs, ProfileKwargs, TERecipeKwargs, FP8RecipeKwargs
---@param even_batches? boolean fill up the last round, so that all processes have equally many
---@param bucket_cap_mb? number size of the pieces in which gradients are averaged
---@param scheduler_steps? string "optimizer": a prepared scheduler steps once with it; "per_process": as many times as
--- there are processes, as with Accelerate (once with split_batches)
---@param virtual_shards? integer cut every global batch into that many shards, each with its own random numbers, so
--- that any number of processes up to it trains to the same bits. batch_size is a shard's (with split_batches, that of
--- all together); a `for` over a loader yields a process's shards in turn, and optimizers step after the last one
---@param sharding? string the state of a prepared model that is sharded over the processes: "none" (default);
--- "optimizer", the states of optimizers (ZeRO 1); "gradients", these too (ZeRO 2); "full", the parameters too, which
--- are stored once for all processes of a host (ZeRO 3, FSDP). Steps compute the same numbers
---@param shard_units? any the unit of communication with "gradients" and "full": "blocks" (default), the items of a
--- list of modules of one class; "none"; names of modules or classes; fun(module, path): boolean; or a number, the
--- least number of parameters of a unit
---@param fsdp_plugin? FullyShardedDataParallelPlugin|table the same in Accelerate's words
---@param log_gpu? boolean log the sensors of this process's CUDA device with the other values, as `gpu` (see
--- accelhost.cuda.sensors), where there are any
---@param offload_optimizer_device? string place of a CUDA device's optimizer state with `sharding`: "none" (default),
--- the device; "cpu", pinned memory of the host, from where each step copies it to the device block by block
function Accelerator:init(...)
  local given = options.read(...)
  for name, value in pairs {
    device = place.choose(given.cpu),
    mixed_precision = given.mixed_precision,
    step_scheduler_with_optimizer = given.step_scheduler_with_optimizer,
    scheduler_steps = given.scheduler_steps,
    device_placement = given.device_placement,
    dataloader_config = given.dataloader_config,
    project_configuration = given.project_configuration,
    log_with = given.log_with,
    log_gpu = given.log_gpu,
    ddp_handler = given.ddp_handler,
    sharding = given.sharding,
    offload_optimizer_device = given.offload_optimizer_device,
    _saves_parts = given.saves_parts == true,
    _shard_units = given.shard_units or "blocks",
    _accumulation = given.accumulation,
    _sync_each_batch = given.accumulation.sync_each_batch,
    _rng_types = given.rng_types,
    _virtual_shards = false, _batch_proportions = given.share or false,
    _scaler_handler = given.scaler_handler or false,
    _autocast_handler = given.autocast_handler or false,
    _fp8_recipe = given.fp8_recipe or false,
    _profile_handler = given.profile_handler or false,
  } do
    rawset(self, name, value)
  end
  rawset(self, "_state", state.of(self))
  rawset(self, "_gradient_state", state.GradientState(self))
  if given.mixed_precision ~= "no" then self._precision:check() end
  if given.virtual_shards then
    rawset(self, "_virtual_shards", require "accelhost.accelerator.training.virtual_shards"(self, given.virtual_shards))
  end
  if given.mixed_precision == "fp16" then self._loss_scaler:reset() end -- checks the handler
end

function Accelerator:_reset_parts()
  for field in pairs(parts) do
    local made = rawget(self, field)
    if made and made.reset then made:reset() end
  end
end

return class.guard(Accelerator)
