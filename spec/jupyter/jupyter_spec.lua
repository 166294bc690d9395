-- accelhost jupyter: the kernel specification, and the kernel as Jupyter's own programs see it. Those need a Python
-- with jupyter_kernel_test, nbclient and nbformat: ACCELHOST_JUPYTER_PYTHON names it, else it is python3.
local json = require("accelhost").json
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local python = os.getenv "ACCELHOST_JUPYTER_PYTHON" or "python3"
local lacks -- why Jupyter's programs cannot run; false: they can

local function has_plugin()
  local file = io.open(run.path:match "^(.*/)" .. "accelhost-jupyter.so")
  if file then file:close() end
  return file ~= nil
end

local function needs_plugin()
  if not has_plugin() then pending "needs accelhost-jupyter.so, which is built where ZeroMQ is" end
  return not has_plugin()
end

local function needs_jupyter()
  if needs_plugin() then return true end
  if lacks == nil then
    local result = run.program({python, "-c", "import jupyter_kernel_test, nbclient, nbformat"}, {timeout = 60})
    lacks = result.code ~= 0 and ("needs jupyter_kernel_test and nbclient in %s, or in the Python that "
      .. "ACCELHOST_JUPYTER_PYTHON names"):format(python) or false
  end
  if lacks then pending(lacks) end
  return lacks and true or false
end

describe("accelhost jupyter", function()
  local path

  before_each(function() path = folder.make() end)
  after_each(function() folder.remove(path) end)

  local function jupyter(words, env)
    return run.host({"jupyter", unpack(words)}, {timeout = 30, env = env})
  end

  it("installs a kernel specification with the program's path, and removes it", function()
    if needs_plugin() then return end
    local at = path .. "/share/jupyter/kernels/accelhost"
    run.succeeds(jupyter {"install", "--prefix", path})
    local spec = json.decode(files.read(at .. "/kernel.json"))
    assert.equal("lua", spec.language)
    assert.equal("message", spec.interrupt_mode)
    assert.same({"jupyter", "kernel", "-f", "{connection_file}"}, {unpack(spec.argv, 2)})
    assert.matches("^/.*/accelhost$", spec.argv[1])
    assert.matches("^<svg", files.read(at .. "/logo-svg.svg"))
    run.succeeds(jupyter {"uninstall", "--prefix", path})
    assert.is_nil(io.open(at .. "/kernel.json"))
  end)

  it("installs into the user's folder of Jupyter and into a Python environment, by a name", function()
    if needs_plugin() then return end
    run.succeeds(jupyter({"install", "--user", "--name", "Mine"}, {JUPYTER_DATA_DIR = path}))
    assert.truthy(files.read(path .. "/kernels/mine/kernel.json"))
    run.succeeds(jupyter({"install", "--sys-prefix"}, {VIRTUAL_ENV = path}))
    assert.truthy(files.read(path .. "/share/jupyter/kernels/accelhost/kernel.json"))
  end)

  it("refuses wrong words, names and places", function()
    if needs_plugin() then return end
    local cases = {
      {{}, 2, "expected install, uninstall or kernel, got nothing\n"},
      {{"instal"}, 2, "there is no action 'instal' %(did you mean 'install'%?%)\n"},
      {{"walk"}, 2, "expected install, uninstall or kernel, got 'walk'\n"},
      {{"install", "--user", "--sys-prefix"}, 2, "expected one of %-%-user"},
      {{"install", "--prefix", path, "--name", "../up"}, 1, "%-%-name: expected letters"},
      {{"uninstall", "--prefix", path}, 1, "uninstall: there is no kernel in"},
      {{"kernel"}, 2, "%-f expects a connection file"},
      {{"kernel", "-f", path .. "/none"}, 1, "No such file"},
    }
    for _, case in ipairs(cases) do
      local result = jupyter(case[1])
      assert.equal(case[2], result.code)
      assert.matches(case[3], result.stderr)
    end
  end)

  it("refuses connection files that are damaged, and does not print their keys", function()
    if needs_plugin() then return end
    local whole = {transport = "tcp", ip = "127.0.0.1", key = "secret-key", signature_scheme = "hmac-sha256",
      shell_port = 1, control_port = 1, stdin_port = 1, iopub_port = 1, hb_port = 1}
    local cases = {
      {"transport", "udp", "transport: expected tcp or ipc"}, {"ip", "*", "ip: expected an address"},
      {"ip", "127.0.0.1;0.0.0.0", "ip: expected an address"}, {"hb_port", 70000, "hb_port: expected a number"},
      {"shell_port", "1", "shell_port: expected a number"}, {"signature_scheme", "none", "expected hmac%-sha256"},
      {"key", 5, "key: expected a text"},
    }
    for _, case in ipairs(cases) do
      local held = whole[case[1]]
      whole[case[1]] = case[2]
      files.write(path .. "/connection.json", json.encode(whole))
      whole[case[1]] = held
      local result = jupyter {"kernel", "-f", path .. "/connection.json"}
      assert.equal(1, result.code)
      assert.matches(case[3], result.stderr)
      assert.is_nil(result.output:find("secret-key", 1, true))
    end
  end)

  it("reports a socket that cannot be bound", function()
    if needs_plugin() then return end
    files.write(path .. "/connection.json", json.encode {transport = "ipc", ip = path .. "/no/folder", key = "",
      shell_port = 1, control_port = 2, stdin_port = 3, iopub_port = 4, hb_port = 5})
    local result = jupyter {"kernel", "-f", path .. "/connection.json"}
    assert.equal(1, result.code)
    assert.matches("^accelhost jupyter: ipc://.*no/folder%-1: No such file", result.stderr)
  end)

  -- A kernel that is installed in the Python environment would be found first under the usual name.
  local name_here = "accelhost-of-spec"

  it("passes the suite of jupyter_kernel_test", function()
    if needs_jupyter() then return end
    run.succeeds(jupyter {"install", "--prefix", path, "--name", name_here})
    local result = run.program({python, "spec/jupyter/kernel_test.py"}, {timeout = 240, env = {
      JUPYTER_DATA_DIR = path .. "/share/jupyter", JUPYTER_RUNTIME_DIR = path .. "/runtime",
      XDG_STATE_HOME = path .. "/state", PYTHONDONTWRITEBYTECODE = "1", KERNEL_NAME = name_here,
    }})
    run.succeeds(result)
    assert.matches("\nOK", result.stderr)
  end)

  -- Notebook, and texts of its outputs, which notebooks.py prints by cell and kind.
  local notebooks = {
    mnist = {"1 execute_result image/png text/plain", "3 display_data image/svg+xml text/plain",
      "3 display_data text/plain 'training: 100%", "60/60"},
    sweep = {"2 display_data image/svg+xml text/plain", "2 execute_result text/plain '{hidden = "},
    two_processes = {"[r1] rank 1 of 2", "3 stream  '[r0] 0\\n[r1] 1", "tensor([3.])"},
    text_classification = {"1 execute_result text/html text/plain 'Table(", "3 display_data image/svg+xml",
      "4 execute_result text/plain '1'"},
  }

  for name, texts in pairs(notebooks) do
    it(("runs examples/notebooks/%s.ipynb from its first cell to its last"):format(name), function()
      if needs_jupyter() then return end
      run.succeeds(jupyter {"install", "--prefix", path, "--name", name_here})
      local copy = ("%s/%s.ipynb"):format(path, name)
      files.write(copy, files.read(("examples/notebooks/%s.ipynb"):format(name)))
      local result = run.program({python, "spec/jupyter/notebooks.py", name_here, copy}, {timeout = 240, env = {
        JUPYTER_DATA_DIR = path .. "/share/jupyter", JUPYTER_RUNTIME_DIR = path .. "/runtime",
        XDG_STATE_HOME = path .. "/state", PYTHONDONTWRITEBYTECODE = "1", NOTEBOOK_STEPS = "60",
      }})
      run.succeeds(result)
      for _, text in ipairs(texts) do assert.matches(text, result.stdout, 1, true) end
    end)
  end
end)
