--- Convolutions of many geometries, in GFLOP/s of the plain sum: forward, gradients of the input and of the weight.
--- usage: accelhost scripts/bench/convolutions.lua [DTYPE] [THREADS]      DTYPE: float32 (default) or bfloat16
---
--- Processor time on one thread, else elapsed time: the least of five calls. Images and gradients are channels-last.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local F = accelhost.nn.functional

local dtype, threads = arg[1] or "float32", tonumber(arg[2] or 1)
local clock = threads == 1 and os.clock or C.system.now

-- images, channels, size, output channels, kernel, stride, padding
local geometries = {
  {64, 64, 32, 128, 4, 2, 1}, {64, 128, 16, 256, 4, 2, 1}, {64, 256, 8, 512, 4, 2, 1}, {16, 256, 16, 512, 4, 2, 1},
  {16, 64, 32, 64, 4, 1, 1}, {16, 64, 32, 64, 5, 1, 2}, {16, 128, 16, 128, 5, 1, 2}, {32, 64, 27, 192, 5, 1, 2},
  {16, 64, 28, 128, 5, 2, 2}, {16, 64, 32, 64, 6, 1, 2}, {16, 64, 32, 64, 7, 1, 3}, {16, 64, 56, 64, 3, 1, 1},
  {8, 128, 56, 128, 3, 2, 1}, {8, 256, 28, 256, 3, 2, 1}, {8, 512, 14, 512, 3, 2, 1}, {64, 256, 8, 256, 3, 2, 1},
  {64, 3, 64, 64, 4, 2, 1}, {4, 3, 128, 32, 9, 1, 4}, {4, 32, 128, 3, 9, 1, 4}, {8, 3, 224, 64, 7, 2, 3},
  {64, 512, 4, 100, 4, 1, 0}, {64, 512, 4, 512, 4, 1, 0}, {64, 256, 2, 256, 3, 1, 1}, {8, 256, 28, 512, 1, 2, 0},
}

local function least(fn)
  local best = math.huge
  for _ = 0, 5 do
    local begin = clock()
    fn()
    best = math.min(best, clock() - begin)
  end
  return best
end

local function row(geometry)
  local n, c, size, out, kernel, stride, padding = unpack(geometry)
  local weight = (accelhost.randn(out, c, kernel, kernel) * 0.05):to(dtype)
  -- The result of a convolution is channels-last, and so is the gradient of its input.
  local y = F.conv2d(accelhost.randn(n, c, size, size):to(dtype), weight, nil, stride, padding)
  local x = C.conv2d_grad_input(y, weight, {n, c, size, size}, stride, padding, 1, 1)
  local work = 2e-9 * y:numel() * c * kernel * kernel
  local format = "| %d x %d x %dx%d | %d | %dx%d | %d | %d | %.0f | %.0f | %.0f |"
  print(format:format(n, c, size, size, out, kernel, kernel, stride, padding,
    work / least(function() F.conv2d(x, weight, nil, stride, padding) end),
    work / least(function() C.conv2d_grad_input(y, weight, x:shape(), stride, padding, 1, 1) end),
    work / least(function() C.conv2d_grad_weight(y, x, weight:shape(), stride, padding, 1, 1) end)))
end

accelhost.set_num_threads(threads)
accelhost.manual_seed(1)
print "| images | channels | kernel | stride | padding | forward | of the input | of the weight |"
print "| --- | --- | --- | --- | --- | --- | --- | --- |"
for _, geometry in ipairs(geometries) do row(geometry) end
