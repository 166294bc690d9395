--- Gradients of the weights of linear maps in a prepared model: their products are stored in the gradient arena, or
--- added there, without a matrix in between.
local sim = require "spec.support.sim"

local HEAD = [[
  local accelhost = require "accelhost"
  local nn, optim = accelhost.nn, accelhost.optim
  accelhost.set_default_device "cuda"
  accelhost.set_float32_matmul_precision "highest"
  accelhost.manual_seed(7)
  COUNTS
  -- A function that runs a backward of loss(x, g, net) with autocast as `precision` sets it.
  local function prepared(net, precision, loss)
    local accelerator = accelhost.Accelerator {mixed_precision = precision}
    net = accelerator:prepare(net, optim.SGD(net:parameters(), {lr = 1}))
    return function(...) accelerator:backward(loss(net, ...)) end
  end
  -- The gradient of net's result is g.
  local function dot(net, x, g) return (net(x):float() * g):sum() end
  -- Numbers without rounding errors in `dtype`, as float32.
  local function numbers(size, dtype) return accelhost.randn(size):to(dtype):float() end
  -- Is `found` `wanted`, a tensor of float64, but for the rounding of float32?
  local function is_near(found, wanted)
    return (found:double() - wanted):abs():max():item() <= 1e-5 * wanted:abs():max():item()
  end
]]

-- `words` are replaced in the code.
local function case(sentence, expected, code, words, env)
  sim.case(sentence, function()
    local result = sim.host(((HEAD .. code):gsub("%u%u%u%u+", words or {})), env)
    assert.equal(expected, result.stdout, result.stderr)
  end)
end

-- A backward's calls, and whether it needs less memory than half the gradient of the weight, in addition to autocast's
-- copy of the weight, which has CAST bytes.
local COUNTED = [[
  local net = nn.Linear(512, 256)
  local backward = prepared(net, "PRECISION", dot)
  local x, g = accelhost.randn {16, 512}, accelhost.randn {16, 256}
  for _ = 1, 3 do backward(x, g) end
  if not ACCUMULATES then for _, p in ipairs(net:parameters()) do p.grad = nil end end
  collectgarbage() collectgarbage()
  accelhost.cuda.reset_peak_memory_stats()
  local live = accelhost.cuda.memory_stats()["allocated_bytes.all.current"]
  local products, copies = calls "cublasLtMatmul", calls "cuMemcpyDtoDAsync_v2"
  backward(x, g)
  local most = accelhost.cuda.memory_stats()["allocated_bytes.all.peak"] - live
  print(calls "cublasLtMatmul" - products, calls "cuMemcpyDtoDAsync_v2" - copies, most < 256 * 1024 + CAST or most)]]

local function counted(precision, accumulates)
  return {
    PRECISION = precision, ACCUMULATES = tostring(accumulates), CAST = precision == "no" and "0" or "512 * 256 * 2",
  }
end

-- Three backwards, by a module and its gradients of float64 for one.
local COMPARED = [[
  local function compare(net, backward, wanted)
    local near = true
    for times = 1, 3 do
      backward()
      for i, p in ipairs(net:parameters()) do near = near and is_near(p.grad, wanted[i] * times) end
    end
    print(near)
  end
]]

describe("The gradient of a linear map's weight on CUDA", function()
  for precision, copies in pairs {no = 0, bf16 = 0, fp16 = 1} do -- the scale of a loss is copied
    local title = ("mixed_precision = %q"):format(precision)
    local expected = ("2\t%d\ttrue\n"):format(copies)
    case("is stored in the gradient arena by its product, " .. title, expected, COUNTED, counted(precision, false),
      {ACCELHOST_CUDA = "sim"})
    case("is added there by its product where gradients accumulate, " .. title, expected, COUNTED,
      counted(precision, true), {ACCELHOST_CUDA = "sim"})
  end

  local halves = COMPARED .. [[
    local net, x, g = nn.Linear(40, 24), numbers({48, 40}, "bfloat16"), numbers({48, 24}, "bfloat16")
    local backward = prepared(net, "bf16", dot)
    local wanted = {g:double():t():mm(x:double()), g:double():sum(0)}
    if ROUNDED then
      backward(x, g)
      local function rounded(i) return wanted[i]:to "bfloat16":double() end
      print(is_near(net.weight.grad, rounded(1)) and is_near(net.bias.grad, rounded(2)))
    else
      compare(net, function() backward(x, g) end, wanted)
    end]]
  case("of bfloat16 is not rounded to it", "true\n", halves, {ROUNDED = "false"})
  -- After the calls for the wanted product and the forward's each of the simulator's algorithms is refused once.
  case("is a product's result in bfloat16 where cuBLASLt has none in float32", "true\n", halves,
    {ROUNDED = "true"}, {ACCELHOST_SIM_FAIL = "blas:3-5"})

  -- Each has two products, the forward's and that. At first three more are refused; the plan of storing stays.
  case("is added by a separate kernel from then on where cuBLASLt does not add it", "5\t2\t2\ttrue\n", [[
    local net, x, g = nn.Linear(40, 24), accelhost.randn {48, 40}, accelhost.randn {48, 24}
    local backward = prepared(net, "no", dot)
    local counts = {}
    backward(x, g)
    for time = 1, 3 do
      if time == 3 then for _, p in ipairs(net:parameters()) do p.grad = nil end end
      local before = calls "cublasLtMatmul"
      backward(x, g)
      counts[time] = calls "cublasLtMatmul" - before
    end
    print(counts[1], counts[2], counts[3], is_near(net.weight.grad, g:double():t():mm(x:double())))]], nil,
    {ACCELHOST_SIM_FAIL = "blas:4-6"})

  for _, dtype in ipairs {"float32", "float64"} do
    case("is that of all its uses, of " .. dtype, "true\n", COMPARED .. [[
      accelhost.set_default_dtype "DTYPE"
      local net, x, g = nn.Linear(24, 24), accelhost.randn {48, 24}, accelhost.randn {48, 24}
      local backward = prepared(net, "no", function(model) return (model(model(x)) * g):sum() end)
      local w, b = net.weight:detach():double(), net.bias:detach():double()
      local xd, gd = x:double(), g:double()
      local hidden, inner = xd:mm(w:t()) + b, gd:mm(w)
      compare(net, backward, {gd:t():mm(hidden) + inner:t():mm(xd), gd:sum(0) + inner:sum(0)})]], {DTYPE = dtype})
  end

  for precision, dtype in pairs {no = "float32", bf16 = "bfloat16"} do
    case(("is that of a weight that an embedding shares, mixed_precision = %q"):format(precision), "true\n",
      COMPARED .. [[
      local net = nn.Module:extend "Tied" ()
      net.table = nn.Embedding(24, 40)
      local ids, g = accelhost.arange(24):remainder(5), numbers({24, 24}, "DTYPE")
      accelhost.no_grad(function() net.table.weight:copy_(numbers({24, 40}, "DTYPE")) end)
      function net:forward() return nn.functional.linear(self.table(ids), self.table.weight) end
      local backward = prepared(net, "PRECISION", function(model) return (model():float() * g):sum() end)
      local w, gd = net.table.weight:detach():double(), g:double()
      local rows = accelhost.zeros({24, 40}, {dtype = "float64"}):index_add(0, ids, gd:mm(w):to "DTYPE":double())
      compare(net, backward, {gd:t():mm(w:index_select(0, ids)) + rows})]],
      {DTYPE = dtype, PRECISION = precision})

    case(("is that of a weight stored by columns, mixed_precision = %q"):format(precision), "true\n", COMPARED .. [[
      local net = require("accelhost.models.decoders.gpt2").Conv1D(24, 40)
      local x, g = numbers({48, 40}, "DTYPE"), numbers({48, 24}, "DTYPE")
      local backward = prepared(net, "PRECISION", dot)
      compare(net, function() backward(x, g) end, {x:double():t():mm(g:double()), g:double():sum(0)})]],
      {DTYPE = dtype, PRECISION = precision})
  end

  -- Of 2 MiB each; the rows that are used, and a convolution's columns, need less.
  local made = [[
    local function peak(net, ...)
      local backward, inputs = prepared(net, "no", dot), {...}
      for _ = 1, 3 do backward(unpack(inputs)) end
      if not ACCUMULATES then net.weight.grad = nil end
      collectgarbage() collectgarbage()
      accelhost.cuda.reset_peak_memory_stats()
      local live = accelhost.cuda.memory_stats()["allocated_bytes.all.current"]
      backward(unpack(inputs))
      return (accelhost.cuda.memory_stats()["allocated_bytes.all.peak"] - live) / 2 ^ 20 < 1
    end
    local ids, g = accelhost.randint(0, 4096, {16}), accelhost.randn {16, 128}
    local images, h = accelhost.randn {1, 256, 4, 4}, accelhost.randn {1, 2048, 4, 4}
    print(peak(nn.Embedding(4096, 128), ids, g), peak(nn.Conv2d(256, 2048, 1, {bias = false}), images, h))]]
  case("is stored in the arena as well of a table and of a convolution", "true\ttrue\n", made, {ACCUMULATES = "false"})
  case("is added to the arena of a table, to a sum of a convolution", "true\tfalse\n", made, {ACCUMULATES = "true"})

  case("reaches the hooks of the weight", "true\t2\n", [[
    local net, x, g = nn.Linear(40, 24), accelhost.randn {48, 40}, accelhost.randn {48, 24}
    local backward, count = prepared(net, "no", dot), 0
    net.weight:register_hook(function(grad)
      count = count + 1
      return grad * 2
    end)
    backward(x, g)
    backward(x, g)
    print(is_near(net.weight.grad, 4 * g:double():t():mm(x:double())), count)]])

  case("is not stored where it is frozen after the forward", "true\tnil\n", [[
    local net, x, g = nn.Linear(40, 24), accelhost.randn {48, 40}, accelhost.randn {48, 24}
    local backward = prepared(net, "no", function(model)
      local loss = dot(model, x, g)
      net.weight:requires_grad_(false)
      return loss
    end)
    backward()
    print(is_near(net.bias.grad, g:double():sum(0)), net.weight.grad)]])
end)
