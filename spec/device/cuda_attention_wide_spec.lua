--- Attention of CUDA devices where the specs of ops do not reach: heads that are wider than its kernels, and copies to
--- the host, which the simulated GPU counts.
local sim = require "spec.support.sim"

local HEAD = [[
  local accelhost = require "accelhost"
  local F = accelhost.nn.functional
  COUNTS
  local function copies_to_host() return calls "cuMemcpyDtoHAsync_v2" + calls "cuMemcpyDtoH_v2" end
]]

local function case(sentence, expected, code)
  sim.case(sentence, function()
    local result = sim.host(HEAD .. code)
    assert.equal(expected, result.stdout, result.stderr)
  end)
end

describe("Attention by wide heads on a CUDA device", function()
  case("stays on the device for heads that are wider than its kernels", "0\n0\n0\n0\n", [[
    for _, dtype in ipairs {"float64", "float32", "bfloat16", "float16"} do
      accelhost.manual_seed(3)
      local here, far = {}, {}
      for i = 1, 3 do
        local x = accelhost.randn({1, 2, 20, 264}, {device = "cpu", dtype = "float64"})
        here[i] = x:to(dtype):double():requires_grad_()
        far[i] = here[i]:detach():to(dtype):to("cuda"):requires_grad_()
      end
      local function step(t)
        local out = F.scaled_dot_product_attention(t[1], t[2], t[3], {is_causal = true})
        return {out, unpack(accelhost.autograd.grad(out:float():square():sum(), t))}
      end
      step(far)
      local before = copies_to_host()
      local got = step(far)
      print(copies_to_host() - before)
      local wanted = step(here)
      local most = ({float64 = 1e-6, float32 = 1e-4, bfloat16 = 0.1, float16 = 0.02})[dtype]
      for i = 1, 4 do assert((got[i]:to "cpu":double() - wanted[i]):abs():max():item() < most) end
    end]])

  case("names the widest heads of sequences behind each other",
    "attention: expected fewer than 536870912 rows of float32 heads of at most 256 on cuda:0, got query (3, 1, 300) " ..
    "and value (3, 1, 300)\n", [[
    local t = accelhost.randn({3, 1, 300}, {device = "cuda"})
    local starts = accelhost.tensor({0, 3}, {dtype = "int32", device = "cuda"})
    local _, text = pcall(F.varlen_attn, t, t, t, starts, starts, 3, 3)
    print((tostring(text):gsub("^.-(attention: )", "%1")))]])

  sim.case("has the scores of a part of the queries in memory where no gradient is wanted", function()
    local result = sim.host(HEAD .. [[
      accelhost.manual_seed(4)
      local function part(...) return accelhost.randn {...} end
      local q, k, v = part(1, 1100, 260), part(1, 1000, 260), part(1, 1000, 4)
      local mask = part(1100, 1000):gt(0)
      local far = {q:cuda(), k:cuda(), v:cuda()}
      for _, given in ipairs {false, mask} do
        local wanted = F.scaled_dot_product_attention(q, k, v, {attn_mask = given or nil})
        accelhost.cuda.reset_peak_memory_stats()
        local before = accelhost.cuda.memory_allocated()
        local far_mask = given and given:cuda() or nil
        local got = F.scaled_dot_product_attention(far[1], far[2], far[3], {attn_mask = far_mask})
        local most = accelhost.cuda.max_memory_allocated() - before
        print((got:cpu() - wanted):abs():max():item() < 1e-4, most < 6 * 2 ^ 20)
      end]], {ACCELHOST_SIM_MEMORY = "24MiB"})
    assert.equal("true\ttrue\ntrue\ttrue\n", result.stdout, result.stderr)
  end)

  sim.case("computes gradients where the scores do not fit into memory, causal and with groups", function()
    local result = sim.host(HEAD .. [[
      accelhost.manual_seed(4)
      local shapes = {{1, 2, 1300, 260}, {1, 1, 1000, 260}, {1, 1, 1000, 264}}
      local here, far = {}, {}
      for i, shape in ipairs(shapes) do
        here[i] = accelhost.randn(shape, {dtype = "float64"}):requires_grad_()
        far[i] = here[i]:detach():float():cuda():requires_grad_()
      end
      local mask = accelhost.randn(1300, 1000):gt(0)
      local attend, by_ops = F.scaled_dot_product_attention, require("accelhost._C").attention_by_ops
      for _, causal in ipairs {true, false} do
        -- Output and gradients.
        local function step(fn, t, mask)
          local out = fn(t[1], t[2], t[3], mask, 0, causal, nil, true)
          return {out:detach(), unpack(accelhost.autograd.grad(out:square():sum(), t))}
        end
        local wanted = step(attend, here, not causal and mask or nil)
        local given = not causal and mask:cuda() or nil
        local got, worst = step(attend, far, given), 0
        for i = 1, 4 do
          local off = ((got[i]:cpu():double() - wanted[i]):abs():max() / wanted[i]:abs():max()):item()
          worst = math.max(worst, off)
        end
        got = nil
        collectgarbage() collectgarbage()
        -- With all scores, of 10 MiB, in memory at once it does not fit.
        local fits, text = pcall(step, by_ops, far, given)
        print(worst < 1e-5, fits, (text:match "out of memory"))
        collectgarbage() collectgarbage()
      end]], {ACCELHOST_SIM_MEMORY = "36MiB"})
    assert.equal(("true\tfalse\tout of memory\n"):rep(2), result.stdout, result.stderr)
  end)
end)
