--- accelhost.optim: optimizers, learning-rate schedulers, warm-up schedules.
--
--   local optimizer = optim.AdamW(net:parameters(), {lr = 1e-3})
--   local scheduler = optim.lr_scheduler.StepLR(optimizer, {step_size = 10})
local Optimizer = require "accelhost.optim.optimizer"
local hooks = require "accelhost.optim.hooks"
local namespace = require "accelhost.util.namespace"

local optim = {
  Optimizer = Optimizer,
  is_optimizer = Optimizer.is_optimizer,
  register_optimizer_step_pre_hook = hooks.register_optimizer_step_pre_hook,
  register_optimizer_step_post_hook = hooks.register_optimizer_step_post_hook,
}

local lazy = {
  SGD = {"accelhost.optim.sgd"},
  RMSprop = {"accelhost.optim.rmsprop"},
  Adafactor = {"accelhost.optim.adafactor"},
  GreedyLR = {"accelhost.optim.greedy"},
  LBFGS = {"accelhost.optim.lbfgs"},
  Lion = {"accelhost.optim.lion"},
  Muon = {"accelhost.optim.muon"},
  lr_scheduler = {"accelhost.optim.lr_scheduler"},
  swa_utils = {"accelhost.optim.swa_utils"},
}
namespace.add(lazy, "accelhost.optim.adam", {"Adam", "AdamW"})
namespace.add(lazy, "accelhost.optim.nadam", {"NAdam", "RAdam", "Adamax"})
namespace.add(lazy, "accelhost.optim.asgd", {"ASGD", "Rprop"})
namespace.add(lazy, "accelhost.optim.adagrad", {"Adagrad", "Adadelta"})
namespace.add(lazy, "accelhost.optim.schedules", {
  "get_constant_schedule", "get_constant_schedule_with_warmup", "get_linear_schedule_with_warmup",
  "get_cosine_schedule_with_warmup", "get_cosine_with_hard_restarts_schedule_with_warmup",
  "get_polynomial_decay_schedule_with_warmup", "get_inverse_sqrt_schedule",
  "get_cosine_with_min_lr_schedule_with_warmup", "get_cosine_with_min_lr_schedule_with_warmup_lr_rate",
  "get_wsd_schedule", "get_scheduler",
})

return namespace.new("optim", optim, lazy, {refused = {
  SparseAdam = "gradients are dense here; Adam steps those of an Embedding too",
}})
