--- Reductions on CUDA devices that compute doubles slowly, as consumer cards do; here simulated ones.
local sim = require "spec.support.sim"

describe("log-sum-exp on a device with slow doubles", function()
  for _, slow in ipairs {0, 1} do
    sim.case(("keeps the bits of float32, and infinities (%d)"):format(slow), function()
      local result = sim.host([[
        local accelhost = require "accelhost"
        accelhost.set_default_device "cuda"
        accelhost.manual_seed(5)
        local inf, worst = math.huge, 0
        for _, dtype in ipairs {"float32", "float16", "bfloat16"} do
          local x = (accelhost.randn({6, 3077}, {dtype = "float64"}) * 4):to(dtype)
          local wide = x:double()
          for _, dim in ipairs {0, 1} do
            local off = (x:logsumexp(dim):double() - wide:logsumexp(dim)):abs() / wide:logsumexp(dim):abs()
            local eps = ({float32 = 2 ^ -24, float16 = 2 ^ -11, bfloat16 = 2 ^ -8})[dtype]
            worst = math.max(worst, off:amax():item() / eps)
          end
        end
        local x = accelhost.zeros {40}
        print(worst < 4, x:fill_(-inf):logsumexp(0):item(),
          math.abs(x:fill_(3):logsumexp(0):item() - 3 - math.log(40)) < 1e-6)
        x[7] = inf
        print(x:logsumexp(0):item())
        x[9] = 0 / 0
        print(x:logsumexp(0):isnan():item())]], slow == 1 and {ACCELHOST_SIM_SLOW_DOUBLE = 1} or nil)
      assert.equal("true\t-inf\ttrue\ninf\ntrue\n", result.stdout, result.stderr)
    end)
  end
end)
