--- Pooling, padding, resizing and sampling of CUDA devices on the simulated GPU, where the tables of cases do not
--- reach: windows that a warp shares, sizes beyond 30 bits, channels-last memory, elements that many read.
local sim = require "spec.support.sim"

-- worst(fn, inputs, dtype): how far fn's results and its inputs' gradients are from the CPU's in float64, at most, for
-- inputs that `dtype` holds.
local compare = [[
  local accelhost = require "accelhost"
  accelhost.manual_seed(1)
  local F = accelhost.nn.functional
  local function randn(...)
    return accelhost.randn({...}, {device = "cpu", dtype = "float64"})
  end
  local function results(fn, inputs, device, dtype)
    local leaves, out = {}, {}
    for i, x in ipairs(inputs) do leaves[i] = x:clone():to(dtype):to(device):requires_grad_() end
    for i, y in ipairs{fn(unpack(leaves))} do
      if i == 1 then (y * y):sum():backward() end
      out[#out + 1] = y:detach():to "cpu":to "float64"
    end
    for _, x in ipairs(leaves) do out[#out + 1] = x.grad:to "cpu":to "float64" end
    return out
  end
  local function worst(fn, inputs, dtype)
    dtype = dtype or "float64"
    for i, x in ipairs(inputs) do inputs[i] = x:to(dtype) end
    local here, far, most = results(fn, inputs, "cpu", "float64"), results(fn, inputs, "cuda", dtype), 0
    assert(#here == #far)
    for i = 1, #here do
      local off = (here[i] - far[i]):abs():max():item() / math.max(1, here[i]:abs():max():item())
      most = off > most and off or most
    end
    return most
  end
]]

local function on_sim(code, env) return sim.host(compare .. code, env) end

-- code prints how far it is off, for each thing that it tries.
local function near(sentence, code, most)
  sim.case(sentence, function()
    local result = on_sim(code)
    local count = 0
    for off in result.stdout:gmatch "%S+" do
      count = count + 1
      assert.is_true(tonumber(off) <= (most or 1e-12), result.stdout .. result.stderr)
    end
    assert.is_true(result.code == 0 and count > 0, result.stderr)
  end)
end

describe("Pooling on a CUDA device", function()
  near("shares large windows among the threads of a warp", [[
    local x = randn(2, 3, 21, 17)
    for _, size in ipairs{1, 2} do
      print(worst(function(t) return F.adaptive_avg_pool2d(t, size) end, {x}))
      print(worst(function(t) return F.adaptive_max_pool2d(t, size, true) end, {x}))
    end
    print(worst(function(t) return F.avg_pool2d(t, {9, 11}, {4, 3}, {4, 5}) end, {x}))
    print(worst(function(t) return F.max_pool2d(t, {16, 17}, 2, 8) end, {x}))]])

  near("selects the first of equals and the last NaN of a window, as the CPU does", [[
    local x = accelhost.zeros({1, 1, 12, 12}, {device = "cpu"})
    local y = x:clone()
    y[{0, 0, 3, 4}], y[{0, 0, 7, 2}], y[{0, 0, 7, 1}] = 0/0, 0/0, 5
    for _, t in ipairs{x, y} do
      local _, here = F.adaptive_max_pool2d(t, 1, true)
      local _, far = F.adaptive_max_pool2d(t:to "cuda", 1, true)
      print(here:item() - far:item())
    end]], 0)

  near("counts in 64 bits where options pass 20", [[
    local far = {2 ^ 21, 2 ^ 21}
    local x = randn(2, 2, 7, 6)
    print(worst(function(t) return F.max_pool2d(t, 3, far, 1) end, {x}))
    print(worst(function(t) return F.avg_pool2d(t, 3, far, 1) end, {x}))
    print(worst(function(t) return F.unfold(t, 3, 1, 1, far) end, {x}))
    print(worst(function(t) return F.fold(t, {7, 6}, 3, 1, 1, far) end, {randn(2, 18, 1)}))]])

  near("keeps channels last behind a convolution in halves, also where windows overlap", [[
    local x, w = randn(2, 3, 9, 9), randn(8, 3, 3, 3)
    for _, options in ipairs{{3, 2, 1}, {2, 2, 0}, {3, 1, 2, 2}} do
      if options[3] <= options[1] / 2 then
        print(worst(function(a, b)
          return F.max_pool2d(F.conv2d(a, b, {padding = 1}), options[1], options[2], options[3], options[4])
        end, {x, w}, "float16"))
      end
    end]], 0.03)
end)

describe("Padding on a CUDA device", function()
  near("with edges reflects, repeats and wraps, with a gradient", [[
    local x = randn(2, 3, 5, 6, 4)
    for _, mode in ipairs{"reflect", "replicate", "circular"} do
      print(worst(function(t) return F.pad(t, {3, 2, 1, 4, 0, 2}, mode) end, {x}))
      print(worst(function(t) return F.pad(t, {2, 1}, mode) end, {randn(3, 5)}))
    end
    print(worst(function(t) return F.pad(t, {40, 3, 2, 30}, "replicate") end, {randn(1, 2, 3, 2)}))
    print(worst(function(t) return F.pad(t, {-1, 3, 2, -2}, "replicate") end, {randn(1, 2, 6, 5)}))]])
end)

describe("Resizing on a CUDA device", function()
  near("reaches all that an input position affected, however much larger or smaller the output is", [[
    local x = randn(2, 2, 7, 9)
    for _, mode in ipairs{"bilinear", "bicubic"} do
      for _, size in ipairs{{23, 4}, {1, 50}, {7, 9}, {3, 2}} do
        print(worst(function(t) return F.interpolate(t, size, nil, mode) end, {x}))
        print(worst(function(t) return F.interpolate(t, size, nil, mode, true) end, {x}))
        print(worst(function(t) return F.interpolate(t, size, nil, mode, false, nil, true) end, {x}))
      end
    end
    print(worst(function(t) return F.interpolate(t, {5, 3, 8}, nil, "trilinear") end, {randn(1, 2, 3, 4, 6)}))
    print(worst(function(t) return F.interpolate(t, 11, nil, "nearest") end, {randn(2, 3, 4)}))]])
end)

describe("Sampling a grid on a CUDA device", function()
  near("adds up the gradients of all locations of an element", [[
    local x, grid = randn(2, 19, 5, 4), randn(2, 9, 11, 2) * 2
    for _, mode in ipairs{"bilinear", "nearest", "bicubic"} do
      for _, padding in ipairs{"zeros", "border", "reflection"} do
        print(worst(function(a, b) return F.grid_sample(a, b, mode, padding) end, {x, grid}))
      end
    end
    print(worst(function(a, b) return F.grid_sample(a, b, "bilinear", "border", true) end,
      {randn(1, 2, 3, 4, 5), randn(1, 4, 3, 2, 3)}))]], 1e-11)
end)

describe("The numbers of spatial ops on a CUDA device", function()
  sim.case("are the same bits whatever the order of threads", function()
    local outputs = {}
    for seed = 1, 3 do
      local result = on_sim([[
        accelhost.manual_seed(0)
        local x, w, grid = randn(2, 3, 12, 12), randn(4, 3, 3, 3), randn(2, 20, 20, 2)
        local function digest(fn, ...)
          local all = results(fn, {...}, "cuda", "float32")
          for i, t in ipairs(all) do all[i] = ("%.17g"):format((t * t):sum():item()) end
          print(table.concat(all, " "))
        end
        digest(function(a, b) return F.conv2d(a, b) end, x, w)
        digest(function(a) return F.max_pool2d(a, 3, 1, 1) end, x)
        digest(function(a) return F.interpolate(a, {31, 7}, nil, "bicubic") end, x)
        digest(function(a, b) return F.grid_sample(a, b, "bilinear", "border") end, x, grid)
        digest(function(a) return F.pdist(a:view(72, 12)) end, x)]], {ACCELHOST_SIM_SEED = tostring(seed)})
      assert.equal(0, result.code, result.stderr)
      outputs[seed] = result.stdout
    end
    assert.same({outputs[1], outputs[1], outputs[1]}, outputs)
  end)
end)
