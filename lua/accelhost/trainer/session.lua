--- One call of train: preparation, the banner, the loop, and the report at the end.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local callbacks = require "accelhost.trainer.callbacks"
local checkpoints = require "accelhost.trainer.checkpoints"
local Counts = require "accelhost.trainer.counts"
local Losses = require "accelhost.trainer.losses"
local embedding_noise = require "accelhost.trainer.embedding_noise"
local loop = require "accelhost.trainer.loop"
local memory = require "accelhost.accelerator.utils"
local model_files = require "accelhost.checkpoint.model"
local recovery = require "accelhost.trainer.recovery"
local summary = require "accelhost.trainer.summary"
local TrainerState = require "accelhost.trainer.state"

local fail = arguments.fail
local session = {}

-- Batches of a pass; nil of a stream that does not know.
local function length_of(loader)
  local fine, count = pcall(function() return #loader end)
  return fine and count or nil
end

-- Return the length of the training: updates of a pass, passes, updates in all.
local function plan(trainer)
  local args, length = trainer.args, length_of(trainer.train_dataloader)
  if length == 0 then fail "Trainer: the training set has no batch" end
  if not length then
    if args.max_steps < 0 then fail "Trainer: the training set does not know its length: pass max_steps" end
    return args.max_steps, math.huge, args.max_steps
  end
  local per_epoch = math.max(1, math.ceil(length / args.gradient_accumulation_steps))
  if args.max_steps > 0 then return per_epoch, math.ceil(args.max_steps / per_epoch), args.max_steps end
  return per_epoch, math.ceil(args.num_train_epochs), math.ceil(args.num_train_epochs * per_epoch)
end

local function total_batch(trainer)
  return trainer.batch_size * trainer.args.gradient_accumulation_steps * trainer.accelerator.num_processes
end

local function fill_state(trainer)
  local args, state = trainer.args, trainer.state
  local per_epoch, epochs, total = plan(trainer)
  trainer.steps_per_epoch = per_epoch
  trainer.batches_per_epoch = length_of(trainer.train_dataloader) or total * args.gradient_accumulation_steps
  state.num_train_epochs = epochs < math.huge and epochs or 2 ^ 31
  state.max_steps = total
  for _, name in ipairs {"logging_steps", "eval_steps", "save_steps"} do
    if args[name] then state[name] = args:interval(name, total) end
  end
  state.train_batch_size, state.total_batch_size = trainer.batch_size, total_batch(trainer)
  state.num_processes = trainer.accelerator.num_processes
end

-- The user's model may have the method as well as the library's.
local function save_memory(trainer)
  local args, model = trainer.args, trainer.model
  if not args.gradient_checkpointing then return end
  if type(model.gradient_checkpointing_enable) ~= "function" then
    fail("Trainer: gradient_checkpointing: %s has no method gradient_checkpointing_enable(options), which has its "
      .. "forward call accelhost.utils.checkpoint.checkpoint", model._name)
  end
  model:gradient_checkpointing_enable(args.gradient_checkpointing_kwargs)
end

local function prepare(trainer)
  local accelerator = trainer.accelerator
  save_memory(trainer)
  trainer.model = accelerator:prepare(trainer.model)
  trainer.train_dataloader = accelerator:prepare(trainer:get_train_dataloader())
  fill_state(trainer)
  local optimizer = trainer:create_optimizer()
  trainer.optimizer = accelerator:prepare(optimizer)
  trainer.lr_scheduler = trainer:create_scheduler(trainer.state.max_steps, optimizer)
  if trainer.args:follows_metric() then
    accelerator:register_for_checkpointing(trainer.lr_scheduler)
  else
    trainer.lr_scheduler = accelerator:prepare(trainer.lr_scheduler)
  end
  trainer.optimizer:zero_grad()
end

-- Updates of another size than before: count those that are left again, and print a line.
local function adapt(trainer, saved)
  local before, now = saved.total_batch_size, total_batch(trainer)
  trainer.state = saved
  fill_state(trainer)
  saved.is_world_process_zero = trainer.accelerator.is_main_process
  saved.is_local_process_zero = trainer.accelerator.is_local_main_process
  if before == 0 or before == now then return end
  if trainer.args.max_steps < 0 then
    local epochs = trainer.args.num_train_epochs - saved.epoch
    saved.max_steps = saved.global_step + math.max(0, math.ceil(epochs * trainer.steps_per_epoch - 1e-9))
  end
  if trainer.accelerator.is_main_process then
    io.stderr:write(("Trainer: the checkpoint counted updates of %d samples, now they have %d: %d were made, %d are to "
      .. "come\n"):format(before, now, saved.global_step, saved.max_steps - saved.global_step))
  end
end

local function resume(trainer, from)
  local saved = checkpoints.resume(trainer, from)
  adapt(trainer, saved)
  trainer.callback_handler:load_state_dict(saved.stateful_callbacks or {})
end

-- TensorBoard's tag of a logged name, as transformers writes it: eval/loss, test/loss, train/loss.
local function tag_of(name)
  local split, rest = name:match "^(%a+)_(.+)$"
  if split == "eval" or split == "test" then return split .. "/" .. rest end
  return "train/" .. name
end

local function log_kwargs(trackers)
  for _, tracker in ipairs(trackers) do
    if tracker == "tensorboard" then return {tensorboard = {tags = tag_of}} end
  end
end

local function start_trackers(trainer)
  local args = trainer.args
  if #trainer.accelerator.log_with == 0 then return end
  local config = {}
  for name, value in pairs(args:to_dict()) do
    if type(value) ~= "table" then config[name] = value end
  end
  trainer.accelerator:init_trackers(args.run_name, config)
  trainer.is_tracking, trainer.log_kwargs = true, log_kwargs(trainer.accelerator.log_with)
end

-- The weights of the best evaluation.
local function load_best(trainer)
  local best = trainer.state.best_model_checkpoint
  if not trainer.args.load_best_model_at_end or not best then return end
  model_files.load_checkpoint_in_model(trainer.model, best .. "/model.safetensors")
end

local function finish(trainer)
  local state = trainer.state
  trainer.losses:settle()
  if trainer.counts then trainer.counts:settle() end
  state.runtime = session.seconds(trainer)
  local session_seconds = math.max(1e-9, C.system.now() - trainer._began)
  local samples = trainer.accelerator:reduce(C.tensor({trainer.samples}, {dtype = "float64", device = "cpu"})):item()
  local metrics = {
    train_loss = state.loss_sum / state.loss_steps, train_runtime = state.runtime,
    train_samples_per_second = samples / session_seconds,
    train_steps_per_second = (state.global_step - trainer._first_step) / session_seconds,
    total_flos = trainer.counts and trainer.counts.model and state.total_flos or nil, -- unknown for other models
  }
  trainer:log(arguments.copy(metrics))
  load_best(trainer)
  checkpoints.finish(trainer)
  metrics.epoch = state.epoch
  return {global_step = state.global_step, training_loss = metrics.train_loss, metrics = metrics}
end

-- Report a folder that cannot be made before the first update, not after the first epoch. It is made by the first
-- checkpoint: a training that saves none leaves none.
local function check_folder(trainer)
  local folder = trainer.args.output_dir
  if trainer.args.save_strategy == "no" or not trainer.accelerator.is_main_process then return end
  if C.data.look(folder) == "folder" then return end
  local missing, above = {}, folder
  while above and above ~= "" and C.data.look(above) == nil do
    missing[#missing + 1], above = above, above:match "^(.*[^/])/+[^/]*$"
  end
  local fine, reason = C.io.make_folder(folder)
  for _, made in ipairs(missing) do
    if C.data.look(made) == "folder" then os.remove(made) end -- not where another program has written into it
  end
  if not fine then fail("Trainer: output_dir: %s", reason) end
end

-- Watch for the signals that ask for a checkpoint and the end.
local function watch_signals(trainer)
  if trainer.args.enable_jit_checkpoint then trainer.accelerator:save_on_signal() end
end

local function run(trainer, from)
  check_folder(trainer)
  prepare(trainer)
  local undo = embedding_noise.begin(trainer)
  local hook = checkpoints.attach(trainer)
  watch_signals(trainer)
  if not recovery.replaces(trainer) and from then resume(trainer, from) end
  trainer.losses = Losses(trainer.accelerator, trainer.state, trainer.args.logging_nan_inf_filter)
  trainer.counts = Counts.of(trainer)
  trainer._began, trainer._earlier = C.system.now(), trainer.state.runtime
  trainer._first_step = trainer.state.global_step
  trainer.samples = 0
  start_trackers(trainer)
  summary.banner(trainer, from)
  local handler = trainer.callback_handler
  handler:call "on_train_begin"
  if trainer.args.eval_on_start and trainer.state.global_step == 0 then trainer:evaluate() end
  local part = recovery.resume(trainer)
  loop.run(trainer)
  part.undo()
  local output = finish(trainer)
  handler:call "on_train_end"
  hook.remove()
  undo()
  trainer.accelerator:end_training()
  trainer.is_tracking = false
  summary.table(trainer, output)
  return output
end

local function halved(size) return math.floor(size / 2) end

-- Restart with a smaller batch as long as memory runs out before the first update is made.
local function run_shrinking(trainer, from)
  local train = memory.find_executable_batch_size(function(size)
    trainer.batch_size = size
    trainer.args.per_device_train_batch_size = size
    if trainer._first_step and trainer.state.global_step > trainer._first_step then
      fail("Trainer: memory ran out after %d updates: a smaller batch can only be tried from the start",
        trainer.state.global_step)
    end
    trainer.accelerator:free_memory()
    return run(trainer, from)
  end, {starting_batch_size = trainer.batch_size, reduce_batch_size_fn = halved})
  return train()
end

--- Train. A collective.
---@param from string|boolean? the checkpoint to resume from
---@return table
function session.train(trainer, from)
  local args = trainer.args
  if trainer.optimizer then -- a second training begins again, with the present model
    trainer.accelerator:free_memory()
    local main = trainer.state.is_world_process_zero
    trainer.state, trainer.control = TrainerState(), callbacks.TrainerControl()
    trainer.state.is_world_process_zero = main
    require("accelhost.accelerator.utils").set_seed(args.seed)
    if trainer.model_init then trainer.model = trainer.model_init() end
  end
  trainer.batch_size, trainer._first_step = args.per_device_train_batch_size, nil
  return args.auto_find_batch_size and run_shrinking(trainer, from) or run(trainer, from)
end

--- Seconds of this training, with those of its earlier parts.
---@return number
function session.seconds(trainer)
  if not trainer._began then return 0 end
  return trainer._earlier + C.system.now() - trainer._began
end

--- Before an evaluation outside of a training the model moves to the device, with rank 0's values.
function session.ready_to_evaluate(trainer)
  if not trainer.optimizer then trainer.model = trainer.accelerator:prepare(trainer.model) end
end

return session
