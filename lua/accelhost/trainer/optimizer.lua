--- The default optimizer and schedule of a Trainer.
local Adafactor = require "accelhost.optim.adafactor"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local optim = require "accelhost.optim"

local fail = arguments.fail
local made = {}

-- transformers' Adafactor with scale_parameter and relative_step off: the rate is the learning rate, and 1e-30 is added
-- to squares.
local PlainAdafactor = Adafactor:extend "Adafactor"
function PlainAdafactor:rate(_, _, _, lr) return lr end -- luacheck: ignore self

local function adam(args) return {betas = {args.adam_beta1, args.adam_beta2}, eps = args.adam_epsilon} end
local function betas(args) return {betas = {args.adam_beta1, args.adam_beta2}} end

-- name -> {class in optim, options that the arguments set, those that optim_args may set}
local by_name = {
  adamw_torch = {"AdamW", adam, {"amsgrad"}},
  adamw_torch_fused = {"AdamW", adam, {"amsgrad"}},
  adam = {"Adam", adam, {"amsgrad"}},
  adamax = {"Adamax", adam, {}},
  nadam = {"NAdam", adam, {"momentum_decay", "decoupled_weight_decay"}},
  radam = {"RAdam", adam, {"decoupled_weight_decay"}},
  adafactor = {PlainAdafactor, function() return {eps = {1e-15, 1e-3}} end, {"beta2_decay", "d"}},
  adagrad = {"Adagrad", nil, {"lr_decay", "eps", "initial_accumulator_value"}},
  adadelta = {"Adadelta", nil, {"rho", "eps"}},
  asgd = {"ASGD", nil, {"lambd", "alpha", "t0"}},
  lion_32bit = {"Lion", betas, {}},
  rmsprop = {"RMSprop", nil, {"momentum", "alpha", "eps", "centered"}},
  sgd = {"SGD", nil, {"momentum", "dampening", "nesterov"}},
}
by_name.lion = by_name.lion_32bit

--- The names that `optim` may have.
made.names = arguments.sorted_keys(by_name)

local own = "it is not built in; pass optimizers = {your_optimizer} to the Trainer"
local bits, projected = "states are float32 here", "gradients are not projected to low ranks here"
local layers = "steps are made after backward, for all parameters at once"
--- Names that `optim` may not have: {how they begin, the reason}.
made.refused = {
  {"adamw_torch_xla", "its name is adamw_torch"}, {"adamw_torch_npu", "its name is adamw_torch"},
  {"adamw_anyprecision", bits}, {"adamw_torch_4bit", bits}, {"adamw_torch_8bit", bits}, {"adamw_bnb", bits},
  {"adamw_8bit", bits}, {"lion_8bit", bits}, {"rmsprop_bnb", bits}, {"paged_", "states are not paged here"},
  {"galore", projected}, {"apollo", projected}, {"lomo", layers}, {"adalomo", layers}, {"schedule_free", own},
  {"ademamix", own}, {"stable_adamw", own}, {"grokadamw", own},
  {"muon", "optim.Muon steps matrices alone; pass optimizers = {your_optimizer} to the Trainer"},
  {"rprop", "optim.Rprop is made for whole data sets, not for batches"},
  {"lbfgs", "a step of optim.LBFGS evaluates the loss many times; write the loop with an Accelerator"},
}

-- One value of optim_args: true, false or a number.
local function value_of(text)
  local word = text:lower()
  if word == "true" or word == "yes" then return true end
  if word == "false" or word == "no" then return false end
  return tonumber(text)
end

--- Parse optim_args as options of an optimizer: "momentum=0.9,nesterov=true".
function made.options(args)
  local options, allowed = {}, {}
  for _, name in ipairs(by_name[args.optim][3]) do allowed[name] = true end
  local known = arguments.sorted_keys(allowed)
  for part in (args.optim_args or ""):gsub("%s", ""):gmatch "[^,]+" do
    local name, text = part:match "^([^=]+)=(.+)$"
    local value = text and value_of(text)
    if value == nil then
      fail("TrainingArguments: optim_args: expected NAME=NUMBER,... (or true, false), got '%s'", part)
    end
    if not allowed[name] then
      fail("TrainingArguments: optim_args: %s has no '%s' (known: %s)%s", args.optim, name, table.concat(known, ", "),
        arguments.did_you_mean(name, known))
    end
    options[name] = value
  end
  return options
end

-- Parameters without weight decay, by transformers' name patterns.
local spared_names = {"bias", "layernorm", "rmsnorm", "%f[^%.%z]norm%f[%.%z]", "_norm%f[%.%z]"}

local function is_spared(name)
  name = name:lower()
  for _, pattern in ipairs(spared_names) do
    if name:find(pattern) then return true end
  end
  return false
end

-- Weights decay; biases, and parameters of LayerNorm or with "norm" in their names do not. Without decay there is one
-- group.
local function groups_of(model, decay)
  local LayerNorm = require("accelhost.nn").LayerNorm
  local trained, spared = {}, {}
  for _, module in ipairs(model:modules()) do
    local norms = class.is(module, LayerNorm) and module:parameters() or {}
    for _, parameter in ipairs(norms) do spared[parameter] = true end
  end
  local decaying, others = {}, {}
  for name, parameter in model:named_parameters() do
    if parameter.requires_grad then
      trained[#trained + 1] = parameter
      local list = (spared[parameter] or is_spared(name)) and others or decaying
      list[#list + 1] = parameter
    end
  end
  if #trained == 0 then fail "Trainer: the model has no parameters to train" end
  if decay == 0 or #others == 0 or #decaying == 0 then return trained, #decaying == 0 and 0 or decay end
  return {{params = decaying, weight_decay = decay}, {params = others, weight_decay = 0}}, decay
end

--- Check and return a Trainer's `optimizers`.
---@param pair table?
---@param model_init function?
---@return table
function made.given(pair, model_init)
  if pair == nil then return {} end
  if not optim.is_optimizer(pair[1]) then
    fail("Trainer: optimizers: expected {optimizer, schedule}, got %s first", arguments.describe(pair[1]))
  end
  if pair[2] ~= nil and not optim.lr_scheduler.is_scheduler(pair[2]) then
    fail("Trainer: optimizers: expected {optimizer, schedule}, got %s second", arguments.describe(pair[2]))
  end
  if model_init then
    fail("Trainer: optimizers: they hold no parameters of model_init's model; pass model, or override "
      .. "create_optimizer")
  end
  return pair
end

--- An optimizer that was given, which has to hold parameters of the model.
---@return Optimizer
function made.check(optimizer, model)
  local trained = {}
  for _, parameter in ipairs(model:parameters()) do trained[parameter] = true end
  for _, group in ipairs(optimizer.param_groups) do
    for _, parameter in ipairs(group.params) do
      if trained[parameter] then return optimizer end
    end
  end
  return fail("Trainer: optimizers: the %s holds no parameter of the model", optimizer._name)
end

--- The optimizer that the arguments name.
---@return Optimizer
function made.optimizer(model, args)
  local row = by_name[args.optim]
  local options = row[2] and row[2](args) or {}
  for name, value in pairs(made.options(args)) do options[name] = value end
  options.lr = args.learning_rate
  local parameters, decay = groups_of(model, args.weight_decay)
  options.weight_decay = decay
  local Class = type(row[1]) == "string" and optim[row[1]] or row[1]
  return Class(parameters, options)
end

--- The schedule that they name.
---@param total integer updates in all
---@return LRScheduler
function made.scheduler(optimizer, args, total)
  local extra = arguments.copy(args.lr_scheduler_kwargs)
  if args:follows_metric() then
    extra = extra or {}
    if extra.mode == nil and args.greater_is_better then extra.mode = "max" end
  end
  return optim.get_scheduler(args.lr_scheduler_type, optimizer, {
    num_warmup_steps = args:interval("warmup_steps", total), num_training_steps = total,
    scheduler_specific_kwargs = extra,
  })
end

return made
