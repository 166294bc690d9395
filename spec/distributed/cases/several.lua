-- Two prepared models that both live: the one that the loss reaches overlaps as a lone one does, also when it changes
-- from step to step and hides in a checkpoint. Prints "ok" at the end.
local accelhost = require "accelhost"
local averaging = require "accelhost.averaging"
local nn = accelhost.nn

local accelerator = accelhost.Accelerator {bucket_cap_mb = 0.05}
local function deep()
  local layers = {}
  for i = 1, 8 do layers[i] = nn.Linear(128, 128) end
  return nn.Sequential(unpack(layers))
end
local first, second = accelerator:prepare(deep(), deep())
local input = accelhost.ones(4, 128)

local function posted_early(handle)
  local stats, early = handle.reducer:stats(), 0
  for _, bucket in ipairs(stats.buckets) do
    if bucket.issued_ns > 0 and bucket.issued_ns < stats.backward_end_ns then early = early + 1 end
  end
  return early
end

local ways = {
  function(model) accelerator:backward(model(input):sum()) end,
  function(model) model(input):sum():backward() end,
  function(model) accelerator:backward(accelhost.utils.checkpoint.checkpoint(model, input):sum()) end,
}
for way, backward in ipairs(ways) do
  for step = 1, 4 do
    local place = step % 2 + 1
    local model, handle = place == 1 and first or second, averaging.of(accelerator)[place]
    first:zero_grad()
    second:zero_grad()
    backward(model)
    assert((place == 1 and second or first)[1].weight.grad == nil)
    local early = posted_early(handle)
    assert(early >= (way == 3 and 1 or 7), ("way %d, step %d: %d of 8 buckets were early"):format(way, step, early))
  end
end

-- A model that only some ranks reach, and both at once.
first:zero_grad()
second:zero_grad()
local rank, size = accelerator.process_index, accelerator.num_processes
accelerator:backward((rank == 0 and first or second)[8].bias:sum())
local function near(expected, model) return math.abs(model[8].bias.grad[0]:item() - expected) < 1e-6 end
assert(near(1 / size, first) and near((size - 1) / size, second))
first:zero_grad()
second:zero_grad()
accelerator:backward(first[8].bias:sum() * rank + second[8].bias:sum() * 2 * rank)
assert(near((size - 1) / 2, first) and near(size - 1, second))
print "ok"
