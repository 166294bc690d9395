local fixture = require("spec.support.fixtures").load "quasi_random"
local samplers = require "accelhost.sweep.samplers"
local sobol = require "accelhost.sweep.samplers.sobol"
local spaces = require "spec.support.spaces"

local function cube(dimensions)
  local space = {}
  for i = 1, dimensions do space[i] = spaces.float(("x%02d"):format(i), 0, 1) end
  return space
end

describe("quasi-random search", function()
  it("has SciPy's points of Sobol's sequence in 64 dimensions", function()
    for number, row in pairs(fixture.sobol) do
      for dimension, expected in ipairs(row) do
        assert.equal(expected, sobol.bits(number, dimension) % 2 ^ 32 / 4)
      end
    end
    local sampler = samplers.new({"sobol", scramble = false}):setup(cube(64))
    for number, row in pairs(fixture.sobol) do
      local params = sampler:suggest(number, {})
      for dimension, expected in ipairs(row) do
        assert.equal(expected / 2 ^ 30, params[("x%02d"):format(dimension)])
      end
    end
  end)

  it("has SciPy's points of Halton's sequence", function()
    local sampler = samplers.new({"halton", scramble = false}):setup(cube(20))
    for number, row in pairs(fixture.halton) do
      local params = sampler:suggest(number, {})
      for dimension, expected in ipairs(row) do
        assert.near(expected, params[("x%02d"):format(dimension)], 1e-9)
      end
    end
  end)

  it("has one scrambled point of 64 in each of 64 slices of every dimension, by every seed", function()
    for seed = 1, 3 do
      local sampler, seen = samplers.new("sobol", seed):setup(cube(64)), {}
      for number = 0, 63 do
        for name, x in pairs(sampler:suggest(number, {})) do
          local slice = name .. math.floor(x * 64)
          assert.is_nil(seen[slice])
          seen[slice] = true
        end
      end
    end
  end)

  it("fills pairs of dimensions evenly, scrambled or not", function()
    for _, scramble in ipairs {true, false} do
      local sampler, seen = samplers.new({"sobol", scramble = scramble}, 3):setup(cube(2)), {}
      for number = 0, 255 do
        local params = sampler:suggest(number, {})
        local square = math.floor(params.x01 * 16) * 16 + math.floor(params.x02 * 16)
        assert.is_nil(seen[square])
        seen[square] = true
      end
    end
  end)

  it("has scrambled points whose mean over seeds is the middle", function()
    for _, name in ipairs {"sobol", "halton"} do
      for _, number in ipairs {0, 1, 77} do
        local sum = 0
        for seed = 1, 400 do sum = sum + samplers.new(name, seed):setup(cube(3)):suggest(number, {}).x03 end
        assert.near(0.5, sum / 400, 0.06)
      end
    end
  end)

  it("draws every choice with its share", function()
    local sampler, counts = samplers.new("halton", 2):setup {spaces.categorical("c", {"a", "b", "c"})}, {}
    for number = 0, 299 do
      local c = sampler:suggest(number, {}).c
      counts[c] = (counts[c] or 0) + 1
    end
    for _, c in ipairs {"a", "b", "c"} do assert.near(100, counts[c], 3) end
  end)

  it("reports which sequence supports more than 64 parameters", function()
    assert.error_matches(function() samplers.new("sobol"):setup(cube(65)) end,
      "sobol: expected at most 64 parameters, the space has 65; the sequence \"halton\"")
    local params = samplers.new("halton"):setup(cube(65)):suggest(5, {})
    assert.is_true(params.x65 >= 0 and params.x65 < 1)
  end)
end)
