--- Pruners compared: the result of a study with the same number of training steps, the median over seeds.
--
-- usage: accelhost scripts/bench/pruners.lua [--seeds 20] [--trials 20]
--
-- Each study may train as many steps as `trials` whole trials, 27 reports of 3 steps. TPE suggests, two trials run at a
-- time, and a paused trial keeps its model. The loss is that of the best trial that was complete, on digits which the
-- study does not see.
local accelhost = require "accelhost"
package.path = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/?.lua;" .. package.path
local classifier = require "classifier"
local pruners = require "accelhost.sweep.pruners"
local samplers = require "accelhost.sweep.samplers"

local options = accelhost.parse_args {
  description = "Compares the pruners of sweeps with each other.",
  {"seeds", 20, "studies of each kind", integer = true, minimum = 1},
  {"trials", 20, "number of whole trials that a study may train", integer = true, minimum = 1},
}
local reports, steps = 27, 3

local function median(values)
  table.sort(values)
  local half = math.floor(#values / 2)
  return #values % 2 == 1 and values[half + 1] or (values[half] + values[half + 1]) / 2
end

-- One study: the loss, the numbers of begun and of complete trials.
local function study(name, seed)
  local sampler = samplers.new("tpe", seed):setup(classifier.space)
  local pruner = pruners.new(name, seed):setup()
  local begun, complete, spent, running, least, reached = 0, 0, 0, {}, math.huge, nil
  local open = {}
  local function start()
    local trial = pruner:promote()
    if not trial then
      trial = {number = begun, state = "running", reports = {}}
      trial.params = sampler:suggest(begun, open)
      trial.bracket = pruner:assign(trial)
      trial.train, trial.test = classifier.begin(trial.params, seed * 1000 + begun)
      begun, open[#open + 1] = begun + 1, trial
    end
    trial.state = "running"
    running[#running + 1] = trial
  end
  local function leave(trial, state, loss)
    trial.state = state
    for i, other in ipairs(running) do
      if other == trial then table.remove(running, i) end
    end
    if state == "paused" then return end
    for i, other in ipairs(open) do
      if other == trial then table.remove(open, i) end
    end
    pruner:finish(trial, loss)
    sampler:observe(trial, loss)
    trial.train = nil
  end
  local function step(trial)
    local loss, at = trial.train(steps), #trial.reports + 1
    spent, trial.loss, trial.reports[at] = spent + 1, loss, {step = at, value = loss}
    local answer = pruner:report(trial, at, loss)
    if at == reports then
      complete = complete + 1
      if loss < least then least, reached = loss, trial.test() end
      leave(trial, "complete", loss)
    elseif answer ~= "continue" then
      leave(trial, answer == "pause" and "paused" or "pruned", loss)
    end
  end
  while spent < options.trials * reports do
    while #running < 2 do start() end
    step(running[spent % #running + 1])
  end
  return reached, begun, complete
end

local rows = {
  {"none", "none"}, {"median", "median"}, {"percentile 25", "percentile"},
  {"ASHA, stopping", {"asha", reduction_factor = 3, max_resource = 27, stop_instead_of_pause = true}},
  {"ASHA", {"asha", reduction_factor = 3, max_resource = 27}},
  {"Hyperband", {"hyperband", max_resource = 27}},
}

print("| pruner | trials | complete | loss |\n|---|--:|--:|--:|")
for _, row in ipairs(rows) do
  local losses, begun, complete = {}, {}, {}
  for seed = 1, options.seeds do losses[seed], begun[seed], complete[seed] = study(row[2], seed) end
  print(("| %s | %g | %g | %.3g |"):format(row[1], median(begun), median(complete), median(losses)))
  io.stdout:flush()
end
