-- Names from files, studies, scripts and other processes are printed without escape sequences.
local C = require "accelhost._C"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local lines = require "accelhost.top.lines"
local params = require "accelhost.util.params"
local run = require "spec.support.run"

-- Set the title (ESC and BEL), begin a color (U+009B), and two bytes that are not UTF-8.
local NAME = "\27]0;title\7\194\155" .. "31m\155\255"
local SHOWN = "?]0;title??31m??"

local function assert_clean(output, expected)
  assert.truthy(output:find(expected, 1, true), output)
  assert.is_nil(output:find "[%z\1-\8\11-\31\127]", output)
  assert.is_nil(output:find "\194[\128-\159]", output)
  assert.is_true(C.events.is_utf8(output))
end

describe("Escape sequences are replaced", function()
  local dir
  before_each(function() dir = folder.make() end)
  after_each(function() folder.remove(dir) end)

  it("in errors about files", function()
    files.write(dir .. "/t.csv", ("a,%s,%s\n1,2,3\n"):format(NAME, NAME))
    local code = ("require('accelhost').data.load_dataset('csv', {data_files = '%s/t.csv'})"):format(dir)
    assert_clean(run.host({"-e", code}).stderr, "two columns are named '" .. SHOWN .. "'")
    local typed = run.host({"repl"}, {stdin = code .. "\n"})
    assert_clean(typed.output, "two columns are named '" .. SHOWN .. "'")
    files.write(dir .. "/c.yaml", '"\\e]0;title\\a": 1\n')
    assert_clean(run.host({"launch", "--config_file", dir .. "/c.yaml", "x.lua"}).stderr, "unknown key '?]0;title?'")
  end)

  it("in names of scripts, and in reports of a failed rank", function()
    local script = files.write(dir .. "/" .. NAME .. ".lua", "error(debug.getinfo(1, 'S').short_src)")
    for _, words in ipairs {{script}, {"launch", "--num_processes", "2", script}} do
      local result = run.host(words)
      assert.is_true(result.code ~= 0)
      assert_clean(result.stderr, SHOWN .. ".lua:1: ")
    end
  end)

  it("in warnings", function()
    local result = run.script(("require 'accelhost.util.warn'(%q)"):format(NAME))
    assert_clean(result.stderr, "warning: ?")
  end)

  it("in the jobs of accelhost top", function()
    local rank = {rank = 0, pid = 1, state = "runs", steps = 1, doing = NAME, site = NAME}
    local text = table.concat(lines.of {jobs = {{pid = 1, command = NAME, ranks = {rank}}}}, "\n")
    -- Of a text that is not UTF-8 each byte beyond ASCII is replaced.
    assert_clean(text, "job 1: ?]0;title???31m??")
  end)

  it("in parameters as Lua source, which keeps their values", function()
    for _, value in ipairs {NAME, "\194\155" .. "1", "gr\195\188n", "\155" .. "9"} do
      local source = params.lua {name = value, [value] = 1}
      assert_clean(source, "name")
      assert.same({name = value, [value] = 1}, loadstring("return " .. source)())
    end
  end)

  it("in the status and the best trial of a study", function()
    if not pcall(C.sqlite.open, ":memory:") then return pending "needs accelhost-sqlite.so" end
    files.write(dir .. "/s.lua", [[return {space = {lr = require "accelhost".sweep.uniform(0, 1)}, trials = 1,
      inline = true, objective = function() return 1 end}]])
    local made = run.host({"sweep", "s.lua"}, {dir = dir})
    assert.equal(0, made.code, made.output)
    local db = C.sqlite.open(dir .. "/s.study/study.db", "write")
    for _, key in ipairs {"command", "metric", "name"} do
      db:execute("UPDATE study SET value = ? WHERE key = ?", {C.json.encode "x\27]0;title\7\194\155", key})
    end
    db:close()
    local shown = {status = "for more trials: x?]0;title??", best = "trial 0: x?]0;title??", report = "title"}
    for what, expected in pairs(shown) do
      local result = run.host({"sweep", what, "s.study"}, {dir = dir})
      assert.equal(0, result.code, result.output)
      assert_clean(result.output, expected)
    end
  end)
end)
