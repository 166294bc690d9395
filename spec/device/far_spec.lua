--- Devices as a script uses them, on "far" (far_device.c): two devices whose memory the host cannot read.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local run = require "spec.support.run"

local far = {device = "far"}

describe("a device's name", function()
  it("names the first of its type, or one by index", function()
    assert.equal("far:0", accelhost.ones({2}, far).device)
    assert.equal("far:1", accelhost.ones({2}, {device = "far:1"}).device)
    assert.equal("cpu", accelhost.ones({2}, {device = "cpu"}).device)
    assert.equal(2, accelhost.device_count "far")
    assert.equal(1, accelhost.device_count "cpu")
    assert.equal(0, accelhost.device_count "nowhere")
  end)

  it("that does not exist is an error which has the reason", function()
    check.raises('device "nowhere": accelhost-nowhere.so is not here (searched: ', function()
      accelhost.ones({2}, {device = "nowhere:1"})
    end)
    check.raises('device "far:2": there are 2 of this kind', function() accelhost.ones({2}, {device = "far:2"}) end)
    check.raises('device "cpu:1": there is 1 of this kind', function() accelhost.ones(2):to "cpu:1" end)
    check.raises('device: expected a name such as "cpu" or "cuda:0", got "far:x"', function()
      accelhost.zeros(2):to {device = "far:x"}
    end)
    check.raises("zeros: argument 3 (device): expected the name of a device, got number", function()
      accelhost.zeros({2}, {device = 1})
    end)
  end)

  it("is checked by each function that accepts one", function()
    check.raises("to: unknown dtype 'xpu' (known: float32 ", function() accelhost.ones(1):to "xpu" end)
    check.raises(", and there is no such device", function() accelhost.ones(1):to "xpu" end)
    check.raises('set_default_device: device: expected the name of a device', function()
      accelhost.set_default_device(3)
    end)
    check.raises("set_default_device: device: expected the name of a device such as", function()
      accelhost.set_default_device()
    end)
    check.raises("device_count: type: expected ", function() accelhost.device_count {} end)
    check.raises('synchronize: device: expected the name of a device', function() accelhost.synchronize {} end)
  end)

  it("of a plugin with another op table is refused", function()
    local result = run.script([[print(pcall(require("accelhost").ones, {2}, {device = "far"}))]],
      {env = {ACCELHOST_FAR_TABLE = "add(input:O, other:O)"}})
    assert.matches('device "far:0": accelhost%-far.so was built with another op table', result.output)
  end)

  it("of a plugin with another interface is refused", function()
    check.raises('device "old": ', function() accelhost.ones({2}, {device = "old"}) end)
    check.raises("has interface 0, this program ", function() accelhost.ones({2}, {device = "old"}) end)
    assert.equal(0, accelhost.device_count "old")
  end)
end)

describe("a tensor of a dtype without arithmetic", function()
  it("is moved to a device, viewed there and moved back; its kernels refuse it by name", function()
    for _, dtype in ipairs {"int8", "int16", "uint16", "uint32", "uint64"} do
      local x = accelhost.arange(6, {dtype = dtype, device = "cpu"})
      local there = x:to "far"
      assert.equal("far:0", there.device)
      assert.is_true(there:view(2, 3)[1]:cpu():equal(x[{{3, 6}}]))
      assert.equal(("tensor([0, 1, 2, 3, 4, 5], device='far:0', dtype=%s)"):format(dtype), tostring(there))
      for _, run_on in ipairs {
        function() return there:clone() end, function() return there:to "float32" end,
        function() return there:eq(there) end, function() return accelhost.cat {there, there} end,
        function() return there:zero_() end,
        function() return accelhost.zeros({2}, {dtype = dtype, device = "far"}) end,
      } do
        check.raises("no kernel on far:0 for dtypes without arithmetic", run_on)
      end
      assert.is_true(there:cpu():equal(x))
    end
  end)
end)

describe("every constructor", function()
  it("makes its tensor on the device that is asked for", function()
    local like = accelhost.ones(2, 2)
    local made = {
      accelhost.empty({2}, far), accelhost.zeros({2}, far), accelhost.ones({2}, far), accelhost.full({2}, 3, far),
      accelhost.rand({2}, far), accelhost.randn({2}, far), accelhost.randint(0, 5, {2}, far),
      accelhost.randperm(4, far), accelhost.arange(4, far), accelhost.linspace(0, 1, 3, far), accelhost.eye(3, far),
      accelhost.empty_like(like, far), accelhost.zeros_like(like, far), accelhost.ones_like(like, far),
      accelhost.full_like(like, 3, far), accelhost.rand_like(like, far), accelhost.randn_like(like, far),
      accelhost.tensor({1, 2}, far), accelhost.tensor(like, far),
    }
    for i, tensor in ipairs(made) do assert.equal("far:0", tensor.device, "constructor " .. i) end
  end)

  it("makes it on the default device otherwise, and like another tensor where it has one", function()
    accelhost.set_default_device "far:1"
    local fine, message = pcall(function()
      assert.equal("far:1", accelhost.get_default_device())
      assert.equal("far:1", accelhost.zeros(2).device)
      assert.equal("far:1", accelhost.tensor({1}).device)
      assert.equal("cpu", accelhost.ones_like(accelhost.ones({2}, {device = "cpu"})).device)
      assert.equal("cpu", accelhost.tensor(accelhost.ones({2}, {device = "cpu"})).device)
    end)
    accelhost.set_default_device "cpu"
    assert(fine, message)
    assert.equal("far:0", accelhost.ones({2}, far):new_zeros(3).device)
    assert.equal("far:0", accelhost.ones({2}, far):new_full({3}, 1).device)
  end)
end)

describe("to", function()
  it("copies between any two devices and back, whatever the layout", function()
    local values = accelhost.arange(24):view(2, 3, 4)
    local views = {values, values:transpose(0, 2), values:select(1, 1), values:expand(2, 2, 3, 4), values[{{}, {1}}]}
    for _, view in ipairs(views) do
      local there = view:to "far"
      assert.equal("far:0", there.device)
      assert.same(view:tolist(), there:tolist())
      local beside = there:to "far:1"
      assert.equal("far:1", beside.device)
      assert.is_true(beside:cpu():equal(view))
      assert.is_true(there:transpose(0, -1):cpu():equal(view:transpose(0, -1)))
    end
    assert.same({}, accelhost.zeros(0):to("far"):tolist())
  end)

  it("returns the tensor itself where it is already so", function()
    local there = accelhost.ones({2}, far)
    assert.equal(there, there:to "far")
    assert.equal(there, there:to {device = "far:0", dtype = "float32"})
    local here = accelhost.ones(2)
    assert.equal(here, here:cpu())
  end)

  it("accepts a dtype with the device, and both of another tensor", function()
    local other = accelhost.ones({1}, {dtype = "float64", device = "far:1"})
    for _, moved in ipairs {
      accelhost.ones(2):to("far:1", "float64"), accelhost.ones(2):to {dtype = "float64", device = "far:1"},
      accelhost.ones(2):to(other),
    } do
      assert.equal("far:1", moved.device)
      assert.equal("float64", moved.dtype)
    end
    assert.equal("far:0", accelhost.ones({2}, far):to("float64").device)
    assert.equal("far:0", accelhost.ones({2}, far):half().device)
  end)

  it("carries gradients back to where the tensor was", function()
    local x = accelhost.tensor({1, 2}, {requires_grad = true})
    local there = x:to "far"
    assert.is_true(there.requires_grad);
    (there * there):sum():to("far:1"):backward()
    assert.equal("cpu", x.grad.device)
    assert.same({2, 4}, x.grad:tolist())
  end)

  it("writes into a tensor of another device by copy_, with gradients", function()
    local x = accelhost.tensor({{1, 2}, {3, 4}}, {requires_grad = true})
    local y = accelhost.zeros({2, 2}, far)
    y:copy_(x:t())
    assert.same({{1, 3}, {2, 4}}, y:tolist())
    y:mul_(accelhost.tensor({{1, 2}, {3, 4}}, far))
    y:sum():backward()
    assert.same({{1, 3}, {2, 4}}, x.grad:tolist())
  end)
end)

describe("ops", function()
  it("refuse tensors of several devices and name both", function()
    local here, there = accelhost.ones(2), accelhost.ones({2}, far)
    check.raises("add: expected all tensors on one device, got cpu and far:0", function() return here + there end)
    check.raises("add: expected all tensors on one device, got far:0 and far:1", function()
      return there + there:to "far:1"
    end)
    check.raises("cat: expected all tensors on one device, got far:0 and cpu", function()
      return accelhost.cat {there, here}
    end)
    check.raises("matmul: expected all tensors on one device, got far:0 and cpu", function()
      return there:matmul(here)
    end)
    check.raises("add: expected all tensors on one device, got cpu and far:0", function()
      accelhost.tensor(1):add_(accelhost.tensor(1, far))
    end)
  end)

  it("accept numbers and 0-dim operands of the CPU on any device", function()
    local there = accelhost.tensor({1, 2}, far)
    assert.same({3, 4}, (there + 2):tolist())
    assert.same({3, 4}, (2 + there):tolist())
    assert.same({3, 6}, (there * accelhost.tensor(3)):tolist())
    assert.same({5, 2}, there:masked_fill(there:eq(1), accelhost.tensor(5)):tolist())
    assert.same({7, 7}, there:fill_(accelhost.tensor(7)):tolist())
  end)

  it("copy the gradient of such an operand back to the CPU", function()
    local scale = accelhost.tensor(3, {requires_grad = true})
    local x = accelhost.tensor({1, 2}, {device = "far", requires_grad = true});
    (x * scale):sum():backward()
    assert.equal("cpu", scale.grad.device)
    assert.equal(3, scale.grad:item())
    assert.equal("far:0", x.grad.device)
  end)

  it("index by tensors of the CPU", function()
    local x = accelhost.arange(6, far):view(2, 3)
    local rows, mask = accelhost.tensor({1, 0}, {dtype = "int64"}), accelhost.tensor {true, false}
    assert.same({{3, 4, 5}, {0, 1, 2}}, x[rows]:tolist())
    assert.same({{0, 1, 2}}, x[mask]:tolist())
    assert.same({4, 1}, x[{rows, accelhost.tensor({1, 1}, {dtype = "int64"})}]:tolist())
    assert.same({3, 4, 5}, x[x:cpu():ge(3)]:tolist())
    x[rows] = 7
    x[{{}, accelhost.tensor({2}, {dtype = "int64"})}] = 8
    assert.same({{7, 7, 8}, {7, 7, 8}}, x:tolist())
  end)
end)

describe("a gradient", function()
  it("of another device is refused", function()
    local x = accelhost.ones({2}, {device = "far", requires_grad = true})
    check.raises("backward: the gradient is on cpu, the tensor on far:0", function()
      (x * 2):backward(accelhost.ones(2))
    end)
    check.raises("grad: expected a tensor on far:0, got one on cpu", function() x.grad = accelhost.ones(2) end)
    local Strange = accelhost.autograd.Function:extend "Strange"
    function Strange.forward(_, input) return input:clone() end
    function Strange.backward(_, grad) return grad:cpu() end
    check.raises("the gradient of input 1 is on cpu, the input on far:0", function()
      Strange.apply(x):sum():backward()
    end)
  end)
end)

describe("data that is read", function()
  it("is copied: numbers, tables, text and bytes", function()
    local there = accelhost.tensor({{1, 2}, {3, 4}}, far)
    assert.equal(4, there[1][1]:item())
    assert.same({{1, 3}, {2, 4}}, there:t():tolist())
    assert.equal("tensor([[1., 2.],\n        [3., 4.]], device='far:0')", tostring(there))
    assert.equal("tensor([2.5000], device='far:1', dtype=float64)",
      tostring(accelhost.tensor({2.5}, {device = "far:1", dtype = "float64"})))
    assert.equal(accelhost.to_string(there:cpu()), accelhost.to_string(there))
    assert.is_true(there:equal(there:clone()))
    assert.equal(5, accelhost.tensor({there[0][0] * 5}):item())
  end)

  it("by the address needs a tensor of the CPU", function()
    check.raises("with_data: expected a tensor on cpu, got one on far:0", function()
      accelhost.ones({2}, far):with_data(function() end)
    end)
  end)
end)

describe("channels-last memory", function()
  it("is rewritten by the device that it is stored on", function()
    local F = accelhost.nn.functional
    accelhost.manual_seed(1)
    local x, w = accelhost.randn(2, 3, 8, 8), accelhost.randn(16, 3, 3, 3)
    local expected = F.relu(F.conv2d(x, w))
    local got = F.relu(F.conv2d(x:to "far", w:to "far"))
    assert.same(expected:flatten():tolist(), got:flatten():tolist())
    assert.same(expected:stride(), got:stride())
  end)
end)

describe("generators", function()
  it("of all devices are seeded together and have a state each", function()
    accelhost.manual_seed(7)
    local state = accelhost.get_rng_state "far"
    local first = accelhost.randn({3}, far):tolist()
    accelhost.set_rng_state(state, "far")
    assert.same(first, accelhost.randn({3}, far):tolist())
    accelhost.manual_seed(7)
    assert.same(first, accelhost.randn({3}, far):tolist())
  end)
end)

describe("memory", function()
  it("is counted by device", function()
    local before = accelhost.memory_stats "far:1"
    local kept = accelhost.zeros({1024, 1024}, {device = "far:1"})
    assert.equal(kept:numel() * 4, accelhost.memory_stats("far:1").live - before.live)
    assert.equal(before.allocations + 1, accelhost.memory_stats("far:1").allocations)
    kept:free()
    assert.equal(before.live, accelhost.memory_stats("far:1").live)
  end)

  it("that dead handles hold is collected before there is too little", function()
    local result = run.script([[
      local accelhost = require "accelhost"
      for _ = 1, 100 do local dropped = accelhost.zeros({1024, 256}, {device = "far"}) end
      print(pcall(accelhost.zeros, {1024, 4096}, {device = "far"}))
    ]], {env = {ACCELHOST_FAR_BYTES = tostring(8 * 2 ^ 20)}})
    assert.equal(0, result.code, result.stderr)
    assert.matches("false%s+.*far:0: out of memory: 16777216 bytes asked for", result.stdout)
  end)
end)

describe("synchronize", function()
  it("waits for one device or for all", function()
    accelhost.synchronize()
    accelhost.synchronize "far:1"
    check.raises("accelhost-nowhere.so is not here", function() accelhost.synchronize "nowhere:0" end)
    assert.is_true(C.device.is_name "far:7")
    assert.is_false(C.device.is_name "float64")
  end)
end)
