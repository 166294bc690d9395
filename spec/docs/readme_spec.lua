-- The scripts of README and of the guides that follow it, pasted one after the other into files, and run by README's
-- commands, on a small MNIST.
local C = require "accelhost._C"
local accelhost = require "accelhost"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local run = require "spec.support.run"

local function word(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 65536) % 256, math.floor(n / 256) % 256, n % 256)
end

-- MNIST's four files with generated digits.
local function small_mnist(dir, count)
  assert(lfs.mkdir(dir))
  for split, train in pairs {train = true, t10k = false} do
    local set = accelhost.data.SyntheticDigits {train = train, size = count}
    local pixels, classes = set.data:flatten():tolist(), set.targets:tolist()
    for i, value in ipairs(pixels) do pixels[i] = string.char(value) end
    for i, value in ipairs(classes) do classes[i] = string.char(value) end
    files.write(dir .. "/" .. split .. "-images-idx3-ubyte",
      word(2051) .. word(count) .. word(28) .. word(28) .. table.concat(pixels))
    files.write(dir .. "/" .. split .. "-labels-idx1-ubyte", word(2049) .. word(count) .. table.concat(classes))
  end
end

-- The text of a section, and its blocks of Lua.
local function section(readme, title)
  local text = assert((readme .. "\n## "):match("\n## " .. title .. "\n(.-)\n## "), "no section " .. title)
  local blocks = {}
  for block in text:gmatch "\n```lua\n(.-\n)```" do blocks[#blocks + 1] = block end
  return text, blocks
end

describe("README", function()
  local readme, trainer, checkpoints, root, leave
  setup(function()
    readme = files.read "README.md"
    trainer = files.read "examples/guides/trainer.md"
    checkpoints = files.read "examples/guides/checkpoints.md"
    if run.path:sub(1, 1) ~= "/" then run.path = lfs.currentdir() .. "/" .. run.path end
    root = lfs.currentdir()
    leave = folder.enter()
    lfs.mkdir "sets"
    small_mnist("sets/mnist", 256)
  end)
  teardown(function() leave() end)

  local function passes(words)
    local result = run.host(words, {env = {OMP_NUM_THREADS = "1", ACCELHOST_DATA = lfs.currentdir() .. "/sets"}})
    assert.equal(0, result.code, table.concat(words, " ") .. "\n" .. result.output)
    return result
  end

  it("has a first script that runs in one process and in two", function()
    local text, blocks = section(readme, "A first script")
    local name = assert(text:match "Save it as `([%w_]+%.lua)`")
    files.write(name, blocks[1])
    local count = 0
    for command in text:gmatch "\n%./accelhost ([^\n#]+)" do
      local words = {}
      for one in command:gmatch "%S+" do words[#words + 1] = one end
      local result = passes(words)
      assert.matches("loss=%d", result.output)
      assert.matches("accuracy %d", result.stdout)
      count = count + 1
    end
    assert.equal(2, count)
  end)

  it("is followed by a first training whose script runs in one process and in two", function()
    local text, blocks = section(files.read(root .. "/examples/guides/first_training.md"),
      "5. The same on all processors")
    files.write("first.lua", blocks[1])
    local commands = 0
    for command in text:gmatch "\naccelhost ([^\n]+)" do
      local words = {}
      for one in command:gmatch "%S+" do words[#words + 1] = one end
      assert.matches("done", passes(words).stdout)
      commands = commands + 1
    end
    assert.equal(2, commands)
  end)

  it("is followed by a script with the Trainer that is whole", function()
    local _, blocks = section(trainer, "A whole script")
    files.write("digits.lua", blocks[1])
    assert.matches("accuracy", passes {"digits.lua"}.output)
  end)

  it("has a sweep that runs the first script, and a best file that it accepts", function()
    if not pcall(C.sqlite.open, ":memory:") then
      return pending "needs accelhost-sqlite.so, which is built where SQLite is"
    end
    local text, blocks = section(readme, "Sweeps")
    local name = assert(blocks[1]:match "^[^\n]*%-%- ([%w_]+%.lua)\n")
    files.write(name, blocks[1])
    assert.truthy(text:find("accelhost sweep " .. name, 1, true))
    assert.matches("2 complete", passes({"sweep", name, "-n", "2"}).output)
    assert.truthy(text:find("accelhost launch --params search.study/best.yaml train.lua", 1, true))
    passes {"launch", "--params", "search.study/best.yaml", "train.lua"}
  end)

  it("is followed by snippets about saving that extend the first script", function()
    local _, first = section(readme, "A first script")
    local _, blocks = section(checkpoints, "Files of tensors")
    assert.equal(2, #blocks)
    for i, block in ipairs(blocks) do
      files.write("saving.lua", first[1] .. block)
      passes {"saving.lua"}
      assert.truthy(lfs.attributes(i == 1 and "run.safetensors" or "run/checkpoints/checkpoint_0"))
    end
    assert.is_table(accelhost.load("run.safetensors").model)
  end)
end)
