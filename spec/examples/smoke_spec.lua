local folder = require "spec.support.folder"
local run = require "spec.support.run"
local lfs = require "lfs"

local examples = {}
for _, place in ipairs {"", "by_feature/"} do
  for name in lfs.dir("examples/" .. place) do
    -- The files of sweeps are no scripts: spec/sweep/example_spec.lua.
    if name:match("%.lua$") and not name:match("^sweep_") then examples[#examples + 1] = place .. name end
  end
end
table.sort(examples)

-- Run an example with --smoke in a folder of its own; its result line.
local function smoke(name, launch)
  local dir = folder.make()
  local command = {lfs.currentdir() .. "/examples/" .. name, "--smoke"}
  for i, word in ipairs(launch or {}) do table.insert(command, i, word) end
  local result = run.host(command, {timeout = 60, dir = dir, env = {ACCELHOST_DATA = false}})
  folder.remove(dir)
  assert.equal(0, result.code, result.output)
  return (result.stdout:gsub("weights: %x+\n$", "")) -- behind the result, where weights are to be compared
end

describe("every example", function()
  for _, name in ipairs(examples) do
    it("runs with --smoke on generated data: " .. name, function()
      assert.matches("%f[%a]%u%a+: %d+%.%d%d[^\n]*\n$", smoke(name))
    end)

    it("tells its result once in two processes: " .. name, function()
      local said = smoke(name, {"launch", "--num_processes", "2"})
      -- Without an accelerator both say it: once for both when they say it together.
      local _, results = said:gsub("%[r0%-r1%] ", ""):gsub("%f[^\n%z]%u%a+: %d+%.%d%d", "")
      assert.equal(1, results, said)
    end)

    it("explains itself with --help: " .. name, function()
      local result = run.host {"examples/" .. name, "--help"}
      assert.equal(0, result.code)
      assert.matches("^usage: accelhost examples/" .. name:gsub("%.", "%%."), result.stdout)
    end)
  end

  for _, processes in ipairs {1, 2} do
    it("forecasts better than nothing does, in processes: " .. processes, function()
      local launch = processes > 1 and {"launch", "--num_processes", tostring(processes)} or nil
      local found, nothing = smoke("lstm.lua", launch):match "Error: ([%d.]+) %(no forecast: ([%d.]+)%)"
      assert.is_true(tonumber(found) < 0.8 * tonumber(nothing), found .. " beside " .. nothing)
    end)
  end

  it("gives the same losses with and without an accelerator", function()
    local function losses(name)
      local log = os.tmpname()
      run.host({"examples/" .. name, "--smoke", "--log_losses", log}, {timeout = 60})
      local file = assert(io.open(log))
      local text = file:read("*a")
      file:close()
      os.remove(log)
      return text
    end
    local prepared = losses("mnist.lua")
    assert.equal(prepared, losses("mnist_plain.lua"))
    assert.equal(20, select(2, prepared:gsub("\n", "")))
    assert.equal(prepared, losses("mnist.lua"), "a second run prints the same digits")
  end)
end)
