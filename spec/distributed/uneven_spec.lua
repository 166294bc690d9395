-- A gradient is the mean over the samples of all processes, whatever each one's share.
local checks = require "spec.support.checks"
local run = require "spec.support.run"

checks.describe("A job with batches of unequal sizes", "spec/distributed/cases/uneven.lua", {1, 2, 3})

-- A join in which rank 1 has two batches more than rank 0, as a job of two processes.
local function join(body)
  local script = ([[
    local accelhost = require "accelhost"
    local accelerator = accelhost.Accelerator()
    local model = accelerator:prepare(accelhost.nn.Linear(2, 1))
    local rank = accelerator.process_index
    accelerator:join_uneven_inputs({model}, function()
      for step = 1, 1 + 2 * rank do %s end
    end)
  ]]):format(body)
  return run.host({"launch", "--num_processes", 2, "--timeout", 5, "-e", script}, {timeout = 60})
end

describe("A join of uneven inputs", function()
  it("ends when a process fails while another has completed, and names it", function()
    local result = join [[if step == 2 then error "lost" end accelerator:backward(model(accelhost.ones(4, 2)):sum())]]
    assert.equal(3, result.code, result.output)
    assert.matches("rank 1 failed", result.stderr, nil, true)
    assert.matches("lost", result.stderr, nil, true)
  end)

  it("ends when a process makes another collective in it, and reports both", function()
    local result = join "accelerator:backward(model(accelhost.ones(4, 2)):sum()) accelerator:gather(accelhost.ones(1))"
    assert.equal(3, result.code, result.output)
    assert.matches("differs: rank 0 all_gather int64 (2,) at -e:5", result.stderr, nil, true)
    assert.matches("rank 1 all_gather int64 () in gather at -e:6", result.stderr, nil, true)
  end)
end)
