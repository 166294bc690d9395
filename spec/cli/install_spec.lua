local folder = require "spec.support.folder"
local run = require "spec.support.run"

local build = run.path:match "^(.*)/[^/]*$" or "."

local function install(...) return run.program({"scripts/package/install.sh", ...}) end

local function lines_of(command)
  local lines, pipe = {}, io.popen(command)
  for line in pipe:lines() do lines[#lines + 1] = line end
  pipe:close()
  return lines
end

describe("an installation", function()
  local dir, root

  before_each(function()
    dir = folder.make()
    root = dir .. "/opt/it"
  end)
  after_each(function() folder.remove(dir) end)

  it("runs from any folder, alone and in several processes", function()
    assert.equal(0, install("install", build, dir, "/opt/it").code)
    local program = root .. "/bin/accelhost"
    local result = run.program({program, "-e", "print(require 'accelhost'.arange(3))"}, {dir = "/"})
    run.prints("tensor([0, 1, 2])\n", result)
    local script = root .. "/share/accelhost/examples/mnist.lua"
    result = run.program({program, "launch", "--num_processes", "2", script, "--smoke"}, {dir = dir})
    assert.equal(0, result.code, result.output)
  end)

  it("has the headers that a device's plugin is made from, and opens it", function()
    assert.equal(0, install("install", build, dir, "/opt/it").code)
    local plugin = root .. "/lib/accelhost/accelhost-far.so"
    local made = run.program {"cc", "-shared", "-fPIC", "-std=c11", "-D_GNU_SOURCE", "-o", plugin,
      "-I" .. root .. "/include/accelhost", "spec/device/far_device.c"}
    assert.equal(0, made.code, made.output)
    local code = "print(require 'accelhost'.ones({2}, {device = 'far'}))"
    local result = run.program({root .. "/bin/accelhost", "-e", code}, {dir = "/"})
    run.prints("tensor([1., 1.], device='far:0')\n", result)
  end)

  it("writes the folders of headers and plugins to a .pc file", function()
    assert.equal(0, install("install", build, dir, "/opt/it").code)
    local file = io.open(root .. "/share/pkgconfig/accelhost.pc")
    local text = file:read "*a"
    file:close()
    assert.matches("\nCflags: %-I${prefix}/include/accelhost\n", text)
    assert.matches("^prefix=/opt/it\nplugindir=${prefix}/lib/accelhost\n", text)
    assert.matches("\nVersion: " .. require("accelhost")._VERSION:gsub("%p", "%%%0") .. "\n", text)
  end)

  it("is removed without a trace, and earlier files stay", function()
    os.execute("mkdir -p " .. root .. "/share/man && touch " .. root .. "/share/man/other")
    assert.equal(0, install("install", build, dir, "/opt/it").code)
    assert.is_true(#lines_of("find " .. root .. " -type f") > 20)
    local result = install("uninstall", dir, "/opt/it")
    assert.equal(0, result.code, result.output)
    assert.equal("", result.output)
    assert.same({root .. "/share/man/other"}, lines_of("find " .. root .. " -not -type d"))
    assert.same({root, root .. "/share", root .. "/share/man"}, lines_of("find " .. root .. " -type d | sort"))
  end)

  it("replaces an earlier one", function()
    assert.equal(0, install("install", build, dir, "/opt/it").code)
    local manifest, old = root .. "/share/accelhost/manifest", root .. "/include/accelhost/old.h"
    os.execute(("touch %s && echo 'file include/accelhost/old.h' >>%s"):format(old, manifest))
    assert.equal(0, install("install", build, dir, "/opt/it").code)
    assert.is_nil(io.open(old))
    assert.equal(0, install("uninstall", dir, "/opt/it").code)
    assert.same({root}, lines_of("find " .. root))
  end)

  it("keeps a folder that holds something else, and names it", function()
    assert.equal(0, install("install", build, dir, "/opt/it").code)
    os.execute("touch " .. root .. "/lib/accelhost/accelhost-mine.so")
    local result = install("uninstall", dir, "/opt/it")
    run.succeeds(result)
    assert.matches("/lib/accelhost stays, it holds other files", result.stdout)
    assert.same({root .. "/lib/accelhost/accelhost-mine.so"}, lines_of("find " .. root .. " -type f"))
  end)

  it("cannot be removed where it is not installed, nor be installed below half a path", function()
    local result = install("uninstall", dir, "/opt/it")
    assert.equal(1, result.code)
    assert.matches("nothing is installed in " .. root:gsub("%p", "%%%0"), result.stderr)
    result = install("install", build, dir, "opt")
    assert.equal(1, result.code)
    assert.matches("PREFIX must be a whole path, got 'opt'", result.stderr)
  end)
end)
