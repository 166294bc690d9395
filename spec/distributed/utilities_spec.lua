-- Gathering objects, choosing the process that works, and the order of steps.
local checks = require "spec.support.checks"

checks.describe("An accelerator's helpers", "spec/distributed/cases/utilities.lua", {1, 2, 3, 4},
  {allow = "scheduler:step%(%) before optimizer:step"})

describe("Processes whose tensors do not fit", function()
  local run = require "spec.support.run"
  it("time out after the script's timeout", function()
    local result = run.host({"launch", "--num_processes", 2, "-e", [[
      local accelhost = require "accelhost"
      local kwargs = accelhost.InitProcessGroupKwargs{timeout = 1}
      local accelerator = accelhost.Accelerator{kwargs_handlers = {kwargs}}
      if accelerator.process_index == 1 then os.execute "sleep 20" end
      accelerator:wait_for_everyone()]]}, {timeout = 30})
    assert.equal(4, result.code, result.output)
    assert.matches("timed out after 1 s", result.stderr)
  end)

  for name, call in pairs {
    reduce = "accelerator:reduce(accelhost.ones(2 + rank))", broadcast = "utils.broadcast(accelhost.ones(2 + rank))",
    gather = "accelerator:gather(accelhost.ones(2, 2 + rank))",
    pad = "accelerator:pad_across_processes(rank == 0 and accelhost.ones(2) or accelhost.ones(2, 2), 1)",
  } do
    it("hear so instead of waiting: " .. name, function()
      local result = run.host({"launch", "--num_processes", 2, "-e", [[
        local accelhost = require "accelhost"
        local accelerator, utils = accelhost.accelerator, accelhost.utils
        local rank = accelerator.process_index ]] .. call .. " accelerator:wait_for_everyone()"}, {timeout = 30})
      assert.equal(3, result.code, result.output)
      assert.matches("differs: rank 0 .* rank 1 ", result.stderr)
    end)
  end
end)
