local run = require "spec.support.run"

describe("the kernels of a processor", function()
  -- A portable build has three levels, another one the processor's own.
  local function kernels(level)
    local result = run.program({run.path, "env"}, {env = {ACCELHOST_CPU = level}})
    return result.code == 0 and result.stdout:match "\nkernels +for ([^\n]+)" or result.stderr
  end

  it("are those that ACCELHOST_CPU names, where the program has them", function()
    if kernels(false) == "one processor, that of the build (make ARCH=portable: for all)" then
      assert.matches("^accelhost: ACCELHOST_CPU=v2: this program was built for one processor ", kernels "v2")
      return
    end
    assert.equal("x86-64-v2", kernels "v2")
    assert.equal("accelhost: ACCELHOST_CPU: expected v2, v3 or v4, got 'v9'\n", kernels "v9")
    for _, level in ipairs {"v3", "v4"} do
      local answer = kernels(level)
      assert.truthy(answer == "x86-64-" .. level or
        answer:find("ACCELHOST_CPU=" .. level .. ": this processor lacks features of that level", 1, true), answer)
    end
  end)
end)
