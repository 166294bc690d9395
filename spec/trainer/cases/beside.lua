-- The trainings of fixture.two in the processes that a spec starts: rank 0 writes the results of each to the file that
-- the first argument names; the second is a folder for their checkpoints.
local accelhost = require "accelhost"
local fixture = require("spec.support.fixtures").load "trainer"
local trainings = require "spec.support.trainings"

local found = {}
for i, case in ipairs(fixture.two) do
  local trainer, output, seen = trainings.run(fixture.base, case, ("%s/%d"):format(arg[2], i))
  found[i] = {
    history = accelhost.json.array(trainer.state.log_history), events = table.concat(seen, " "),
    loss = output.training_loss, step = output.global_step, best = trainer.state.best_model_checkpoint,
    weights = trainer.model.two.weight:reshape(-1):tolist(),
  }
end
if accelhost.PartialState().is_main_process then
  local file = assert(io.open(arg[1], "w"))
  file:write(accelhost.json.encode(found))
  file:close()
end
