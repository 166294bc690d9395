-- Status signals (SIGUSR2 of a user, SIGURG of a launcher) that arrive faster than their handler returns.
local folder = require "spec.support.folder"
local run = require "spec.support.run"

describe("a script that computes", function()
  it("survives status signals that arrive faster than they are answered", function()
    if run.no_handlers then return pending(run.no_handlers) end
    local script = [[
      local accelhost = require "accelhost"
      local x = accelhost.randn(100, 100)
      local function deep(n) if n == 0 then return x:matmul(x):sum():item() end return (deep(n - 1)) end
      io.open(arg[1] .. "/ready", "w"):close()
      local stop
      repeat
        deep(150)
        stop = io.open(arg[1] .. "/stop")
      until stop
      print "lived"]]
    local sender = [[
      local ffi = require "ffi"
      ffi.cdef "int kill(int pid, int signal);"
      local pid, signal = tonumber(arg[1]), tonumber(arg[2])
      for _ = 1, 400000 do if ffi.C.kill(pid, signal) ~= 0 then break end end]]
    folder.with(function(path)
      local result = run.program {"bash", "-c", [[
        "$0" -e "$1" "$3" 2> "$3/errors" & script=$!
        for i in $(seq 600); do [ -e "$3/ready" ] && break; sleep 0.05; done
        "$0" -e "$2" $script 12 & first=$!
        "$0" -e "$2" $script 12 & second=$!
        "$0" -e "$2" $script 23; wait $first $second
        touch "$3/stop"; wait $script; echo $?; grep -c '^accelhost: ' "$3/errors" > /dev/null && echo reported]],
        run.path, script, sender, path}
      assert.equal("lived\n0\nreported\n", result.stdout, result.stderr)
    end)
  end)
end)
