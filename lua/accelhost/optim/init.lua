--- accelhost.optim: optimizers, learning-rate schedulers, warm-up schedules.
--
--   local optimizer = optim.AdamW(net:parameters(), {lr = 1e-3})
--   local scheduler = optim.lr_scheduler.StepLR(optimizer, {step_size = 10})
local Optimizer = require "accelhost.optim.optimizer"

local optim = {Optimizer = Optimizer, is_optimizer = Optimizer.is_optimizer}

-- name -> {file, field}; without a field the file's value itself
local lazy = {
  SGD = {"sgd"},
  Adam = {"adam", "Adam"},
  AdamW = {"adam", "AdamW"},
  RMSprop = {"rmsprop"},
  Adagrad = {"adagrad", "Adagrad"},
  Adadelta = {"adagrad", "Adadelta"},
  lr_scheduler = {"lr_scheduler"},
}
for _, name in ipairs {
  "get_constant_schedule", "get_constant_schedule_with_warmup", "get_linear_schedule_with_warmup",
  "get_cosine_schedule_with_warmup", "get_cosine_with_hard_restarts_schedule_with_warmup",
  "get_polynomial_decay_schedule_with_warmup", "get_inverse_sqrt_schedule",
  "get_cosine_with_min_lr_schedule_with_warmup", "get_cosine_with_min_lr_schedule_with_warmup_lr_rate",
  "get_wsd_schedule", "get_scheduler",
} do
  lazy[name] = {"schedules", name}
end

return setmetatable(optim, {
  __index = function(_, name)
    local entry = lazy[name]
    if not entry then return nil end
    local value = require("accelhost.optim." .. entry[1])
    if entry[2] then value = value[entry[2]] end
    rawset(optim, name, value)
    return value
  end,
  --- All names, for completion.
  names = function()
    local list = {"Optimizer", "is_optimizer"}
    for name in pairs(lazy) do list[#list + 1] = name end
    table.sort(list)
    return list
  end,
})
