local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"

local F, nn = accelhost.nn.functional, accelhost.nn

local function row(mode, left, right)
  return F.pad(accelhost.arange(5):view(1, 5), {left, right}, {mode = mode}):tolist()[1]
end

describe("pad", function()
  it("takes its edges from the input: mirrored, repeated or from the other end", function()
    assert.same({2, 1, 0, 1, 2, 3, 4, 3}, row("reflect", 2, 1))
    assert.same({0, 0, 0, 1, 2, 3, 4, 4}, row("replicate", 2, 1))
    assert.same({3, 4, 0, 1, 2, 3, 4, 0}, row("circular", 2, 1))
  end)

  it("cuts where a number is negative", function()
    assert.same({1, 2, 3, 4, 4}, row("replicate", -1, 1))
    assert.same({0, 1, 2}, row("constant", 0, -2))
  end)

  it("has gradients of every mode", function()
    for _, mode in ipairs {"constant", "reflect", "replicate", "circular"} do
      local x = accelhost.randn({2, 3, 4}, {dtype = "float64"}):requires_grad_()
      gradcheck.gradcheck(function(t) return F.pad(t, {1, 2, 2, -1}, {mode = mode}) end, {x})
    end
  end)

  it("says which edge cannot be made", function()
    check.raises("pad: mode 'reflect' can add at most 4 to dim 1 of size 5, got 5", function() row("reflect", 5, 0) end)
    check.raises("pad: mode 'circular' can add at most 5 to dim 1 of size 5, got 6", function()
      row("circular", 0, 6)
    end)
    check.raises("pad: -3 and -3 cut more than dim 1 of size 5 has", function() row("replicate", -3, -3) end)
    check.raises("mode 'reflect' pads all but the first or the first two dims, got 2 numbers for 4 dims", function()
      F.pad(accelhost.zeros(1, 1, 4, 4), {1, 1}, {mode = "reflect"})
    end)
  end)
end)

describe("A convolution's padding", function()
  it("of another mode is that of pad", function()
    local layer = nn.Conv2d(2, 3, 3, {padding = {1, 2}, padding_mode = "circular", dtype = "float64"})
    local x = accelhost.randn({2, 2, 4, 5}, {dtype = "float64"})
    local wanted = F.conv2d(F.pad(x, {2, 2, 1, 1}, {mode = "circular"}), layer.weight, layer.bias)
    assert.is_true(layer(x):allclose(wanted))
    assert.equal("Conv2d(2, 3, kernel_size=(3, 3), stride=(1, 1), padding=(1, 2), padding_mode=circular)",
      tostring(layer))
  end)

  it("'same' of an even kernel puts the larger half behind", function()
    local layer = nn.Conv1d(1, 1, 4, {padding = "same", dtype = "float64"})
    local x = accelhost.randn({2, 1, 6}, {dtype = "float64"})
    assert.is_true(layer(x):allclose(F.conv1d(F.pad(x, {1, 2}), layer.weight, layer.bias)))
  end)
end)
