local History = require "accelhost.sweep.samplers.history"
local domain = require "accelhost.sweep.samplers.domain"
local fixture = require("spec.support.fixtures").load "parzen"
local parzen = require "accelhost.sweep.samplers.parzen"
local samplers = require "accelhost.sweep.samplers"
local spaces = require "spec.support.spaces"
local stream = require "accelhost.sweep.stream"

-- The space of scripts/fixtures/parzen.py, where choices are given by their index.
local space = {
  spaces.categorical("c", {0, 1, 2}), spaces.float("f", -2, 3), spaces.int("i", 1, 12),
  spaces.float("l", 1e-4, 10, {log = true}), spaces.int("m", 1, 300, {log = true}),
  spaces.float("q", 0, 1, {step = 0.25}), spaces.int("w", 0, 20000, {step = 4}),
}

local function trial_of(columns, k)
  local params = {}
  for name, column in pairs(columns) do params[name] = column[k] end
  return params
end

local function near(expected, got, tolerance)
  assert.is_true(math.abs(expected - got) <= tolerance * math.max(1, math.abs(expected)),
    ("expected %.17g, got %.17g"):format(expected, got))
end

-- The estimator of all trials of a fixture.
local function estimator_of(case)
  local read = domain.read(space)
  local history = History(read)
  for k = 1, #case.observed.c do
    history:add({number = k - 1, params = trial_of(case.observed, k), state = "complete"}, k)
  end
  history:settle()
  return parzen.new(read.parameters, history:part(read.parameters, {}, false)), read
end

describe("the Parzen estimator", function()
  it("has Optuna's weights and widths of kernels", function()
    for _, case in ipairs(fixture.estimators) do
      local estimator = estimator_of(case)
      assert.equal(#case.weights, estimator.count)
      for k, weight in ipairs(case.weights) do near(weight, estimator.weights[k], 1e-14) end
      for i, parameter in ipairs(space) do
        -- Of trials with the same value it is left open which one has a neighbour.
        local expected, got = {unpack(case.sigmas[parameter.name] or {})}, {unpack(estimator.dims[i].sigmas or {})}
        table.sort(expected)
        table.sort(got)
        for k, sigma in ipairs(expected) do near(sigma, got[k], 1e-13) end
      end
    end
  end)

  it("returns Optuna's log densities", function()
    for _, case in ipairs(fixture.estimators) do
      local estimator = estimator_of(case)
      for k, expected in ipairs(case.density) do
        local values = {}
        for i, parameter in ipairs(space) do values[i] = case.points[parameter.name][k] end
        near(expected, estimator:log_density(values), 2e-6)
      end
    end
  end)

  it("has densities whose sum over all values is 1", function()
    local three = {spaces.categorical("c", {"a", "b", "c"}), spaces.int("m", 1, 30, {log = true}),
      spaces.float("q", 0, 1, {step = 0.25})}
    local read, sum = domain.read(three), 0
    local history = History(read)
    for k, params in ipairs {{c = "a", m = 2, q = 0}, {c = "a", m = 2, q = 0.75}, {c = "b", m = 30, q = 1}} do
      history:add({number = k, params = params, state = "complete"}, 1)
    end
    history:settle()
    local estimator = parzen.new(read.parameters, history:part(read.parameters, {}, false))
    for m = 1, 30 do
      for q = 0, 4 do
        for _, c in ipairs {"a", "b", "c"} do sum = sum + math.exp(estimator:log_density {c, m, q / 4}) end
      end
    end
    near(1, sum, 1e-7)
  end)

  it("draws from its densities", function()
    local read = domain.read {spaces.int("n", 0, 4), spaces.categorical("c", {"a", "b", "c"})}
    local estimator = parzen.new(read.parameters, {{3, 3, 1}, {0, 0, 2}}, {{3, 1, 2}}, 3)
    local draws, counts, total = stream.new(1, 0), {}, 40000
    for _ = 1, total do
      local values = estimator:sample(draws)
      local key = values[1] .. values[2]
      counts[key] = (counts[key] or 0) + 1
    end
    for n = 0, 4 do
      for _, c in ipairs {"a", "b", "c"} do
        local part = math.exp(estimator:log_density {n, c})
        assert.near(part, (counts[n .. c] or 0) / total, 5 * math.sqrt(part / total))
      end
    end
  end)
end)

describe("the TPE sampler", function()
  it("counts the same trials as good as Optuna, pruned ones by their last step", function()
    for _, case in ipairs(fixture.splits) do
      local history = History(domain.read {})
      for n, row in ipairs(case.trials) do
        local trial = {number = n - 1, params = {}, state = row[2] and "pruned" or "complete",
          reports = row[2] and {{step = row[2], value = row[1]}}}
        history:add(trial, row[1])
      end
      local good, best = {}, history:best(25)
      for id = 1, history.count do
        if best[id] then good[#good + 1] = history.numbers[id] end
      end
      assert.same(case.good, good)
    end
  end)

  -- Trials whose loss is least at x = 3, lr = 0.01 and with adam.
  local function told(sampler, count, order)
    local random = samplers.new("random", 3):setup(spaces.mixed)
    for i = 0, count - 1 do
      local number = order and order(i) or i
      local params = random:suggest(number)
      sampler:observe({number = number, params = params, state = "complete"}, math.abs(math.log(params.lr / 0.01))
        + (params.optimizer == "sgd" and 3 or 0) + (params["optimizer.beta"] or 0))
    end
    return sampler
  end

  it("does not mind the order in which trials ended", function()
    local forth = told(samplers.new("tpe", 1):setup(spaces.mixed), 50)
    local back = told(samplers.new("tpe", 1):setup(spaces.mixed), 50, function(i) return 49 - i end)
    local mixed = told(samplers.new("tpe", 1):setup(spaces.mixed), 50, function(i) return i * 7 % 50 end)
    assert.same(forth:suggest(50, {}), back:suggest(50, {}))
    assert.same(forth:suggest(50, {}), mixed:suggest(50, {}))
  end)

  it("finds good values of choices, numbers and parameters that depend on others", function()
    local sampler = told(samplers.new("tpe", 1):setup(spaces.mixed), 100)
    local adam, near_lr, beta = 0, 0, 0
    for number = 100, 139 do
      local params = sampler:suggest(number, {})
      if params.optimizer == "adam" then adam = adam + 1 end
      if math.abs(math.log(params.lr / 0.01)) < 1 then near_lr = near_lr + 1 end
      if (params["optimizer.beta"] or 1) < 0.9 then beta = beta + 1 end
    end
    assert.is_true(adam >= 35)
    assert.is_true(near_lr >= 30)
    assert.is_true(beta >= 20)
  end)

  it("suggests points away from running trials", function()
    local plane = {spaces.float("x", -5, 5), spaces.float("y", -5, 5)}
    -- The least distance between eight suggestions that run at the same time.
    local function least_distance(seed, with_running)
      local sampler, running, least = samplers.new("tpe", seed):setup(plane), {}, math.huge
      for number = 0, 19 do
        local params = sampler:suggest(number, {})
        sampler:observe({number = number, params = params, state = "complete"}, (params.x - 1) ^ 2 + params.y ^ 2)
      end
      for number = 20, 27 do
        local trial = {number = number, params = sampler:suggest(number, with_running and running or {})}
        for _, other in ipairs(running) do
          local x, y = other.params.x - trial.params.x, other.params.y - trial.params.y
          least = math.min(least, math.sqrt(x * x + y * y))
        end
        running[#running + 1] = trial
      end
      return least
    end
    for seed = 1, 4 do
      assert.is_true(least_distance(seed, true) > 0.5)
      assert.is_true(least_distance(seed, false) < 0.5)
    end
  end)

  it("learns from the reports of a paused trial", function()
    local function suggested(loss)
      local sampler = samplers.new({"tpe", n_startup_trials = 0}, 2):setup(spaces.numbers)
      for number = 0, 8 do
        sampler:observe({number = number, params = sampler:draw(sampler:stream(number)), state = "pruned",
          reports = {{step = 1, value = 1}}}, 1)
      end
      local paused = {number = 9, params = {x = 4, y = 0.1, z = 3}, state = "paused", loss = loss,
        reports = {{step = 1, value = loss}}}
      local sum = 0
      for number = 10, 29 do sum = sum + math.abs(sampler:suggest(number, {paused}).x - 4) end
      return sum
    end
    assert.is_true(suggested(0.1) < suggested(9))
  end)

  it("is random until enough trials have ended, failures aside", function()
    local sampler, random = samplers.new("tpe", 5):setup(space), samplers.new("random", 5):setup(space)
    for number = 0, 9 do
      assert.same(random:suggest(number), sampler:suggest(number, {}))
      sampler:observe({number = number, params = sampler:suggest(number), state = "complete"}, number)
      sampler:observe({number = 100 + number, params = sampler:suggest(number), state = "failed"}, nil)
    end
    assert.not_same(random:suggest(10), sampler:suggest(10, {}))
  end)

  it("gets closer to the best than random search does", function()
    local plane = {spaces.float("x", -5, 10), spaces.float("y", 0, 15)}
    -- Branin's function, whose least value is 0.3979.
    local function branin(params)
      local a = params.y - 5.1 / (4 * math.pi ^ 2) * params.x ^ 2 + 5 / math.pi * params.x - 6
      return a * a + 10 * (1 - 1 / (8 * math.pi)) * math.cos(params.x) + 10
    end
    local function regret(name)
      local list = {}
      for seed = 1, 11 do
        local sampler, least = samplers.new(name, seed):setup(plane), math.huge
        for number = 0, 99 do
          local params = sampler:suggest(number, {})
          local loss = branin(params)
          least = math.min(least, loss)
          sampler:observe({number = number, params = params, state = "complete"}, loss)
        end
        list[seed] = least - 0.397887
      end
      table.sort(list)
      return list[6]
    end
    assert.is_true(regret "tpe" < regret "random" / 3)
  end)

  it("needs less than 20 ms with 10,000 trials of 5 parameters, and little memory", function()
    local five = {spaces.float("a", 0, 1), spaces.int("b", 1, 300), spaces.categorical("c", {"x", "y", "z"}),
      spaces.float("d", 1e-5, 1, {log = true}), spaces.float("e", -1, 1)}
    local random, sampler = samplers.new("random", 5):setup(five), samplers.new("tpe", 1):setup(five)
    collectgarbage()
    local before = collectgarbage "count"
    for number = 0, 9999 do
      local params = random:suggest(number)
      sampler:observe({number = number, params = params, state = "complete"}, params.a + params.b / 300)
    end
    local least = math.huge
    for number = 10000, 10011 do
      local begin = os.clock()
      local params = sampler:suggest(number, {})
      least = math.min(least, os.clock() - begin)
      sampler:observe({number = number, params = params, state = "complete"}, params.a + params.b / 300)
    end
    local slowness = tonumber(os.getenv "ACCELHOST_TEST_SLOWNESS") or 1
    assert.is_true(least < 0.02 * slowness, ("%.1f ms"):format(1e3 * least))
    collectgarbage()
    assert.is_true(collectgarbage "count" - before < 8192)
  end)
end)
