--- Random numbers on a CUDA device, here the simulated GPU: Philox in PyTorch's order, and the generator's state.
local sim = require "spec.support.sim"

local HEAD = [[
  local accelhost = require "accelhost"
  local F, nn = accelhost.nn.functional, accelhost.nn
  accelhost.set_default_device "cuda"
]]

-- Return the output of a program on the simulated GPU.
local function on_sim(code, env)
  return sim.host(HEAD .. code, env)
end

local case = sim.case

local function gives(expected, code, env)
  local result = on_sim(code, env)
  assert.equal(expected, result.stdout, result.stderr)
end

describe("A CUDA device's generator", function()
  case("draws PyTorch's numbers, op after op, and ends at PyTorch's offset", function()
    gives("30\n", [[
      local cases, checked = require("spec.support.fixtures").load("cuda_random").cases, 0
      local names = {f16 = "float16", f32 = "float32", f64 = "float64", i64 = "int64", u8 = "uint8"}
      local scope = {accelhost = accelhost, F = F}
      for short, dtype in pairs(names) do scope[short] = {dtype = dtype} end
      local function near(a, b) return math.abs(a - b) <= 1e-6 * math.max(1, math.abs(b)) end
      accelhost.manual_seed(1234567890123)
      for _, case in ipairs(cases) do
        local drawn = setfenv(loadstring("return " .. case.call), scope)()
        local flat, state = drawn:to "cpu":to "float64":flatten(), accelhost.get_rng_state "cuda"
        for _, pair in ipairs(case.at) do
          local value = flat[pair[1] ]:item()
          if not near(value, pair[2]) then
            error(("%s: element %d: expected %.9g, got %.9g"):format(case.call, pair[1], pair[2], value))
          end
        end
        if not near(flat:sum():item(), case.sum) then
          error(("%s: sum: expected %.12g, got %.12g"):format(case.call, case.sum, flat:sum():item()))
        end
        local offset = state[8]:item() + 256 * state[9]:item() + 65536 * state[10]:item()
        if offset ~= case.offset then
          error(("%s: offset: expected %d, got %d"):format(case.call, case.offset, offset))
        end
        checked = checked + 1
      end
      print(checked)]])
  end)

  case("is seeded with all others and keeps its place apart from them", function()
    gives("true\ttrue\tfalse\n", [[
      accelhost.manual_seed(5)
      local a, b = accelhost.rand(9), accelhost.rand({9}, {device = "cuda:1"})
      accelhost.manual_seed(5)
      accelhost.rand({100}, {device = "cpu"})
      local c, d = accelhost.rand(9), accelhost.rand({9}, {device = "cuda:1"})
      print(a:equal(c), a:to "cuda:1":equal(b) and b:equal(d), a:equal(accelhost.rand(9)))]])
  end)

  case("has a state of 16 bytes, the seed and the offset, which restores it", function()
    gives("16\t7\t4\ttrue\n", [[
      accelhost.manual_seed(7)
      accelhost.rand(3)
      local state = accelhost.get_rng_state "cuda"
      local x = accelhost.randn(1000)
      accelhost.set_rng_state(state, "cuda")
      print(state:numel(), state[0]:item(), state[8]:item(), x:equal(accelhost.randn(1000)))]])
  end)

  case("resumes from a checkpoint, on every device that was used", function()
    gives("true\ttrue\n", [[
      local folder = os.tmpname()
      os.remove(folder)
      accelhost.set_default_device "cpu"
      local accelerator = accelhost.Accelerator{cpu = true}
      accelhost.rand({3}, {device = "cuda:1"})
      accelhost.rand({3}, {device = "cuda:0"})
      accelerator:save_state(folder)
      local function draw(device) return accelhost.randn({9}, {device = device}) end
      local a, b = draw "cuda:0", draw "cuda:1"
      accelerator:load_state(folder)
      print(a:equal(draw "cuda:0"), b:equal(draw "cuda:1"))
      os.execute("rm -r " .. folder)]])
  end)

  case("refuses a state that is none", function()
    local result = on_sim [[
      for _, bytes in ipairs{15, 16} do
        print(pcall(accelhost.set_rng_state, accelhost.ones({bytes}, {dtype = "uint8", device = "cpu"}), "cuda"))
      end]]
    assert.matches("generator state of cuda:0: expected 16 bytes, got 15", result.stdout, 1, true)
    assert.matches("cuda:0: not a state of this generator: its offset is no multiple of 4", result.stdout, 1, true)
  end)

  case("fills views in the order of their memory", function()
    gives("true\ttrue\ttrue\n", [[
      accelhost.manual_seed(1)
      local plain = accelhost.rand(4, 6)
      accelhost.manual_seed(1)
      local turned = accelhost.empty(4, 6):t():uniform_()
      accelhost.manual_seed(1)
      local wide = accelhost.zeros(4, 12)
      wide[{{}, {0, 12, 2}}]:uniform_()
      print(turned:t():equal(plain), wide[{{}, {0, 12, 2}}]:equal(plain), wide[{{}, {1, 12, 2}}]:eq(0):all():item())]])
  end)

  case("draws nothing where there is nothing to draw", function()
    gives("0\n", [[
      accelhost.manual_seed(1)
      accelhost.rand(0)
      accelhost.randperm(0)
      accelhost.ones(0):bernoulli()
      F.dropout(accelhost.ones(3), 0)
      F.dropout(accelhost.ones(3), 1)
      print(accelhost.get_rng_state "cuda"[{{8, 16}}]:sum():item())]])
  end)

  case("has the moments of its distributions", function()
    gives("true\ttrue\ttrue\ttrue\ttrue\ttrue\n", [[
      accelhost.manual_seed(3)
      local function near(x, mean, std)
        return math.abs(x:mean():item() - mean) < 0.04 * mean and math.abs(x:std():item() - std) < 0.06 * std
      end
      local n = {6000}
      print(near(accelhost.poisson(accelhost.full(n, 3)), 3, math.sqrt(3)),
        near(accelhost.poisson(accelhost.full(n, 63.5)), 63.5, math.sqrt(63.5)),
        near(accelhost.poisson(accelhost.full(n, 1000)), 1000, math.sqrt(1000)),
        near(accelhost.empty(n):exponential_(0.5), 2, 2), near(accelhost.empty(n):geometric_(0.25), 4, math.sqrt(12)),
        near(accelhost.empty(n, {dtype = "float64"}):log_normal_(0, 0.5), math.exp(1 / 8),
          math.sqrt((math.exp(1 / 4) - 1) * math.exp(1 / 4))))]])
  end)

  case("permutes all numbers, each order alike", function()
    gives("true\ttrue\n", [[
      local all = accelhost.randperm(2000):sort():equal(accelhost.arange(2000))
      local counts = {}
      accelhost.manual_seed(0)
      for _ = 1, 48 do
        local p = accelhost.randperm(3)
        local key = p[0]:item() * 9 + p[1]:item() * 3 + p[2]:item()
        counts[key] = (counts[key] or 0) + 1
      end
      local even, orders = true, 0
      for _, count in pairs(counts) do
        orders = orders + 1
        even = even and count < 20
      end
      print(all, even and orders == 6)]])
  end)

  case("draws classes by their weights, without replacement each once", function()
    gives("true\ttrue\ttrue\n", [[
      accelhost.manual_seed(4)
      local weights = accelhost.tensor{1, 0, 3, 6}
      local drawn = weights:multinomial(10000, true)
      local shares = accelhost.bincount(drawn, {minlength = 4}) / 10000
      local near = (shares:to "float32" - weights / 10):abs():max():item() < 0.02
      local once = weights:multinomial(3):sort():equal(accelhost.tensor({0, 2, 3}, {dtype = "int64"}))
      local rows = accelhost.tensor{{0, 1, 0}, {1, 0, 0}}:multinomial(1)
      rows = rows:equal(accelhost.tensor({{1}, {0}}, {dtype = "int64"}))
      print(near, once, rows)]])
  end)

  case("names weights, rates and probabilities that are none", function()
    local result = on_sim [[
      for _, f in ipairs{
        function() return accelhost.tensor{1, -1}:multinomial(1) end,
        function() return accelhost.tensor{1, 0 / 0}:multinomial(1) end,
        function() return accelhost.tensor{{1, 1, 0}, {1, 0, 0}}:multinomial(2) end,
        function() return accelhost.tensor{1, 1.5}:bernoulli() end,
        function() return accelhost.poisson(accelhost.tensor{-2, 1}) end} do print(select(2, pcall(f))) end]]
    for _, text in ipairs {
      "multinomial: expected finite weights of 0 or more, got -1 at position 1",
      "multinomial: expected finite weights of 0 or more, got nan at position 1",
      "multinomial: the number of weights above 0 1 at position 1 is outside 2..3",
      "bernoulli: expected probabilities in 0..1, got 1.5 at position 1",
      "poisson: expected finite rates of 0 or more, got -2 at position 0",
    } do assert.matches(text, result.stdout, 1, true) end
  end)
end)

describe("Dropout on a CUDA device", function()
  case("keeps its mask for the gradient, whatever the layout and the dtype", function()
    gives("12\n", [[
      local checked = 0
      for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
        local plain = accelhost.rand({64, 34}, {dtype = dtype}) + 1
        for _, x in ipairs{plain, plain:t(), plain[{{}, {0, 34, 2}}]} do
          x = x:detach():requires_grad_()
          local y = F.dropout(x, 0.25)
          y:sum():backward()
          local kept = y:ne(0)
          assert(math.abs(kept:to "float32":mean():item() - 0.75) < 0.05)
          local scale = kept:to(dtype) * (1 / 0.75)
          assert(accelhost.allclose(x.grad, scale, {rtol = 1e-2}), dtype)
          assert(accelhost.allclose(y, x * scale, {rtol = 1e-2}), dtype)
          checked = checked + 1
        end
      end
      print(checked)]])
  end)

  case("in place and on a view writes there alone, and shows NaN at dropped elements", function()
    gives("true\ttrue\n", [[
      local x = accelhost.ones(8, 8)
      x[{{}, {0, 8, 2}}]:dropout_(0.5)
      local y = F.dropout(accelhost.full({64}, 0 / 0), 0.5)
      print(x[{{}, {1, 8, 2}}]:eq(1):all():item() and x:eq(0):any():item(), y:isnan():all():item())]])
  end)
end)

describe("ACCELHOST_CUDA_RANDOM", function()
  case("lets the CPU's generator draw, whose numbers are the CPU's", function()
    gives("true\ttrue\n", [[
      accelhost.manual_seed(2)
      local there, mask = accelhost.randn(50), F.dropout(accelhost.ones(50))
      accelhost.manual_seed(2)
      local here = accelhost.randn({50}, {device = "cpu"})
      print(there:to "cpu":equal(here), mask:to "cpu":equal(F.dropout(accelhost.ones({50}, {device = "cpu"}))))]],
      {ACCELHOST_CUDA_RANDOM = "cpu"})
  end)

  case("accepts no other word", function()
    local result = on_sim("print(accelhost.rand(1))", {ACCELHOST_CUDA_RANDOM = "gpu"})
    assert.matches('ACCELHOST_CUDA_RANDOM: expected "device" or "cpu", got "gpu"', result.stderr, 1, true)
  end)
end)

describe("A Generator{device = 'cuda'}", function()
  case("draws the numbers that the device's own draws with its seed, and leaves its offset unchanged", function()
    gives("true\ttrue\ttrue\ttrue\ttrue\n", [[
      local g = accelhost.Generator{device = "cuda", seed = 7}
      local function draws(options)
        return accelhost.cat{accelhost.rand({9}, options), accelhost.randn({5}, options),
          accelhost.zeros(4):uniform_(2, 3, options), accelhost.full({6}, 0.5):bernoulli(options),
          accelhost.randperm(8, options):to "float32", accelhost.ones(4):multinomial(2, false, options):to "float32",
          nn.init.trunc_normal_(accelhost.zeros(4), 0, 1, -2, 2, options)}
      end
      accelhost.manual_seed(7)
      local expected, after = draws{}, accelhost.rand(3)
      accelhost.manual_seed(1)
      local before = accelhost.cuda.get_rng_state()
      local got = draws{generator = g}
      print(got:equal(expected), accelhost.rand(3, {generator = g}):equal(after), g:initial_seed() == 7,
        accelhost.cuda.get_rng_state():equal(before), not accelhost.rand(3):equal(after))]])
  end)

  case("has a state of 16 bytes, its seed and its offset, and continues from one", function()
    gives("cuda:0\tGenerator(own state, cuda:0)\n16\t5\n3\ttrue\ttrue\n", [[
      local g = accelhost.Generator("cuda"):manual_seed(5)
      print(g.device, g)
      print(#g:get_state():tolist(), g:initial_seed())
      accelhost.rand(2, {generator = g})
      local state, next = g:get_state(), accelhost.rand(2, {generator = g})
      g:manual_seed(3)
      local third = g:initial_seed()
      print(third, accelhost.rand(2, {generator = g:set_state(state)}):equal(next), g:seed() == g:initial_seed())]])
  end)

  case("draws on each device of its type, and on no other", function()
    gives("true\nrand: generator: expected a Generator of cpu, where the result is to be, got one of cuda:0\n"
      .. "rand: generator: expected a Generator of cuda:1, where the result is to be, got one of cpu\n"
      .. "expected a Generator of cpu, got one of cuda:0\n", [[
      local function told(fn, ...) print((select(2, pcall(fn, ...)):gsub("^%S+:%d+: ", ""))) end
      local g = accelhost.Generator{device = "cuda:0"}
      local x = accelhost.rand(3, {generator = g:manual_seed(2), device = "cuda:1"})
      print(x:to "cpu":equal(accelhost.rand(3, {generator = g:manual_seed(2)}):to "cpu"))
      told(accelhost.rand, 2, {generator = g, device = "cpu"})
      told(accelhost.rand, 2, {generator = accelhost.Generator(), device = "cuda:1"})
      local set = accelhost.data.TensorDataset(accelhost.zeros(4))
      told(accelhost.data.random_split, set, {2, 2}, {generator = g})]],
      {ACCELHOST_SIM_DEVICES = "2"})
  end)

  case("refuses values that are not states, a captured step, and a device whose numbers are the CPU's", function()
    gives("set_state: a state of cuda:0 has 16 bytes, got 5056\n"
      .. "cuda:0: not a state of this generator: its offset is no multiple of 4\n"
      .. "cuda:0: the generator cannot be set within a step that is being captured; set it before\n", [[
      local function told(fn, ...) print((select(2, pcall(fn, ...)):gsub("^%S+:%d+: ", ""))) end
      local g = accelhost.Generator "cuda"
      told(g.set_state, g, accelhost.get_rng_state())
      local state = g:get_state()
      state[8] = 1
      told(g.set_state, g, state)
      local step = accelhost.Accelerator():compile(function(x) return x + accelhost.rand(2, {generator = g}) end)
      for i = 1, 2 do step(accelhost.zeros(2)) end
      told(step, accelhost.zeros(2))]])
    local result = on_sim([[accelhost.Generator "cuda"]], {ACCELHOST_CUDA_RANDOM = "cpu"})
    assert.matches("Generator: device: cuda:0 has its random numbers drawn by the CPU's default generator",
      result.stderr, 1, true)
  end)
end)
