--- The rows of TrainingArguments: {name, kind (see util/kinds), default, help}; and transformers' other arguments
--- that are not supported here, with the reason. Names and defaults are transformers'.
local optimizer = require "accelhost.trainer.optimizer"

local strategies = "'no'|'steps'|'epoch'"

local taken = {
  {"output_dir", "string", "trainer_output", "folder of checkpoints and logs"},
  -- Length of the training.
  {"num_train_epochs", "positive", 3, "passes over the training set, also a part of one"},
  {"max_steps", "integer", -1, "updates in all; above 0 it replaces num_train_epochs"},
  {"per_device_train_batch_size", "count", 8, "samples of a batch of each process"},
  {"per_device_eval_batch_size", "count", 8, "the same in evaluation"},
  {"gradient_accumulation_steps", "count", 1, "batches of each process in an update"},
  {"do_train", "flag", false, "for scripts: is train() to be called?"},
  {"do_eval", "flag", false, "for scripts: is evaluate() to be called? True with an eval_strategy"},
  {"do_predict", "flag", false, "for scripts: is predict() to be called?"},
  -- Optimizer and schedule.
  {"learning_rate", "nonnegative", 5e-5, "the rate after warm-up"},
  {"weight_decay", "nonnegative", 0, "of all parameters but biases and those of norms"},
  {"optim", "string", "adamw_torch_fused", "the optimizer: " .. table.concat(optimizer.names, ", ")},
  {"optim_args", "string", nil, "more options of it, as in momentum=0.9,nesterov=true"},
  {"adam_beta1", "nonnegative", 0.9, "of AdamW and Lion"},
  {"adam_beta2", "nonnegative", 0.999, "of AdamW and Lion"},
  {"adam_epsilon", "nonnegative", 1e-8, "of AdamW"},
  {"max_grad_norm", "nonnegative", 1, "clip gradients to this norm; 0: they stay, the norm is logged"},
  {"label_smoothing_factor", "probability", 0, "of the Trainer's own loss"},
  {"lr_scheduler_type", "string", "linear", "a name of optim.get_scheduler"},
  {"lr_scheduler_kwargs", "table|string", nil, "options of that schedule; as text: JSON"},
  {"warmup_steps", "nonnegative", 0, "updates of warm-up; below 1 a part of all"},
  -- Precision and memory.
  {"bf16", "flag", false, "mixed precision with bfloat16"},
  {"fp16", "flag", false, "mixed precision with float16"},
  {"tf32", "flag", nil, "let CUDA devices round float32 to TF32 in products and convolutions, or not"},
  {"gradient_checkpointing", "flag", false, "drop the layers' activations, compute them again in backward"},
  {"gradient_checkpointing_kwargs", "table|string", nil, "options of utils.checkpoint.checkpoint; as text: JSON"},
  {"auto_find_batch_size", "flag", false, "after running out of memory start again with a smaller batch"},
  {"activation_checkpointing", "flag", false, "the same, by its newer name"},
  {"activation_checkpointing_kwargs", "table|string", nil, "the same, by its newer name"},
  {"use_liger_kernel", "flag", false, "compute a language model's loss in chunks of tokens, without its logits "
    .. "(skip_logits); evaluation has them"},
  {"torch_empty_cache_steps", "count", nil, "updates after which the cache of memory is released"},
  {"neftune_noise_alpha", "positive", nil, "noise on the input embeddings in training (NEFTune)"},
  {"fsdp", "flag|string|list", false, "share states out among processes: full_shard, shard_grad_op; see Accelerator's "
    .. "sharding"},
  {"fsdp_config", "table|string", nil, "options of FullyShardedDataParallelPlugin; as text: JSON"},
  {"use_cpu", "flag", false, "train on the CPU, whatever the default device is"},
  -- Logging.
  {"logging_strategy", strategies, "steps", "when to log"},
  {"logging_steps", "positive", 500, "updates between two logs; below 1 a part of all"},
  {"logging_first_step", "flag", false, "log the first update too"},
  {"logging_nan_inf_filter", "flag", true, "leave non-finite losses out of the logged mean (a line reports)"},
  {"logging_dir", "string", nil, "folder of the trackers' files, default OUTPUT_DIR/logs"},
  {"disable_tqdm", "flag", false, "print logs in place of a progress bar"},
  {"report_to", "string|list", "none", "trackers: names as of Accelerator's log_with, or none"},
  {"run_name", "string", "run", "name of the run in the trackers"},
  {"include_num_input_tokens_seen", "'no'|'all'|'non_padding'|flag", "no", "count the tokens of the main input"},
  -- Evaluation.
  {"eval_strategy", strategies, "no", "when to evaluate"},
  {"eval_steps", "positive", nil, "updates between two evaluations, default logging_steps"},
  {"eval_delay", "nonnegative", 0, "epochs, or updates, before the first evaluation"},
  {"eval_on_start", "flag", false, "evaluate before the first update"},
  {"eval_accumulation_steps", "count", nil, "batches after which predictions go to the CPU's memory"},
  {"prediction_loss_only", "flag", false, "keep no predictions in evaluation"},
  {"include_for_metrics", "list", {}, "further arguments of compute_metrics: inputs, loss"},
  {"batch_eval_metrics", "flag", false, "call compute_metrics(prediction, compute_result) for each batch"},
  {"eval_do_concat_batches", "flag", true, "predictions as whole tensors; false: as lists by batch"},
  -- Checkpoints.
  {"save_strategy", "'no'|'steps'|'epoch'|'best'", "steps", "when to save"},
  {"save_steps", "positive", 500, "updates between two checkpoints; below 1 a part of all"},
  {"save_total_limit", "count", nil, "checkpoints to keep: the newest ones, and the best"},
  {"load_best_model_at_end", "flag", false, "end with the model that was best in an evaluation"},
  {"metric_for_best_model", "string", nil, "default loss"},
  {"greater_is_better", "flag", nil, "default: not where that name ends in loss"},
  {"enable_jit_checkpoint", "flag", false, "at SIGTERM or SIGUSR1 save a checkpoint and end the training"},
  {"resume_from_checkpoint", "string|flag", nil, "for scripts: the argument of train(): a checkpoint's folder, or "
    .. "true for the newest one"},
  -- Data.
  {"dataloader_num_workers", "size", 0, "processes that make the batches"},
  {"dataloader_pin_memory", "flag", true, "batches are in pinned memory if the device is a GPU"},
  {"dataloader_drop_last", "flag", false, "leave out a last batch that is not full"},
  {"dataloader_persistent_workers", "flag", false, "keep the workers between passes"},
  {"dataloader_prefetch_factor", "count", nil, "batches under way in each worker"},
  {"train_sampling_strategy", "'random'|'sequential'|'group_by_length'", "random", "the order of a pass"},
  {"length_column_name", "string", "length", "field of a sample that has its length"},
  {"label_names", "list", {"labels"}, "fields of a batch that are labels"},
  -- Seeds.
  {"seed", "size", 42, "of everything random"},
  {"data_seed", "size", nil, "of the order of the training set, default: seed"},
}

-- Arguments with some supported values: {those, reason against others}.
local fixed = {
  remove_unused_columns = {{false}, "a model gets the whole batch as one table; nothing is dropped"},
  dataloader_in_order = {{true}, "batches are in the order of the sampler"},
  average_tokens_across_devices = {{true}, "a gradient is the mean over the tokens, or samples, of all processes"},
  ignore_data_skip = {{false}, "resuming costs nothing: the loader's order is sought, not iterated"},
  restore_callback_states_from_checkpoint = {{true}, "callbacks that have a state always get it back"},
  save_only_model = {{false}, "a run resumes from a checkpoint; trainer:save_model writes the model"},
  full_determinism = {{true, false}, "results are the same each time, always"},
  eval_use_gather_object = {{true, false}, "predictions of any kind are gathered"},
  torch_compile = {{false}, "nothing is compiled here"},
  use_cache = {{false}, "generate keeps a cache, a training none"},
  skip_memory_metrics = {{true}, "accelhost.memory_stats() returns the memory"},
  ddp_find_unused_parameters = {{true}, "parameters that a step does not use are found always"},
  push_to_hub = {{false}, "there is no hub: save_model writes a folder"},
  log_on_each_node = {{true, false}, "only rank 0 writes"},
}

local hub = "there is no hub: save_model writes a folder"
local whole = "a layer is computed by one process here"
local zero = "there is no DeepSpeed here: fsdp = 'full_shard' is its ZeRO stage 3, 'shard_grad_op' stage 2"
local trackio = "report_to names a tracker of Accelerator's log_with"
local device = "accelhost.set_default_device names the device, use_cpu the CPU"
local refused = {
  hub_model_id = hub, hub_strategy = hub, hub_token = hub, hub_private_repo = hub, hub_always_push = hub,
  hub_revision = hub, trackio_space_id = trackio, trackio_bucket_id = trackio, trackio_static_space_id = trackio,
  project = trackio, deepspeed = zero, parallelism_config = whole,
  torch_compile_backend = "nothing is compiled here", torch_compile_mode = "nothing is compiled here",
  liger_kernel_config = "use_liger_kernel has one kernel here, that of the loss",
  warmup_ratio = "warmup_steps below 1 is a part of all updates",
  evaluation_strategy = "its name is eval_strategy", group_by_length = "train_sampling_strategy = 'group_by_length'",
  include_inputs_for_metrics = "include_for_metrics = {'inputs'}", no_cuda = device,
  bf16_full_eval = "model:to{dtype = 'bfloat16'} does it",
  fp16_full_eval = "model:to{dtype = 'float16'} does it",
  optim_target_modules = "gradients are not projected to low ranks here",
  accelerator_config = "the Accelerator is made of the other arguments",
  dataloader_multiprocessing_context = "workers are forked processes",
  local_rank = "launch sets each process's rank",
  ddp_backend = "launch chooses the transport", ddp_timeout = "ACCELHOST_TIMEOUT sets it",
  ddp_bucket_cap_mb = "launch's defaults hold", ddp_static_graph = "graphs may change from step to step",
  ddp_broadcast_buffers = "buffers are those of rank 0", log_level = "accelhost.logging.set_verbosity sets it",
  log_level_replica = "only rank 0 writes", save_on_each_node = "rank 0 writes the shared files",
  debug = "accelhost.autograd.set_detect_anomaly finds the op that made a NaN",
  lr_find = "sweeps try rates: accelhost sweep",
}

return {taken = taken, fixed = fixed, refused = refused}
