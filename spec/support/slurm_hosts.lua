--- Slurm on several hosts of this machine (scripts/testhosts): a controller on the first, slurmd on each.
--
--   local cluster = slurm_hosts.start(2)
--   local result = cluster.run("srun -N 2 hostname", {timeout = 60})
--   cluster.stop()
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local hosts = require "spec.support.hosts"
local run = require "spec.support.run"

local slurm_hosts = {}

-- PMIx keeps its sockets in a memory of each node's own. A job may queue again as soon as its credential ends.
local begin = [[
n=%d; cd %s; mkdir state spool run; chmod 700 run; for k in $(seq $n); do mkdir spool/node$k; done
head -c 1024 /dev/urandom >key; chmod 600 key
cat >slurm.conf <<END
ClusterName=spec
SlurmctldHost=node1(10.77.0.1)
AuthType=auth/munge
AuthInfo=socket=$PWD/munge.socket,cred_expire=5
SlurmUser=root
StateSaveLocation=$PWD/state
SlurmdSpoolDir=$PWD/spool/%%n
SlurmctldPidFile=$PWD/run/slurmctld.pid
SlurmdPidFile=$PWD/run/slurmd-%%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SchedulerParameters=sched_interval=1
JobAcctGatherType=jobacct_gather/none
KillWait=2
NodeName=node[1-$n] CPUs=$(nproc) State=UNKNOWN
PartitionName=main Nodes=ALL OverSubscribe=FORCE:4 Default=YES MaxTime=INFINITE State=UP
END
echo "PMIxCliTmpDirBase=/dev/shm" >mpi.conf
export SLURM_CONF=$PWD/slurm.conf
munged --force --key-file=$PWD/key --socket=$PWD/munge.socket --pid-file=$PWD/run/munged.pid \
  --log-file=$PWD/run/munged.log --seed-file=$PWD/run/seed >/dev/null 2>&1
testhosts on 1 slurmctld -D >slurmctld.log 2>&1 &
for k in $(seq $n); do
  testhosts on $k slurmd -D -N node$k >slurmd$k.log 2>&1 &
done
for i in $(seq 200); do
  [ "$(testhosts on 1 sinfo -h -t idle -o %%D 2>/dev/null)" = $n ] && break
  sleep 0.1
done
[ $i -lt 200 ] || tail *.log
exec 5<>ask
while read -r -t 300 number <&5 && [ $number != end ]; do
  { (cd %s; testhosts on 1 bash %s/$number.sh </dev/null >%s/$number.out 2>%s/$number.err); echo $? >$number.code; } &
done
]]

--- Why there can be none here, or nil.
---@return string?
function slurm_hosts.missing()
  if hosts.missing() then return hosts.missing() end
  for _, name in ipairs {"munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue"} do
    if run.program({"sh", "-c", "command -v " .. name}, {timeout = 10}).code ~= 0 then
      return "needs Slurm (slurm-wlm): there is no " .. name
    end
  end
end

local function read(path)
  local file = io.open(path)
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text
end

--- Start a cluster of `count` nodes; one without a request for 5 minutes ends by itself.
---@param count integer
---@return {run: fun(text: string, options?: table): table, stop: fun()} cluster
function slurm_hosts.start(count)
  local place, asked = folder.make(), 0
  local here = io.popen("pwd"):read "*l"
  local program = run.path:match "^/" and run.path or here .. "/" .. run.path
  local quoted = run.quote(place)
  os.execute("mkfifo " .. quoted .. "/ask")
  local pid = hosts.start(count, begin:format(count, quoted, run.quote(here), quoted, quoted, quoted), place .. "/log")

  local cluster = {}
  --- Run a text of the shell (bash) on the first node. The host is `accelhost` there. Results are those of run.program.
  function cluster.run(text, options)
    asked = asked + 1
    local number = asked
    local path = ("%s/%d"):format(place, number)
    local lines = {("PATH=%s:$PATH"):format(run.quote(program:match "^(.*)/"))}
    for name, value in pairs(options and options.env or {}) do
      lines[#lines + 1] = ("export %s=%s"):format(name, run.quote(value))
    end
    lines[#lines + 1] = text .. "\n"
    files.write(path .. ".sh", table.concat(lines, "\n"))
    local waiting = run.program({"sh", "-c", ([[mkfifo %s.code && echo %d >%s/ask && read -r code <%s.code
      exit $code]]):format(path, number, place, path)}, {timeout = options and options.timeout})
    local result = {code = waiting.code, stdout = read(path .. ".out"), stderr = read(path .. ".err"),
      timed_out = waiting.timed_out}
    result.output = result.stdout .. result.stderr .. (asked == 1 and read(place .. "/log") or "")
    return result
  end
  function cluster.stop()
    local ended = ("while readlink /proc/%d/exe >/dev/null; do sleep 0.02; done"):format(pid)
    local result = run.program({"sh", "-c", ("echo end >%s/ask; %s"):format(place, ended)}, {timeout = 20})
    if result.timed_out then run.program({"sh", "-c", ("kill %d; %s"):format(pid, ended)}, {timeout = 20}) end
    folder.remove(place)
  end
  return cluster
end

return slurm_hosts
