--- Products and convolutions in bfloat16, by the processor's instructions and through float32.
local run = require "spec.support.run"

-- Forward and both gradients in bfloat16 against those in float32 of the same (rounded) numbers.
local script = [[
local accelhost = require "accelhost"
local F = accelhost.nn.functional
accelhost.manual_seed(0)
local function check(title, fn, ...)
  local wide, half = {}, {}
  for i, tensor in ipairs {...} do
    local rounded = tensor:to "bfloat16"
    half[i], wide[i] = rounded:clone():requires_grad_(), rounded:to "float32":requires_grad_()
  end
  local expected, got = fn(unpack(wide)), fn(unpack(half))
  local grad = accelhost.randn(expected:shape()):to "bfloat16"
  expected:backward(grad:to "float32")
  got:backward(grad)
  local function compare(name, a, b)
    assert(b.dtype == "bfloat16", name .. " is " .. b.dtype)
    local off = (a - b:to "float32"):abs():max():item() / math.max(1, a:abs():max():item())
    assert(off < 0.008, ("%s of %s: off by %g"):format(name, title, off))
  end
  compare("result", expected, got)
  for i, tensor in ipairs(wide) do compare("gradient " .. i, tensor.grad, half[i].grad) end
end
local r = accelhost.randn
check("linear", F.linear, r(33, 70), r(20, 70), r(20))
check("linear without bias", F.linear, r(2, 3, 70), r(20, 70))
check("matmul", accelhost.matmul, r(33, 70), r(70, 9))
check("a product of transposes", function(a, b) return a:t():matmul(b:t()) end, r(70, 33), r(9, 70))
check("batches", accelhost.matmul, r(4, 3, 17, 8), r(3, 8, 5))
for _, options in ipairs {{stride = 1}, {padding = 1}, {stride = 2}, {dilation = 2}, {groups = 2, padding = {1, 0}}} do
  local per = 8 / (options.groups or 1)
  check("conv2d", function(x, w, b) return F.conv2d(x, w, b, options) end, r(3, 8, 12, 11), r(16, per, 3, 3), r(16))
end
check("conv2d of one channel", F.conv2d, r(3, 1, 12, 11), r(16, 1, 3, 3), r(16))
check("conv2d of one image", F.conv2d, r(8, 12, 11), r(16, 8, 3, 3))
check("conv2d of pixels", F.conv2d, r(3, 8, 1, 1), r(16, 8, 1, 1))
check("conv_transpose2d", F.conv_transpose2d, r(3, 8, 7, 6), r(8, 4, 3, 3))
print "fine"
]]

describe("bfloat16", function()
  for _, way in ipairs {"native", "float32"} do
    it(("is right with ACCELHOST_BF16=%s"):format(way), function()
      local result = run.host({"-e", script}, {timeout = 60, env = {ACCELHOST_BF16 = way}})
      run.prints("fine\n", result)
    end)
  end

  it("is described by accelhost env", function()
    local function told(way)
      local result = run.program({run.path, "env"}, {timeout = 20, env = {ACCELHOST_BF16 = way}})
      return result.stdout:match "\nbf16 kernels +([^\n]+)"
    end
    assert.matches("^through float32", told "float32")
    local native = told "native"
    assert.is_true(native == "amx_bf16" or native == "avx512_bf16" or native == "arm_bf16"
      or native:find "^through float32 %(" ~= nil, native)
    local chosen = told(false)
    if native == "arm_bf16" then assert.equal("arm_bf16 (bfdot, bfmmla; convolutions through float32)", chosen) end
  end)
end)
