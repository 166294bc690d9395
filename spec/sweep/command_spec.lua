-- `accelhost sweep` as a person runs it: processes, folders, failures.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local read, write = files.read, files.write

if not pcall(C.sqlite.open, ":memory:") then
  return describe("accelhost sweep", function() pending "needs accelhost-sqlite.so, which is built where SQLite is" end)
end

local function sweep(...) return run.host({"sweep", ...}, {timeout = 60}) end

-- The file of a sweep, whose table is `fields`.
local function define(fields, before)
  write("s.lua", ([[local sweep = require "accelhost".sweep %s
    return {sampler = "random", %s}]]):format(before or "", fields))
end

local train = [[
  local accelhost = require "accelhost"
  local args = accelhost.args{lr = 0.1, epochs = 2, seed = 5, optim = {name = "sgd", momentum = 0}}
  for epoch = 1, args.epochs do
    accelhost.report(epoch, {loss = args.lr / epoch, seed = args.seed})
  end
  print("lr", args.lr, args.optim.name)]]

local function rows(sql)
  local db = C.sqlite.open("s.study/study.db", "read")
  local result = db:execute(sql)
  db:close()
  return result
end

local function state_counts()
  local counts = {}
  for _, row in ipairs(rows "SELECT state, count(*) AS n FROM trial GROUP BY state") do counts[row.state] = row.n end
  return counts
end

describe("accelhost sweep", function()
  local leave
  before_each(function()
    leave = folder.enter()
    write("train.lua", train)
  end)
  after_each(function() leave() end)

  local space = [[script = "train.lua", trials = 4, space = {lr = sweep.log_uniform(1e-4, 1), epochs = 3,
    optim = {name = sweep.choice{"sgd", "adamw"}, momentum = sweep.uniform(0, 1, {when = {name = "sgd"}})}}]]

  it("runs a script for each trial, keeps its folder, and prints the best parameters", function()
    define(space)
    local result = sweep("s.lua", "-j", "2")
    assert.equal(0, result.code, result.output)
    assert.same({complete = 4}, state_counts())
    local best = rows("SELECT number, params, value FROM trial ORDER BY value")[1]
    local params = accelhost.json.decode(best.params)
    assert.equal(params.lr / 3, best.value)
    local place = ("s.study/trials/%04d/"):format(best.number)
    assert.matches("^lr\t[%d.e-]+\t%a+\n$", read(place .. "log.txt"))
    local given = (C.yaml.decode(read(place .. "params.yaml")))
    assert.equal(params.lr, given.lr)
    assert.equal(3, given.epochs)
    assert.equal(params["optim.name"], given.optim.name)
    local lines = {}
    for line in io.lines(place .. "metrics.jsonl") do lines[#lines + 1] = accelhost.json.decode(line) end
    assert.same({1, 2, 3}, {lines[1].step, lines[2].step, lines[3].step})
    assert.equal(best.value, lines[3].loss)
    assert.equal(read(place .. "params.yaml"), read "s.study/best.yaml")
    local printed = loadstring("return " .. result.stdout:match "(%b{})%s*$")()
    assert.same(given, printed)
  end)

  it("passes its best parameters to the plain script, by launch and by run", function()
    define(space)
    assert.equal(0, sweep("s.lua").code)
    local lr = (C.yaml.decode(read "s.study/best.yaml")).lr
    for _, words in ipairs {{"launch"}, {"run"}} do
      local result = run.host {words[1], "--params", "s.study/best.yaml", "train.lua"}
      assert.matches(("^lr\t%s\t"):format(tostring(lr):gsub("%p", "%%%0")), result.stdout)
    end
    local result = run.host {"run", "--params", "s.study/best.yaml", "train.lua", "--lr", "7"}
    assert.matches("^lr\t7\t", result.stdout)
    write("p.json", '{"learning_rate": 1}')
    result = run.host {"run", "--params", "p.json", "train.lua"}
    assert.equal(2, result.code)
    assert.matches("p.json sets 'learning_rate', which is none of the script's options", result.stderr)
  end)

  it("calls objective functions, with names that it knows and an answer that it checks", function()
    define [[trials = 3, space = {x = sweep.uniform(-1, 1), deep = {y = 2}}, objective = function(trial)
      assert(not pcall(function() return trial.params.z end))
      assert(trial.directory:match "trials/000%d$" and trial.seed == 0)
      trial:report(1, trial.params.x ^ 2 + 1)
      return trial.params.x ^ 2 + trial.params.deep.y
    end]]
    local result = sweep("s.lua")
    assert.equal(0, result.code, result.output)
    for _, row in ipairs(rows "SELECT params, value FROM trial") do
      assert.near(accelhost.json.decode(row.params).x ^ 2 + 2, row.value, 1e-15)
    end
    assert.equal(3, #rows "SELECT * FROM report")
  end)

  it("runs a trial as a gang of ranks that agree on their parameters", function()
    write("train.lua", [[
      local accelhost = require "accelhost"
      local args = accelhost.args{lr = 0.1}
      local accelerator = accelhost.Accelerator()
      local all = accelerator:gather(accelhost.tensor{args.lr})
      accelhost.report(1, {loss = all:sum()})]])
    define [[script = "train.lua", num_processes = 2, trials = 2, space = {lr = sweep.uniform(0, 1)}]]
    local result = sweep("s.lua")
    assert.equal(0, result.code, result.output)
    for _, row in ipairs(rows "SELECT params, value FROM trial") do
      assert.near(2 * accelhost.json.decode(row.params).lr, row.value, 1e-6)
    end
  end)

  it("stops a trial on all its ranks at the report that the pruner chose", function()
    write("train.lua", [[
      local accelhost = require "accelhost"
      local args = accelhost.args{lr = 0.1}
      local accelerator = accelhost.Accelerator()
      for epoch = 1, 5 do
        accelerator:wait_for_everyone()
        accelhost.report(epoch, {loss = args.lr})
        print("continued", epoch)
      end]])
    define [[script = "train.lua", num_processes = 2, parallel = 1, trials = 2, space = {lr = sweep.uniform(0, 9)},
      pruner = {"median", n_startup_trials = 1}, enqueue = {{lr = 1}, {lr = 2}}]]
    local result = sweep("s.lua")
    assert.equal(0, result.code, result.output)
    assert.same({complete = 1, pruned = 1}, state_counts())
    assert.equal(1, #rows "SELECT * FROM report WHERE trial = 1")
    assert.equal("", read "s.study/trials/0001/log.txt")
  end)

  for _, inline in ipairs {"false", "true"} do
    it("lets an objective leave by itself that asks to stay, inline = " .. inline, function()
      define(([[trials = 2, parallel = 1, inline = %s, pruner = {"median", n_startup_trials = 1},
        space = {x = sweep.uniform(0, 9)}, enqueue = {{x = 1}, {x = 2}},
        objective = function(trial)
          for step = 1, 9 do
            trial:report(step, {loss = trial.params.x}, {stay = true})
            if trial:should_prune() then return 77 end
          end
          return trial.params.x
        end]]):format(inline))
      local result = sweep("s.lua")
      assert.equal(0, result.code, result.output)
      assert.same({9, 1}, {#rows "SELECT * FROM report WHERE trial = 0", #rows "SELECT * FROM report WHERE trial = 1"})
      assert.same({{state = "complete", value = 1}, {state = "pruned", value = 2}},
        rows "SELECT state, value FROM trial ORDER BY number")
    end)
  end

  it("reads a script's logged values, and passes its trackers the trial's folder", function()
    write("train.lua", [[
      local accelhost = require "accelhost"
      local args = accelhost.args{lr = 0.1}
      local accelerator = accelhost.Accelerator{log_with = "jsonl", project_dir = "logs"}
      accelerator:init_trackers "run"
      for step = 1, 3 do
        accelerator:log({loss = accelhost.tensor(args.lr / step), note = "text"}, {step = 10 * step})
        accelerator:log{accuracy = 1}
      end]])
    define [[script = "train.lua", trials = 1, space = {lr = sweep.uniform(0, 1)}]]
    local result = sweep("s.lua")
    assert.equal(0, result.code, result.output)
    local lr = accelhost.json.decode(rows "SELECT params FROM trial"[1].params).lr
    local found = rows "SELECT step, value FROM report"
    assert.same({10, 20, 30}, {found[1].step, found[2].step, found[3].step})
    assert.near(lr / 3, found[3].value, 1e-7)
    assert.equal(3, #rows "SELECT * FROM event WHERE kind = 'log'")
    local _, lines = read "s.study/trials/0000/logs/run/metrics.jsonl":gsub("\n", "")
    assert.equal(6, lines)
  end)

  it("has values that a trial logs at its last report in the trial's trackers", function()
    write("train.lua", [[
      local accelhost = require "accelhost"
      local args = accelhost.args{lr = 0.1}
      local accelerator = accelhost.Accelerator{log_with = "jsonl", project_dir = "logs"}
      accelerator:init_trackers "run"
      for step = 1, 3 do accelerator:log({loss = args.lr}, {step = step}) end]])
    define [[script = "train.lua", parallel = 1, trials = 2, space = {lr = sweep.uniform(0, 9)},
      pruner = {"median", n_startup_trials = 1}, enqueue = {{lr = 1}, {lr = 2}}]]
    local result = sweep("s.lua")
    assert.equal(0, result.code, result.output)
    assert.same({complete = 1, pruned = 1}, state_counts())
    assert.matches('^{[^\n]*"loss": 2[^\n]*}\n$', read "s.study/trials/0001/logs/run/metrics.jsonl")
  end)

  it("resumes with the same command, and with more trials", function()
    define(space)
    assert.equal(0, sweep("s.lua", "-n", "2").code)
    local before = rows "SELECT number, params, value, ended FROM trial"
    assert.equal(0, sweep("s.lua", "-n", "3").code)
    local after = rows "SELECT number, params, value, ended FROM trial ORDER BY number"
    assert.equal(3, #after)
    assert.same(before, {after[1], after[2]})
    assert.equal(0, sweep("s.lua", "-n", "3").code)
    assert.equal(3, #rows "SELECT * FROM trial")
  end)

  it("refuses to continue with another space, and reports the differences", function()
    define(space)
    assert.equal(0, sweep("s.lua", "-n", "1").code)
    define((space:gsub("1e%-4, 1%)", "1e-3, 1)")))
    local result = sweep("s.lua", "-n", "2")
    assert.equal(2, result.code)
    assert.matches("'s.study' was begun with another definition: parameter 'lr' is float from 0.001 to 1, logarithmic "
      .. "now, and was float from 0.0001 to 1, logarithmic. Use another %-%-study; 'enqueue' in the file starts it "
      .. "with known parameters %(accelhost sweep best s.study%)\n$", result.stderr)
  end)

  it("continues with wider ranges and more choices, and names them", function()
    define(space)
    assert.equal(0, sweep("s.lua", "-n", "2").code)
    local before = rows "SELECT params, value FROM trial ORDER BY number"
    define((space:gsub("1e%-4, 1%)", "1e-5, 2)"):gsub('"sgd", "adamw"', '"sgd", "adamw", "muon"')))
    local result = sweep("s.lua", "-n", "4")
    assert.equal(0, result.code, result.output)
    assert.equal("accelhost sweep: parameter 'lr' is float from 1e-05 to 2, logarithmic now, and was float from "
      .. "0.0001 to 1, logarithmic; earlier trials stay\naccelhost sweep: parameter 'optim.name' is [\"sgd\", "
      .. "\"adamw\", \"muon\"] now, and was [\"sgd\", \"adamw\"]; earlier trials stay\n", result.stderr)
    local after = rows "SELECT params, value FROM trial ORDER BY number"
    assert.equal(4, #after)
    assert.same(before, {after[1], after[2]})
    define(space)
    assert.equal(2, sweep("s.lua", "-n", "5").code)
  end)

  it("keeps the traceback of a failed trial in its log, and runs it again after `sweep retry`", function()
    local failing = train:gsub("for epoch", "assert(args.lr < 2, 'lr too large')\n  for epoch")
    write("train.lua", failing)
    local fields = [[script = "train.lua", trials = 3, space = {lr = sweep.uniform(0, 9)},
      enqueue = {{lr = 1}, {lr = 5}, {lr = 8}}]]
    define(fields)
    assert.equal(0, sweep("s.lua", "-j", "1").code)
    assert.same({complete = 1, failed = 2}, state_counts())
    assert.matches("train.lua:%d+: lr too large\n  train.lua:%d+: in main chunk\n$", read "s.study/trials/0001/log.txt")
    assert.matches("\nto run failed trials again: accelhost sweep retry s.study\n",
      sweep("status", "s.study").stdout, 1, true)
    write("train.lua", train)
    assert.equal(0, sweep("s.lua", "-j", "1").code)
    assert.same({complete = 1, failed = 2}, state_counts())
    local result = sweep("retry", "s.study")
    assert.same({0, "2 failed trials to run again; start with: accelhost sweep s.lua --study s.study -j 1\n"},
      {result.code, result.output})
    assert.matches("no process runs it; to continue: accelhost sweep s.lua", sweep("status", "s.study").stdout, 1, true)
    assert.equal(0, sweep("s.lua", "-j", "1").code)
    assert.same({complete = 3}, state_counts())
    assert.same({{value = 1 / 2}, {value = 5 / 2}, {value = 4}}, rows "SELECT value FROM trial ORDER BY number")
    assert.equal("no trial of 's.study' has failed\n", sweep("retry", "s.study").stdout)
    result = sweep("retry", "nowhere")
    assert.equal(2, result.code)
    assert.matches("there is no study in 'nowhere'", result.stderr, 1, true)
  end)

  it("has one run for each trial in accelhost plot, with the trackers' values", function()
    write("train.lua", [[
      local accelhost = require "accelhost"
      local args = accelhost.args{lr = 0.1}
      local accelerator = accelhost.Accelerator{log_with = "jsonl", project_dir = "logs"}
      accelerator:init_trackers "mlp"
      for step = 1, 3 do accelerator:log({loss = args.lr / step}, {step = step}) end]])
    define [[script = "train.lua", trials = 2, space = {lr = sweep.uniform(0, 1)}]]
    assert.equal(0, sweep("s.lua").code)
    local text = run.host({"plot", "s.study/trials"}).stdout
    assert.matches("^a ── 0000 +b ── 0001\n", text)
    assert.matches("loss  b 0001 [^\n]* 3\n", text)
    assert.is_nil(text:find("mlp", 1, true))
  end)

  -- Files that are refused with one line, at the latest by the first trial: {case, the file's fields, the line}.
  for _, case in ipairs {
    {"a parameter that the script does not have", [[script = "train.lua", trials = 3,
      space = {lrr = sweep.uniform(0, 1)}]],
      "the sweep sets 'lrr', which is none of the script's options %(.-%) %(did you mean 'lr'%?%)"},
    {"a value that the script does not take", [[script = "train.lua", trials = 3, space = {lr = sweep.choice{"x"}}]],
      "the sweep sets lr = 'x', but the script expects a number"},
    {"an empty range", [[script = "train.lua", trials = 3, space = {lr = sweep.uniform(1, 0)}]],
      "s.lua:%d: uniform: the range from 1 to 0 is empty"},
    {"a space that the script never reads", [[script = "deaf.lua", trials = 3, space = {lr = sweep.uniform(0, 1)}]],
      "the script never reads its parameters: accelhost.args{...} or accelhost.parse_args{...} does"},
    {"a script that reports nothing", [[script = "mute.lua", trials = 3, space = {lr = sweep.uniform(0, 1)}]],
      "mute.lua never reported 'loss', the metric of the sweep: accelhost.report"},
    {"a script that reports another metric", [[script = "train.lua", metric = "accuracy", trials = 3,
      space = {lr = sweep.uniform(0, 1)}]], "train.lua never reported 'accuracy', the metric of the sweep "
      .. "%(it reported 'loss', 'seed'%)"},
    {"a space that the objective never reads", [[objective = function() return 1 end, trials = 3,
      space = {x = sweep.uniform(0, 1)}]], "the objective never reads trial.params, which hold the sweep's values"},
    {"an objective that returns nothing", [[objective = function() end, trials = 3, space = {x = sweep.uniform(0, 1)}]],
      "the objective returned nil; expected a number, the loss"},
    {"an objective that returns nothing, inline", [[objective = function() end, trials = 3, inline = true,
      space = {x = sweep.uniform(0, 1)}]], "the objective returned nil; expected a number, the loss"},
    {"arguments that are wrong", [[script = "train.lua", arguments = {"--epoch", "2"}, trials = 3,
      space = {lr = sweep.uniform(0, 1)}]], "train.lua: unknown option '%-%-epoch' %(did you mean '%-%-epochs'%?%)"},
    {"an argument that the sweep chooses too", [[script = "train.lua", arguments = {"--lr", "2"}, trials = 3,
      space = {lr = sweep.uniform(0, 1)}]], "%-%-lr is set on the command line, and the sweep chooses it too"},
    {"no number of trials", [[script = "train.lua", space = {lr = sweep.uniform(0, 1)}]],
      "the number of trials is not set: pass %-n N"},
    {"a sampler that is not there", [[script = "train.lua", trials = 3, sampler = "tpee",
      space = {lr = sweep.uniform(0, 1)}]], "there is no sampler 'tpee'"},
    {"a grid over continuous numbers", [[script = "train.lua", sampler = "grid", space = {lr = sweep.uniform(0, 1)}]],
      "grid: 'lr' is continuous"},
  } do
    it("refuses " .. case[1] .. " with one line, and starts once it is mended", function()
      write("deaf.lua", "require('accelhost').report(1, {loss = 1})")
      write("mute.lua", "require('accelhost').args{lr = 1}")
      define((case[2]:gsub('sampler = "', 'sampler = "')), "")
      local text = read "s.lua"
      if case[2]:find "sampler" then write("s.lua", (text:gsub('sampler = "random", ', "", 1))) end
      local result = sweep("s.lua", "-j", "1", "--quiet")
      assert.equal(2, result.code, result.output)
      assert.matches("^accelhost sweep: [^\n]*" .. case[3] .. "[^\n]*\n$", result.stderr)
      define(space)
      assert.equal(0, sweep("s.lua", "-n", "1", "--quiet").code)
    end)
  end

  it("keeps the traceback of a failed trial, and retries it as often as configured", function()
    define [[trials = 2, retries = 1, space = {x = sweep.uniform(0, 1)}, objective = function(trial)
      if trial.number == 0 and trial.attempt == 0 then error "no luck" end
      if trial.number == 1 then error("never " .. trial.attempt) end
      return trial.params.x
    end]]
    local result = sweep("s.lua", "-j", "1")
    assert.equal(0, result.code, result.output)
    assert.same({complete = 1, failed = 1}, state_counts())
    local failed = rows("SELECT * FROM trial WHERE state = 'failed'")[1]
    assert.equal(1, failed.attempt)
    assert.matches("s.lua:%d: never 1\n.*in objective", failed.error)
    assert.matches("trial 0 failed and is tried again: .*no luck", result.stdout)
  end)

  it("stops when the first three trials fail alike", function()
    define [[trials = 9, space = {x = sweep.uniform(0, 1)}, objective = function() error "broken" end]]
    local result = sweep("s.lua", "-j", "1")
    assert.equal(1, result.code)
    assert.matches("the first 3 runs failed alike: .*broken", result.stderr)
    assert.same({failed = 3}, state_counts())
  end)

  it("reports trials that ran out of memory, exceeded the timeout, or were killed", function()
    define [[trials = 3, timeout = 4, space = {x = sweep.choice{"memory", "time", "kill"}},
      sampler = "grid", objective = function(trial)
        if trial.params.x == "memory" then error "not enough memory" end
        while trial.params.x == "time" do end
        os.execute("kill -9 " .. io.open("/proc/self/stat"):read "*n")
      end]]
    write("s.lua", (read "s.lua":gsub('sampler = "random", ', "", 1)))
    local result = sweep("s.lua", "-j", "1", "--quiet")
    assert.equal(1, result.code)
    local said = {}
    for _, row in ipairs(rows "SELECT params, error FROM trial") do
      said[accelhost.json.decode(row.params).x] = row.error
    end
    assert.matches("^out of memory: .*not enough memory", said.memory)
    assert.equal("exceeded 4 s (timeout)", said.time)
    assert.matches("^out of memory, or killed from outside: rank 0 was killed by SIGKILL; it had %d+ MB", said.kill)
  end)

  it("runs replicates with their own seeds", function()
    define [[script = "train.lua", trials = 1, replicates = 3, space = {lr = sweep.uniform(0, 1)}]]
    assert.equal(0, sweep("s.lua").code)
    local seeds = {}
    for i, row in ipairs(rows "SELECT metrics FROM report WHERE step = 1 ORDER BY trial") do
      seeds[i] = accelhost.json.decode(row.metrics).seed
    end
    assert.same({5, 6, 7}, seeds)
    assert.same({{configuration = 0, replicate = 0}, {configuration = 0, replicate = 1},
      {configuration = 0, replicate = 2}}, rows "SELECT configuration, replicate FROM trial ORDER BY number")
  end)

  it("reads YAML, too, with the words of others", function()
    write("s.yaml", "program: train.lua\nmethod: grid\nparameters:\n  lr: {values: [0.5, 0.25]}\n"
      .. "  optim: {parameters: {name: {values: [sgd, adamw]}}}\n")
    local result = sweep("s.yaml")
    assert.equal(0, result.code, result.output)
    assert.same({complete = 4}, state_counts())
    assert.equal("lr: 0.25\noptim:\n  name: \"adamw\"\n", read "s.study/trials/0000/params.yaml"
      :gsub('"sgd"', '"adamw"'):gsub("0.5", "0.25"))
  end)

  it("lets no second process run a study, and reports its state", function()
    define [[trials = 1, space = {x = sweep.uniform(0, 1)}, objective = function(trial)
      while not io.open "go" do os.execute "sleep 0.05" end
      return trial.params.x
    end]]
    local shell = [["$0" sweep s.lua --quiet & first=$!
      until [ -e s.study/trials/0000/params.yaml ]; do sleep 0.05; done
      "$0" sweep s.lua; echo "code $?"
      "$0" sweep status s.study
      touch go; wait $first; echo "code $?"
      "$0" sweep status s.study; "$0" sweep best s.study]]
    local result = run.program({"bash", "-c", shell, run.path}, {timeout = 60})
    assert.matches("another process runs the study 's.study'", result.stderr)
    assert.matches("^code 2\n.*1 running.*a process runs it\n.*code 0\n.*1 complete.*no process runs it; "
      .. "for more trials: accelhost sweep s.lua %-%-study s.study %-n 2\n{\n  x = [%d.]+,\n}\n$", result.stdout)
  end)

  it("reports a wrong word of the command line", function()
    assert.matches("expected a file", sweep().stderr)
    assert.matches("status: expected a study's folder", sweep("status").stderr)
    assert.matches("unexpected argument 'b'", sweep("a.lua", "b").stderr)
    assert.matches("cannot read no.lua: No such file", sweep("no.lua").stderr)
    assert.equal("accelhost sweep: there is neither a command nor a file 'statu' (did you mean 'status'?)\n"
      .. "Try 'accelhost sweep --help'.\n", sweep("statu", "a.study").stderr)
    assert.matches("there is no study in 'no.study' %(study.db is not there", sweep("best", "no.study").stderr)
    assert.equal(2, sweep("best", "no.study").code)
  end)
end)
