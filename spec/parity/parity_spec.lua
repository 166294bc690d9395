local accelhost = require "accelhost"
local fixtures = require "spec.support.fixtures"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local datasets = require "spec.support.datasets"

local generated = "parity"
local real = "parity_mnist"
local fixture = fixtures.load(generated)
local mnist_fixture = fixtures.load(real)

local function bits_of(tensor, count)
  local bits = {}
  tensor:detach():clone():with_data(function(pointer)
    local words = require("ffi").cast("uint32_t *", pointer)
    for i = 0, count - 1 do bits[i + 1] = tonumber(words[i]) end
  end)
  return bits
end

-- BasicNet's curves in float64 take minutes: make test-curves, which CI runs too, follows them to their end. The first
-- 5 losses contain 4 steps of an optimizer: a wrong gradient, mask or moment changes the next one by more than 1e-9.
local full = os.getenv("ACCELHOST_PARITY") == "full"
local function steps_of(options)
  if full or options.net == "mlp" or options.dtype == "float32" then return options.steps end
  return math.min(options.steps, 5)
end

-- float64 leaves only the order of additions; float32 drifts apart over the steps, with AdamW sooner: it makes a whole
-- step of a gradient that is nothing but rounding. All are relative to the loss; after 20 steps of float32, when it is
-- small and the drift is not, to a loss of 1 at least.
local function tolerance_of(options, step, loss)
  if options.dtype == "float64" then return 1e-9 * loss end
  if step <= (options.optimizer == "sgd" and 20 or 3) then return 1e-5 * loss end
  return step <= 20 and 1e-4 * loss or (step <= 50 and 2e-2 or 3e-2) * math.max(loss, 1)
end

-- Train in `ranks` processes and compare every loss with PyTorch's.
local function expect_curve(path, options, ranks, dir)
  local steps = steps_of(options)
  local words = {"launch", "--num_processes", ranks, "spec/parity/train.lua", path, options.name, steps}
  words[#words + 1] = dir
  local result = run.host(words, {timeout = 300})
  assert.equal(0, result.code, result.output)
  local losses = {}
  for text in result.stdout:gmatch("loss (%S+)") do losses[#losses + 1] = tonumber(text) end
  assert.equal(steps, #losses, result.output)
  for step, loss in ipairs(losses) do
    local expected = options.losses[step]
    local difference = math.abs(loss - expected)
    if not (difference <= tolerance_of(options, step, math.abs(expected))) then
      error(("step %d: PyTorch's loss is %.17g, ours %.17g (off by %.2g)"):format(step, expected, loss, difference), 0)
    end
  end
  local sum = tonumber(result.stdout:match("weight_sum (%S+)"))
  if options.dtype == "float64" and steps == options.steps then
    assert.near(options.weight_sum, sum, 1e-6)
  end
end

describe("parity with PyTorch", function()
  for net, parameters in pairs(fixture.weights) do
    it("draws the same initial weights for " .. net, function()
      accelhost.manual_seed(fixture.seed)
      local model = dofile("spec/parity/nets.lua")[net](true)
      local at = 0
      for name, parameter in model:named_parameters() do
        at = at + 1
        local expected = parameters[at]
        assert.equal(expected.name, name)
        assert.same(expected.bits, bits_of(parameter, #expected.bits), name)
        assert.near(expected.sum, parameter:detach():to("float64"):sum():item(), 1e-10)
      end
      assert.equal(#parameters, at)
    end)
  end

  for _, source in ipairs {fixture, mnist_fixture} do
    for _, shuffle in ipairs(source.shuffles) do
      it(("shuffles %d samples into the same order, pass after pass"):format(shuffle.count), function()
        local data = accelhost.data
        accelhost.manual_seed(source.seed)
        local set = data.TensorDataset(accelhost.arange(shuffle.count))
        local loader = data.DataLoader(set, {batch_size = 64, shuffle = true})
        for _, expected in ipairs(shuffle.epochs) do
          local first
          for indices in loader do
            first = first or indices:tolist()
            if first then break end
          end
          assert.same(expected, first)
        end
        assert.same(shuffle.rand_after, accelhost.rand(#shuffle.rand_after):tolist())
      end)
    end
  end

  -- With dropout several processes draw the same masks for different samples, so that their curve is not that of one
  -- process; without it the curve is the same for any number of processes.
  local function most_ranks(options)
    if options.dropout or options.batch % 6 ~= 0 then return 1 end
    if options.net == "mlp" or options.steps <= 10 then return 3 end
    return options.optimizer == "sgd" and options.dtype == "float64" and 3 or 2
  end

  local function title(options, where, ranks)
    return ("follows %s on %s in %d process%s"):format(options.name, where, ranks, ranks > 1 and "es" or "")
  end

  for _, options in ipairs(fixture.runs) do
    for ranks = 1, most_ranks(options) do
      it(title(options, "generated images", ranks), function()
        expect_curve(generated, options, ranks)
      end)
    end
  end

  -- MNIST's files without compression, once for all runs: decompressing them is most of the start of a run.
  local unpacked
  local function unpack_mnist(dir)
    if unpacked then return unpacked end
    unpacked = folder.make()
    local copy = 'cp "$0"/* "$1" && for file in "$1"/*.gz; do [ ! -e "$file" ] || gzip -d "$file" || exit; done'
    run.succeeds(run.program {"sh", "-c", copy, dir, unpacked})
    return unpacked
  end
  teardown(function()
    if unpacked then folder.remove(unpacked) end
  end)

  for _, options in ipairs(mnist_fixture.runs) do
    for ranks = 1, most_ranks(options) do
      datasets.it(title(options, "MNIST", ranks), "mnist", function(dir)
        expect_curve(real, options, ranks, unpack_mnist(dir))
      end)
    end
  end

  for ranks = 2, 3 do
    it(("has the same bits twice in %d processes, dropout included"):format(ranks), function()
      local first
      for _ = 1, 2 do
        local result = run.host({"launch", "--num_processes", ranks, "spec/parity/train.lua", generated,
          "basic_adamw_f32_dropout", 4}, {timeout = 300})
        assert.equal(0, result.code, result.output)
        assert.equal(4, select(2, result.stdout:gsub("loss ", "")))
        assert.matches("weight_bits %x+\n$", result.stdout)
        first = first or result.stdout
        assert.equal(first, result.stdout)
      end
    end)
  end
end)
