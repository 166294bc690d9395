--- Studies as tables, for specs of a sweep's tables and pages.
local studies = {}

-- A repeatable stream of numbers from 0 to 1.
local function stream(seed)
  return function()
    seed = (seed * 16807 + 11) % 2147483647
    return seed / 2147483647
  end
end

--- A space with a parameter of each kind.
---@return table[]
function studies.space()
  return {
    {name = "layers", kind = "int", low = 1, high = 4},
    {name = "momentum", kind = "float", low = 0, high = 0.99, when = {name = "optimizer", values = {"sgd"}}},
    {name = "optim.lr", kind = "float", low = 1e-5, high = 1, log = true},
    {name = "optimizer", kind = "categorical", choices = {"adamw", "sgd", "muon"}},
  }
end

local function params_of(draw)
  local kinds = {"adamw", "sgd", "muon"}
  local params = {
    layers = 1 + math.floor(draw() * 4), ["optim.lr"] = 10 ^ (-5 + 5 * draw()),
    optimizer = kinds[1 + math.floor(draw() * 3)],
  }
  if params.optimizer == "sgd" then params.momentum = draw() * 0.99 end
  return params
end

local function goal_of(params, draw)
  return 0.02 + 0.05 * (math.log10(params["optim.lr"]) + 3) ^ 2 + 0.02 * (params.layers - 3) ^ 2
    + (params.optimizer == "sgd" and 0.1 or 0) + 0.02 * draw()
end

--- A study of some trials, run in two slots, one in three stopped early, one in fifteen failed, none drawn by chance.
---@param count integer
---@param options? {steps?: integer, seed?: integer}
---@return table
function studies.make(count, options)
  options = options or {}
  local draw, steps, free = stream(options.seed or 7), options.steps or 10, {1000, 1000}
  local study = {
    name = "digits", direction = "minimize", metric = "loss", space = studies.space(), trials = {}, sampler = "tpe",
    pruner = "asha", started = 1000, command = "accelhost sweep digits.lua -n " .. count, directory = "runs/digits",
  }
  for number = 0, count - 1 do
    local params = params_of(draw)
    local goal, slot = goal_of(params, draw), free[1] <= free[2] and 1 or 2
    local trial = {
      number = number, state = "complete", params = params, reports = {}, started = free[slot], slot = slot - 1,
      directory = ("trials/%04d"):format(number), attempt = 1,
    }
    local last = number % 3 == 2 and math.max(1, math.floor(steps / 3)) or steps
    if number % 15 == 13 then
      trial.state, trial.error, last = "failed", "train.lua:7: matmul: inner sizes differ\nstack traceback:\n...", 2
    elseif number % 3 == 2 then
      trial.state = "pruned"
    end
    for step = 1, last do
      trial.reports[step] = {step = step, value = goal + math.exp(-step * 5 / steps) + 0.01 * draw()}
    end
    if trial.state == "complete" then trial.value = trial.reports[last].value end
    trial.ended = trial.started + 0.5 + last
    free[slot] = trial.ended
    study.trials[number + 1] = trial
  end
  return study
end

return studies
