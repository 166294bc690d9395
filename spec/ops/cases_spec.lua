local ops = require "spec.support.ops"

local function expect_outputs(case, outputs, options)
  assert.equal(#case.outputs, #outputs)
  for i, description in ipairs(case.outputs) do
    ops.expect("output " .. i, description, outputs[i], options)
  end
end

local function expect_grads(case, inputs, options)
  for i, description in ipairs(case.grads) do
    if description then
      assert(inputs[i].grad, "input " .. i .. " got no gradient")
      ops.expect("gradient of input " .. i, description, inputs[i].grad, options)
    end
  end
end

local function has_floats(case)
  for _, description in ipairs(case.inputs) do
    if description[1] == "float64" then return true end
  end
  return false
end

local double = {tolerance = 1e-12}
local double_gradient = {tolerance = 1e-11}
local single = {tolerance = 4e-6, dtype = "float32"}

for _, case in ipairs(ops.cases) do
  local exact = case.tol and {tolerance = case.tol} or double

  describe("op " .. case.name, function()
    it("returns PyTorch's numbers", function()
      expect_outputs(case, ops.call(case, ops.inputs(case)), exact)
    end)

    if case.grads then
      it("computes PyTorch's gradients", function()
        local inputs = ops.inputs(case, {grad = true})
        ops.backward(ops.call(case, inputs))
        expect_grads(case, inputs, double_gradient)
      end)
    end

    if has_floats(case) and case.only ~= "float64" then
      it("computes them in float32", function()
        expect_outputs(case, ops.call(case, ops.inputs(case, {dtype = "float32"})), single)
      end)
    end

    if #case.inputs > 0 and ops.any_layout(case) then
      it("accepts inputs that are not contiguous", function()
        local inputs = ops.inputs(case, {layout = "strided", grad = true})
        local outputs = ops.call(case, inputs)
        expect_outputs(case, outputs, exact)
        if case.grads then
          ops.backward(outputs)
          expect_grads(case, inputs, double_gradient)
        end
      end)
    end

    if case.inplace then
      it("writes them in place", function()
        local inputs = ops.inputs(case)
        local result = ops.call_inplace(case, inputs)
        assert.equal(inputs[1], result)
        expect_outputs(case, {inputs[1]}, exact)
      end)

      if case.grads then
        it("computes gradients through the in-place form", function()
          local inputs = ops.inputs(case, {grad = true})
          local leaf = inputs[1]
          local called = {unpack(inputs)}
          called[1] = leaf:clone()
          ops.backward({ops.call_inplace(case, called)})
          expect_grads(case, inputs, double_gradient)
        end)
      end
    end
  end)
end
