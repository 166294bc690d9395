--- The training loop: epochs, updates, and the actions that callbacks request, in transformers' order.
local C = require "accelhost._C"
local batches = require "accelhost.trainer.batches"
local callbacks = require "accelhost.trainer.callbacks"
local checkpoints = require "accelhost.trainer.checkpoints"
local warn = require "accelhost.util.warn"

local loop = {}

-- A flag that is raised on one process is raised on all.
local function agree(trainer)
  local accelerator, control = trainer.accelerator, trainer.control
  if accelerator.num_processes == 1 then return end
  local flags = {}
  for i, name in ipairs(callbacks.flags) do flags[i] = control[name] and 1 or 0 end
  local all = accelerator:reduce(C.tensor(flags, {dtype = "float32", device = "cpu"}), "max")
  for i, name in ipairs(callbacks.flags) do control[name] = all[i - 1]:item() > 0 end
end

local function log(trainer)
  local loss = trainer.losses:pop_mean()
  local logs = {learning_rate = trainer.logged_rate}
  logs.loss = loss
  local norm = trainer.logged_norm
  if norm ~= nil then logs.grad_norm = C.is_tensor(norm) and norm:item() or norm end
  trainer:log(logs, true)
end

-- Is this evaluation's metric better than all before? Then it is the one to be kept.
local function note_best(trainer, metrics)
  local args, state = trainer.args, trainer.state
  local name = args.metric_for_best_model
  if not name then return false end
  local value = metrics["eval_" .. name:gsub("^eval_", "")]
  if value == nil then
    local arguments = require "accelhost.util.arguments"
    arguments.fail("Trainer: metric_for_best_model: the evaluation has no '%s' (it has: %s)", name,
      table.concat(arguments.sorted_keys(metrics), ", "))
  end
  local before = state.best_metric or (args.greater_is_better and -math.huge or math.huge)
  local better = args.greater_is_better and value > before or not args.greater_is_better and value < before
  if better then
    state.best_metric = value
    if args.save_strategy ~= "no" then state.best_global_step = state.global_step end
  end
  return better
end

local function evaluate(trainer)
  local args, control = trainer.args, trainer.control
  local metrics = trainer:evaluate()
  local better = note_best(trainer, metrics)
  if args.save_strategy == "best" then control.should_save = better end
  if better and args.load_best_model_at_end then control.should_save = true end
  if args:follows_metric() then
    trainer.lr_scheduler:step(metrics["eval_" .. args.metric_for_best_model:gsub("^eval_", "")])
  end
end

local function save(trainer)
  local state = trainer.state
  trainer.losses:settle()
  state.runtime = trainer:seconds()
  if state.best_global_step == state.global_step then
    state.best_model_checkpoint = checkpoints.path(trainer.args.output_dir, state.global_step)
  end
  checkpoints.save(trainer)
  trainer.control.should_save = false
  trainer.callback_handler:call("on_save")
end

-- Log, evaluate and save where the flags are raised. A collective.
local function serve(trainer)
  local control = trainer.control
  agree(trainer)
  if trainer.counts and (control.should_log or control.should_evaluate or control.should_save) then
    trainer.counts:settle()
  end
  if control.should_log and trainer.losses:pending() then
    control.should_log = false
    log(trainer)
  end
  if control.should_evaluate then
    control.should_evaluate = false
    evaluate(trainer)
    agree(trainer)
  end
  if control.should_save then save(trainer) end
end
loop.serve = serve

-- Clip, step and make ready for the next update; only at the end of a window.
local function update(trainer)
  local args, accelerator, handler = trainer.args, trainer.accelerator, trainer.callback_handler
  local limit = args.max_grad_norm > 0 and args.max_grad_norm or math.huge
  if accelerator.sync_gradients then
    trainer.logged_norm = accelerator:clip_grad_norm_(trainer.model:parameters(), limit)
    trainer.logged_rate = trainer.optimizer.param_groups[1].lr
    handler:call "on_pre_optimizer_step"
  end
  trainer.optimizer:step()
  if accelerator.sync_gradients then handler:call "on_optimizer_step" end
  if not args:follows_metric() then trainer.lr_scheduler:step() end
  trainer.optimizer:zero_grad()
end

local function run_batch(trainer, inputs, weight)
  local model = trainer.model
  if not model.training then model:train() end
  local loss = trainer:training_step(model, inputs, weight)
  trainer.losses:add(loss, weight)
  if trainer.counts then trainer.counts:add(inputs) end
  update(trainer)
end

-- One batch. Alone in its mean it needs no weight and no window, and gradients are those of a plain backward to the
-- bit.
local function micro_step(trainer, inputs)
  local accelerator = trainer.accelerator
  if accelerator.num_processes == 1 and accelerator.gradient_accumulation_steps == 1 then
    return run_batch(trainer, inputs)
  end
  accelerator:accumulate(trainer.model)
  run_batch(trainer, inputs, trainer:num_items_in_batch(inputs))
end

-- A signal that asks for the end: the training ends here, with a checkpoint.
local function heed_signal(trainer)
  local name = trainer.accelerator:check_signal {save = false}
  if not name then return end
  trainer.control.should_save, trainer.control.should_training_stop = true, true
  if trainer.accelerator.is_main_process then
    warn(("Trainer: SIG%s: the training is saved and ends at step %d"):format(name, trainer.state.global_step))
  end
end

-- `done` batches of the pass are done.
local function after_update(trainer, epoch, done)
  local state, args = trainer.state, trainer.args
  state.global_step = state.global_step + 1
  state.epoch = epoch + done / trainer.batches_per_epoch
  if args.torch_empty_cache_steps and state.global_step % args.torch_empty_cache_steps == 0 then
    C.system.empty_cache()
  end
  trainer.losses:close(state.global_step)
  trainer.callback_handler:call "on_step_end"
  if args.enable_jit_checkpoint then heed_signal(trainer) end
  serve(trainer)
end

-- A pass without a batch, as of a stream that can be read only once, would be followed by others without end.
local function end_early(trainer)
  local state = trainer.state
  trainer.control.should_training_stop = true
  if trainer.accelerator.is_main_process then
    warn(("Trainer: the training set had no batch in this pass: the training ends at step %d of %d"):format(
      state.global_step, state.max_steps))
  end
end

-- The rest of a pass; `done` batches of it were done before.
local function run_epoch(trainer, epoch, done)
  local control, accelerator, handler = trainer.control, trainer.accelerator, trainer.callback_handler
  local before = done
  local loader, first = trainer.train_dataloader, true
  trainer.model:train()
  for a, b, c in loader do
    local inputs = batches.inputs(a, b, c)
    if first then
      control:new_step()
      handler:call "on_step_begin"
    end
    trainer.samples = trainer.samples + (loader.batch_length or batches.rows(inputs))
    micro_step(trainer, inputs)
    first, done = accelerator.sync_gradients, done + 1
    if first then
      after_update(trainer, epoch, done)
      if control.should_training_stop or control.should_epoch_stop then return end
    else
      handler:call "on_substep_end"
    end
  end
  if done == 0 and before == 0 then end_early(trainer) end
end

-- A training that was stopped within an epoch has not finished it.
local function end_epoch(trainer, epoch)
  local control, state = trainer.control, trainer.state
  local whole = not control.should_training_stop or state.epoch >= epoch + 1
  if whole then state.finished_epochs = epoch + 1 end
  trainer.callback_handler:call "on_epoch_end"
  serve(trainer)
end

--- Train from the position of the state and the loader until all updates are made or a callback stops it. A collective.
function loop.run(trainer)
  local state, control, loader = trainer.state, trainer.control, trainer.train_dataloader
  -- A checkpoint may have been made between the last update of an epoch and the events of its end.
  if loader.epoch > state.finished_epochs and state.global_step > 0 then end_epoch(trainer, state.finished_epochs) end
  -- Or at the end of one that a callback had cut short.
  if loader.epoch < state.finished_epochs then
    loader:load_state_dict {epoch = state.finished_epochs, position = 0}
  end
  local epoch = state.finished_epochs
  while epoch < state.num_train_epochs and state.global_step < state.max_steps and not control.should_training_stop do
    local done = math.floor((state.epoch - epoch) * trainer.batches_per_epoch + 0.5)
    control.should_epoch_stop = false
    trainer.callback_handler:call "on_epoch_begin"
    run_epoch(trainer, epoch, math.max(0, done))
    end_epoch(trainer, epoch)
    epoch = epoch + 1
  end
end

return loop
