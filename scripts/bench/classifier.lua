--- A small network that is really trained, on few digits, whose parameters scripts/bench/sweep.lua and pruners.lua
--- search. Its loss is noisy, since it is evaluated on few digits too.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local classifier = {}

local function float(name, low, high, log) return {name = name, kind = "float", low = low, high = high, log = log} end

--- Its parameters.
classifier.space = {
  float("decay", 1e-6, 1, true), float("lr", 1e-5, 1, true),
  {name = "momentum", kind = "float", low = 0, high = 0.99, when = {name = "optimizer", values = {"sgd"}}},
  {name = "optimizer", kind = "categorical", choices = {"sgd", "adam"}},
  {name = "width", kind = "int", low = 4, high = 64, log = true},
}

local digits

-- Load the digits once, as a loader would: images as rows of float32, and labels.
local function load_digits()
  local function take(set) return set.data:float():div(255):sub(0.13):div(0.31):flatten(1), set.targets end
  digits = {}
  digits.images, digits.labels = take(data.SyntheticDigits {size = 512})
  digits.few_images, digits.few_labels = take(data.SyntheticDigits {size = 128, seed = 1})
  digits.many_images, digits.many_labels = take(data.SyntheticDigits {size = 2000, seed = 2})
end

local function make_optimizer(params, model)
  local shared = {lr = params.lr, weight_decay = params.decay}
  if params.optimizer == "adam" then return optim.AdamW(model:parameters(), shared) end
  shared.momentum = params.momentum
  return optim.SGD(model:parameters(), shared)
end

local function loss_on(model, images, labels)
  return accelhost.no_grad(function() return F.cross_entropy(model(images), labels):item() end)
end

--- Begin to train one.
---@param params table<string, any>
---@param seed integer
---@return fun(steps: integer): number train continues for `steps` steps and returns the loss on few digits
---@return fun(): number test the loss on many others, the result
function classifier.begin(params, seed)
  if not digits then load_digits() end
  accelhost.manual_seed(seed)
  local model = nn.Sequential(nn.Linear(784, params.width), nn.ReLU(), nn.Linear(params.width, 10))
  local optimizer, at = make_optimizer(params, model), 0
  local function train(steps)
    for _ = 1, steps do
      local rows = at * 32 % 512
      local loss = F.cross_entropy(model(digits.images:narrow(0, rows, 32)), digits.labels:narrow(0, rows, 32))
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
      at = at + 1
    end
    return loss_on(model, digits.few_images, digits.few_labels)
  end
  return train, function() return loss_on(model, digits.many_images, digits.many_labels) end
end

return classifier
