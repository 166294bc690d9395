--- The report of a training: the banner before it and the table after it, on rank 0.
local summary = {}

local function grouped(number)
  local text = ("%d"):format(number):reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (text:gsub("^,", ""))
end

local function parameters_of(model)
  local count = 0
  for _, parameter in ipairs(model:parameters()) do
    if parameter.requires_grad then count = count + parameter:numel() end
  end
  return count
end

local function length_of(set)
  local fine, count = pcall(function() return set:len() end)
  return fine and grouped(count) or "unknown"
end

--- Print the plan of a training.
---@param from string|boolean?
function summary.banner(trainer, from)
  if not trainer.accelerator.is_main_process then return end
  local state, args = trainer.state, trainer.args
  local lines = {
    {"Num examples", length_of(trainer.train_dataset or {})},
    {"Num Epochs", state.num_train_epochs < 2 ^ 31 and grouped(state.num_train_epochs) or "unknown"},
    {"Num update steps per epoch", grouped(trainer.steps_per_epoch)},
    {"Instantaneous batch size per device", grouped(trainer.batch_size)},
    {"Total train batch size (w. parallel, distributed & accumulation)", grouped(state.total_batch_size)},
    {"Gradient Accumulation steps", grouped(args.gradient_accumulation_steps)},
    {"Total optimization steps", grouped(state.max_steps)},
    {"Seed", args.seed},
    {"Number of trainable parameters", grouped(parameters_of(trainer.model))},
  }
  print "***** Running training *****"
  for _, line in ipairs(lines) do print(("  %s = %s"):format(line[1], line[2])) end
  if from then print(("  Continuing from epoch %.2f, global step %d"):format(state.epoch, state.global_step)) end
end

local function duration(seconds)
  return ("%d:%02d:%04.1f"):format(math.floor(seconds / 3600), math.floor(seconds / 60) % 60, seconds % 60)
end

--- Print the results.
---@param output table
function summary.table(trainer, output)
  if not trainer.accelerator.is_main_process then return end
  local state, metrics = trainer.state, output.metrics
  print "***** Training done *****"
  print(("  steps %s of %s, epoch %.2f, %s"):format(grouped(state.global_step), grouped(state.max_steps), state.epoch,
    duration(metrics.train_runtime)))
  print(("  mean loss %.4f, %.1f samples/s, %.2f steps/s"):format(metrics.train_loss,
    metrics.train_samples_per_second, metrics.train_steps_per_second))
  if state.best_metric then
    print(("  best %s %.6g%s%s"):format(trainer.args.metric_for_best_model, state.best_metric,
      state.best_global_step and (" at step %d"):format(state.best_global_step) or "",
      state.best_model_checkpoint and " (" .. state.best_model_checkpoint .. ")" or ""))
  end
end

return summary
