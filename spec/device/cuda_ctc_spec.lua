--- CTC loss of CUDA devices on the simulated GPU against the CPU, where specs of the loss do not reach: sequences of
--- unequal lengths with repeated labels, more places than a block has threads, impossible targets.
local sim = require "spec.support.sim"

local compare = [[
  local accelhost = require "accelhost"
  local F = accelhost.nn.functional
  accelhost.manual_seed(4)
  local function run(x, targets, lengths, device, dtype, options)
    local leaf = x:detach():clone():to(dtype):to(device):requires_grad_()
    local loss = F.ctc_loss(leaf:log_softmax(-1), targets:to(device), lengths[1], lengths[2], options)
    local factors = accelhost.arange(1, loss:numel() + 1, {device = device, dtype = "float64"})
    loss:backward(factors:to(loss.dtype))
    return loss:detach():to "cpu":to "float64", leaf.grad:to "cpu":to "float64"
  end
  -- The largest distance of losses, then of gradients, from the CPU's in float64.
  function off(dtype, steps, classes, longest, lengths, options)
    options.reduction = "none"
    local count = #lengths[1]
    local x = accelhost.randn(steps, count, classes):to(dtype)
    local targets = accelhost.randint(0, classes, {count, longest})
    local near = {run(x, targets, lengths, "cpu", "float64", options)}
    local far, most = {run(x, targets, lengths, "cuda", dtype, options)}, {}
    for i, part in ipairs(near) do
      local there = part:abs():lt(math.huge) -- neither infinite nor nan
      assert(there:equal(far[i]:abs():lt(math.huge)), "infinities or nan elsewhere")
      assert(part:isnan():equal(far[i]:isnan()), "nan elsewhere")
      local zero = accelhost.zeros({}, {dtype = "float64"})
      local distance = accelhost.where(there, part - far[i], zero):abs():max():item()
      print(dtype, distance / math.max(1, accelhost.where(there, part, zero):abs():max():item()))
    end
  end
]]

local tolerance = {float64 = 1e-12, float32 = 1e-5, bfloat16 = 3e-2, float16 = 5e-3}

local function near(sentence, code, count)
  sim.case(sentence, function()
    local result, found = sim.host(compare .. code, {ACCELHOST_CUDA_ALLOCATOR = "poison"}), 0
    for dtype, off in result.stdout:gmatch "(%w+)%s+(%S+)\n" do
      found = found + 1
      assert.is_true(tonumber(off) <= tolerance[dtype], result.stdout .. result.stderr)
    end
    assert.equal(0, result.code, result.stderr)
    assert.equal(count, found)
  end)
end

describe("CTC loss on a CUDA device", function()
  near("is the CPU's in each dtype, also where labels repeat, are the blank, or are none", [[
    for _, dtype in ipairs{"float64", "float32", "float16", "bfloat16"} do
      off(dtype, 12, 4, 6, {{12, 9, 0, 12, 5}, {6, 2, 0, 0, 1}}, {blank = 1})
    end]], 8)
  near("is the CPU's of more places than a block has threads, and more classes than a warp holds", [[
    off("float64", 310, 1100, 300, {{310, 300}, {300, 20}}, {blank = 0})]], 2)
  near("is the CPU's where shared memory has no room for the places", [[
    off("float64", 9, 5, 9000, {{9, 7}, {4, 5}}, {blank = 2})]], 2)
  near("is the CPU's where a target does not fit its steps, with zero_infinity and without", [[
    off("float32", 4, 5, 6, {{4, 0, 4}, {6, 1, 2}}, {blank = 0})
    off("float32", 4, 5, 6, {{4, 0, 4}, {6, 1, 2}}, {blank = 0, zero_infinity = true})]], 4)
  near("is the CPU's of targets without labels", [[
    off("float64", 3, 2, 0, {{3, 2}, {0, 0}}, {blank = 1})]], 2)

  sim.case("ignores labels beyond a target's length, and refuses the first invalid one within it", function()
    local result = sim.host [[
      local accelhost = require "accelhost"
      local x = accelhost.zeros({4, 2, 3}, {device = "cuda"}):log_softmax(-1)
      local function try(length)
        local targets = accelhost.tensor({{1, -7, 99}, {1, 2, 3}}, {dtype = "int64", device = "cuda"})
        return select(2, pcall(accelhost.nn.functional.ctc_loss, x, targets, {4, 4}, {1, length}))
      end
      print(try(2):item() > 0)
      print(try(3))]]
    assert.matches("^true\n.*ctc_loss: target 3 at position 5 is outside 0..2", result.stdout, result.stderr)
  end)
end)
