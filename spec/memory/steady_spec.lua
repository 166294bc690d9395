local run = require "spec.support.run"

local function measure(words)
  local result = run.host(words, {timeout = 120})
  assert.equal("", result.stderr)
  local values = {}
  for name, value in result.stdout:gmatch("(%S+)%s+(%S+)\n") do values[name] = tonumber(value) end
  return values
end

describe("BasicNet on 60,000 images in two processes", function()
  it("stays under 120 MB above the data set's bytes in every rank", function()
    local result = run.host({"launch", "--num_processes", 2, "spec/memory/cases/peak.lua"}, {timeout = 120})
    assert.equal("", result.stderr)
    assert.is_true(tonumber(result.stdout) < 120e6, result.stdout .. " bytes")
  end)
end)

describe("a training step in the steady state", function()
  it("asks the system for no memory and has under 10 page faults", function()
    local values = measure {"spec/memory/cases/steady.lua", "basicnet", 20, 30}
    assert.equal(0, values.allocations_per_step)
    assert.is_true(values.faults_of_the_median_step < 10, values.faults_of_the_median_step .. " page faults a step")
    assert.is_true(values.growth < 2 * 2 ^ 20, values.growth .. " bytes")
  end)

  it("does not grow the ranks of a CNN between step 1,000 and 10,000 in two processes", function()
    local values = measure {"launch", "--num_processes", 2, "spec/memory/cases/steady.lua", "cnn", 1000, 9000}
    assert.is_true(values.growth < 2 * 2 ^ 20, values.growth .. " bytes")
  end)

  -- The collections of some 250 steps each, and Lua's own, meet at all distances within the first 3,000 steps.
  for _, jit in ipairs {"on", "off"} do
    it("does not grow the process between step 3,000 and 12,000, with the JIT " .. jit, function()
      local values = measure {"--jit=" .. jit, "spec/memory/cases/steady.lua", "mlp", 3000, 9000}
      assert.is_true(values.growth < 2 * 2 ^ 20, values.growth .. " bytes")
    end)
  end
end)
