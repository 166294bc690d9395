--- The seed of a script that does not call manual_seed.
local run = require "spec.support.run"

local CODE = [[local accelhost = require "accelhost" print(accelhost.initial_seed(), accelhost.rand(1):item())]]

local function alone(seed) return run.host({"-e", CODE}, {env = {ACCELHOST_SEED = seed}}) end

describe("An unseeded run", function()
  it("draws other numbers than the run before", function()
    local first, second = alone(false), alone(false)
    assert.equal(0, first.code, first.output)
    assert.equal(0, second.code, second.output)
    assert.not_equal(first.stdout, second.stdout)
  end)

  it("is repeated by ACCELHOST_SEED with the seed that it printed", function()
    local drawn = alone(false)
    local seed = drawn.stdout:match "^(%d+)%s"
    assert.truthy(seed, drawn.output)
    assert.equal(drawn.stdout, alone(seed).stdout)
  end)

  it("has one seed for all ranks of a job on this machine, and another one in the next job", function()
    local function job()
      local result = run.host({"launch", "--num_processes", "2", "-e", CODE}, {env = {ACCELHOST_SEED = false}})
      assert.equal(0, result.code, result.output)
      local said = run.by_rank(result.stdout)
      assert.equal(said[0], said[1])
      return said[0]
    end
    assert.not_equal(job(), job())
  end)

  it("seeds as manual_seed does", function()
    local seeded = run.host {"-e", [[require "accelhost".manual_seed(7) ]] .. CODE}
    assert.equal(seeded.stdout, alone("7").stdout)
  end)

  it("does not start with a seed that is none", function()
    for _, text in ipairs {"-1", "1.5", "x", "9007199254740992", " 1"} do
      local result = alone(text)
      assert.equal(1, result.code)
      assert.matches(("ACCELHOST_SEED: expected an integer from 0 to 2^53 - 1, got '%s'"):format(text), result.stderr,
        1, true)
    end
  end)
end)
