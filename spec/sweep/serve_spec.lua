-- accelhost sweep report --serve: requests of a browser.
local C = require "accelhost._C"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

if not pcall(C.sqlite.open, ":memory:") then
  return describe("The page of a sweep", function()
    pending "needs accelhost-sqlite.so, which is built where SQLite is"
  end)
end

describe("The page of a sweep", function()
  local leave, pipe, pid, address
  setup(function()
    leave = folder.enter()
    files.write("s.lua", [[return {objective = function(trial) print "in its log" return trial.params.x end, trials = 3,
      space = {x = require "accelhost".sweep.uniform(0, 1)}}]])
    local result = run.host({"sweep", "s.lua", "--quiet"}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    pipe = io.popen("echo $$; exec timeout 60 " .. run.quote(run.path) .. " sweep report s.study --serve 0")
    pid = pipe:read "*l"
    address = pipe:read("*l"):match "http://([%d.:]+)/"
  end)
  teardown(function()
    os.execute("kill " .. pid)
    pipe:close()
    leave()
  end)

  local function get(target, more)
    local output = io.popen(("curl -s -m 20 --path-as-is -w '\n%%{http_code}' %s 'http://%s%s'"):format(more or "",
      address, target))
    local text = output:read "*a"
    output:close()
    local body, code = text:match "^(.*)\n(%d+)$"
    return tonumber(code), body
  end

  it("is served on the loopback address, with a script that polls", function()
    assert.matches("^127%.0%.0%.1:%d+$", address)
    local code, body = get "/"
    assert.equal(200, code)
    assert.matches("^<!DOCTYPE html>.*3: 3 complete.*fetch%(\"/changes\"%)", body)
  end)

  it("is another version after a trial", function()
    local _, before = get "/changes"
    local _, again = get "/changes"
    assert.equal(before, again)
    run.host({"sweep", "s.lua", "--quiet", "-n", "4"}, {timeout = 60})
    local _, after = get "/changes"
    assert.not_equal(before, after)
    assert.matches("4: 4 complete", select(2, get "/"))
  end)

  it("has the files of trials, and no others", function()
    assert.matches("log%.txt", select(2, get "/trials/0000/"))
    assert.matches("in its log", select(2, get "/trials/0000/log.txt"))
    for _, target in ipairs {"/study.db", "/trials/../study.db", "/trials/%2e%2e/study.db", "/trials/0000/none",
      "/trials/0000/..%2f..%2fstudy.db"} do
      assert.equal(404, (get(target)), target)
    end
  end)

  it("has no files that are larger than a log", function()
    assert.equal(0, os.execute "truncate -s 20M s.study/trials/0000/weights.bin")
    local code, body = get "/trials/0000/weights.bin"
    assert.equal(413, code)
    assert.matches("weights.bin is larger than 16 MiB", body, 1, true)
  end)

  it("refuses other methods and names of other sites", function()
    assert.equal(403, (get("/", "-H 'Host: example.com'")))
    assert.equal(0, (get("/", "-X POST")))
    assert.equal(200, (get "/changes"))
  end)

  it("needs a study, and is an option of report", function()
    assert.matches("there is no study in 'none'", run.host({"sweep", "report", "none", "--serve", "0"}).stderr)
    assert.matches("%-%-serve is an option of report", run.host({"sweep", "status", "s.study", "--serve", "1"}).stderr)
  end)
end)
