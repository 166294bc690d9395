local Cma = require "accelhost.sweep.samplers.cma"
local eigen = require "accelhost.sweep.samplers.eigen"
local fixture = require("spec.support.fixtures").load("cma").cases
local samplers = require "accelhost.sweep.samplers"
local spaces = require "spec.support.spaces"
local stream = require "accelhost.sweep.stream"

local function near(expected, got, what)
  assert.is_true(math.abs(expected - got) <= 1e-9 * math.max(1, math.abs(expected)),
    ("%s: expected %.17g, got %.17g"):format(what, expected, got))
end

describe("CMA", function()
  it("learns the same from points as the package cmaes", function()
    for _, case in ipairs(fixture) do
      local mean = {}
      for i = 1, case.n do mean[i] = 0.5 end
      local cma = Cma(mean, 0.2, case.population)
      for i, weight in ipairs(case.weights) do near(weight, cma.weights[i], "weight") end
      for _, step in ipairs(case.generations) do
        cma:tell(step.points, step.losses[1], step.losses[case.population])
        near(step.sigma, cma.sigma, "sigma")
        for i = 1, case.n do
          near(step.mean[i], cma.mean[i], "mean")
          near(step.pc[i], cma.pc[i], "pc")
          near(step.p_sigma[i], cma.p_sigma[i], "p_sigma")
          for j = 1, case.n do near(step.covariance[(i - 1) * case.n + j], cma.covariance[i][j], "covariance") end
        end
      end
    end
  end)

  it("moves points far outside towards the mean", function()
    local near_by, far = Cma({0, 0}, 1, 6), Cma({0, 0}, 1, 6)
    local points = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}, {0.5, 0.5}, {0.2, 0}}
    near_by:tell(points, 0, 1)
    points[1] = {1e9, 0}
    far:tell(points, 0, 1)
    assert.is_true(far.mean[1] < 3 and far.sigma < 3)
  end)
end)

describe("eigenvalues", function()
  it("decompose a matrix whose parts make it again", function()
    local draws, n, matrix = stream.new(3, 0), 12, {}
    for i = 1, n do matrix[i] = {} end
    for i = 1, n do
      for k = 1, i do
        matrix[i][k] = draws:normal() * 10 ^ (i % 4)
        matrix[k][i] = matrix[i][k]
      end
    end
    local values, vectors = eigen.decompose(matrix)
    for i = 1, n do
      for k = 1, n do
        local sum, product = 0, 0
        for j = 1, n do
          sum = sum + vectors[i][j] * values[j] * vectors[k][j]
          product = product + vectors[j][i] * vectors[j][k]
        end
        assert.near(matrix[i][k], sum, 1e-10 * 1000)
        assert.near(i == k and 1 or 0, product, 1e-12)
      end
    end
  end)

  it("bear zeros and equal values", function()
    local values = eigen.decompose {{0, 0, 0}, {0, 2, 0}, {0, 0, 2}}
    table.sort(values)
    assert.same({0, 2, 2}, values)
  end)
end)

local function plane(dimensions)
  local space = {}
  for i = 1, dimensions do space[i] = spaces.float(("x%02d"):format(i), -5, 5) end
  return space
end

local function rosenbrock(params, dimensions)
  local sum = 0
  for i = 1, dimensions - 1 do
    local a, b = params[("x%02d"):format(i)], params[("x%02d"):format(i + 1)]
    sum = sum + 100 * (b - a * a) ^ 2 + (1 - a) ^ 2
  end
  return sum
end

-- The least loss of a study with `count` trials, `parallel` of them at a time, that end in another order than they
-- began.
local function least_loss(sampler, count, parallel, loss_of)
  local running, least, draws = {}, math.huge, stream.new(0, 0)
  for number = 0, count - 1 do
    running[#running + 1] = {number = number, params = sampler:suggest(number, running), state = "running"}
    if #running == parallel then
      local trial = table.remove(running, draws:below(parallel) + 1)
      trial.state = "complete"
      local loss = loss_of(trial.params)
      least = math.min(least, loss)
      sampler:observe(trial, loss)
    end
  end
  return least
end

describe("the CMA-ES sampler", function()
  it("descends Rosenbrock's valley, one trial at a time or eight", function()
    for _, parallel in ipairs {1, 8} do
      local sampler = samplers.new("cmaes", 1):setup(plane(4))
      assert.is_true(least_loss(sampler, 2000, parallel, function(params) return rosenbrock(params, 4) end) < 1e-2)
    end
  end)

  it("does not mind the order in which the trials of a generation end", function()
    local forth, back = samplers.new("cmaes", 1):setup(plane(3)), samplers.new("cmaes", 1):setup(plane(3))
    local trials = {}
    for number = 0, 6 do
      trials[number] = {number = number, params = forth:suggest(number, {}), state = "complete"}
    end
    for number = 0, 6 do
      forth:observe(trials[number], rosenbrock(trials[number].params, 3))
      back:observe(trials[6 - number], rosenbrock(trials[6 - number].params, 3))
    end
    assert.equal(1, forth.cma.generation)
    assert.same(forth:suggest(7, {}), back:suggest(7, {}))
  end)

  it("finds integers and steps without getting stuck on one", function()
    local space = {spaces.int("a", -50, 50), spaces.int("b", 1, 1000, {log = true}),
      spaces.float("c", 0, 1, {step = 0.05}), spaces.float("d", -1, 1)}
    local function loss(params)
      return (params.a - 31) ^ 2 / 100 + math.abs(math.log(params.b / 7)) + (params.c - 0.85) ^ 2 * 10
        + (params.d - 0.3) ^ 2
    end
    for seed = 1, 3 do
      assert.is_true(least_loss(samplers.new("cmaes", seed):setup(space), 500, 1, loss) < 0.01)
    end
  end)

  it("restarts with twice the points when nothing is left to learn", function()
    local sampler = samplers.new("cmaes", 2):setup(plane(2))
    local first = sampler.cma.population
    least_loss(sampler, 1000, 1, function(params) return params.x01 ^ 2 + params.x02 ^ 2 end)
    assert.is_true(sampler.cma.population >= 2 * first)
    local same = samplers.new({"cmaes", restarts = false}, 2):setup(plane(2))
    least_loss(same, 1000, 1, function(params) return params.x01 ^ 2 + params.x02 ^ 2 end)
    assert.equal(first, same.cma.population)
  end)

  it("leaves choices and dependent parameters to TPE", function()
    local sampler = samplers.new("cmaes", 1):setup(spaces.mixed)
    local names = {}
    for i, parameter in ipairs(sampler.numbers) do names[i] = parameter.name end
    assert.same({"dropout", "layers", "lr", "scale", "width", "words"}, names)
    local count, adam = 0, 0
    least_loss(sampler, 160, 1, function(params)
      count = count + 1
      if count > 120 and params.optimizer == "adam" then adam = adam + 1 end
      return (params.optimizer == "adam" and 0 or 3) + math.abs(math.log(params.lr / 0.01))
    end)
    assert.is_true(adam >= 30, tostring(adam))
  end)

  it("ranks pruned trials after complete ones", function()
    local sampler = samplers.new({"cmaes", popsize = 4}, 1):setup(plane(2))
    for number = 0, 3 do
      local x = number < 2 and 4 or -4
      sampler:observe({number = number, params = {x01 = x, x02 = 0}, state = number < 2 and "complete" or "pruned",
        reports = {{step = 1, value = 0}}}, number < 2 and 5 or 0)
    end
    assert.equal(1, sampler.cma.generation)
    assert.is_true(sampler.cma.mean[1] > 0.5)
  end)
end)
