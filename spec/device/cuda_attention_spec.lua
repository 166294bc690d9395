--- Attention of CUDA devices by cuDNN's fused kernels, on the simulated GPU: its cuDNN checks graphs operation by
--- operation and computes them by plain loops. Each case is a separate program. Which graphs the engines of a card
--- recognise is asked of cuDNN itself, where it is installed.
local run = require "spec.support.run"
local sim = require "spec.support.sim"

local lfs = require "lfs"

-- results(shape, dtype, device): output and gradients of query, key and value in float64; shape has batch, heads,
-- groups, queries, keys, width, value_width, causal, and packed: all three are views of one tensor.
local preamble = [[
  local accelhost = require "accelhost"
  local F = accelhost.nn.functional
  local cpu = {device = "cpu"}
  local function draw(shape)
    accelhost.manual_seed(1)
    local b, h, g, l, s, e = shape.batch or 2, shape.heads or 3, shape.groups, shape.queries, shape.keys, shape.width
    local v = shape.value_width or e
    local given
    if shape.packed then
      given = {accelhost.randn({b, l, 3, h, e}, cpu)}
    else
      given = {accelhost.randn({b, h, l, e}, cpu), accelhost.randn({b, g or h, s, e}, cpu),
        accelhost.randn({b, g or h, s, v}, cpu)}
    end
    given[#given + 1] = accelhost.randn({b, h, l, v}, cpu)
    return given
  end
  local function results(shape, dtype, device, from)
    local given, leaves = draw(shape), {}
    for i, t in ipairs(given) do leaves[i] = t:to(from or dtype):to(dtype):to(device):detach() end
    local grad = table.remove(leaves)
    for _, t in ipairs(leaves) do t:requires_grad_() end
    local q, k, v = leaves[1], leaves[2], leaves[3]
    if shape.packed then
      q, k, v = q:select(2, 0):transpose(1, 2), q:select(2, 1):transpose(1, 2), q:select(2, 2):transpose(1, 2)
    end
    local y = F.scaled_dot_product_attention(q, k, v,
      {is_causal = shape.causal, enable_gqa = shape.groups ~= nil, scale = shape.scale})
    y:backward(grad)
    local out = {y:detach()}
    for i, t in ipairs(leaves) do out[i + 1] = t.grad end
    for i, t in ipairs(out) do out[i] = t:to "cpu":to "float64" end
    return out
  end
  -- Return the largest difference of the device's results from the CPU's in float64.
  function compare(shape, dtype)
    local here, there = results(shape, "float64", "cpu", dtype), results(shape, dtype, "cuda")
    local worst = 0
    for i, t in ipairs(here) do
      local off = ((t - there[i]):abs():max() / t:abs():max()):item()
      worst = off <= worst and worst or off
    end
    return worst
  end
  -- Numbers that distinguish two ways to compute the same.
  function sums(shape, dtype)
    local all = {}
    for i, t in ipairs(results(shape, dtype or "float16", "cuda")) do
      all[i] = ("%.17g"):format((t * accelhost.arange(t:numel()):to "float64":reshape(t:shape())):sum():item())
    end
    print(table.concat(all, " "))
  end
]]

local function on_sim(code, env) return sim.host(preamble .. code, env) end
local case = sim.case

-- Return the output of `sums` for a choice of $ACCELHOST_CUDA_ATTENTION and other variables.
local function sums(shape, choice, env)
  local all = {ACCELHOST_CUDA_ATTENTION = choice}
  for name, value in pairs(env or {}) do all[name] = value end
  local result = on_sim(("sums({%s})"):format(shape), all)
  assert.equal(0, result.code, result.stderr)
  return result.stdout
end

local small = "queries = 40, keys = 24, width = 16"
local long = "batch = 1, heads = 2, queries = 256, keys = 320, width = 8"

describe("Attention by cuDNN on a CUDA device", function()
  for _, choice in ipairs {"own", "forward", "cudnn", "unordered"} do
    case("equals float64, and so do its gradients, with ACCELHOST_CUDA_ATTENTION=" .. choice, function()
      local result = on_sim([[
        for _, causal in ipairs {false, true} do
          for _, dtype in ipairs {"bfloat16", "float16"} do
            local limit = dtype == "float16" and 2e-3 or 1e-2
            local function check(shape)
              shape.causal = causal
              local off = compare(shape, dtype)
              if not (off < limit) then
                print(off, dtype, causal, shape.queries, shape.keys, shape.width, shape.packed)
              end
            end
            check {queries = 40, keys = 24, width = 16}
            check {queries = 24, keys = 40, width = 8, value_width = 24, scale = 0.3}
            check {queries = 33, keys = 33, width = 32, packed = true}
            check {heads = 4, groups = 2, queries = 17, keys = 29, width = 16}
            check {batch = 1, queries = 20, keys = 20, width = 16}
            check {heads = 1, queries = 20, keys = 20, width = 16}
          end
        end]], {ACCELHOST_CUDA_ATTENTION = choice})
      run.prints("", result)
      assert.equal(0, result.code, result.stderr)
    end)
  end

  case("is another way than the program's own kernels, forward and backward", function()
    local own, forward, cudnn = sums(small, "own"), sums(small, "forward"), sums(small, "cudnn")
    assert.not_equal(own, forward)
    assert.not_equal(forward, cudnn)
    assert.equal(forward:match "^%S+", cudnn:match "^%S+")
  end)

  case("is chosen by auto for lengths from 256 on that are multiples of 64, and not without a choice", function()
    assert.equal(sums(long, "cudnn"), sums(long, "auto"))
    assert.equal(sums(small, "own"), sums(small, "auto"))
    local odd = long:gsub("320", "328")
    assert.equal(sums(odd, "own"), sums(odd, "auto"))
    assert.equal(sums(long, "own"), sums(long, false))
  end)

  for _, one in ipairs {
    {"cuDNN is not there", {ACCELHOST_SIM_FAIL = "dnn:1+"}},
    {"cuDNN names no engine", {ACCELHOST_SIM_FAIL = "dnn:2+"}},
  } do
    case("is left to the program's own kernels where " .. one[1], function()
      assert.equal(sums(small, "own"), sums(small, "cudnn", one[2]))
    end)
  end

  case("is left to the program's own kernels after a run that failed", function()
    local result = on_sim(("for _ = 1, 2 do sums({%s}) end"):format(small),
      {ACCELHOST_CUDA_ATTENTION = "forward", ACCELHOST_SIM_FAIL = "dnn:3"})
    assert.equal(sums(small, "own"):rep(2), result.stdout, result.stderr)
  end)

  case("keeps its plans: a second run asks no heuristics", function()
    -- Opening, and for each direction heuristics and a run; then only runs, of which the last one here fails.
    local result = on_sim(("for _ = 1, 3 do sums({%s}) end"):format(small),
      {ACCELHOST_CUDA_ATTENTION = "cudnn", ACCELHOST_SIM_FAIL = "dnn:10+"})
    assert.equal(sums(small, "cudnn"):rep(3), result.stdout, result.stderr)
  end)

  case("without memory for its workspace is left to the program's own kernels", function()
    local code = ([[
      local shape = {%s}
      local given = draw(shape)
      for i = 1, 3 do given[i] = given[i]:to "bfloat16":to "cuda" end
      local y = F.scaled_dot_product_attention(given[1], given[2], given[3])
      print(("%%.17g"):format(y:transpose(1, 2):to "cpu":to "float64":sum():item()))]]):format(small)
    local function printed(choice, fail)
      local result = on_sim(code, {ACCELHOST_CUDA_ATTENTION = choice, ACCELHOST_SIM_FAIL = fail,
        ACCELHOST_CUDA_ALLOCATOR = "driver"})
      assert.equal(0, result.code, result.stderr)
      return result.stdout
    end
    local own, cudnn = printed "own", printed "cudnn"
    assert.not_equal(own, cudnn)
    -- Three inputs, the output and the logarithms of sums.
    assert.equal(own, printed("cudnn", "alloc:6+"))
  end)

  for _, one in ipairs {
    {"float32", small, "float32"},
    {"a width that is no multiple of 8", "queries = 40, keys = 24, width = 12", "bfloat16"},
  } do
    case("does not accept " .. one[1], function()
      local code = ("sums({%s}, %q)"):format(one[2], one[3])
      assert.equal(on_sim(code, {ACCELHOST_CUDA_ATTENTION = "own"}).stdout,
        on_sim(code, {ACCELHOST_CUDA_ATTENTION = "cudnn"}).stdout)
    end)
  end

  case("does not accept a mask", function()
    local code = [[
      local given = draw {queries = 16, keys = 16, width = 16}
      for i = 1, 3 do given[i] = given[i]:to "bfloat16":to "cuda" end
      local mask = accelhost.ones({16, 16}, {device = "cuda"}):to "bool":tril(2)
      local y = F.scaled_dot_product_attention(given[1], given[2], given[3], {attn_mask = mask})
      print(("%.17g"):format(y:to "cpu":to "float64":sum():item()))]]
    local own = on_sim(code, {ACCELHOST_CUDA_ATTENTION = "own"})
    assert.equal(0, own.code, own.stderr)
    assert.equal(own.stdout, on_sim(code, {ACCELHOST_CUDA_ATTENTION = "cudnn"}).stdout)
  end)

  case("is switched off by backends.cudnn.enabled = false", function()
    local code = ("accelhost.backends.cudnn.enabled = false\nsums({%s})"):format(small)
    assert.equal(sums(small, "own"), on_sim(code, {ACCELHOST_CUDA_ATTENTION = "cudnn"}).stdout)
  end)

  case("is captured with a step, and its replay returns the same to the bit", function()
    local result = on_sim([[
      local accelerator = accelhost.Accelerator()
      local weight = accelhost.randn({16, 48}, cpu):mul(0.3):to "bfloat16":to "cuda":requires_grad_()
      local x = accelhost.randn({2, 32, 16}, cpu):to "bfloat16":to "cuda"
      local function step(x)
        local qkv = x:matmul(weight):reshape(2, 32, 3, 2, 8)
        local y = F.scaled_dot_product_attention(qkv:select(2, 0):transpose(1, 2), qkv:select(2, 1):transpose(1, 2),
          qkv:select(2, 2):transpose(1, 2), {is_causal = true})
        weight.grad = nil
        local loss = y:float():square():sum()
        loss:backward()
        return loss, weight.grad
      end
      local loss, grad = step(x)
      local expected = {loss:item(), grad:to "cpu":to "float64"}
      local call = accelerator:compile(step)
      for _ = 1, 5 do
        local loss, grad = call(x)
        if loss:item() ~= expected[1] or not accelhost.equal(grad:to "cpu":to "float64", expected[2]) then
          print "differs"
        end
      end
      print(call.captured)]], {ACCELHOST_CUDA_ATTENTION = "cudnn"})
    run.prints("true\n", result)
  end)
end)

describe("ACCELHOST_CUDA_ATTENTION", function()
  case("names the choices where it is none of them", function()
    local result = on_sim("print(accelhost.ones({1}, {device = 'cuda'}))", {ACCELHOST_CUDA_ATTENTION = "flash"})
    assert.matches('ACCELHOST_CUDA_ATTENTION: expected "own", "auto", "forward", "cudnn" or "unordered", got "flash"',
      result.stderr, 1, true)
  end)
end)

describe("cuDNN itself", function()
  -- Its library, and a driver that it finds: the toolkit's stub where there is no card.
  local toolkit = os.getenv "CUDA_HOME" or "/usr/local/cuda"
  local stub = toolkit .. "/lib64/stubs/libcuda.so"

  it("has engines for each of attention's graphs on an H100", function()
    local library = toolkit .. "/lib64/libcudnn.so.9"
    if lfs.attributes(library, "mode") ~= "file" or lfs.attributes(stub, "mode") ~= "file" then
      return pending "needs cuDNN and CUDA's toolkit"
    end
    local folder = os.tmpname()
    os.remove(folder)
    assert(lfs.mkdir(folder))
    local program = folder .. "/check"
    local built = run.program {"cc", "-std=c11", "-D_GNU_SOURCE", "-Ihost", "-o", program,
      "spec/device/cuda_attention_dnn_check.c", "host/cuda/ops/linear/attention_graph.c",
      "host/cuda/vendor/dnn_plan.c", "-ldl"}
    assert.equal("", built.output)
    assert(lfs.link(stub, folder .. "/libcuda.so.1", true))
    local result = run.program({program, library},
      {env = {LD_LIBRARY_PATH = ("%s/lib64:%s"):format(toolkit, folder)}})
    os.remove(program)
    os.remove(folder .. "/libcuda.so.1")
    lfs.rmdir(folder)
    if result.code == 77 then return pending "needs cuDNN 9.13" end
    assert.equal(0, result.code, result.stderr)
    local cases = 0
    for line, count in result.stdout:gmatch "([^\n]-) (%-?%d+)\n" do
      cases = cases + 1
      assert.is_true(tonumber(count) > 0, line .. ": no engine")
    end
    assert.equal(36, cases)
  end)
end)
