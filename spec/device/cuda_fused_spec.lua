--- What fused kernels save on the simulated GPU: memory, launches, passes over it.
local sim = require "spec.support.sim"

local preamble = [[
  local accelhost = require "accelhost"
  local nn, F = accelhost.nn, accelhost.nn.functional
  accelhost.set_default_device "cuda"
]]

local function prints(wanted, code)
  local result = sim.host(preamble .. code)
  assert.equal("", result.stderr)
  assert.equal(wanted, result.stdout)
end

describe("fused kernels on a CUDA device", function()
  sim.case("write a loss's gradient over the scores that autocast made", function()
    -- Of n scores: 2 bytes each, 4 for their copy in float32, 2 for the gradient in bfloat16, which needs no 4 more.
    prints("8\n", [[
      local rows, classes = 256, 2048
      local head = nn.Linear(4, classes, {bias = false})
      local x, labels = accelhost.randn(rows, 4), accelhost.arange(rows)
      local before = accelhost.memory_stats("cuda").live
      accelhost.cuda.reset_peak_memory_stats()
      local loss = accelhost.autocast("cuda", {dtype = "bfloat16"}, function()
        return F.cross_entropy(head(x), labels)
      end)
      loss:backward()
      local peak = accelhost.memory_stats("cuda").peak - before
      print(math.floor(peak / (rows * classes) + 0.1))]])
  end)
end)
