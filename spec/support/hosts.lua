--- Several hosts on this machine (scripts/testhosts), for specs of jobs that span them.
--
--   local hosts = require "spec.support.hosts"
--   it("...", function() local result = hosts.run(2, [[
--     on 1 launch ... & on 2 launch ... & wait ]]) end)
local run = require "spec.support.run"

local hosts = {}

local why
--- Why there can be none here, or nil.
---@return string?
function hosts.missing()
  if why == nil then
    local result = run.program({"scripts/testhosts", "check"}, {timeout = 10})
    why = result.code ~= 0 and (result.stdout:match "[^\n]+" or "needs scripts/testhosts to work")
  end
  return why or nil
end

--- End the current spec as pending, with the reason, where there can be none.
function hosts.need()
  local reason = hosts.missing()
  if reason then pending(reason) end
  return not reason
end

-- Commands that a text for hosts.run may call: `on K WORDS` runs the host on node K, printing the node's number in
-- front of each line and its exit code in a last one; `shell K TEXT` runs a text of the shell there.
local functions = [[
host=$1
on() {
  k=$1; shift
  { testhosts on $k "$host" "$@" 2>&1; echo "exit $?"; } | sed -u "s/^/$k: /"
}
shell() { k=$1; shift; testhosts on $k sh -c "$@"; }
]]

-- The words that run a text among `count` hosts, and how.
local function command(count, text, options)
  local env = {RANK = false, LOCAL_RANK = false, WORLD_SIZE = false, LOCAL_WORLD_SIZE = false, GROUP_RANK = false,
    MASTER_ADDR = false, MASTER_PORT = false, ACCELHOST_JOB = false}
  local given = {}
  for name, value in pairs(options or {}) do given[name] = value end
  for name, value in pairs(given.env or {}) do env[name] = value end
  given.env, given.timeout = env, given.timeout or 60
  local path = run.path:match "^/" and run.path or (io.popen("pwd"):read "*l" .. "/" .. run.path)
  return {"scripts/testhosts", tostring(count), "bash", "-c", functions .. text, "bash", path}, given
end

--- Run a text of the shell (bash) among `count` hosts.
---@param count integer
---@param text string
---@param options? table as for run.program, timeout 60
---@return {code: integer, stdout: string, stderr: string, output: string, timed_out: boolean}
function hosts.run(count, text, options) return run.program(command(count, text, options)) end

--- Run it in the background, in a separate session, with its output in a file.
---@param count integer
---@param text string
---@param path string
---@return integer pid
function hosts.start(count, text, path)
  local words, given = command(count, text)
  local shell = ("setsid \"$@\" < /dev/null > %s 2>&1 & echo $!"):format(run.quote(path))
  return tonumber(run.program({"sh", "-c", shell, "sh", unpack(words)}, given).stdout)
end

--- The output of a node, without its exit code.
---@param result table of hosts.run
---@param node integer from 1
---@return string text, integer? code
function hosts.said(result, node)
  local lines, code = {}, nil
  for line in result.stdout:gmatch(("%d: ([^\n]*)"):format(node)) do
    code = tonumber(line:match "^exit (%d+)$") or code
    if not line:match "^exit %d+$" then lines[#lines + 1] = line .. "\n" end
  end
  return table.concat(lines), code
end

return hosts
