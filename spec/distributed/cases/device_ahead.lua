-- Buckets of a device are queued before the peers' hosts have posted them: device_ahead.lua SIMULATOR [HOW]. Rank 1
-- begins its backward when rank 0's has ended and has queued all buckets; then gradients are means, weighted ones too.
-- Prints the calls of NCCL that rank 0 has made by then. HOW "differ": rank 1's backward is that of another model, in
-- every step but the first; "stop": rank 1 is stopped before its second one. Prints the error.
local ffi = require "ffi"
ffi.cdef "const char *simulated_calls(void); int kill(int process, int signal); int getpid();"
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local dist = accelhost.distributed
local simulator, how = ffi.load((...)), select(2, ...)
dist.init_process_group()
local rank = dist.get_rank()
accelhost.set_default_device("cuda:" .. rank)

local function calls_of_nccl()
  local sum = 0
  for times in ffi.string(simulator.simulated_calls()):gmatch "nccl%u%l+%S* (%d+)" do sum = sum + times end
  return sum
end
local function model(width)
  local layers = {}
  for i = 1, 6 do
    layers[i] = accelhost.full({width, width}, 1 / width)
    layers[i].requires_grad = true
  end
  return {layers = layers, reducer = comm.new_reducer(layers, {}, {bucket_cap_mb = 1e-5})}
end
local one, other = model(64), model(32)

-- A backward whose gradients are `factor` times those of a sum.
local function backward(net, factor, weight)
  net.reducer:begin(weight)
  local x = accelhost.full({8, net.layers[1]:size(0)}, factor)
  for _, layer in ipairs(net.layers) do x = x:matmul(layer) end
  x:sum():backward()
end
local function first_gradient(net) return net.layers[1].grad:narrow(0, 0, 1):mean():item() end
local function expect(got, expected) assert(math.abs(got - expected) < 1e-4 * expected, got .. ", not " .. expected) end

-- The first meets, as each communicator's first call does.
backward(one, 1, 1)
one.reducer:finish()
local alone = first_gradient(one)

if how then
  local net = (rank == 0 or how == "stop") and one or other
  if rank == 1 and how == "stop" then ffi.C.kill(ffi.C.getpid(), 19) end
  print(pcall(function()
    backward(net, 1, 1)
    net.reducer:finish()
    return first_gradient(net)
  end))
  error "as expected"
end
for step = 1, 4 do
  local weight = step > 2 and 1 + rank * 2 or 1
  for _, layer in ipairs(one.layers) do layer.grad:zero_() end
  if rank == 1 then dist.recv(accelhost.zeros(1, {device = "cpu"}), 0) end
  local before = calls_of_nccl()
  backward(one, weight * (1 + rank), weight)
  if rank == 0 then
    if step == 1 then print(calls_of_nccl() - before) end
    dist.send(accelhost.ones(1, {device = "cpu"}), 1)
  end
  one.reducer:finish()
  expect(first_gradient(one), alone * (step > 2 and (1 + 2 * 3) / 4 or (1 + 2) / 2))
end
print "ok"
