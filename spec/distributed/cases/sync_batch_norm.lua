-- A batch shared out unevenly, normalised by SyncBatchNorm, against the whole one and BatchNorm2d. Prints "ok".
local accelhost = require "accelhost"
local C = require "accelhost._C"
local nn, comm = accelhost.nn, C.comm
local rank, size = comm.rank(), comm.size()

local function close(got, expected, what)
  local worst = (got - expected):abs():amax():item()
  assert(worst < 1e-10, ("%s differs by %g"):format(what, worst))
end

accelhost.manual_seed(4)
local options = {dtype = "float64"}
local total = size * (size + 1) / 2 + size -- rank r has r + 2 images
local images = accelhost.randn({total, 3, 2, 2}, options)
local slopes = accelhost.randn({total, 3, 2, 2}, options)
local first, count = rank * (rank + 3) / 2, rank + 2

local function run(norm, from, length)
  local x = images:narrow(0, from, length):clone():requires_grad_()
  local y = norm(x)
  local loss = (slopes:narrow(0, from, length) * y * y):sum()
  loss:backward()
  return x, y
end

local function both(whole, part)
  local x, y = run(whole, 0, total)
  local own_x, own_y = run(part, first, count)
  close(own_y, y:narrow(0, first, count), "the result")
  close(own_x.grad, x.grad:narrow(0, first, count), "the input's gradient")
  close(part.running_mean, whole.running_mean, "the running mean")
  close(part.running_var, whole.running_var, "the running variance")
  close(comm.all_reduce(part.weight.grad:clone()), whole.weight.grad, "the weight's gradient")
  part:eval()
  whole:eval()
  close(part(images), whole(images), "evaluation")
end

local function make() return nn.BatchNorm2d(3, {momentum = 0.3, dtype = "float64"}) end
both(make(), nn.SyncBatchNorm(3, {momentum = 0.3, dtype = "float64"}))
both(make(), nn.SyncBatchNorm.convert_sync_batchnorm(make()))
both(make(), nn.SyncBatchNorm(3, {momentum = 0.3, dtype = "float64", process_group = comm.split(0)}))

-- In a prepared model, while gradients are averaged during backward.
local function net(norm)
  accelhost.manual_seed(7)
  return nn.Sequential(nn.Conv2d(3, 4, 1, {dtype = "float64"}), norm, nn.ReLU(), nn.Flatten(),
    nn.Linear(16, 2, {dtype = "float64"}))
end
local whole = net(nn.BatchNorm2d(4, {dtype = "float64"}))
whole(images:narrow(0, 0, 2 * size)):pow(2):mean():backward()
local accelerator = accelhost.Accelerator()
local part = accelerator:prepare(net(nn.SyncBatchNorm(4, {dtype = "float64"})))
accelerator:backward(part(images:narrow(0, 2 * rank, 2)):pow(2):mean())
for name, parameter in part:named_parameters() do
  close(parameter.grad, whole:get_parameter(name).grad, name)
end
print "ok"
