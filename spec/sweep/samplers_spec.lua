-- Properties of every sampler.
local samplers = require "accelhost.sweep.samplers"
local spaces = require "spec.support.spaces"

local names = {}
for _, name in ipairs(samplers.names()) do
  if name ~= "grid" then names[#names + 1] = name end
end

local function observe(sampler, number, params, loss, state)
  sampler:observe({number = number, params = params, state = state or "complete", reports = {{step = 3, value = loss}}},
    loss)
end

-- Trials one after another.
local function study(sampler, count, loss_of)
  local trials = {}
  for number = 0, count - 1 do
    local params = sampler:suggest(number, {})
    trials[number + 1] = {number = number, params = params, loss = loss_of(params, number)}
    observe(sampler, number, params, trials[number + 1].loss)
  end
  return trials
end

local function differ(a, b)
  for name, value in pairs(a) do
    if b[name] ~= value then return true end
  end
  return false
end

for _, name in ipairs(names) do
  describe("the sampler " .. name, function()
    local space = spaces.mixed

    it("keeps to ranges, steps, choices and conditions", function()
      local sampler = samplers.new(name, 5):setup(space)
      for _, trial in ipairs(study(sampler, 60, spaces.loss)) do
        assert.is_nil(spaces.problem(space, trial.params))
      end
    end)

    it("reaches all choices and both halves of every range", function()
      local sampler = samplers.new(name, 1):setup(space)
      local seen = {}
      for number = 0, 99 do
        local params = sampler:suggest(number, {})
        for _, parameter in ipairs(space) do
          local value = params[parameter.name]
          if parameter.choices and value ~= nil then
            seen[parameter.name .. tostring(value)] = true
          elseif value then
            local middle = parameter.log and math.sqrt(parameter.low * parameter.high)
              or (parameter.low + parameter.high) / 2
            seen[parameter.name .. (value <= middle and " low" or " high")] = true
          end
        end
      end
      for _, parameter in ipairs(space) do
        for _, choice in ipairs(parameter.choices or {}) do
          assert.is_true(seen[parameter.name .. tostring(choice)], parameter.name)
        end
        if not parameter.choices and parameter.high > parameter.low then
          assert.is_true(seen[parameter.name .. " low"], parameter.name)
          assert.is_true(seen[parameter.name .. " high"], parameter.name)
        end
      end
    end)

    it("draws the same again when the history is replayed", function()
      local first = samplers.new(name, 9):setup(space)
      local trials = study(first, 40, spaces.loss)
      local second = samplers.new(name, 9):setup(space)
      for _, trial in ipairs(trials) do observe(second, trial.number, trial.params, trial.loss) end
      for number = 40, 44 do
        assert.same(first:suggest(number, {}), second:suggest(number, {}))
        assert.same(first:suggest(number, {}), first:suggest(number, {}))
      end
    end)

    it("draws others with another seed, for another trial and for another attempt", function()
      local sampler, other = samplers.new(name, 1):setup(space), samplers.new(name, 2):setup(space)
      local lr = sampler:suggest(0, {}).lr
      assert.not_equal(lr, other:suggest(0, {}).lr)
      assert.not_equal(lr, sampler:suggest(1, {}).lr)
      assert.not_equal(lr, sampler:suggest(0, {}, 1).lr)
    end)

    it("bears losses that are infinite or no numbers, and failures", function()
      local sampler = samplers.new(name, 3):setup(space)
      local odd = {1 / 0, -1 / 0, 0 / 0, 1, 2}
      study(sampler, 40, function(params, number) return odd[number % 5 + 1] end)
      for number = 40, 59 do observe(sampler, number, sampler:suggest(number, {}), nil, "failed") end
      assert.is_nil(spaces.problem(space, sampler:suggest(60, {})))
    end)

    it("continues when all trials fail, or all reach the same", function()
      local failing, same = samplers.new(name, 3):setup(space), samplers.new(name, 3):setup(space)
      study(failing, 40, function() return nil end)
      study(same, 40, function() return 1 end)
      assert.is_nil(spaces.problem(space, failing:suggest(40, {})))
      assert.is_nil(spaces.problem(space, same:suggest(40, {})))
    end)

    it("spreads trials that run at the same time", function()
      local sampler = samplers.new(name, 4):setup(spaces.numbers)
      study(sampler, 40, spaces.loss)
      local running = {}
      for number = 40, 47 do
        running[#running + 1] = {number = number, params = sampler:suggest(number, running), state = "running"}
      end
      for i, trial in ipairs(running) do
        for k = 1, i - 1 do assert.is_true(differ(trial.params, running[k].params)) end
      end
    end)

    it("accepts values that are not of the space, as queued trials have", function()
      local sampler = samplers.new(name, 6):setup(space)
      for number = 0, 30 do
        observe(sampler, number, {lr = 7, layers = 99, activation = "swish", optimizer = "lion"}, number)
      end
      assert.is_nil(spaces.problem(space, sampler:suggest(31, {})))
    end)

    it("accepts ranges that are very small, very large or hold two values", function()
      for _, odd in ipairs {
        {spaces.float("a", 1, 1 + 1e-15), spaces.int("b", -2 ^ 52, 2 ^ 52)},
        {spaces.float("a", 0, 1, {step = 0.3}), spaces.categorical("c", {"x"}), spaces.int("d", 1, 2, {log = true})},
        {spaces.float("a", 1e-9, 1e-8, {step = 1e-9, log = true}), spaces.int("d", 1, 1e9, {log = true})},
        {spaces.float("a", 1e-300, 1e300, {log = true}), spaces.float("b", -1e-200, 1e-200)},
      } do
        local sampler = samplers.new(name, 1):setup(odd)
        for _, trial in ipairs(study(sampler, 60, function(_, number) return math.sin(number) end)) do
          assert.is_nil(spaces.problem(odd, trial.params))
        end
      end
    end)

    it("accepts a space with one point, and one without parameters", function()
      local sampler = samplers.new(name, 0):setup {spaces.float("x", 2, 2), spaces.int("n", 3, 3)}
      study(sampler, 30, function() return 1 end)
      assert.same({x = 2, n = 3}, sampler:suggest(30, {}))
      local empty = samplers.new(name, 0):setup {}
      study(empty, 30, function() return 1 end)
      assert.same({}, empty:suggest(30, {}))
    end)
  end)
end

describe("samplers", function()
  it("are made of a name, a name with options, or are given", function()
    local made = samplers.new({"random", seed = 4}, 9)
    assert.equal(4, made.seed)
    assert.equal(9, samplers.new("random", 9).seed)
    assert.equal(made, samplers.new(made))
    assert.equal("UniformSampler", samplers.new {name = "random"}._name)
  end)

  it("may be one's own, from a class of accelhost.sweep", function()
    local sweep = require("accelhost").sweep
    local Fixed = sweep.BaseSampler:extend "Fixed"
    function Fixed:suggest(number, running, attempt)
      local params = self:draw(self:stream(number, attempt))
      params.x = 1
      return params
    end
    local own = Fixed {seed = 2}
    assert.equal(own, samplers.new(own, 7))
    own:setup(spaces.numbers)
    assert.equal(1, own:suggest(3).x)
    assert.equal(samplers.new("random", 2):setup(spaces.numbers):suggest(3).y, own:suggest(3).y)
    assert.equal(7, sweep.TPESampler({n_ei_candidates = 7}).n_ei_candidates)
    assert.equal("halton", sweep.QuasiRandomSampler("halton").sequence)
  end)

  it("refuse unknown names, with the nearest name", function()
    assert.error_matches(function() samplers.new "randm" end, "there is no sampler 'randm'.*did you mean 'random'")
    assert.error_matches(function() samplers.new {"random", sede = 3} end, "unknown option 'sede'.*did you mean 'seed'")
    assert.error_matches(function() samplers.new(3) end, "sampler: expected a name or .*, got number 3")
    assert.error_matches(function() samplers.new {seed = 3} end, "sampler: expected its name first")
    assert.error_matches(function() samplers.new {"random", seed = "x"} end, "seed: expected an integer, got 'x'")
  end)
end)
