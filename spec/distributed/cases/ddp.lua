-- DistributedDataParallel against gradients and steps that are worked out by hand. Prints "ok".
local accelhost = require "accelhost"
local nn, optim, dist = accelhost.nn, accelhost.optim, accelhost.distributed
local default_hooks = dist.algorithms.ddp_comm_hooks.default_hooks
local power = dist.algorithms.ddp_comm_hooks.powerSGD_hook

dist.init_process_group {timeout = 50}
local rank, size = dist.get_rank(), dist.get_world_size()

local function near(a, b, what, tolerance)
  local difference = (a - b):abs():max():item()
  assert(difference <= (tolerance or 1e-6), ("%s: differs by %g"):format(what, difference))
end

local function same_everywhere(tensor, what)
  local lowest, highest = tensor:detach():clone(), tensor:detach():clone()
  dist.all_reduce(lowest, "min")
  dist.all_reduce(highest, "max")
  assert((highest - lowest):abs():max():item() == 0, what .. " is not the same on all processes")
end

local function new_net(seed)
  accelhost.manual_seed(seed)
  return nn.Sequential {nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)}
end

-- The numbers of a seed, drawn on the CPU whatever the default device.
local function drawn(seed, rows, columns)
  local options = {generator = accelhost.Generator(seed), device = "cpu"}
  return accelhost.randn({rows, columns}, options):to(accelhost.get_default_device())
end

local function batch(step) return drawn(100 * step + rank, 5, 6) end

local function loss_of(model, step) return (model(batch(step)) ^ 2):mean() end

-- The mean over the processes of each gradient of a copy that averages nothing.
local function mean_gradients(net, step)
  local copy, gradients = new_net(0), {}
  copy:load_state_dict(net:state_dict())
  loss_of(copy, step):backward()
  for i, parameter in ipairs(copy:parameters()) do
    gradients[i] = parameter.grad:clone()
    dist.all_reduce(gradients[i], size > 1 and "mean" or "sum")
  end
  return gradients
end

local function check_gradients(net, expected, what, tolerance)
  for i, parameter in ipairs(net:parameters()) do near(parameter.grad, expected[i], what, tolerance) end
end

-- The rule itself: rank 0's values, the mean of the gradients, keys with "module.".
local net = new_net(rank)
local ddp = dist.DistributedDataParallel(net, {find_unused_parameters = true, gradient_as_bucket_view = true})
for i, parameter in ipairs(net:parameters()) do
  near(parameter, new_net(0):parameters()[i], "rank 0's values", 0)
end
assert(ddp.module == net and ddp:state_dict()["module.0.weight"] ~= nil and ddp:state_dict()["0.weight"] == nil)
local expected = mean_gradients(net, 1)
loss_of(ddp, 1):backward()
check_gradients(net, expected, "the mean of the gradients")
-- no_sync adds up; the next backward averages the sum.
local more = mean_gradients(net, 2)
for i = 1, #more do more[i] = more[i] + mean_gradients(net, 3)[i] end
for _, parameter in ipairs(net:parameters()) do parameter.grad = nil end
assert(ddp:no_sync(function() loss_of(ddp, 2):backward() return 7 end) == 7)
loss_of(ddp, 3):backward()
check_gradients(net, more, "no_sync")
local data = ddp:logging_data()
assert(data.world_size == size and data.rank == rank and #data.bucket_sizes == 1 and data.iteration == 2)
assert(data.bucket_sizes[1] == data.total_parameter_size_bytes and data.num_parameter_tensors == 4)
assert(size == 1 or data.backward_comm_time > 0 and data.backward_compute_time > 0)

-- With several buckets the first is under way before backward is over.
local cut = dist.DistributedDataParallel(new_net(0), {bucket_cap_mb = 0.0002})
loss_of(cut, 1):backward()
data = cut:logging_data()
assert(#data.bucket_sizes == 2 and data.bucket_sizes[1] == 272 and data.bucket_sizes[2] == 448, "sizes of buckets")
assert(size == 1 or data.backward_compute_comm_overlap_time > 0, "overlap")
assert(data.backward_compute_comm_overlap_time <= data.backward_comm_time, "no more overlap than communication")

-- Hooks.
local function with_hook(state, hook, what, tolerance, steps)
  local hooked = new_net(0)
  local model = dist.DistributedDataParallel(hooked, {bucket_cap_mb = 0.0002})
  model:register_comm_hook(state, hook)
  for step = 1, steps or 2 do
    local means = mean_gradients(hooked, step)
    for _, parameter in ipairs(hooked:parameters()) do parameter.grad = nil end
    loss_of(model, step):backward()
    if tolerance then check_gradients(hooked, means, what, tolerance) end
    for _, parameter in ipairs(hooked:parameters()) do same_everywhere(parameter.grad, what) end
  end
  return model, hooked
end
with_hook(nil, default_hooks.allreduce_hook, "allreduce_hook", 1e-6)
with_hook(dist.group.WORLD, default_hooks.fp16_compress_hook, "fp16_compress_hook", 1e-3)
with_hook(nil, default_hooks.bf16_compress_hook, "bf16_compress_hook", 1e-2)
with_hook(nil, default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook), "bf16_compress_wrapper", 1e-2)

local seen = {}
local function own_hook(state, bucket)
  seen[#seen + 1] = bucket:index()
  assert(state == "a state")
  local gradients, parameters = bucket:gradients(), bucket:parameters()
  assert(#gradients == #parameters and #gradients >= 1)
  local total = 0
  for i, gradient in ipairs(gradients) do
    near(gradient, parameters[i].grad, "gradients() are those of parameters()", 0)
    total = total + gradient:numel()
  end
  assert(bucket:buffer():numel() >= total)
  bucket:set_buffer(bucket:buffer() / size)
  local work = dist.all_reduce(bucket:buffer(), {async_op = true})
  if bucket:is_last() then return work end
  return work:get_future():chain(function(sum) return sum + 0 end)
end
local model = with_hook("a state", own_hook, "a hook in Lua", 1e-6)
local buckets = #model:logging_data().bucket_sizes
assert(buckets == 2, "small buckets")
for i = 1, #seen do assert(seen[i] == (i - 1) % buckets, "hooks run in order") end
assert(not pcall(model.register_comm_hook, model, nil, own_hook), "one hook is enough")

-- PowerSGD: a gradient of one sample is a product of two vectors, which it does not change; in full before.
local state = power.PowerSGDState {start_powerSGD_iter = 2, orthogonalization_epsilon = 1e-12,
  use_error_feedback = false, warm_start = false}
local weight = nn.Linear(40, 30, {bias = false})
local powered = dist.DistributedDataParallel(weight)
powered:register_comm_hook(state, power.powerSGD_hook)
for step = 1, 5 do
  local input = drawn(step, 1, 40)
  local target = drawn(50 + step, 1, 30)
  weight.weight.grad = nil
  ((powered(input) * target):sum() * (rank + 1)):backward()
  local mean = (size + 1) / 2
  near(weight.weight.grad, target:transpose(0, 1):matmul(input) * mean, "a gradient of rank one", 1e-4)
  assert(state.iter == step)
end
local rate, before, after = state:compression_stats()
assert(before == 3 * 1200 and after == 3 * 70 and rate == before / after, "compression_stats")
-- No gradient of a higher rank is lost: the rest that one step omits is in the next ones.
for _, batched in ipairs {false, true} do
  state = power.PowerSGDState {start_powerSGD_iter = 2, matrix_approximation_rank = 2, min_compression_rate = 1,
    batch_tensors_with_same_shape = batched}
  accelhost.manual_seed(0)
  local twin = nn.Sequential {nn.Linear(12, 12), nn.Linear(12, 12)}
  powered = dist.DistributedDataParallel(twin)
  powered:register_comm_hook(state, power.powerSGD_hook)
  local sum, sent
  local gradient = drawn(rank, 12, 12)
  local mean = gradient:clone()
  dist.all_reduce(mean, "mean")
  for _ = 1, 60 do
    for _, parameter in ipairs(twin:parameters()) do parameter.grad = nil end
    ((twin[1].weight + twin[2].weight) * gradient):sum():backward()
    same_everywhere(twin[1].weight.grad, "powerSGD")
    sent = sent and sent + twin[1].weight.grad or twin[1].weight.grad:clone()
  end
  sum = mean * 60
  assert((sent - sum):norm():item() < 0.15 * sum:norm():item(), "error feedback")
end

-- Values of one's own; buffers that stay.
local apart = nn.BatchNorm1d(3)
accelhost.no_grad(function() apart.weight:fill_(rank + 1) apart.running_mean:fill_(rank) end)
local kept = dist.DistributedDataParallel(apart, {init_sync = false, broadcast_buffers = false})
assert(apart.weight[0]:item() == rank + 1 and apart.running_mean[0]:item() == rank, "init_sync = false")
kept(accelhost.full({2, 3}, rank)):sum():backward()
assert(math.abs(apart.running_mean[0]:item() - rank) < 1e-6, "broadcast_buffers = false")
local norm = nn.BatchNorm1d(3)
local synced = dist.DistributedDataParallel(norm)
synced(accelhost.full({2, 3}, 10 * rank)):sum():backward()
assert(norm.running_mean[0]:item() == 0, "buffers are rank 0's after a backward")

-- A parameter that no process reaches has no gradient.
local part = nn.Sequential {nn.Linear(2, 2), nn.Linear(2, 2)}
dist.DistributedDataParallel(part)
part[1](accelhost.ones(1, 2)):sum():backward()
assert(part[1].weight.grad ~= nil and part[2].weight.grad == nil, "unused")

-- A part of the processes.
if size == 3 then
  local group = dist.new_group {0, 2}
  if rank ~= 1 then
    local pair = new_net(rank)
    local own = dist.DistributedDataParallel(pair, {process_group = group})
    near(pair:parameters()[1], new_net(0):parameters()[1], "the group's first", 0)
    own(accelhost.full({1, 6}, rank)):sum():backward()
    near(pair[3].bias.grad, accelhost.ones(4), "the mean over the group")
  else
    assert(not pcall(dist.DistributedDataParallel, new_net(0), {process_group = group}), "who is not in the group")
  end
end

-- Uneven inputs: rank r has r + 1 steps.
for _, by_all in ipairs {true, false} do
  local joined = new_net(3)
  local twin = new_net(3) -- steps by hand, on every process the same
  local wrapped = dist.DistributedDataParallel(joined)
  local optimizer, own = optim.SGD(joined:parameters(), {lr = 0.5}), optim.SGD(twin:parameters(), {lr = 0.5})
  wrapped:join(function()
    for step = 1, rank + 1 do
      optimizer:zero_grad()
      loss_of(wrapped, step):backward()
      optimizer:step()
    end
  end, {divide_by_initial_world_size = by_all})
  for step = 1, size do
    own:zero_grad()
    for r = step - 1, size - 1 do
      local x = drawn(100 * step + r, 5, 6)
      local share = by_all and size or size - step + 1;
      ((twin(x) ^ 2):mean() / share):backward()
    end
    own:step()
  end
  for i, parameter in ipairs(joined:parameters()) do near(parameter, twin:parameters()[i], "join", 1e-6) end
end
-- Two models; without a backward that averages; and buffers of the ranks that still have inputs.
local first, second = new_net(1), nn.Sequential {nn.BatchNorm1d(6), nn.Linear(6, 1)}
local a, b = dist.DistributedDataParallel(first), dist.DistributedDataParallel(second)
dist.algorithms.join.Join({a, b}, function()
  for step = 1, 2 * rank + 1 do
    local function both() (a(batch(step)):sum() + b(batch(step)):sum()):backward() end
    if step % 2 == 0 then
      a:no_sync(function() b:no_sync(both) end)
    else
      both()
    end
  end
end)
assert(second[1].num_batches_tracked:item() == 2 * size - 1, "buffers of the last")
for _, tensor in ipairs(second:buffers()) do same_everywhere(tensor:to "float64", "buffers") end
if size > 1 then
  local fine, message = pcall(a.join, a, function()
    for step = 1, rank + 1 do a(batch(step)):sum():backward() end
  end, {throw_on_early_termination = true})
  assert(not fine and message:find "a process has no inputs left", message)
end

-- Buckets as PyTorch's after its first backward.
local mnist = nn.Sequential {nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3), nn.Linear(9216, 128), nn.Linear(128, 10)}
local sizes = dist.DistributedDataParallel(mnist):logging_data().bucket_sizes
assert(#sizes == 2 and sizes[1] == 4724264 and sizes[2] == 75264, "buckets of the tutorial's net")

dist.destroy_process_group()
print "ok"
