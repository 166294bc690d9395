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
    local options = case.options or {}
    local names = {}
    for name, value in pairs(options) do
      names[#names + 1] = ("%s = %s"):format(name, tostring(value))
      if value == "inf" then options[name] = math.huge end
    end
    table.sort(names)
    local title = #names > 0 and ", with " .. table.concat(names, ", ") or ""
    it(("prints case %d, %s (%s)%s, as PyTorch does"):format(i, case.dtype, shape, title), function()
      accelhost.set_printoptions(options)
      local text = tostring(build(case))
      accelhost.set_printoptions {profile = "default"}
      assert.equal(case.text, text)
    end)
  end

  it("prints the largest numbers of a dtype with all their digits where scientific notation is off", function()
    accelhost.set_printoptions {sci_mode = false, precision = 64}
    local text = tostring(accelhost.tensor({-1.5e308, 0.5}, {dtype = "float64"}))
    accelhost.set_printoptions {profile = "default"}
    assert.matches("^tensor%(%[%-150%d+%.0+,\n +0%.50+%],\n +dtype=float64%)$", text)
  end)

  it("leaves out all items of the dims that are summarised with edgeitems = 0", function()
    accelhost.set_printoptions {edgeitems = 0, threshold = 1}
    local row, matrix = tostring(accelhost.arange(4096)), tostring(accelhost.arange(4096):reshape {64, 64})
    accelhost.set_printoptions {profile = "default"}
    assert.matches("^tensor%(%[ ?%.%.%.%]", row)
    assert.matches("^tensor%(%[ ?%.%.%.%]", matrix)
  end)

  it("refuses options out of their range and keeps the present ones", function()
    for _, options in ipairs {{precision = 65}, {precision = -1}, {edgeitems = 2 ^ 40}, {linewidth = 0},
      {profile = "long"}, {threshold = "all"}} do
      assert.is_false(pcall(accelhost.set_printoptions, options))
    end
    assert.same({precision = 4, threshold = 1000, edgeitems = 3, linewidth = 80}, accelhost.get_printoptions())
  end)

  it("leaves out the default dtype", function()
    accelhost.set_default_dtype "float64"
    local default, other = tostring(accelhost.tensor {1.5}), tostring(accelhost.tensor({1.5}, {dtype = "float32"}))
    accelhost.set_default_dtype "float32"
    assert.equal("tensor([1.5000])", default)
    assert.equal("tensor([1.5000], dtype=float32)", other)
  end)

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
