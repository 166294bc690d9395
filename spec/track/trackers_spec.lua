local accelhost = require "accelhost"
local C = require "accelhost._C"
local curves = require "accelhost.track.curves"
local content = require("spec.support.files").read
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local leave

local function append(name, text)
  local file = assert(io.open(name, "ab"))
  file:write(text)
  file:close()
end

local function tracked(names, project, config, options)
  local accelerator = accelhost.Accelerator {log_with = names, project_dir = "runs"}
  accelerator:init_trackers(project, config, options)
  return accelerator
end

local function fails(text, fn, ...)
  local values, count = {...}, select("#", ...)
  assert.error_matches(function() fn(unpack(values, 1, count)) end, text, 1, true)
end

describe("trackers", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("write the same curves in every format", function()
    local accelerator = tracked("all", "same", {lr = 0.1, name = "x"})
    assert.same({"tensorboard", "jsonl", "csv"}, accelerator.log_with)
    for step = 0, 4 do
      accelerator:log({loss = accelhost.tensor(1 / (step + 1), {dtype = "float64"}), right = true}, {step = step})
    end
    accelerator:log({loss = 0 / 0, more = -math.huge}, {step = 5})
    accelerator:end_training()
    assert.same({}, accelerator.trackers)
    local names = C.data.list_folder "runs/same"
    for _, name in ipairs(names) do
      if name:find "metrics" or name:find "tfevents" then
        local found = curves.read("runs/same/" .. name)[1].curves
        assert.same({0, 1, 2, 3, 4, 5}, found.loss.step)
        for i = 1, 5 do assert.near(1 / i, found.loss.value[i], 1e-7) end
        assert.is_true(found.loss.value[6] ~= found.loss.value[6])
        assert.same({-math.huge}, found.more.value)
      end
    end
    assert.same({lr = 0.1, name = "x"}, accelhost.json.decode(content "runs/same/config.json"))
  end)

  it("write a JSON object a line", function()
    local accelerator = tracked("jsonl", "lines")
    accelerator:log({loss = 0.1, text = 'a "b"', good = true, part = {x = 1, y = 2}}, {step = 1, log_kwargs =
      {jsonl = {walltime = 5}}})
    accelerator:log({step = 7, loss = math.huge}, {log_kwargs = {jsonl = {walltime = 6}}})
    accelerator:log({loss = 3}, {log_kwargs = {jsonl = {walltime = 7}}})
    assert.equal('{"step": 1, "wall_time": 5.000000, "good": true, "loss": 0.1, "part/x": 1, "part/y": 2, '
      .. '"text": "a \\"b\\""}\n{"step": 7, "wall_time": 6.000000, "loss": "Infinity"}\n'
      .. '{"wall_time": 7.000000, "loss": 3}\n', content "runs/lines/metrics.jsonl")
    fails("log: jsonl: 'step' is a name of the row itself, which has 2; got 7", accelerator.log, accelerator,
      {step = 7}, {step = 2})
  end)

  it("write columns, and rewrite the file for a new one", function()
    local accelerator = tracked("csv", "columns")
    accelerator:log({loss = 0.1}, {step = 1, log_kwargs = {csv = {walltime = 5}}})
    accelerator:log({loss = 0.2, ["a,b"] = 'say "x",\nnow'}, {step = 2, log_kwargs = {csv = {walltime = 6}}})
    accelerator:log({other = -math.huge}, {step = 3, log_kwargs = {csv = {walltime = 7}}})
    assert.equal('step,wall_time,loss,"a,b",other\n1,5.000000,0.1,,\n2,6.000000,0.2,"say ""x"",\nnow",\n'
      .. "3,7.000000,,,-inf\n", content "runs/columns/metrics.csv")
    assert.same({1, 2}, curves.read("runs/columns/metrics.csv")[1].curves.loss.step)
  end)

  for _, name in ipairs {"jsonl", "csv"} do
    it(("continue the files of a killed run: %s"):format(name), function()
      local project, path = "killed_" .. name, ("runs/killed_%s/metrics.%s"):format(name, name)
      tracked(name, project):log({loss = 1}, {step = 1, log_kwargs = {[name] = {walltime = 1}}})
      local whole = content(path)
      append(path, name == "csv" and "2,2.0000" or '{"step": 2, "lo')
      local accelerator = tracked(name, project)
      assert.equal(whole, content(path))
      accelerator:log({loss = 2, new = 3}, {step = 2})
      assert.same({1, 2}, curves.read(path)[1].curves.loss.value)
      assert.same({3}, curves.read(path)[1].curves.new.value)
    end)

    it(("drop the steps that a resumed run repeats: %s"):format(name), function()
      local project, path = "resumed_" .. name, ("runs/resumed_%s/metrics.%s"):format(name, name)
      local first = tracked(name, project)
      for step = 0, 5 do first:log({loss = step}, {step = step}) end
      local second = tracked(name, project, nil, {[name] = {purge_step = 3}})
      second:log({loss = 30}, {step = 3})
      assert.same({0, 1, 2, 30}, curves.read(path)[1].curves.loss.value)
    end)
  end

  describe("of a run that resumes from a checkpoint", function()
    -- Logs the steps up to 9 and is killed; the state is of step 4, when `logged` was the last one.
    local function killed(project, names)
      local first = tracked(names, project)
      for step = 0, 9 do
        first:log({loss = step, plot = {a = step, b = -step}}, {step = step})
        if step == 4 then first:save_state("runs/" .. project .. "_state") end
      end
      return accelhost.Accelerator {log_with = names, project_dir = "runs"}
    end

    local function steps_of(project)
      local found = {}
      for _, name in ipairs {"loss", "plot/a"} do
        for _, one in ipairs(assert(curves.read("runs/" .. project))) do
          if one.curves[name] then found[#found + 1] = table.concat(one.curves[name].step, " ") end
        end
      end
      return table.concat(found, ", ")
    end

    for _, name in ipairs {"jsonl", "csv", "tensorboard"} do
      local both = name == "tensorboard" and "%s" or "%s, %s" -- TensorBoard's plots are separate runs

      it("drop the steps after the checkpoint with the next log: " .. name, function()
        for _, order in ipairs {"before", "after"} do
          local project = name .. order
          local again = killed(project, name)
          if order == "before" then again:init_trackers(project) end
          again:load_state("runs/" .. project .. "_state")
          if order == "after" then again:init_trackers(project) end
          local whole = "0 1 2 3 4 5 6 7 8 9"
          assert.equal(both:format(whole, whole), steps_of(project)) -- nothing is lost before
          again:log({loss = 6, plot = {a = 6, b = -6}}, {step = 6})
          assert.equal(both:format("0 1 2 3 4 6", "0 1 2 3 4 6"), steps_of(project))
          again:log({loss = 7}, {step = 7})
          assert.equal(both:format("0 1 2 3 4 6 7", "0 1 2 3 4 6"), steps_of(project))
          again:end_training()
        end
      end)

      it("keep it where load_state has the option, or drop from another step: " .. name, function()
        for _, case in ipairs {{false, "0 1 2 3 4 5 6 7 8 9 9"}, {2, "0 1 9"}} do
          local project = name .. tostring(case[1])
          local again = killed(project, name)
          again:init_trackers(project)
          again:load_state("runs/" .. project .. "_state", {purge_step = case[1]})
          again:log({loss = 9, plot = {a = 9, b = 9}}, {step = 9})
          assert.equal(both:format(case[2], case[2]), steps_of(project))
        end
      end)
    end

    for _, name in ipairs {"jsonl", "csv", "tensorboard"} do
      local both = name == "tensorboard" and "%s" or "%s, %s"

      it("drop the steps of a run that was killed before its first checkpoint: " .. name, function()
        for i, case in ipairs {{nil, "0 1 2 3 4"}, {false, "0 1 2 3 4 5 6 7 8 9 3 4"}, {1, "0 3 4"}} do
          local project = ("unsaved%s%d"):format(name, i)
          local first = tracked(name, project)
          for step = 0, 9 do first:log({loss = step, plot = {a = step, b = -step}}, {step = step}) end
          local again = accelhost.Accelerator {log_with = name, project_dir = "runs"}
          assert.is_false(again:load_state {purge_step = case[1]})
          again:init_trackers(project)
          again:log {other = 1} -- of no step
          for step = 3, 4 do again:log({loss = step, plot = {a = step, b = -step}}, {step = step}) end
          assert.equal(both:format(case[2], case[2]), steps_of(project))
          again:end_training()
        end
      end)
    end

    it("keep a process's own steps before load_state finds no checkpoint", function()
      local one = tracked("jsonl", "itself")
      one:log({loss = 1}, {step = 1})
      assert.is_false(one:load_state())
      one:log({loss = 2}, {step = 1})
      assert.same({1, 2}, curves.read("runs/itself")[1].curves.loss.value)
    end)

    it("follow init_kwargs where they set it, and keep values without steps", function()
      local again = killed("told", "jsonl")
      again:init_trackers("told", nil, {jsonl = {purge_step = 8}})
      again:load_state "runs/told_state"
      again:log({loss = 8}, {step = 8})
      assert.equal("0 1 2 3 4 5 6 7 8, 0 1 2 3 4 5 6 7", steps_of "told")
      local plain = tracked("jsonl", "plain")
      plain:log {loss = 1}
      plain:save_state "runs/plain_state"
      plain:log({loss = 2}, {step = 3})
      plain:load_state "runs/plain_state"
      plain:log({loss = 3}, {step = 1})
      assert.same({1, 2, 3}, curves.read("runs/plain")[1].curves.loss.value)
    end)

    it("are asked to purge, if they can, and load_state reports the expected method", function()
      local asked = {}
      local own = {name = "own", log = function() end, purge = function(_, step) asked[#asked + 1] = step end}
      local accelerator = accelhost.Accelerator {log_with = {own, {name = "less", log = function() end}}}
      accelerator:init_trackers "x"
      accelerator:log({loss = 1}, {step = 41})
      accelerator:save_state "runs/own_state"
      accelerator:load_state "runs/own_state"
      assert.same({}, asked)
      accelerator:log({loss = 1}, {step = 42})
      accelerator:log({loss = 1}, {step = 43})
      assert.same({42}, asked)
      fails("load_state: purge_step: expected", accelerator.load_state, accelerator, "runs/own_state",
        {purge_step = -1})
    end)
  end)

  it("are returned by name, with their writers", function()
    local accelerator = tracked({"tensorboard", "csv"}, "named")
    assert.equal("csv", accelerator:get_tracker("csv").name)
    local writer = accelerator:get_tracker("tensorboard", {unwrap = true})
    assert.equal("SummaryWriter", writer._name)
    assert.equal("runs/named", writer.log_dir)
    fails("get_tracker: there is no tracker 'tensorbord' (there are: tensorboard, csv) (did you mean 'tensorboard'?)",
      accelerator.get_tracker, accelerator, "tensorbord")
    accelerator:free_memory()
    assert.equal(2, #accelerator.trackers)
  end)

  it("name the tracker and the value that they cannot keep", function()
    local accelerator = tracked({"csv"}, "wrong")
    local function log(...) accelerator:log(...) end
    fails("log: csv: 'loss': expected a tensor of one element, got shape (3,)", log, {loss = accelhost.zeros(3)})
    fails("log: csv: 'fn': expected a number, a boolean, a text or a tensor of one element, got a function", log,
      {fn = print})
    fails("log: csv: expected a table of values by name, got the key number 1", log, {5})
    fails("log: csv: 'note': expected a text in UTF-8, got ", log, {note = "\255"})
    fails("log: csv: expected a text in UTF-8, got ", log, {["\255"] = 1})
    fails("log: csv: 'a/b' is given twice", log, {["a/b"] = 1, a = {b = 2}})
    fails("log: log_kwargs: unknown option 'jsonl' (known: csv)", log, {a = 1}, {log_kwargs = {jsonl = {}}})
    fails("log: csv: unknown option 'wall' (known: walltime)", log, {a = 1}, {log_kwargs = {csv = {wall = 1}}})
    fails("log_images: none of the trackers keeps images; 'tensorboard' does", accelerator.log_images, accelerator,
      {a = accelhost.zeros(1, 1, 2, 2)})
    accelerator = tracked("tensorboard", "wrong")
    fails("log: tensorboard: 'loss': expected a tensor of one element, got shape (3,)", log,
      {loss = accelhost.zeros(3)})
    fails("add_images: expected an image of 4 dims (NHWC), got shape (4, 4)", accelerator.log_images, accelerator,
      {a = accelhost.zeros(4, 4)}, {log_kwargs = {tensorboard = {dataformats = "NHWC"}}})
  end)

  it("are refused where they cannot be", function()
    local function make(options) return function() accelhost.Accelerator(options) end end
    fails("Accelerator: log_with: 'csv' needs a folder: pass project_dir, or logging_dir in project_config",
      make {log_with = "csv"})
    fails("Accelerator: log_with: there is no tracker 'wandb' (known: all, tensorboard, jsonl, csv)",
      make {log_with = "wandb", project_dir = "runs"})
    fails("Accelerator: log_with: 'csv' is there twice", make {log_with = {"csv", "all"}, project_dir = "runs"})
    fails("the tracker 'mine': log: expected a function, got nil", make {log_with = {name = "mine"}})
    fails("Accelerator: log_with: expected a name, a tracker or a table of them, got the class GeneralTracker",
      make {log_with = accelhost.track.GeneralTracker})
    fails("init_trackers: init_kwargs: unknown option 'jsonl' (known: csv)", tracked, "csv", "x", nil, {jsonl = {}})
    fails("init_trackers: csv: purge_step: expected an integer of at least 0, got number -1", tracked, "csv", "x", nil,
      {csv = {purge_step = -1}})
    fails("init_trackers: project_name: expected the name of a folder, got '..'", tracked, "csv", "..")
    local none = accelhost.Accelerator()
    none:init_trackers "nothing"
    fails("log: there are no trackers: log_with = ", none.log, none, {a = 1})
    local late = accelhost.Accelerator {log_with = "csv", project_dir = "runs"}
    fails("log: there are no trackers: init_trackers starts them", late.log, late, {a = 1})
  end)

  it("may be one's own: an object, a plain table, a class by its name", function()
    local calls = {}
    local Own = accelhost.track.GeneralTracker:extend "Own"
    Own.name = "own"
    function Own:start() calls[#calls + 1] = "start" end -- luacheck: ignore self
    function Own:store_init_configuration(values) calls[#calls + 1] = "config " .. values.lr end -- luacheck: ignore
    function Own:log(values, step, options) -- luacheck: ignore self
      calls[#calls + 1] = ("log %s %s %s"):format(values.loss, step, options and options.mark)
    end
    function Own:finish() calls[#calls + 1] = "finish" end -- luacheck: ignore self
    local plain = {name = "plain", log = function(_, values) calls[#calls + 1] = "plain " .. values.loss end}
    local accelerator = accelhost.Accelerator {log_with = {Own(), plain}}
    assert.same({}, calls)
    accelerator:init_trackers("x", {lr = 2})
    accelerator:log({loss = 1}, {step = 3, log_kwargs = {own = {mark = "m"}}})
    accelerator:end_training()
    accelerator:end_training()
    assert.same({"start", "config 2", "log 1 3 m", "plain 1", "finish"}, calls)
    accelhost.track.register_tracker_class(Own)
    accelhost.track.register_tracker_class(Own)
    assert.same({"own"}, accelhost.Accelerator({log_with = "own"}).log_with)
    local Other = accelhost.track.GeneralTracker:extend "Other"
    Other.name = "csv"
    fails("register_tracker_class: there is a tracker 'csv' already", accelhost.track.register_tracker_class, Other)
    fails("register_tracker_class: expected a subclass of GeneralTracker, got a table",
      accelhost.track.register_tracker_class, {})
  end)

  it("write into logging_dir where project_config names one", function()
    local accelerator = accelhost.Accelerator {
      log_with = "jsonl", project_config = {project_dir = "runs", logging_dir = "logs/deep"},
    }
    assert.is_nil(C.data.look "logs")
    accelerator:init_trackers "mine"
    accelerator:log {loss = 1}
    assert.same({1}, curves.read("logs/deep/mine")[1].curves.loss.value)
  end)

  it("are the main process's only; elsewhere every call does nothing", function()
    local script = "ranks.lua"
    append(script, [[
      local accelhost = require "accelhost"
      local accelerator = accelhost.Accelerator{log_with = "all", project_dir = "job"}
      accelerator:init_trackers("p", {lr = 1})
      accelerator:log({rank = accelerator.process_index}, {step = 0})
      local tracker = accelerator:get_tracker("tensorboard", {unwrap = true})
      tracker:add_scalar("more", 1, 0)
      -- Only the process that writes needs the plugin for PNG, which is built where libpng is.
      local written, problem = pcall(accelerator.log_images, accelerator, {a = accelhost.zeros(1, 1, 2, 2)})
      assert(written or accelerator.is_main_process and problem:find "accelhost%-image.so is not here", problem)
      print(accelerator.process_index, #accelerator.trackers)
      accelerator:end_training()
    ]])
    local result = run.host({"launch", "--num_processes", "2", script}, {timeout = 60})
    assert.same({0, ""}, {result.code, result.stderr})
    assert.matches("0%s+3\n", result.stdout)
    assert.matches("1%s+0\n", result.stdout)
    local found = curves.read("job/p")[1].curves
    assert.same({0}, found.rank.value)
    assert.same({1}, found.more.value)
  end)

  it("leave whole records behind a run that is killed", function()
    append("killed.lua", [[
      local accelhost = require "accelhost"
      local accelerator = accelhost.Accelerator{log_with = "all", project_dir = "kill"}
      accelerator:init_trackers "p"
      for step = 0, 99 do accelerator:log({loss = step}, {step = step}) end
      os.execute("kill -9 $PPID")
    ]])
    local result = run.host({"killed.lua"}, {timeout = 60})
    assert.not_equal(0, result.code)
    for _, name in ipairs(C.data.list_folder "kill/p") do
      local found = curves.read("kill/p/" .. name)[1]
      assert.same({}, found.troubles)
      assert.equal(100, #found.curves.loss.value)
    end
  end)
end)
