--- The optimizer and schedule that a Trainer makes when it is given none.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local optim = require "accelhost.optim"

local made = {}

-- name -> what makes it of parameters and the arguments
local function adamw(parameters, args, decay)
  return optim.AdamW(parameters, {
    lr = args.learning_rate, betas = {args.adam_beta1, args.adam_beta2}, eps = args.adam_epsilon, weight_decay = decay,
  })
end

local function plain(name)
  return function(parameters, args, decay)
    return optim[name](parameters, {lr = args.learning_rate, weight_decay = decay})
  end
end

local by_name = {
  adamw_torch = adamw, adamw_torch_fused = adamw, sgd = plain "SGD", adagrad = plain "Adagrad",
  rmsprop = plain "RMSprop",
  lion = function(parameters, args, decay)
    return optim.Lion(parameters, {
      lr = args.learning_rate, betas = {args.adam_beta1, args.adam_beta2}, weight_decay = decay,
    })
  end,
}

local function is_norm(module)
  local kind = class.of(module)
  return kind ~= nil and kind._name:find "Norm" ~= nil
end

-- Weights decay; biases and the parameters of norms do not. Where nothing decays there is one group.
local function groups_of(model, decay)
  local trained, spared = {}, {}
  for _, module in ipairs(model:modules()) do
    for _, parameter in ipairs(is_norm(module) and module:parameters() or {}) do spared[parameter] = true end
  end
  local decaying, others = {}, {}
  for name, parameter in model:named_parameters() do
    if parameter.requires_grad then
      trained[#trained + 1] = parameter
      local own = spared[parameter] or name:find "bias" or name:lower():find "norm"
      local list = own and others or decaying
      list[#list + 1] = parameter
    end
  end
  if #trained == 0 then arguments.fail "Trainer: the model has no parameters to train" end
  if decay == 0 or #others == 0 or #decaying == 0 then return trained, #decaying == 0 and 0 or decay end
  return {{params = decaying, weight_decay = decay}, {params = others, weight_decay = 0}}, decay
end

--- The optimizer that the arguments name.
---@param model Module
---@param args TrainingArguments
---@return Optimizer
function made.optimizer(model, args)
  local parameters, decay = groups_of(model, args.weight_decay)
  return by_name[args.optim](parameters, args, decay)
end

--- The schedule that they name.
---@param optimizer Optimizer
---@param args TrainingArguments
---@param total integer updates in all
---@return LRScheduler
function made.scheduler(optimizer, args, total)
  local extra = arguments.copy(args.lr_scheduler_kwargs)
  if args.lr_scheduler_type == "reduce_lr_on_plateau" then
    extra = extra or {}
    if extra.mode == nil and args.greater_is_better then extra.mode = "max" end
  end
  return optim.get_scheduler(args.lr_scheduler_type, optimizer, {
    num_warmup_steps = args:interval("warmup_steps", total), num_training_steps = total,
    scheduler_specific_kwargs = extra,
  })
end

return made
