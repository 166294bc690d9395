--- Every op of the case table once on a CUDA device, with its gradient, in float32 and bfloat16, then a step of each
--- optimizer, for compute-sanitizer. usage: accelhost scripts/gpu/one_of_each.lua (from the tree's root)
--
-- Results are checked by the specs; a call that fails is printed and counted.
package.path = "./?.lua;./?/init.lua;" .. package.path
local accelhost = require "accelhost"
accelhost.set_default_device "cuda"
local ops = require "spec.support.ops"
local optimizers = require "spec.cases.optimizers"

local calls, failed = 0, 0
local function attempt(what, fn)
  local fine, message = pcall(fn)
  calls = calls + 1
  if fine then return end
  failed = failed + 1
  print("failed: " .. what .. ": " .. tostring(message):match "^[^\n]*")
end

local seen = {}
for _, case in ipairs(ops.cases) do
  if not seen[case.op] then
    seen[case.op] = true
    for _, dtype in ipairs {"float32", "bfloat16"} do
      -- Not every op is there in halves.
      local run = dtype == "float32" and attempt or function(_, fn) pcall(fn) end
      run(case.name, function()
        local inputs = ops.inputs(case, {dtype = dtype, grad = case.grads ~= nil,
          layout = case.op ~= "view" and "strided" or nil})
        local outputs = ops.call(case, inputs)
        if case.grads then ops.backward(outputs) end
        accelhost.synchronize "cuda"
      end)
    end
  end
end

local optim = accelhost.optim
for _, name in ipairs(optimizers.fused()) do
  attempt(name, function()
    local weight = accelhost.ones({1001}, {requires_grad = true})
    local optimizer = optim[name]({weight}, optimizers.train(name))
    weight:square():sum():backward()
    accelhost.nn.utils.clip_grad_norm_({weight}, 1)
    optimizer:step()
    accelhost.synchronize "cuda"
  end)
end
print(("%d calls, %d failed"):format(calls, failed))
os.exit(failed == 0 and 0 or 1)
