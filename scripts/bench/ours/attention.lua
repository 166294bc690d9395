--- Causal attention of 12 heads of width 64, forward and backward, of views of one product as a linear layer leaves it.
--
-- usage: accelhost attention.lua TOKENS REPEATS
-- Prints the median processor time of one thread.
local accelhost = require "accelhost"
local F = accelhost.nn.functional

local tokens, repeats = tonumber(arg[1]), tonumber(arg[2])
accelhost.manual_seed(1)
local batch = math.max(1, 2048 / tokens)
local packed = accelhost.randn({batch, tokens, 3, 12, 64}):requires_grad_()
local weights = accelhost.randn(batch, 12, tokens, 64)
local times = {}
for turn = -1, repeats do
  local begin = os.clock()
  local q, k, v = unpack(packed:permute(2, 0, 3, 1, 4):unbind(0))
  F.scaled_dot_product_attention(q, k, v, {is_causal = true}):backward(weights)
  packed.grad = nil
  if turn > 0 then times[turn] = os.clock() - begin end
end
table.sort(times)
print("call_ms", times[math.floor(repeats / 2) + 1] * 1e3)
