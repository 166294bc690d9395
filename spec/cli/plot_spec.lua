local accelhost = require "accelhost"
local check = require "spec.support.check"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local ticks = require "accelhost.plot.ticks"
local content, write = files.read, files.write

local leave

local function plot(...)
  return run.host({"plot", ...}, {timeout = 30, env = {COLUMNS = "60"}})
end

local function drawn(...)
  local result = plot(...)
  assert.same({0, ""}, {result.code, result.stderr})
  return result.stdout
end

local function fails(text, ...)
  local result = plot(...)
  assert.equal(1, result.code)
  assert.equal("accelhost plot: " .. text .. "\n", result.stderr)
end

-- The words of a line of the table.
local function row(text, name)
  local found = {}
  for line in text:gmatch "[^\n]+" do
    if line:sub(1, #name + 2) == name .. "  " then
      for word in line:sub(#name + 1):gmatch "%S+" do found[#found + 1] = word end
    end
  end
  return found
end

local function texts(list)
  local found = {}
  for i, tick in ipairs(list) do found[i] = tick.text end
  return table.concat(found, " ")
end

describe("accelhost plot", function()
  setup(function()
    leave = folder.enter()
    local lines = {}
    for step = 0, 8 do
      lines[#lines + 1] = ('{"step": %d, "wall_time": %d, "loss": %d, "epoch": %g}'):format(step * 10, 1000 + step * 60,
        8 - step, step / 4)
    end
    lines[#lines + 1] = '{"step": 90, "wall_time": 1540, "loss": "NaN", "accuracy": 0.5}'
    write("down.jsonl", table.concat(lines, "\n") .. "\n")
    write("up.csv", "step,wall_time,loss\n0,1,0\n40,2,4\n80,3,8\n")
    local writer = accelhost.track.SummaryWriter "events/one"
    for step = 0, 80 do writer:add_scalar("loss", 4, step) end
    writer:close()
  end)
  teardown(function() leave() end)

  it("draws a curve between axes, and prints its values", function()
    assert.equal([[
loss
  │                               ⢀⣀⠤⠒
  │                          ⣀⡠⠤⠒⠉⠁
5 ┤                     ⣀⡠⠔⠒⠉
  │               ⢀⣀⠤⠔⠊⠉
  │         ⢀⣀⠤⠔⠒⠉⠁
  │    ⣀⡠⠤⠒⠊⠁
0 ┤⠤⠒⠊⠉
  └┬────────────────────┬───────────────
   0                    50         step

      min  at  max  at  last  points
loss    0   0    8  80     8       3
]], drawn("up.csv", "--width", "40", "--height", "10"))
    assert.same({"0", "80", "8", "0", "nan", "10"}, row(drawn "down.jsonl", "loss"))
  end)

  it("draws runs of every format over one another, each with its letter", function()
    local text = drawn("down.jsonl", "up.csv", "events", "--keys", "loss")
    assert.matches("^a ── down.jsonl +b ── up.csv +c ── events/one\n\nloss\n", text)
    for letter in ("abc"):gmatch "." do assert.matches("[^\n]  " .. letter .. "\n", text) end
    assert.same({"4", "0", "4", "0", "4", "81"}, row(text, "loss  c events/one"))
    assert.is_nil(text:find "\27")
  end)

  it("fits into the columns that there are", function()
    for _, width in ipairs {20, 40, 80, 120, 200} do
      for line in drawn("down.jsonl", "up.csv", "--width", tostring(width)):match "^(.-)\n\n +min":gmatch "[^\n]+" do
        assert.is_true(require("accelhost.util.columns").of(line) <= width, line)
      end
    end
  end)

  it("accepts names, patterns, an axis, smoothing and logarithms", function()
    assert.is_nil(drawn("down.jsonl", "--keys=acc*"):find("loss", 1, true))
    assert.matches("^loss\n.*\naccuracy\n", drawn("down.jsonl", "--keys", "loss,accuracy"))
    assert.matches("0 +2 min +4 min +.* time\n", drawn("down.jsonl", "--keys", "loss", "--x", "time"))
    local epochs = drawn("down.jsonl", "--x", "epoch")
    assert.matches(" epoch\n", epochs)
    assert.is_nil(epochs:find("\nepoch\n", 1, true))
    assert.not_equal(drawn("down.jsonl"), drawn("down.jsonl", "--smooth", "0.9"))
    assert.matches("5 ┤.*2 ┤.*1 ┤", drawn("down.jsonl", "--keys", "loss", "--log"))
    assert.matches("no value is above 0", drawn("zero.csv" and write("zero.csv", "step,wall_time,x\n0,1,0\n"), "--log"))
  end)

  it("reports which run or name does not exist", function()
    fails("'nowhere': there is no such file or folder", "nowhere")
    write("notes.txt", "")
    fails("'notes.txt': expected an event file (tfevents in its name), a .jsonl or a .csv file, or a folder of them",
      "notes.txt")
    fails("--keys: no run has 'los' (did you mean 'loss'?); there are: accuracy, epoch, loss", "down.jsonl", "--keys",
      "los")
    fails("--x epoch: up.csv logs no 'epoch'", "up.csv", "--x", "epoch")
    fails("there is nothing to draw: no run has a point", write("empty.csv", "step,wall_time\n"))
    fails("save: 'none/a.svg': cannot write: its folder does not exist", "up.csv", "-o", "none/a.svg")
  end)

  it("reports wrong usage with exit code 2", function()
    for text, words in pairs {
      ["expected a run"] = {}, ["unknown option '--kyes' (did you mean '--keys'?)"] = {"up.csv", "--kyes", "a"},
      ["-o expects the name of a .svg or .png file, got 'a.gif'"] = {"up.csv", "-o", "a.gif"},
      ["--smooth expects a number in 0..0.9999, got '1'"] = {"up.csv", "--smooth", "1"},
      ["--x expects"] = {"up.csv", "--x", "steps"}, ["--width expects"] = {"up.csv", "--width", "5"},
    } do
      local result = plot(unpack(words))
      assert.equal(2, result.code)
      assert.is_truthy(result.stderr:find(text, 1, true), result.stderr)
    end
  end)

  it("draws the values before a damaged part, and reports it", function()
    write("cut.jsonl", content("down.jsonl") .. '{"step": 100, "lo')
    local result = plot "cut.jsonl"
    run.succeeds(result)
    assert.equal("accelhost plot: cut.jsonl: a line that is no row was left out\n", result.stderr)
    assert.equal(drawn "down.jsonl", result.stdout)
  end)

  it("shows no control characters of names, and no bytes that are no characters", function()
    write("evil.csv", 'step,wall_time,"a\27[31m\194\155",\255\n0,1,1,2\n')
    local text = drawn("evil.csv")
    assert.is_nil(text:find "[\27\255]")
    assert.is_truthy(text:find("a?[31m?\n", 1, true))
    drawn("evil.csv", "-o", "evil.svg")
    assert.is_true(require("accelhost._C").events.is_utf8(content "evil.svg"))
  end)

  it("draws something however small the place is", function()
    for _, width in ipairs {"20", "33"} do
      for _, height in ipairs {"6", "7", "9"} do
        drawn("down.jsonl", "up.csv", "--width", width, "--height", height)
        drawn("down.jsonl", "up.csv", "--width", width, "--height", height, "-o", "small.svg")
        assert.is_nil(content("small.svg"):find "nan")
      end
    end
  end)

  it("writes SVG that is well formed, whatever names hold", function()
    write("odd.csv", 'step,wall_time,"a<b> & ""c"""\n0,1,1\n1,2,2\n')
    assert.matches("points", drawn("odd.csv", "up.csv", "--output", "odd.svg", "--width", "500"))
    local text = content "odd.svg"
    assert.matches('^<svg xmlns="http://www.w3.org/2000/svg" width="500"', text)
    assert.matches(">a&lt;b&gt; &amp; &quot;c&quot;<", text)
    assert.matches("</svg>\n$", text)
    assert.is_nil(text:gsub("<svg [^<>]*>", ""):gsub("</svg>", ""):gsub("<rect [^<>]*/>", ""):gsub("<polyline [^<>]*/>",
      ""):gsub("<text [^<>]*>[^<>]*</text>", ""):find "[<>]")
    -- As many points as columns and a few, however many there are.
    local lines = {"step,wall_time,x"}
    for step = 1, 20000 do lines[#lines + 1] = ("%d,%d,%d"):format(step, step, step * 7919 % 1000) end
    write("long.csv", table.concat(lines, "\n") .. "\n")
    drawn("long.csv", "-o", "long.svg", "--width", "500")
    assert.is_true(#content "long.svg" < 80000)
  end)

  it("writes PNG files of the width asked for, where cairo is", function()
    local result = plot("down.jsonl", "up.csv", "-o", "a.png", "--width", "500", "--height", "200")
    if result.stderr:find("accelhost-plot.so is not here", 1, true) then
      assert.equal(1, result.code)
      return pending("needs accelhost-plot.so, which is built where cairo is")
    end
    assert.same({0, ""}, {result.code, result.stderr})
    local head = content("a.png")
    assert.equal("\137PNG\r\n\26\n", head:sub(1, 8))
    local function number(at) return head:byte(at + 2) * 256 + head:byte(at + 3) end
    assert.equal(500, number(17))
  end)
end)

describe("ticks", function()
  it("are at round numbers", function()
    assert.equal("0.0 0.2 0.4 0.6 0.8 1.0", texts(ticks.linear(0, 1, 6)))
    assert.equal("-1 0 1", texts(ticks.linear(-1.4, 1.9, 4)))
    assert.equal("1e6 1.5e6 2e6", texts(ticks.linear(9e5, 2.1e6, 3)))
    assert.equal("0 2e-6 4e-6", texts(ticks.linear(0, 5e-6, 3)))
    assert.equal("0.1 0.2 0.5 1 2", texts(ticks.log(-1, math.log10(2.5), 8)))
    assert.equal("0.0001 0.01 1", texts(ticks.log(-4, 1, 3)))
    assert.equal("0 5 s 10 s 15 s", texts(ticks.time(0, 16, 4)))
    assert.equal("0 12 h 24 h 36 h", texts(ticks.time(0, 40 * 3600, 4)))
    assert.equal("0 1 d 2 d", texts(ticks.time(0, 2.5 * 86400, 3)))
  end)
end)

describe("accelhost.plot", function()
  local losses, tensors = {}, {}
  for i = 1, 60 do
    losses[i] = math.exp(-i / 10)
    tensors[i] = accelhost.tensor {losses[i]}
  end

  it("draws a list, a tensor and tensors of one element alike, over the steps", function()
    local text = accelhost.plot(losses):text(60)
    assert.matches("⠉", text)
    assert.matches("20 +40 +step\n?$", text)
    assert.equal(text, accelhost.plot(accelhost.tensor(losses, {dtype = "float64"})):text(60))
    assert.equal(accelhost.plot(accelhost.tensor(losses)):text(60), accelhost.plot(tensors):text(60))
  end)

  it("draws several curves with their names, and y over x", function()
    assert.matches("^a ── train +b ── valid\n\nloss\n",
      accelhost.plot({valid = {1, 2, 3}, train = losses}, "loss"):text(60))
    local text = accelhost.plot({0, 10, 20}, accelhost.tensor {1, 2, 3}):text(60, 8)
    assert.matches("0 +5 +10 +15 +x\n?$", text)
    assert.equal(text, accelhost.plot({1, 2, 3}, {x = {0, 10, 20}}):text(60, 8))
    assert.equal(text, accelhost.plot({[""] = {x = {0, 10, 20}, y = {1, 2, 3}}}):text(60, 8))
  end)

  it("is shown by the prompt and by print, in the terminal's width", function()
    local code = "print(require('accelhost').plot {1, 2, 3})"
    local result = run.host({"-e", code}, {timeout = 30, env = {COLUMNS = "40"}})
    assert.matches("step\n+$", result.stdout)
    for line in result.stdout:gmatch "[^\n]+" do assert.truthy(select(2, line:gsub("[^\128-\191]", "")) <= 40) end
  end)

  it("is saved as a picture", function()
    leave = folder.enter()
    accelhost.plot(losses, {log = true, smooth = 0.5}):save "loss.svg"
    assert.matches("<svg", content "loss.svg")
    leave()
  end)

  it("refuses values that are no numbers, and options out of range", function()
    local zeros = accelhost.zeros(2, 2)
    for message, call in pairs {
      ["plot: values: expected numbers in the list or tensor, got 'a' at 2"] = {{1, "a"}},
      ["plot: values: expected numbers in the list or tensor, got none"] = {{}},
      ["plot: values: expected curve '1', got 'a'"] = {{"a"}},
      ["plot: values: expected numbers in curve 'train', got none"] = {{train = {}, valid = {1}}},
      ["plot: values: expected the list or tensor with 1 dim, got a tensor with 2"] = {zeros},
      ["plot: values: expected as many numbers as x has, 2, got 1"] = {{1, 2}, {1}},
      ["plot: smooth: expected a number from 0 to below 1, got 1"] = {losses, {smooth = 1}},
    } do
      check.raises(message, function() accelhost.plot(unpack(call)) end)
    end
    check.raises("save: path: expected the name of a .svg or .png file, got 'loss.pdf'", function()
      accelhost.plot(losses):save "loss.pdf"
    end)
  end)
end)
