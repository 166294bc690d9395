local accelhost = require "accelhost"
local fixtures = require("spec.support.fixtures").load "pictures"
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

local function bytes_of(name)
  return (fixtures[name].file:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

-- Examples whose losses a sentence compares.
local logs_losses = {["mnist.lua"] = true, ["mnist_plain.lua"] = true}

-- Run an example with --smoke in a separate folder; its result line, and in one process the losses it logs.
local function run_smoke(name, launch)
  local dir = folder.make()
  local command = {lfs.currentdir() .. "/examples/" .. name, "--smoke"}
  for i, word in ipairs(launch or {}) do table.insert(command, i, word) end
  local log = not launch and logs_losses[name] and dir .. "/losses.txt"
  if log then
    command[#command + 1] = "--log_losses"
    command[#command + 1] = log
  end
  local result = run.host(command, {timeout = 60, dir = dir, env = {ACCELHOST_DATA = false}})
  local file, losses = log and io.open(log), nil
  if file then
    losses = file:read("*a")
    file:close()
    os.remove(log)
  end
  local left = folder.names(dir)
  folder.remove(dir)
  assert.equal(0, result.code, result.output)
  assert.same({"runs"}, #left > 0 and left or {"runs"}) -- git ignores it
  if #left > 0 then assert.matches("runs/[%w_]+", result.output) end
  -- Behind the result is a hash, where weights are to be compared.
  return {line = result.stdout:gsub("weights: %x+\n$", ""), losses = losses}
end

-- The result line and the losses of a run that the sentences share.
local runs = {}
local function smoke(name, launch)
  local key = table.concat(launch or {}, " ") .. " " .. name
  runs[key] = runs[key] or run_smoke(name, launch)
  return runs[key].line, runs[key].losses
end

describe("every example", function()
  for _, name in ipairs(examples) do
    it("runs with --smoke on generated data: " .. name, function()
      assert.matches("%f[%a]%u%a+: %d+%.%d%d[^\n]*\n$", (smoke(name)))
    end)

    it("prints its result once in two processes: " .. name, function()
      local said = smoke(name, {"launch", "--num_processes", "2"})
      -- Without an accelerator both print it: once for both when they print it together.
      local _, results = said:gsub("%[r0%-r1%] ", ""):gsub("%f[^\n%z]%u%a+: %d+%.%d%d", "")
      assert.equal(1, results, said)
    end)

    it("explains itself with --help: " .. name, function()
      local result = run.host {"examples/" .. name, "--help"}
      run.succeeds(result)
      assert.matches("^usage: accelhost examples/" .. name:gsub("%.", "%%."), result.stdout)
    end)
  end

  it("has a line in examples/README.md: every example and no other file", function()
    local named, known = {}, {}
    for path in io.open "examples/README.md":read("*a"):gmatch "%]%(([%w_/]+%.lua)%)" do named[#named + 1] = path end
    for _, name in ipairs(examples) do known[#known + 1] = name end
    known[#known + 1] = "sweep_mnist.lua"
    table.sort(named)
    table.sort(known)
    assert.same(known, named)
  end)

  it("classifies an image file with saved weights", function()
    local dir = folder.make()
    local script = lfs.currentdir() .. "/examples/predict_digit.lua"
    local options = {timeout = 60, dir = dir, env = {ACCELHOST_DATA = false}}
    local image = dir .. "/digit.png"
    local file = assert(io.open(image, "wb"))
    file:write(bytes_of "png gray")
    file:close()
    if not pcall(accelhost.data.read_image, image) then
      folder.remove(dir)
      return pending "needs accelhost-image.so, which is built where libpng and libjpeg are"
    end
    local first = run.host({script, "--smoke", "--image", image}, options)
    assert.matches("\nProbability: %d%.%d%d %(digit %d%)\n$", first.stdout, first.output)
    local second = run.host({script, "--smoke", "--image", image}, options)
    assert.equal(first.stdout:match "Probability.*", second.stdout) -- no training: the weights are there
    local none = run.host({script, "--weights", "none.safetensors"}, options)
    assert.equal(1, none.code)
    assert.matches("none.safetensors", none.stderr, 1, true)
    folder.remove(dir)
  end)

  it("classifies an image file by a model of one's own classes", function()
    local dir = folder.make()
    local options = {timeout = 60, dir = dir, env = {ACCELHOST_DATA = false}}
    local image = dir .. "/ring.png"
    local file = assert(io.open(image, "wb"))
    file:write(bytes_of "png gray")
    file:close()
    if not pcall(accelhost.data.read_image, image) then
      folder.remove(dir)
      return pending "needs accelhost-image.so, which is built where libpng and libjpeg are"
    end
    local examples_folder = lfs.currentdir() .. "/examples/"
    run.succeeds(run.host({examples_folder .. "image_classification.lua", "--smoke", "--augment", "rand", "--mix",
      "0.2", "--save", "shapes"}, options))
    local words = {examples_folder .. "predict.lua", "--model", "shapes", "--image", image}
    local result = run.host(words, options)
    local label, printed = result.stdout:match "^(%l+)\t0%.%d%d%d%d\t([^\n]+)\nProbability: 0%.%d%d\n$"
    assert.truthy(("bar cross disc ring"):find(label or "none", 1, true), result.output)
    assert.equal(image, printed)
    words[#words] = "none.png"
    local none = run.host(words, options)
    assert.equal(1, none.code)
    assert.matches("'none.png': cannot read", none.stderr, 1, true)
    folder.remove(dir)
  end)

  it("reads a CSV file of one's own, with labels as texts or numbers", function()
    local dir = folder.make()
    local file = assert(io.open(dir .. "/own.csv", "w"))
    file:write "kind,a,b\n"
    for i = 1, 60 do file:write(("%d,%g,%g\n"):format(i % 2 == 0 and 7 or 3, i % 2 == 0 and 1 or -1, i / 60)) end
    file:close()
    local result = run.host({lfs.currentdir() .. "/examples/csv_table.lua", "--data", "own.csv", "--label", "kind"},
      {timeout = 60, dir = dir})
    run.prints("classes: 3, 7\nAccuracy: 100.00; weights in runs/csv_table\n", result)
    folder.remove(dir)
  end)

  for _, processes in ipairs {1, 2} do
    it("forecasts better than nothing does, in processes: " .. processes, function()
      local launch = processes > 1 and {"launch", "--num_processes", tostring(processes)} or nil
      local found, nothing = smoke("lstm.lua", launch):match "Error: ([%d.]+) %(no forecast: ([%d.]+)%)"
      assert.is_true(tonumber(found) < 0.8 * tonumber(nothing), found .. " against " .. nothing)
    end)
  end

  it("has the same losses with and without an accelerator", function()
    local _, prepared = smoke "mnist.lua"
    local _, plain = smoke "mnist_plain.lua"
    assert.equal(prepared, plain)
    assert.equal(10, select(2, prepared:gsub("\n", "")))
    assert.equal(prepared, run_smoke("mnist.lua").losses, "a second run prints the same digits")
  end)
end)
