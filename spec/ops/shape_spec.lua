local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local op_fixture = require "spec.support.op_fixture"

local function ramp(...)
  local count = 1
  for _, n in ipairs {...} do count = count * n end
  local values = {}
  for k = 1, count do values[k] = k - 1 end
  return accelhost.tensor(values):reshape({...})
end

local dtypes = {"bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

describe("a shape op", function()
  op_fixture.define(require("spec.support.fixtures").load "shape", it)
end)

describe("views", function()
  it("share their tensor's memory", function()
    local x = ramp(2, 3)
    x:view(3, 2):select(0, 2):fill_(9)
    assert.same({{0, 1, 2}, {3, 9, 9}}, x:tolist())
    x:t():narrow(0, 1, 1):fill_(-1)
    assert.same({{0, -1, 2}, {3, -1, 9}}, x:tolist())
    x:diagonal():fill_(7)
    assert.same({{7, -1, 2}, {3, 7, 9}}, x:tolist())
  end)

  it("return a view from reshape where the strides allow it, and a copy elsewhere", function()
    local x = ramp(2, 3)
    assert.equal(x:data_ptr(), x:reshape(6):data_ptr())
    assert.equal(x:data_ptr(), x:t():t():reshape(3, 2):data_ptr())
    local copy = x:t():reshape(6)
    copy:fill_(0)
    assert.same({{0, 1, 2}, {3, 4, 5}}, x:tolist())
  end)

  it("carry gradients of writes through them", function()
    local x = ramp(2, 3):double():requires_grad_()
    local y = x * 2
    y:select(1, 1):mul_(10)
    y:narrow(0, 1, 1):fill_(0)
    y:backward(accelhost.ones({2, 3}, {dtype = "float64"}))
    assert.same({{2, 20, 2}, {0, 0, 0}}, x.grad:tolist())
  end)

  it("of a detached tensor share memory and version", function()
    local x = ramp(3):requires_grad_()
    local y = x:detach()
    assert.is_false(y.requires_grad)
    assert.equal(x:data_ptr(), y:data_ptr())
    local before = x._version
    y:fill_(1)
    assert.equal(before + 1, x._version)
  end)
end)

describe("chunk", function()
  it("returns as many empty chunks as requested", function()
    assert.equal(3, #accelhost.zeros(0, 2):chunk(3))
    assert.equal(3, #accelhost.zeros(2, 0):chunk(3, 1))
    assert.same({2, 0}, accelhost.zeros(2, 0):chunk(3, 1)[3]:shape())
  end)
end)

describe("squeeze", function()
  it("accepts several dims, each once", function()
    local x = accelhost.zeros(1, 2, 1, 3)
    assert.same({2, 3}, x:squeeze({0, 2}):shape())
    assert.same({2, 3}, x:squeeze():shape())
    assert.same({2, 1, 3}, x:squeeze({0, 1}):shape())
    check.raises("squeeze: dim 2 is repeated", function() x:squeeze({2, -2}) end)
  end)
end)

describe("every dtype", function()
  it("survives the copying ops", function()
    for _, dtype in ipairs(dtypes) do
      local x = accelhost.tensor({{1, 0, 1}, {0, 1, 1}}, {dtype = dtype})
      local function numbers(t) return t:to("float64"):tolist() end
      assert.equal(dtype, x:t():reshape(6).dtype)
      assert.same({1, 0, 0, 1, 1, 1}, numbers(x:t():reshape(6)))
      assert.same({{1, 0, 1, 1, 0, 1}, {0, 1, 1, 0, 1, 1}}, numbers(accelhost.cat({x, x}, 1)))
      assert.same({{1, 0, 1}, {1, 1, 0}}, numbers(x:flip(1)))
      assert.same({{1, 0, 1, 1, 0, 1}, {0, 1, 1, 0, 1, 1}}, numbers(x["repeat"](x, 1, 2)))
      assert.same({{1, 0, 1, 1, 0, 1}, {0, 1, 1, 0, 1, 1}}, numbers(x:tile(1, 2)))
    end
  end)

  it("promotes in cat and stack", function()
    local a, b = accelhost.tensor({1, 2}, {dtype = "int64"}), accelhost.tensor({0.5, 1.5})
    assert.equal("float32", accelhost.cat({a, b}).dtype)
    assert.same({1, 2, 0.5, 1.5}, accelhost.cat({a, b}):tolist())
    assert.same({{1, 0.5}, {2, 1.5}}, accelhost.stack({a, b}, 1):tolist())
    assert.same({1, 1, 0}, accelhost.cat({accelhost.tensor({1}, {dtype = "int64"}),
      accelhost.tensor({true, false})}):tolist())
  end)
end)

describe("copies large enough for tiles and threads", function()
  it("move every element to its place", function()
    local rows, columns = 300, 211
    local x = ramp(rows, columns)
    local turned = x:t():reshape({-1}):tolist()
    for k = 1, #turned, 97 do
      local column, row = math.floor((k - 1) / rows), (k - 1) % rows
      assert.equal(row * columns + column, turned[k])
    end
    local cube = x:reshape(3, 100, columns):permute(2, 0, 1):reshape({-1}):tolist()
    for k = 1, #cube, 89 do
      local column, row = math.floor((k - 1) / rows), (k - 1) % rows
      assert.equal(row * columns + column, cube[k])
    end
  end)

  it("rotate and reverse rows of any length", function()
    for _, dtype in ipairs {"uint8", "float16", "float32", "int64"} do
      for _, columns in ipairs {2, 3, 5, 600, 2100, 9001, 40000} do
        local x = accelhost.arange(12 * columns):remainder(251):to(dtype):view(12, columns)
        local places = accelhost.arange(columns)
        local turned = x:roll(2, 1)
        assert.is_true(turned:equal(x:index_select(1, (places - 2):remainder(columns))))
        assert.is_true(x:flip(1):equal(x:index_select(1, columns - 1 - places)))
        assert.is_true(x:rot90():equal(x:flip(1):t()) and x:rot90(3):equal(x:flip(0):t()))
        local part = x:narrow(1, 1, math.min(columns - 1, 3))
        assert.is_true((part + 0):equal(part:contiguous()))
      end
    end
  end)
end)

describe("cat and stack of many tensors", function()
  it("have gradients", function()
    local parts, expected = {}, {}
    for i = 1, 150 do
      parts[i] = accelhost.tensor({i}, {dtype = "float64"}):requires_grad_()
      expected[i] = i
    end
    accelhost.cat(parts):backward(accelhost.tensor(expected, {dtype = "float64"}))
    assert.equal(1, parts[1].grad:item())
    assert.equal(150, parts[150].grad:item())
    accelhost.stack(parts):backward(accelhost.tensor(expected, {dtype = "float64"}):reshape(150, 1))
    assert.equal(300, parts[150].grad:item())
  end)

  it("pass each dtype its own gradient", function()
    local a = accelhost.tensor({1, 2}):requires_grad_()
    local b = accelhost.tensor({3}, {dtype = "float64"}):requires_grad_()
    accelhost.cat({a, b}):backward(accelhost.tensor({1, 2, 3}, {dtype = "float64"}))
    assert.equal("float32", a.grad.dtype)
    assert.same({1, 2}, a.grad:tolist())
    assert.same({3}, b.grad:tolist())
  end)
end)

describe("the gradient of a view of a view", function()
  it("agrees with differences", function()
    local x = ramp(3, 4, 2):double():requires_grad_()
    gradcheck.gradcheck(function(t)
      return t:permute(2, 0, 1):select(0, 1):narrow(1, 1, 2):unsqueeze(0):expand(2, -1, -1):reshape(-1)
    end, {x})
  end)
end)

describe("a wrong shape", function()
  local x = ramp(2, 3)
  local fails = check.raises

  it("is named by view", function()
    fails("view: shape (6,) is not compatible with strides (1, 3) of (3, 2); use reshape", x:t().view, x:t(), 6)
    fails("view: shape (4, -1) does not hold the 6 elements of (2, 3)", x.view, x, 4, -1)
    fails("view: shape (-1, -1) is not valid: only one size may be -1", x.view, x, -1, -1)
    fails("view: shape (-2, 3) is not valid: sizes are -1 or not negative", x.view, x, -2, 3)
    fails("reshape: shape (7,) does not hold the 6 elements of (2, 3)", x.reshape, x, 7)
    fails("reshape: shape (0, -1) leaves the size of -1 open", x.reshape, x:narrow(0, 0, 0), 0, -1)
  end)

  it("is named by the others", function()
    fails("transpose: dim 2 is out of range (expected -2..1)", x.transpose, x, 0, 2)
    fails("permute: expected 2 dims for (2, 3), got (0,)", x.permute, x, 0)
    fails("permute: dim 0 is repeated in (0, -2)", x.permute, x, 0, -2)
    fails("t: expected at most 2 dims, got (1, 2, 3); use transpose", x.t, x:unsqueeze(0))
    fails("expand: (2, 3) does not expand to (2, 4)", x.expand, x, 2, 4)
    fails("expand: (2, 3) does not expand to (-1, 2, 3)", x.expand, x, -1, 2, 3)
    fails("select: index 3 is outside -3..2 (dim 1 of (2, 3))", x.select, x, 1, 3)
    fails("narrow: start 1 and length 3 exceed dim 1 of (2, 3)", x.narrow, x, 1, 1, 3)
    fails("flatten: start_dim 1 is after end_dim 0", x.flatten, x, 1, 0)
    fails("unflatten: sizes (2, 2) do not multiply to 3 (dim 1 of (2, 3))", x.unflatten, x, 1, {2, 2})
    fails("diagonal: expected at least 2 dims, got (3,)", x:select(0, 0).diagonal, x:select(0, 0))
    fails("repeat: expected at least 2 repeats for (2, 3), got 1", x["repeat"], x, 2)
    fails("flip: dim 1 is repeated", x.flip, x, {1, -1})
    fails("roll: 2 shifts but 1 dims", x.roll, x, {1, 1}, {0})
    fails("slice: step must be at least 1, got 0", C.slice, x, 0, 0, 2, 0)
    fails("as_strided: sizes (2, 4) with strides (3, 1) from 0 leave the storage of (2, 3)",
      C.as_strided, x, {2, 4}, {3, 1}, 0)
  end)

  it("is named where a 0-dim tensor has no such dim", function()
    local one = accelhost.ones({})
    fails("repeat_interleave: dim 2 is out of range", one.repeat_interleave, one, 1, 2)
    assert.same({1, 1}, one:repeat_interleave(2, -1):tolist())
  end)

  it("is named where its element count passes 64 bits", function()
    local long = accelhost.zeros(2 ^ 11)
    fails("repeat: (2048,) repeated (9007199254740992,) times is too large", long["repeat"], long, 2 ^ 53)
    fails("repeat_interleave: the repeats add up", long.repeat_interleave, long,
      accelhost.full({2 ^ 11}, 2 ^ 53, {dtype = "int64"}))
    local wide = accelhost.zeros({1}, {dtype = "uint8"}):expand(2 ^ 53)
    local many = {}
    for i = 1, 2 ^ 11 do many[i] = wide end
    fails("cat: dim 0 of the result is too large", accelhost.cat, many)
    fails("view: shape (4294967296, 4294967296) is too large", long.view, long, 2 ^ 32, 2 ^ 32)
    fails("unflatten: sizes (4294967296, 4294967296) do not multiply", long.unflatten, long, 0, {2 ^ 32, 2 ^ 32})
  end)

  it("does not matter to flatten of one dim, which returns the tensor itself", function()
    assert.equal(x, x:flatten(1))
    assert.equal(x, x:flatten(0, 0))
  end)

  it("is named by cat and stack", function()
    fails("cat: tensor 1 has shape (2, 2), which does not match (2, 3) outside dim 0", accelhost.cat,
      {x, x:narrow(1, 0, 2)})
    fails("cat: tensor 0 has no dims; use stack", accelhost.cat, {accelhost.tensor(1)})
    fails("cat: expected at least one tensor", accelhost.cat, {})
    fails("stack: tensor 1 has shape (3, 2), tensor 0 (2, 3)", accelhost.stack, {x, x:t()})
  end)
end)

describe("repeat_interleave of many elements", function()
  it("is index_select, whatever the dtype, the layout and the number of copies", function()
    local whole = (accelhost.arange(20 * 300) % 251):view(20, 300)
    for _, dtype in ipairs {"float32", "float64", "bfloat16", "int64", "uint8"} do
      for _, x in ipairs {whole:to(dtype), whole:to(dtype):t(), whole:to(dtype):narrow(1, 3, 250)} do
        for _, times in ipairs {0, 1, 2, 7, 9} do
          for dim = 0, 1 do
            local n = x:size(dim)
            local index = times > 0 and accelhost.arange(n * times):floor_divide(times)
              or accelhost.empty({0}, {dtype = "int64"})
            assert.is_true(accelhost.equal(x:index_select(dim, index), x:repeat_interleave(times, dim)))
          end
        end
      end
    end
  end)
end)
