local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"

local F, nn = accelhost.nn.functional, accelhost.nn

local function row(mode, left, right)
  return F.pad(accelhost.arange(5):view(1, 5), {left, right}, {mode = mode}):tolist()[1]
end

describe("pad", function()
  it("copies its edges from the input: mirrored, repeated or from the other end", function()
    assert.same({2, 1, 0, 1, 2, 3, 4, 3}, row("reflect", 2, 1))
    assert.same({0, 0, 0, 1, 2, 3, 4, 4}, row("replicate", 2, 1))
    assert.same({3, 4, 0, 1, 2, 3, 4, 0}, row("circular", 2, 1))
  end)

  it("copies rows of every length between the edges", function()
    for _, dtype in ipairs {"float32", "uint8", "float64"} do
      for n = 2, 300, dtype == "float32" and 1 or 13 do
        local x = (accelhost.arange(3 * n) % 251):view(3, n):to(dtype)
        local first, last = x:narrow(1, 1, 1), x:narrow(1, n - 2, 1)
        assert.is_true(accelhost.cat({first, x, last}, 1):equal(F.pad(x, {1, 1}, {mode = "reflect"})), dtype .. n)
      end
    end
  end)

  it("cuts where a number is negative", function()
    assert.same({1, 2, 3, 4, 4}, row("replicate", -1, 1))
    assert.same({0, 1, 2}, row("constant", 0, -2))
  end)

  it("has gradients of every mode", function()
    for _, mode in ipairs {"constant", "reflect", "replicate", "circular"} do
      local x = accelhost.randn({2, 3, 4}, {dtype = "float64"}):requires_grad_()
      local function pad(t) return F.pad(t, {1, 2, 2, -1}, {mode = mode}) end
      gradcheck.gradcheck(pad, {x})
      gradcheck.gradgradcheck(function(t) return pad(t * t) end, {x})
    end
  end)

  it("has the same values whatever the dtype, the layout and the number of dims", function()
    local place = {
      reflect = function(p, n) return p < 0 and -p or p < n and p or 2 * (n - 1) - p end,
      replicate = function(p, n) return math.max(0, math.min(p, n - 1)) end,
      -- Elements that negative numbers cut off are no part of the circle.
      circular = function(p, n, left, right)
        local first, last = math.max(-left, 0), n - math.max(-right, 0)
        return first + (p - first) % (last - first)
      end,
    }
    local function picked(x, dim, left, right, mode)
      local index = {}
      for p = -left, x:size(dim) - 1 + right do index[#index + 1] = place[mode](p, x:size(dim), left, right) end
      return x:index_select(dim, accelhost.tensor(index, {dtype = "int64"}))
    end
    for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"} do
      local whole = (accelhost.arange(2 * 3 * 4 * 5 * 3) % 7):view(2, 3, 4, 5, 3):to(dtype)
      for mode in pairs(place) do
        local wanted = picked(picked(picked(whole, 4, 2, -1, mode), 3, -1, 3, mode), 2, 1, 2, mode)
        assert.is_true(accelhost.equal(wanted, F.pad(whole, {2, -1, -1, 3, 1, 2}, {mode = mode})), dtype .. mode)
        local turned = whole:transpose(2, 4):contiguous():transpose(2, 4)
        assert.is_true(accelhost.equal(wanted, F.pad(turned, {2, -1, -1, 3, 1, 2}, {mode = mode})))
      end
      for _, value in ipairs {0, 1} do
        local wanted = accelhost.full({2, 3, 7, 7, 4}, value):to(dtype)
        wanted:narrow(2, 1, 4):narrow(3, 0, 4):narrow(4, 2, 2):copy_(whole:narrow(3, 1, 4):narrow(4, 0, 2))
        for _, x in ipairs {whole, whole:transpose(2, 4):contiguous():transpose(2, 4),
            whole:transpose(0, 2):contiguous():transpose(0, 2)} do
          assert.is_true(accelhost.equal(wanted, F.pad(x, {2, -1, -1, 3, 1, 2}, {value = value})), dtype)
        end
      end
      local framed = F.pad(whole, {1, -1, 0, 2}, {value = 1})
      assert.same({2, 3, 4, 7, 3}, {unpack(framed:shape())})
      assert.is_true(accelhost.equal(whole:narrow(4, 0, 2), framed:narrow(3, 0, 5):narrow(4, 1, 2)))
      assert.is_true(framed:narrow(3, 5, 2):to "float64":eq(1):all():item())
      assert.is_true(framed:select(4, 0):to "float64":eq(1):all():item())
    end
  end)

  it("makes something of nothing, and a new tensor where nothing is added", function()
    assert.same({{7, 7}}, F.pad(accelhost.empty(1, 0), {1, 1}, {value = 7}):tolist())
    assert.equal(0, F.pad(accelhost.ones(2, 3), {-1, -2}):numel())
    assert.equal(4, F.pad(accelhost.tensor(4), {}):item())
    local x = accelhost.ones(3)
    F.pad(x, {0, 0}):zero_()
    assert.equal(3, x:sum():item())
    check.raises("pad: -6 and 3 cut more than dim 0 of size 3 has", function() F.pad(x, {-6, 3}) end)
  end)

  it("reports which edge cannot be made", function()
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

  it("'same' of an even kernel pads the larger half at the end", function()
    local layer = nn.Conv1d(1, 1, 4, {padding = "same", dtype = "float64"})
    local x = accelhost.randn({2, 1, 6}, {dtype = "float64"})
    assert.is_true(layer(x):allclose(F.conv1d(F.pad(x, {1, 2}), layer.weight, layer.bias)))
  end)
end)
