--- Slurm on several hosts of this machine (scripts/testhosts): a controller on the first, slurmd on each.
--
--   local result = slurm_hosts.run(2, "srun -N 2 hostname", {timeout = 60})
local folder = require "spec.support.folder"
local hosts = require "spec.support.hosts"
local run = require "spec.support.run"

local slurm_hosts = {}

-- Where PMIx keeps its sockets each node has a memory of its own. A job may queue again as soon as its credential ends.
local begin = [[
n=%d; cd %s; mkdir state spool run pmix; chmod 700 run; for k in $(seq $n); do mkdir spool/node$k; done
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
echo "PMIxCliTmpDirBase=$PWD/pmix" >mpi.conf
export SLURM_CONF=$PWD/slurm.conf
munged --force --key-file=$PWD/key --socket=$PWD/munge.socket --pid-file=$PWD/run/munged.pid \
  --log-file=$PWD/run/munged.log --seed-file=$PWD/run/seed >/dev/null 2>&1
testhosts on 1 slurmctld -D >slurmctld.log 2>&1 &
for k in $(seq $n); do
  testhosts on $k mount -t tmpfs tmpfs $PWD/pmix
  testhosts on $k slurmd -D -N node$k >slurmd$k.log 2>&1 &
done
for i in $(seq 200); do
  [ "$(testhosts on 1 sinfo -h -t idle -o %%D 2>/dev/null)" = $n ] && break
  sleep 0.1
done
[ $i -lt 200 ] || tail *.log >&2
cd %s
PATH=%s:$PATH testhosts on 1 bash <<'END'
%s
END
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

--- Run a text of the shell (bash) on the first of `count` nodes. The host is `accelhost` there.
---@param count integer
---@param text string
---@param options? table as for run.program
---@return {code: integer, stdout: string, stderr: string, output: string, timed_out: boolean}
function slurm_hosts.run(count, text, options)
  local place = folder.make()
  local here = io.popen("pwd"):read "*l"
  local program = run.path:match "^/" and run.path or here .. "/" .. run.path
  local result = hosts.run(count, begin:format(count, run.quote(place), run.quote(here),
    run.quote(program:match "^(.*)/"), text), options)
  folder.remove(place)
  return result
end

return slurm_hosts
