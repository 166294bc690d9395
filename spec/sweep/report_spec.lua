-- The report of a study: the page, the text, the files for other programs.
local accelhost = require "accelhost"
local folder = require "spec.support.folder"
local html = require "spec.support.html"
local report = require "accelhost.sweep.report"
local studies = require "spec.support.studies"

local json = accelhost.json

local function page_of(study) return html.parse(report.html(study, {now = 2000})) end

local function data_of(page) return json.decode(page.by_id.study.text) end

-- A study in which all text from outside is hostile.
local function evil_study()
  local bad = '</script><img src=x onerror="alert(1)">\'&\0\27[2J\255'
  local study = {
    name = bad, direction = "minimize", metric = bad, sampler = bad, pruner = bad, command = bad, directory = bad,
    space = {{name = bad, kind = "categorical", choices = {bad, "b"}}, {name = "x", kind = "float", low = 0, high = 1}},
    trials = {},
  }
  for number = 0, 3 do
    study.trials[number + 1] = {
      number = number, state = number == 3 and "failed" or "complete", value = number < 3 and number or nil,
      params = {[bad] = number % 2 == 0 and bad or "b", x = 0.5},
      reports = {{step = 1, value = 2}, {step = 2, value = 1}},
      started = number, ended = number + 1, error = number == 3 and bad or nil, directory = "javascript:" .. bad,
    }
  end
  return study
end

describe("The page of a study", function()
  it("is well formed, asks for nothing else, and has each part once", function()
    local page = page_of(studies.make(40))
    assert.same({}, page.troubles)
    for _, id in ipairs {"summary", "history", "parallel", "slices", "curves", "timeline", "trials", "study"} do
      assert.truthy(page.by_id[id], id)
    end
    for _, name in ipairs {"link", "img", "iframe", "object", "embed", "base", "form"} do
      assert.equal(0, #page:all(name), name)
    end
    for _, element in ipairs(page:all()) do
      for key, value in pairs(element.attributes) do
        assert.is_nil(key:find "^on", key)
        assert.is_nil(key:find "src", key)
        assert.is_nil(tostring(value):lower():find("javascript:", 1, true))
      end
    end
    for _, element in ipairs(page:all "style") do
      assert.is_nil(element.text:find "url%(" or element.text:find "@import")
    end
    assert.is_nil((page.source:gsub("http://www.w3.org/2000/svg", "")):find("http", 1, true))
  end)

  it("prints the best trial, counts and times without a script", function()
    local text = page_of(studies.make(40)).by_id.summary:words()
    assert.matches("0.038265 loss in trial 24", text, 1, true)
    assert.matches("optim.lr 0.0014878", text, 1, true)
    assert.matches("40: 25 complete, 13 pruned, 2 failed", text, 1, true)
    assert.matches("duration 2 min 41 s", text, 1, true)
    assert.matches('optimizer: "muon"', text, 1, true)
  end)

  it("draws every trial, and describes each picture in words", function()
    local study = studies.make(40)
    local page = page_of(study)
    local labels = {}
    for _, picture in ipairs(page:all "svg") do
      assert.equal("img", picture.attributes.role)
      labels[#labels + 1] = picture.attributes["aria-label"]
    end
    assert.same({
      "loss of 40 trials by number; the best so far ends at 0.038265.",
      "Parallel coordinates of 40 trials over 4 parameters and loss.",
      "loss against layers, 40 trials.", "loss against momentum, 9 trials.", "loss against optim.lr, 40 trials.",
      "loss against optimizer, 40 trials.", "Learning curves of 40 trials: loss by step.",
      "Timeline of 40 trials in 2 slots.",
    }, labels)
    local dots = 0
    for _, path in ipairs(page.by_id.history:all "path") do
      if path.attributes.class:find "dots" then dots = dots + select(2, path.attributes.d:gsub("M", "")) end
    end
    assert.equal(40, dots)
    local strands = 0
    for _, path in ipairs(page.by_id.parallel:all "path") do
      if path.attributes.class:find "strand" then strands = strands + select(2, path.attributes.d:gsub("M", "")) end
    end
    assert.equal(40, strands)
  end)

  it("keeps all coordinates inside of the pictures", function()
    for _, path in ipairs(page_of(studies.make(200)):all "path") do
      assert.is_nil(path.attributes.d:find "[ni]", path.attributes.class)
      for x, y in path.attributes.d:gmatch "[ML](%-?[%d.]+) (%-?[%d.]+)" do
        assert.is_true(tonumber(x) >= 0 and tonumber(x) <= 1000)
        assert.is_true(tonumber(y) >= 0 and tonumber(y) <= 1060)
      end
    end
  end)

  it("lists the trials, the best first, each with its folder, log and error", function()
    local page = page_of(studies.make(40))
    local rows = page.by_id.rows:all "tr"
    assert.equal(41, #rows)
    assert.equal("24 complete 0.038265 3 0.0014878 muon 10.5 s log", rows[2]:words())
  end)

  it("passes the script a row for each trial", function()
    local study = studies.make(40)
    local data = data_of(page_of(study))
    assert.equal(40, #data.rows)
    assert.same({"layers", "momentum", "optim.lr", "optimizer"}, data.names)
    local row = data.rows[25]
    assert.same({24, 0, 1, "0.038265", 0}, {row[1], row[2], row[3], row[4], row[5]})
    assert.same({"3", "", "0.0014878", "muon"}, row[6])
    assert.same({667, json.null, 435, 833}, row[7])
    assert.equal("trials/0024", row[11])
    assert.equal("train.lua:7: matmul: inner sizes differ", data.rows[14][10])
  end)

  it("lets nothing from outside become markup, script or a scheme", function()
    local study = evil_study()
    local page = page_of(study)
    assert.same({}, page.troubles)
    assert.equal(0, #page:all "img")
    assert.equal(2, #page:all "script")
    assert.is_nil(page.source:find "[%z\27\255]")
    for _, link in ipairs(page:all "a") do
      local href = link.attributes.href
      assert.is_truthy(href:find "^#" or href:find "^[%w%%/._~-]+$", href)
    end
    assert.matches("onerror=", data_of(page).metric, 1, true)
    assert.is_nil(report.text(study, {now = 5}):find "[%z\27\255]")
  end)

  it("thins out ten thousand trials and reports it; the best are always drawn", function()
    local study = studies.make(10000, {steps = 12})
    local source = report.html(study, {now = 1e6})
    assert.is_true(#source < 4e6, tostring(#source))
    local page = html.parse(source)
    assert.same({}, page.troubles)
    assert.matches("Drawn are %d+ of 10000 trials", page.by_id.history:words())
    assert.matches("Drawn are %d+ of 10000 trials", page.by_id.parallel:words())
    assert.matches("Drawn are %d+ of 10000 trials", page.by_id.curves:words())
    assert.matches("The best 100 of 10000 trials", page.by_id.trials:words())
    assert.equal(101, #page.by_id.rows:all "tr")
    assert.equal(10000, #data_of(page).rows)
  end)

  it("describes any study", function()
    local empty = studies.make(0)
    local failed, one = studies.make(3), studies.make(1)
    for _, trial in ipairs(failed.trials) do
      trial.state, trial.value, trial.reports, trial.error = "failed", nil, {}, "it broke"
    end
    local odd = studies.make(6)
    odd.trials[1].value, odd.trials[2].value = 0 / 0, math.huge
    odd.trials[3].reports = {{step = 1, value = 0 / 0}, {step = 2, value = -math.huge}}
    odd.trials[4].params["optim.lr"] = -1
    local endless = studies.make(2)
    for _, trial in ipairs(endless.trials) do trial.value = -math.huge end
    local bare = {name = "x", direction = "maximize", metric = "m", space = {}, trials = {
      {number = 0, state = "waiting", params = {}}, {number = 1, state = "running", params = {}},
    }}
    for _, case in ipairs {
      {empty, "none, no trial has ended with a value yet"}, {failed, "none, every trial that ended has failed"},
      {one, "0.46649 loss in trial 0"}, {odd, " loss in trial "}, {bare, "1 running, 1 waiting"},
      {endless, "none, no trial has ended with a finite value"},
    } do
      local page = page_of(case[1])
      assert.same({}, page.troubles)
      assert.matches(case[2], page.by_id.summary:words(), 1, true)
      for _, path in ipairs(page:all "path") do assert.is_nil(path.attributes.d:find "[ni]") end
      data_of(page)
    end
  end)

  it("draws values of several powers of ten by their logarithms, and draws outliers at the edge", function()
    local study = studies.make(20)
    for i, trial in ipairs(study.trials) do
      if trial.value then trial.value = 10 ^ (-i / 4) end
    end
    assert.matches("loss (logarithmic)", page_of(study).by_id.history:words(), 1, true)
    assert.matches("0.01 ┤", report.text(study, {now = 5}), 1, true)
    for i, trial in ipairs(study.trials) do
      if trial.value then trial.value = i == 1 and 1e6 or i == 4 and -0.5 or 0.1 * i end
    end
    local words = page_of(study).by_id.history:words()
    assert.is_nil(words:find("logarithmic", 1, true))
    assert.matches("One value off the axis is at its edge", words, 1, true)
    assert.matches("1 value far off the others is left out", report.text(study, {now = 5}), 1, true)
  end)

  it("draws the larger values of a maximised objective at the top", function()
    local study = studies.make(20)
    study.direction = "maximize"
    local page = page_of(study)
    assert.matches("0.46649 loss in trial 0", page.by_id.summary:words(), 1, true)
    local highest, last = nil, nil
    for _, path in ipairs(page.by_id.history:all "path") do
      if path.attributes.class == "dots best" then highest = path.attributes.d end
      if path.attributes.class == "so-far" then last = path.attributes.d end
    end
    -- Those that were stopped were further up.
    assert.equal("M0 295h0", highest)
    assert.equal("M0 295H1000", last)
    assert.equal("0 complete 0.46649 1 0.40203 muon 10.5 s log", page.by_id.rows:all("tr")[2]:words())
  end)

  it("shows running trials with their reports", function()
    local study = studies.make(6)
    local last = study.trials[6]
    last.state, last.ended, last.value = "running", nil, nil
    local page = page_of(study)
    assert.matches("1 trial had not ended", page.source, 1, true)
    assert.matches("4 complete, 1 pruned, 1 running", page.by_id.summary:words(), 1, true)
    assert.truthy(page.by_id.timeline:words():find("running", 1, true))
  end)

  it("ranks replicates by a bound and prints mean and spread", function()
    local study = studies.make(6)
    for i, trial in ipairs(study.trials) do
      trial.state, trial.group, trial.replicate = "complete", math.floor((i - 1) / 3), (i - 1) % 3
      trial.value = i <= 3 and ({0.1, 0.9, 0.2})[i] or 0.41
    end
    -- 0.4 with a wide spread is worse than 0.41 every time.
    local text = page_of(study).by_id.summary:words()
    assert.matches("0.41 loss in trial 3 (mean of 3: 0.41, standard deviation 0", text, 1, true)
  end)

  it("refuses a direction that is none", function()
    local study = studies.make(1)
    study.direction = "down"
    assert.has_error(function() report.html(study) end,
      "the study's direction is 'down', neither minimize nor maximize")
  end)
end)

describe("The report as text", function()
  it("ends with the meaning of paused trials once no more can run", function()
    local study = studies.make(6)
    study.trials[3].state, study.total = "paused", 7
    local function brief() return require "accelhost.sweep.report.text".brief(study, {now = 2000, width = 80}) end
    assert.is_nil(brief():find("finished", 1, true))
    study.total = 6
    assert.matches("\nfinished: the 1 paused were behind the others and do not run again\n", brief(), 1, true)
    study.trials[1].state = "waiting"
    assert.is_nil(brief():find("finished", 1, true))
  end)

  it("prints the best, the best trials, the history and failures", function()
    local study = studies.make(12)
    study.trials[12].state, study.trials[12].error = "failed", "train.lua:9: \27[1mno\nmore"
    local text = report.text(study, {now = 2000, width = 60}):gsub("began [%d: -]+,", "began then,")
    assert.equal([[
digits: minimize loss, sampler tpe, pruner asha
12 trials: 8 complete, 3 pruned, 1 failed
began then, ran for 49.0 s; mean per trial 8.17 s

best: loss 0.057122 in trial 3, trials/0003
  layers     3
  optim.lr   0.00042693
  optimizer  adamw

importance: needs 20 different results (8 complete so far)

complete trials, best first
  trial      loss    time  layers  momentum    optim.lr
      3  0.057122  10.5 s       3            0.00042693
      6  0.068484  10.5 s       4            0.00029604
      9  0.070288  10.5 s       2            0.00060161
      4  0.095953  10.5 s       4            0.00018928
      1   0.17743  10.5 s       3   0.11485   0.0063593
     10    0.1826  10.5 s       1             8.7119e-5
      7   0.26828  10.5 s       2              1.037e-5
      0   0.46649  10.5 s       1               0.40203
  (1 column more)

loss: dots are trials, the line is the best so far
    │⠤⠤⠤⠤⠤⢤
    │     ⢸
0.4 ┤     ⢸
    │     ⢸
0.3 ┤     ⢸
    │     ⢸                               ⠂
    │     ⢸
0.2 ┤     ⠸⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⡄                                   ⠐
    │                ⡇
0.1 ┤                ⡇    ⠄
    │                ⠓⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠚⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠚⠒⠒⠒⠒⠒
    └┬─────────┬──────────┬─────────┬──────────┬─────────┬──
     0         2          4         6          8      trial

trial 11 failed: train.lua:9: ?[1mno
]], text)
  end)

  it("fits into the width that there is", function()
    local columns_of = require("accelhost.util.columns").of
    for _, width in ipairs {32, 40, 80, 160} do
      local body = report.text(studies.make(40), {now = 2000, width = width}):match "\n\nbest %d+ of.*"
      for line in body:gmatch "[^\n]+" do assert.is_true(columns_of(line) <= width, line) end
    end
  end)

  it("describes any study", function()
    local failed = studies.make(8)
    for _, trial in ipairs(failed.trials) do trial.state, trial.value, trial.error = "failed", nil, "it broke" end
    local text = report.text(failed, {now = 1})
    assert.matches("best: none, every trial that ended has failed\n", text, 1, true)
    assert.matches("trial 4 failed: it broke\n  and 3 more have failed\n", text, 1, true)
    assert.matches("0 trials\n\nbest: none, no trial has ended with a value yet\n",
      report.text(studies.make(0), {now = 1}), 1,
      true)
  end)
end)

describe("The export of a study", function()
  it("is CSV with a row for each trial, quoted where it must be", function()
    local study = studies.make(3)
    study.trials[2].state, study.trials[2].value, study.trials[2].error = "failed", nil, 'a, "b"\nc'
    study.space[5] = {name = 'odd, "name"', kind = "float", low = 0, high = 1}
    local lines = report.export(study, "csv")
    assert.matches('^number,state,value,params.layers,params.momentum,params.optim.lr,params.optimizer,"params.odd, '
      .. '""name""",started,ended,seconds,attempt,replicate,bracket,rung,directory,error,violation\r\n0,complete,',
      lines)
    assert.matches('\r\n1,failed,,', lines, 1, true)
    assert.matches('trials/0001,"a, ""b""\nc",\r\n2,pruned,,', lines, 1, true)
    local lr = tonumber(lines:match "\r\n0,complete,[^,]*,[^,]*,[^,]*,([^,]*)")
    assert.equal(study.trials[1].params["optim.lr"], lr)
  end)

  it("is a long CSV of all reports on request", function()
    local study = studies.make(2, {steps = 2})
    study.trials[1].reports = {{step = 1, value = 0.5}, {step = 2, value = 0 / 0}}
    study.trials[2].reports = {}
    assert.equal("trial,step,value\r\n0,1,0.5\r\n0,2,nan\r\n", report.export(study, "csv", {reports = true}))
  end)

  it("is JSON of all values, also those that are not finite", function()
    local study = studies.make(4)
    study.trials[2].value = math.huge
    local found = json.decode(report.export(study, "json"))
    assert.equal("digits", found.name)
    assert.equal(4, #found.trials)
    assert.equal("inf", found.trials[2].value)
    assert.equal(study.trials[1].params["optim.lr"], found.trials[1].params["optim.lr"])
    assert.equal(#study.trials[1].reports, #found.trials[1].reports)
    assert.equal("categorical", found.space[4].kind)
    assert.same({}, json.decode(report.export(studies.make(0), "json")).trials)
  end)

  it("is the best parameters as YAML, which YAML 1.1 reads as they are", function()
    local study = studies.make(1)
    study.trials[1].params = {
      ["optim.lr"] = 1e-05, ["optim.name"] = "no", big = 1e22, whole = 3, half = 0.5, flag = true, sizes = {32, 64},
      no = "it's \"x\"", below = -2.5e-07,
    }
    local text = report.export(study, "yaml")
    assert.equal([[
below: -2.5e-07
big: 1.0e+22
flag: true
half: 0.5
"no": "it's \"x\""
optim:
  lr: 1.0e-05
  name: "no"
sizes: [32, 64]
whole: 3
]], text)
    assert.equal(1e-5, require("accelhost._C").yaml.decode(text).optim.lr)
  end)

  it("is the best parameters as a Lua table that reads back", function()
    local study = studies.make(1)
    study.trials[1].params = {["optim.lr"] = 0.1 + 0.2, name = 'a"b\n', flag = false, sizes = {32, 64}, ["end"] = -0.25}
    local found = loadstring("return " .. report.export(study, "lua"))()
    assert.same({optim = {lr = 0.1 + 0.2}, name = 'a"b\n', flag = false, sizes = {32, 64}, ["end"] = -0.25}, found)
  end)

  it("lists the formats when there is no such format, and reports that there is no best trial", function()
    assert.has_error(function() report.export(studies.make(1), "xml") end,
      "there is no format 'xml'; there are csv, json, yaml and lua")
    assert.has_error(function() report.export(studies.make(0), "yaml") end,
      "no trial of 'digits' has ended with a value yet")
  end)

  it("is written to a file whose name determines the format", function()
    folder.with(function(path)
      local study = studies.make(2)
      assert.equal(0, report.export_main(study, {output = path .. "/out.json"}))
      local file = assert(io.open(path .. "/out.json"))
      assert.equal(2, #json.decode(file:read "*a").trials)
      file:close()
      assert.has_error(function() report.export_main(study, {output = path .. "/none/out.csv"}) end)
    end)
  end)
end)
