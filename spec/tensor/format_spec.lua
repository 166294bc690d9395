local accelhost = require "accelhost"
local cases = require("spec.support.fixtures").read "format"

local function build(case)
  local values = case.values
  if case.ramp then
    values = {}
    for k = 1, case.ramp[1] do values[k] = (k - 1) * case.ramp[2] + case.ramp[3] end
  end
  return accelhost.tensor(values, {dtype = case.dtype}):reshape(case.shape)
end

describe("tostring(tensor)", function()
  for i, case in ipairs(cases) do
    local shape = table.concat(case.shape, ", ")
    it(("prints case %d, %s (%s), as PyTorch does"):format(i, case.dtype, shape), function()
      assert.equal(case.text, tostring(build(case)))
    end)
  end

  it("prints a view by its own order", function()
    local t = accelhost.tensor {{1, 2}, {3, 4}}
    assert.equal("tensor([[1., 3.],\n        [2., 4.]])", tostring(t:t()))
    assert.equal("tensor([2., 4.])", tostring(t:select(1, 1)))
  end)

  it("names requires_grad and grad_fn", function()
    local t = accelhost.tensor({1, 2}):requires_grad_()
    assert.equal("tensor([1., 2.], requires_grad=true)", tostring(t))
    assert.matches("^tensor%(%[2%., 4%.%], grad_fn=<.+>%)$", tostring(t * 2))
  end)

  it("starts a new line for a suffix that does not fit", function()
    local t = accelhost.zeros(24):requires_grad_()
    assert.matches("0%.%],\n       requires_grad=true%)$", tostring(t))
  end)
end)
