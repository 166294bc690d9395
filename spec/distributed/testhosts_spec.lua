-- The hosts on which specs of jobs over several machines run (scripts/testhosts).
local hosts = require "spec.support.hosts"
local run = require "spec.support.run"

local function shell(text)
  return run.program({"scripts/testhosts", "3", "bash", "-c", text}, {timeout = 60})
end

describe("Test hosts", function()
  it("have names, addresses and separate processes, and reach each other", function()
    if not hosts.need() then return end
    local result = shell [[
      testhosts on 2 sh -c 'hostname; getent hosts node3; ps ax | grep -c "[s]leep 5432"' &
      testhosts on 1 sh -c 'sleep 5432 & ps ax | grep -c "[s]leep 5432"' >/dev/null
      wait $!; testhosts all sh -c 'exit $(hostname | tr -d a-z)'; echo $?]]
    run.prints("node2\n10.77.0.3       node3\n0\n3\n", result)
  end)

  it("lose each other when a cable is pulled, and a host's processes when it is switched off", function()
    if not hosts.need() then return end
    local result = shell [[
      reach() { testhosts on 1 timeout $1 bash -c "exec 3<>/dev/tcp/node3/9" 2>/dev/null; echo $?; }
      reach 20; testhosts down 3; reach 1; testhosts up 3; reach 20
      testhosts on 2 sleep 4321 &
      until testhosts on 2 pgrep -xf 'sleep 4321' >/dev/null; do sleep 0.05; done
      testhosts kill 2; wait $!; echo $?]]
    run.prints("1\n124\n1\n137\n", result)
  end)

  it("are removed when their process tree is killed", function()
    if not hosts.need() then return end
    local result = run.program({"bash", "-c", [[
      scripts/testhosts 2 sh -c 'testhosts all sleep 6543' & room=$!
      until [ "$(pgrep -cx -f 'sleep 6543')" = 2 ]; do sleep 0.05; done
      kill -9 $room; for i in $(seq 100); do pgrep -x -f 'sleep 6543' >/dev/null || break; sleep 0.05; done
      pgrep -cx -f 'sleep 6543'; ip link show | grep -c 'port1\|bridge']]}, {timeout = 30})
    run.prints("0\n0\n", result)
  end)

  it("report their requirements", function()
    local result = run.program({"scripts/testhosts"}, {timeout = 10})
    assert.equal(2, result.code)
    assert.matches("^testhosts: expected testhosts N COMMAND", result.stderr)
    result = run.program({"scripts/testhosts", "on", "1", "true"}, {timeout = 10, env = {TESTHOSTS = false}})
    assert.equal("testhosts: there are no hosts: testhosts N COMMAND makes them\n", result.stderr)
  end)
end)
