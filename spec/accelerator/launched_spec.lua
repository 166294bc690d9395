-- Settings of the launcher and of the script.
local run = require "spec.support.run"

local function script(text, env)
  return run.host({"-e", "local accelhost = require 'accelhost' " .. text}, {timeout = 20, env = env})
end

describe("an accelerator", function()
  local show = "local a = accelhost.Accelerator() print(a.gradient_accumulation_steps, a.mixed_precision, a.device)"

  it("uses the launcher's value where the script sets none", function()
    assert.equal("1\tno\tcpu\n", script(show).stdout)
    local env = {ACCELHOST_GRADIENT_ACCUMULATION_STEPS = "4", ACCELHOST_USE_CPU = "true",
      ACCELHOST_MIXED_PRECISION = "no"}
    assert.equal("4\tno\tcpu\n", script("accelhost.set_default_device 'cpu' " .. show, env).stdout)
    assert.equal("3\tno\tcpu\n", script(show, {ACCELERATE_GRADIENT_ACCUMULATION_STEPS = "3"}).stdout)
    local result = run.host({"launch", "--num_processes", 2, "--gradient_accumulation_steps", 5, "-e",
      "local accelhost = require 'accelhost' " .. show}, {timeout = 20})
    assert.same(run.everyone(2, "5\tno\tcpu\n"), run.by_rank(result.stdout), result.output)
  end)

  it("uses the script's value where both set one, and reports the difference", function()
    local result = script("print(accelhost.Accelerator{gradient_accumulation_steps = 2}.gradient_accumulation_steps)",
      {ACCELHOST_GRADIENT_ACCUMULATION_STEPS = "4"})
    assert.equal("2\n", result.stdout)
    assert.equal("warning: Accelerator: the script sets gradient_accumulation_steps = 2; 4 from " ..
      "ACCELHOST_GRADIENT_ACCUMULATION_STEPS is ignored (-e:1)\n", result.stderr)
    assert.equal("", script("accelhost.Accelerator{gradient_accumulation_steps = 4}",
      {ACCELHOST_GRADIENT_ACCUMULATION_STEPS = "4"}).stderr)
  end)

  it("names the variable with a value that it cannot use", function()
    for text, line in pairs {
      ["0"] = "Accelerator: gradient_accumulation_steps (from ACCELHOST_GRADIENT_ACCUMULATION_STEPS): expected",
      ["many"] = "Accelerator: gradient_accumulation_steps (from ACCELHOST_GRADIENT_ACCUMULATION_STEPS): expected",
    } do
      local result = script(show, {ACCELHOST_GRADIENT_ACCUMULATION_STEPS = text})
      assert.equal(1, result.code)
      assert.truthy(result.stderr:find(line, 1, true), result.stderr)
    end
    local result = script(show, {ACCELHOST_MIXED_PRECISION = "fp7"})
    assert.truthy(result.stderr:find("Accelerator: unknown mixed_precision (from ACCELHOST_MIXED_PRECISION) 'fp7'", 1,
      true), result.stderr)
  end)
end)
