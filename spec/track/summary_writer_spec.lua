local accelhost = require "accelhost"
local C = require "accelhost._C"
local curves = require "accelhost.track.curves"
local fixture = require("spec.support.fixtures").load "events"
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local histogram = require "accelhost.track.histogram"

local leave
-- The plugin that writes PNG is built where libpng is.
local fine, problem = pcall(C.data.encode_png, accelhost.zeros(1, 1, 1):to("uint8"))
local writes_images = fine or not problem:find("accelhost-image.so is not here", 1, true)

local function read(path)
  local runs, reason = curves.read(path)
  assert.is_nil(reason)
  return runs
end

local function from_hex(digits)
  return (digits:gsub("..", function(pair) return string.char(tonumber(pair, 16)) end))
end

local function weighed(list)
  local sum = 0
  for i, value in ipairs(list) do sum = sum + value * math.sin(i - 1) end
  return sum
end

describe("a SummaryWriter", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("writes scalars that are read back, with step and time", function()
    local writer = accelhost.track.SummaryWriter("a/b")
    writer:add_scalar("loss", 0.5, 3, 1000)
    writer:add_scalar("loss", accelhost.tensor(0.25), 4, 1001)
    writer:add_scalar("exact", 1 / 3, 4, 1001, {new_style = true, double_precision = true})
    writer:add_scalar("new", 2, {new_style = true, walltime = 7})
    writer:add_scalar("right", true, -2)
    writer:close()
    assert.equal("a/b", writer:get_logdir())
    local runs = read "a"
    assert.equal(1, #runs)
    assert.equal("a/b", runs[1].name)
    assert.same({step = {3, 4}, wall_time = {1000, 1001}, value = {0.5, 0.25}}, runs[1].curves.loss)
    assert.same({1 / 3}, runs[1].curves.exact.value)
    assert.same({step = {0}, wall_time = {7}, value = {2}}, runs[1].curves.new)
    assert.same({-2}, runs[1].curves.right.step)
  end)

  it("names its files as TensorBoard does, each another", function()
    local first, second = accelhost.track.SummaryWriter "names", accelhost.track.SummaryWriter("names",
      {filename_suffix = ".x"})
    assert.matches("^names/events%.out%.tfevents%.%d%d%d%d%d%d%d%d%d%d%.[^/]+%.%d+%.%d+$", first.path)
    assert.matches("%.x$", second.path)
    assert.not_equal(first.path, second.path)
  end)

  it("has written each event when the call is over", function()
    local writer = accelhost.track.SummaryWriter "now"
    writer:add_scalar("loss", 1, 0)
    assert.same({1}, read("now")[1].curves.loss.value)
    writer:add_scalar("loss", 2, 1)
    assert.same({1, 2}, read("now")[1].curves.loss.value)
    writer:close()
  end)

  it("writes each scalar of a plot to a separate run", function()
    local writer = accelhost.track.SummaryWriter "plots"
    writer:add_scalars("loss/all", {train = 1, valid = 2}, 5)
    writer:close()
    local runs = read "plots"
    assert.same({"plots/loss_all_train", "plots/loss_all_valid"}, {runs[1].name, runs[2].name})
    assert.same({2}, runs[2].curves["loss/all"].value)
  end)

  it("voids a resumed run's values from purge_step on", function()
    local first = accelhost.track.SummaryWriter "again"
    for step = 0, 9 do first:add_scalar("loss", step, step) end
    first:add_scalar("only before", 1, 8)
    first:add_scalars("both", {x = 7}, 8)
    first:close()
    local second = accelhost.track.SummaryWriter("again", {purge_step = 4})
    second:add_scalar("loss", 40, 4)
    second:add_scalars("both", {x = 1}, 4)
    second:close()
    assert.same({0, 1, 2, 3, 40}, read("again")[1].curves.loss.value)
    assert.same({}, read("again")[1].curves["only before"].value)
    assert.same({1}, read("again/both_x")[1].curves.both.value)
  end)

  it("keeps hyperparameters and metrics in a run below", function()
    local writer = accelhost.track.SummaryWriter "parameters"
    writer:add_hparams({lr = 0.1, name = "sgd", nesterov = true}, {["best/loss"] = 0.25}, {name = {"sgd", "adam"}},
      "first", 3)
    local runs = read "parameters"
    assert.equal("parameters/first", runs[1].name)
    assert.same({step = {3}, value = {0.25}, wall_time = runs[1].curves["best/loss"].wall_time},
      runs[1].curves["best/loss"])
  end)

  it("refuses values that it cannot keep, naming tag, expected and received value", function()
    local writer = accelhost.track.SummaryWriter "refused"
    local function fails(text, name, ...)
      local values = {...}
      assert.error_matches(function() writer[name](writer, unpack(values)) end, text, 1, true)
    end
    fails("add_scalar: 'loss': expected a tensor of one element, got shape (3,)", "add_scalar", "loss",
      accelhost.zeros(3))
    fails("add_scalar: 'loss': expected a number or a tensor of one element, got 'low'", "add_scalar", "loss", "low")
    fails("add_scalar: global_step: expected an integer, got number 0.5", "add_scalar", "loss", 1, 0.5)
    fails("add_scalar: tag: expected a text in UTF-8, got ", "add_scalar", "\255", 1)
    fails("add_text: 'note': expected a text in UTF-8, got ", "add_text", "note", "\255")
    fails("add_scalars: 'a/b': expected a number or a tensor of one element, got 'x'", "add_scalars", "a", {b = "x"})
    fails("add_histogram: values: there are none", "add_histogram", "h", accelhost.zeros(0))
    fails("add_histogram: bins: edge 2 is not above the one before", "add_histogram", "h", accelhost.zeros(2), 0,
      {1, 1})
    fails("add_image: expected an image of 3 dims (CHW), got shape (2, 2)", "add_image", "i", accelhost.zeros(2, 2))
    fails("add_image: expected 1, 3 or 4 channels, got 2", "add_image", "i", accelhost.zeros(2, 2, 2))
    fails("add_image: dataformats: 'CH' lacks H or W", "add_image", "i", accelhost.zeros(2, 2), {dataformats = "CH"})
    fails("add_image: the image is empty (shape (3, 0, 2))", "add_image", "i", accelhost.zeros(3, 0, 2))
    fails("hparam_domain_discrete: 'lr': item 1: expected a number as the parameter is, got 'x'", "add_hparams",
      {lr = 1}, {}, {lr = {"x"}})
    writer:close()
    fails("' is closed", "add_scalar", "loss", 1)
  end)

  it("reports why a folder cannot be made", function()
    write("file", "")
    assert.error_matches(function() accelhost.track.SummaryWriter "file/run" end,
      "SummaryWriter: cannot make the folder file")
  end)

  it("writes images that the decoder reads back, batches as a grid of 8 columns", function()
    if not writes_images then pending("needs accelhost-image.so, which is built where libpng and libjpeg are") end
    local image = accelhost.arange(24):to("uint8"):reshape(3, 2, 4)
    assert.is_true(accelhost.equal(image, C.data.decode_image(C.data.encode_png(image))))
    local picture = require "accelhost.track.picture"
    local batch = accelhost.rand(10, 1, 4, 5)
    local grid = picture("add_images", batch, "NCHW")
    assert.same({3, 8, 40}, grid:shape())
    local second = grid:narrow(1, 4, 4):narrow(2, 5, 5):select(0, 2)
    assert.is_true(accelhost.equal(second, batch:select(0, 9):select(0, 0):mul(255):to("uint8")))
    assert.equal(0, grid:narrow(1, 4, 4):narrow(2, 10, 30):sum():item())
    assert.is_true(accelhost.equal(picture("x", image:permute(1, 2, 0), "HWC"), image))
    local writer = accelhost.track.SummaryWriter "images"
    writer:add_image("a", image, 1)
    writer:add_image("b", accelhost.rand(4, 4), 1, {dataformats = "HW"})
    writer:add_images("c", batch, 1)
    writer:close()
  end)
end)

describe("histograms", function()
  for i, case in ipairs(fixture.histograms) do
    local bins = type(case.bins) == "table" and "edges" or tostring(case.bins)
    it(("have PyTorch's bins: case %d, %s of %s"):format(i, bins, case.name), function()
      local values = ({
        wave = accelhost.arange(50, {dtype = "float64"}):sin(), same = accelhost.full({4}, 3, {dtype = "float64"}),
        zeros = accelhost.zeros(6, {dtype = "float64"}),
      })[case.name]
      local found = histogram.of("test", values, case.bins, case.max_bins)
      for _, name in ipairs {"min", "max", "num", "sum", "sum_squares"} do
        assert.near(case[name], found[name], 1e-12)
      end
      assert.equal(case.count, #found.counts)
      assert.equal(case.count, #found.limits)
      assert.near(case.limits, weighed(found.limits), 1e-9)
      assert.near(case.counts, weighed(found.counts), 1e-9)
    end)
  end
end)

describe("reading event files", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("finds every scalar of a file that PyTorch wrote", function()
    write("events.out.tfevents.pytorch", from_hex(fixture.file))
    local run = read("events.out.tfevents.pytorch")[1]
    assert.same({}, run.troubles)
    assert.same({0, 1, 2, 3, 4}, run.curves["loss/train"].step)
    assert.same({1000, 1001, 1002, 1003, 1004}, run.curves["loss/train"].wall_time)
    for step = 0, 4 do
      assert.near(1 / (step + 1), run.curves["loss/train"].value[step + 1], 1e-7)
      assert.equal(0.5 * step, run.curves.new.value[step + 1])
      assert.equal(1 / 3 + step, run.curves.double.value[step + 1])
    end
  end)

  it("returns the events before a damaged part, and reports its position", function()
    local text = from_hex(fixture.file)
    write("events.out.tfevents.damaged", text:sub(1, 600) .. "x" .. text:sub(602))
    local run = read("events.out.tfevents.damaged")[1]
    assert.matches("events.out.tfevents.damaged: damaged at byte %d+: the checksum of a record is wrong",
      run.troubles[1])
    assert.is_true(#run.curves["loss/train"].value >= 1)
  end)

  it("reports other files as no event files", function()
    write("events.out.tfevents.none", ("no event file at all "):rep(3))
    assert.matches("no event file", read("events.out.tfevents.none")[1].troubles[1])
    assert.same({nil, "there is no such file or folder"}, {curves.read "nowhere"})
    write("notes.txt", "")
    assert.matches("expected an event file", select(2, curves.read "notes.txt"))
  end)
end)
