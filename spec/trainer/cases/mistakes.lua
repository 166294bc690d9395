-- A small training that a spec starts with one mistake, or none, as selected by the first word.
local accelhost = require "accelhost"
local nn, F, data, optim = accelhost.nn, accelhost.nn.functional, accelhost.data, accelhost.optim

local which, from = arg[1], arg[2]
accelhost.manual_seed(1)
local x = accelhost.randn(40, 4)
local set = data.TensorDataset(x, x:sum(1):gt(0):to "int64")
local model = nn.Linear(4, 2)

local function loss(outputs, labels) return F.cross_entropy(outputs, labels) end

local function boom(_, _, state)
  if state.global_step == 2 then error "boom" end
end

-- Each has the differences from a plain training: options of the Trainer, and under args of its arguments.
local cases = {
  evaluation = {eval_dataset = set, args = {eval_strategy = "epoch"}},
  bar = {eval_dataset = set, args = {eval_strategy = "epoch", disable_tqdm = false, logging_steps = 5}},
  saves = {args = {save_strategy = "epoch", resume_from_checkpoint = from}},
  raises = {callbacks = {{on_step_end = boom}}},
  raises_on_1 = {callbacks = {{on_step_end = accelhost.PartialState().process_index == 1 and boom or nil}}},
  labels = {train_dataset = data.TensorDataset(x)},
  empty = {eval_dataset = data.Subset(set, 0, 0), args = {eval_strategy = "epoch"}},
  emptytrain = {train_dataset = data.Subset(set, 0, 0)},
  noloss = {compute_loss_func = false},
  nilloss = {compute_loss_func = false, compute_loss = function() end},
  vecloss = {compute_loss_func = false, compute_loss = function(net, inputs) return net(inputs.inputs) end},
  dataset = {train_dataset = x},
  evalname = {eval_dataset = "set"},
  evalnames = {eval_dataset = {first = set, second = "set"}},
  metrics = {eval_dataset = set, compute_metrics = function() return "good" end, args = {eval_strategy = "epoch"}},
  optim = {optimizers = {optim.SGD({x:clone()}, {lr = 1})}},
  optimkind = {optimizers = {3}},
  optiminit = {model = false, model_init = function() return model end, optimizers = {optim.SGD(model:parameters())}},
  schedule = {args = {lr_scheduler_type = "linea"}},
  frozen = {model = nn.Linear(4, 2):requires_grad_(false)},
  folder = {args = {output_dir = "/proc/none", save_strategy = "epoch"}},
  best = {eval_dataset = set, args = {eval_strategy = "epoch", metric_for_best_model = "f1"}},
  callback = {callbacks = {3}},
  resume = {args = {resume_from_checkpoint = "nowhere"}},
  nan = {compute_loss_func = function(outputs, labels) return loss(outputs, labels) * (0 / 0) end},
}

local given = assert(cases[which], "no such case")
local args = {disable_tqdm = true, output_dir = "run", num_train_epochs = 2, save_strategy = "no"}
for name, value in pairs(given.args or {}) do args[name] = value end
given.args = args
if given.model == nil then given.model = model end
if given.model == false then given.model = nil end
given.train_dataset = given.train_dataset or set
if given.compute_loss_func == nil then given.compute_loss_func = loss end
if given.compute_loss_func == false then given.compute_loss_func = nil end
accelhost.Trainer(given):train(args.resume_from_checkpoint)
