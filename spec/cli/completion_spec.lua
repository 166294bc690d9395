local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local function has(shell) return os.execute("command -v " .. shell .. " >/dev/null") == 0 end

-- The script of a shell, in a file.
local function script(shell, path)
  local result = run.host {"completion", shell}
  assert.same({0, ""}, {result.code, result.stderr})
  files.write(path, result.stdout)
end

describe("accelhost completion", function()
  local leave, root
  before_each(function()
    root = io.popen("pwd"):read "*l"
    leave = folder.enter()
  end)
  after_each(function() leave() end)

  it("completes commands, options and values in bash", function()
    script("bash", "accelhost")
    local result = run.program {"bash", "-c", [[. ./accelhost
      try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _accelhost; echo "${COMPREPLY[*]}"; }
      try accelhost la; try accelhost launch --num_proc; try accelhost run --jit ""]]}
    assert.same({"launch\n--num_processes\non off\n", ""}, {result.stdout, result.stderr})
  end)

  it("completes them in zsh", function()
    if not has "zsh" then return pending "needs zsh" end
    script("zsh", "_accelhost")
    local result = run.program({"zsh", "-f", root .. "/spec/support/complete.zsh", ".", "accelhost la", "launch ",
      "accelhost launch --num_proc", "--num_processes", "accelhost run --jit o", "off"}, {timeout = 90})
    assert.same({0, ""}, {result.code, result.output})
  end)

  it("completes them in fish", function()
    if not has "fish" then return pending "needs fish" end
    script("fish", "accelhost.fish")
    local result = run.program({"fish", "-c", [[source accelhost.fish; complete -C 'accelhost la'
      complete -C 'accelhost launch --num_proc'; complete -C 'accelhost run --jit o']]},
      {env = {HOME = ".", XDG_CONFIG_HOME = ".", XDG_DATA_HOME = "."}, timeout = 30})
    assert.matches("^launch\trun a Lua script [^\n]*\n%-%-num_processes\t[^\n]*\noff\t[^\n]*\non\t[^\n]*\n$",
      result.stdout)
  end)

  it("prints the expected shells for any other word", function()
    for words, received in pairs {[""] = "nothing", tcsh = "'tcsh'"} do
      local result = run.host(words == "" and {"completion"} or {"completion", words})
      assert.equal(2, result.code)
      assert.truthy(result.stderr:find("expected bash, zsh or fish, got " .. received, 1, true), result.stderr)
    end
  end)
end)
