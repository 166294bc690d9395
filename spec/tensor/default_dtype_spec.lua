-- set_default_dtype: the dtype of tensors made of numbers, of constructors, and of floating results of integers, as
-- PyTorch 2.15 has it.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local nn = accelhost.nn

local function with(dtype, fn)
  accelhost.set_default_dtype(dtype)
  local ok, message = pcall(fn)
  accelhost.set_default_dtype "float32"
  assert.is_true(ok, message)
end

local whole = accelhost.tensor({1, 4}, {dtype = "int64"})

describe("The default dtype", function()
  it("is float32 until it is set", function()
    assert.equal("float32", accelhost.get_default_dtype())
    assert.equal("float32", accelhost.zeros(1).dtype)
  end)

  for _, dtype in ipairs {"float64", "float16", "bfloat16"} do
    it("is the dtype of tensors made of numbers, when it is " .. dtype, function()
      with(dtype, function()
        local made = {
          tensor = accelhost.tensor {1, 2.5}, nested = accelhost.tensor {{1}, {2}}, scalar = accelhost.tensor(3),
          empty = accelhost.empty(2), zeros = accelhost.zeros(2), ones = accelhost.ones(2),
          full = accelhost.full({1}, 2), rand = accelhost.rand(2), randn = accelhost.randn(2), eye = accelhost.eye(2),
          linspace = accelhost.linspace(0, 1, 3), arange = accelhost.arange(0, 1, 0.5),
          window = accelhost.hann_window(4), quotient = whole / 2, product = whole * 0.5, root = whole:sqrt(),
          logsumexp = whole:logsumexp(0), weight = nn.Linear(2, 2).weight, buffer = nn.BatchNorm1d(2).running_mean,
        }
        for name, tensor in pairs(made) do assert.equal(dtype, tensor.dtype, name) end
        assert.equal(dtype, accelhost.get_default_dtype())
        assert.equal(dtype, accelhost.result_type(whole, 0.5))
        assert.equal(accelhost.finfo(dtype).eps, accelhost.finfo().eps)
      end)
    end)
  end

  it("changes neither a named dtype nor that of integers and booleans", function()
    with("float64", function()
      assert.equal("float32", accelhost.zeros(2, {dtype = "float32"}).dtype)
      assert.equal("float32", accelhost.tensor({1}, {dtype = "float32"}):mul(0.5).dtype)
      assert.equal("int64", accelhost.arange(3).dtype)
      assert.equal("int64", (whole + 1).dtype)
      assert.equal("bool", accelhost.tensor({true}).dtype)
      assert.equal("float32", accelhost.zeros_like(accelhost.zeros(1, {dtype = "float32"})).dtype)
    end)
  end)

  it("is inherited by processes that the script launches", function()
    with("float64", function()
      assert.equal("float64", accelhost.launcher(function() return accelhost.zeros(1).dtype end))
    end)
  end)

  it("is a floating one", function()
    check.raises("set_default_dtype: d: expected a floating dtype, got int64", function()
      accelhost.set_default_dtype "int64"
    end)
    check.raises("expected a dtype name such as \"float32\", got 'flaot32'", function()
      accelhost.set_default_dtype "flaot32"
    end)
    assert.equal("float32", accelhost.get_default_dtype())
  end)
end)

describe("inference_mode", function()
  it("runs a function without recording gradients and returns its results", function()
    local w = accelhost.ones(2, {requires_grad = true})
    local doubled, text = accelhost.inference_mode(function(x) return x * 2, "two" end, w)
    assert.is_false(doubled.requires_grad)
    assert.equal("two", text)
    assert.is_true((w * 2).requires_grad)
  end)
end)
