-- Modules at the prompt whose files change: %reload and %autoreload.
local evaluate = require "accelhost.repl.evaluate"

local e, shown, folder, path

local function run(text)
  shown = {}
  local fine = e:run(text)
  return table.concat(shown), fine
end

local function write(name, text)
  local file = assert(io.open(folder .. "/" .. name .. ".lua", "w"))
  file:write(text)
  file:close()
end

describe("a module whose file changes", function()
  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir " .. folder)
    path, package.path = package.path, folder .. "/?.lua;" .. package.path
    e = evaluate.new{write = function(text) shown[#shown + 1] = text end}
    write("spec_module", "return {value = 1}")
    run "local m = require 'spec_module'"
  end)

  after_each(function()
    os.execute("rm -r " .. folder)
    package.path, package.loaded.spec_module = path, nil
  end)

  it("is loaded again by %reload, and variables that hold its table see the new fields", function()
    write("spec_module", "return {other = 2}")
    assert.equal("1\tnil\n", run "m.value, m.other")
    assert.matches("^reloaded .*spec_module", (run "%reload spec_module"))
    assert.equal("nil\t2\n", run "m.value, m.other")
    assert.equal("%reload: no module 'spec_none' of yours is loaded\n", run "%reload spec_none")
  end)

  it("is loaded again before the next line with %autoreload, until it is turned off", function()
    assert.equal("", run "%autoreload")
    assert.equal("1\n", run "m.value")
    write("spec_module", "return {value = 2}")
    assert.equal("(reloaded spec_module)\n2\n", run "m.value")
    assert.equal("2\n", run "m.value")
    assert.equal("", run "%autoreload off")
    write("spec_module", "return {value = 3}")
    assert.equal("2\n", run "m.value")
    assert.equal("%autoreload: expected on or off, got 'often'\n", run "%autoreload often")
  end)

  it("is watched too when a line loads it after %autoreload", function()
    run "%autoreload on"
    write("spec_late", "return 1")
    assert.equal("1\n", run "require 'spec_late'")
    write("spec_late", "return 2")
    assert.equal("(reloaded spec_late)\n2\n", run "require 'spec_late'")
    package.loaded.spec_late = nil
  end)

  it("stays as it was when it fails, which is reported once", function()
    run "%autoreload 2"
    write("spec_module", "return {value = }")
    local text = run "m.value"
    assert.matches("^%%autoreload: 'spec_module' stays as it was: .*unexpected symbol.*\n1\n$", text)
    assert.equal("1\n", run "m.value")
    write("spec_module", "return {value = 4}")
    assert.equal("(reloaded spec_module)\n4\n", run "m.value")
  end)

  it("has objects of its classes run their new methods", function()
    local class = "local nn = require('accelhost').nn\nlocal Net = nn.Module:extend 'Net'\n"
      .. "function Net:forward(x) return x * %d end\n%s"
    for _, last in ipairs {"return Net", "return {Net = Net}"} do
      write("spec_module", class:format(1, last))
      run "%reload spec_module"
      run("local Class = require 'spec_module'" .. (last:find "{" and ".Net" or ""))
      run "local net = Class()"
      run "%autoreload"
      write("spec_module", class:format(2, last))
      assert.equal("(reloaded spec_module)\n6\n", run "net(3)")
      assert.equal("8\n", run "Class()(4)")
    end
  end)
end)
