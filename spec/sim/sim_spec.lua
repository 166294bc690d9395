--- The simulated GPU's own tests (spec/sim/test), in three seeds: orders of threads, delays of streams.
local run = require "spec.support.run"

local lfs = require "lfs"

local program = run.path:gsub("[^/]*$", "") .. "sim-selftest"
local built = lfs.attributes(program, "mode") == "file"

-- The sentences of the program's tests, or of one run the line of each.
local function lines_of(words, options)
  local lines = {}
  local result = run.program(words, options)
  for line in result.stdout:gmatch "[^\n]+" do lines[#lines + 1] = line end
  return lines, result
end

describe("the simulated GPU", function()
  if not built then
    it("passes its own tests", function() pending("needs a C++ compiler: make sim") end)
    return
  end

  local seeds, told, ended = {1, 2, 3}, {}, {}
  setup(function()
    for _, seed in ipairs(seeds) do
      local lines, result = lines_of({program}, {env = {ACCELHOST_SIM_SEED = seed}, timeout = 120})
      told[seed], ended[seed] = {}, result
      for _, line in ipairs(lines) do told[seed][line] = true end
    end
  end)

  for _, sentence in ipairs(lines_of {program, "--list"}) do
    it(sentence, function()
      for _, seed in ipairs(seeds) do
        assert(told[seed]["ok " .. sentence], ("seed %d: %s"):format(seed, ended[seed].output))
      end
    end)
  end

  it("ends well in each seed", function()
    for _, seed in ipairs(seeds) do
      assert.equal(0, ended[seed].code)
      assert(told[seed]["seed " .. seed])
    end
  end)
end)
