--- The op case table with inputs copied to "far" one by one while the default device is the CPU: results and gradients
-- are stored where the inputs are and equal the CPU's to the bit.
local ops = require "spec.support.ops"

-- Computed by several ops where a device has no kernel: the last bits differ from those of the CPU's kernel.
local by_ops = {group_norm = 1e-12}

local function equal(what, expected, got, tolerance)
  assert.equal("far:0", got.device, what)
  assert.equal(expected.dtype, got.dtype, what)
  local a, b = ops.flat(expected), ops.flat(got)
  assert.equal(#a, #b, what)
  for k, value in ipairs(a) do
    local near = tolerance and math.abs(value - b[k]) <= tolerance
    if value ~= b[k] and not near and (value == value or b[k] == b[k]) then
      error(("%s: element %d: %s on the CPU, %s on far"):format(what, k - 1, tostring(value), tostring(b[k])), 0)
    end
  end
end

-- Their tensors are read as numbers: the result is on the default device, as in PyTorch.
local reads_numbers = {["linspace, tensors"] = true, ["logspace, tensors"] = true}

for _, case in ipairs(ops.cases) do
  if #case.inputs > 0 and not reads_numbers[case.name] then
    it("op " .. case.name .. " returns the CPU's results where its inputs are", function()
      local here = ops.inputs(case, {grad = true})
      local there = ops.moved(here, "far")
      local expected, got = ops.call(case, here), ops.call(case, there)
      for i, output in ipairs(expected) do equal("output " .. i, output, got[i], by_ops[case.name]) end
      if not case.grads then return end
      ops.backward(expected)
      ops.backward(got)
      for i in ipairs(case.grads) do
        local gradient = here[i].grad
        if gradient then equal("gradient of input " .. i, gradient, there[i].grad, by_ops[case.name]) end
      end
    end)
  end
end
