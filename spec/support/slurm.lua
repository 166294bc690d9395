--- A cluster of this machine alone: munged, slurmctld and slurmd of Debian's slurm-wlm, with files, keys and ports of
--- their own. They need root, as Slurm's daemons do.
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local slurm = {}

local configuration = [[
ClusterName=spec
SlurmctldHost=%s(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=%s/munge.socket
SlurmUser=root
SlurmctldPort=%d
SlurmdPort=%d
StateSaveLocation=%s/state
SlurmdSpoolDir=%s/spool
SlurmctldPidFile=%s/slurmctld.pid
SlurmdPidFile=%s/slurmd.pid
SlurmctldLogFile=%s/slurmctld.log
SlurmdLogFile=%s/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SchedulerParameters=sched_interval=1
JobAcctGatherType=jobacct_gather/none
KillWait=2
NodeName=%s NodeAddr=127.0.0.1 CPUs=%s State=UNKNOWN
PartitionName=main Nodes=%s Default=YES MaxTime=INFINITE State=UP
]]

local function ask(command)
  local pipe = io.popen(command .. " 2>&1")
  local text = pipe:read "*a"
  pipe:close()
  return (text:gsub("%s+$", ""))
end

--- Start it.
---@return {env: table<string, string>, stop: fun()}?
---@return string? reason why there is none
function slurm.start()
  for _, name in ipairs {"munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue"} do
    if ask("command -v " .. name) == "" then return nil, "needs Slurm (slurm-wlm): there is no " .. name end
  end
  if ask "id -u" ~= "0" then return nil, "needs root: Slurm's daemons do" end
  local place, host = folder.make(), ask "hostname -s"
  local port = 20000 + 2 * (tonumber(ask "echo $$") % 6000) -- below those that the system assigns
  local p = place
  write(place .. "/slurm.conf", configuration:format(host, p, port, port + 1, p, p, p, p, p, p, host,
    ask "nproc", host))
  os.execute(([[cd %s && mkdir -p state spool run && chmod 700 run && head -c 1024 /dev/urandom > key &&
    chmod 600 key &&
    munged --force --key-file=$PWD/key --socket=$PWD/munge.socket --pid-file=$PWD/run/munged.pid \
      --log-file=$PWD/run/munged.log --seed-file=$PWD/run/seed > /dev/null 2>&1
    export SLURM_CONF=$PWD/slurm.conf; slurmctld > start.log 2>&1; slurmd >> start.log 2>&1]]):format(run.quote(place)))
  local cluster = {env = {SLURM_CONF = place .. "/slurm.conf"}}
  function cluster.stop()
    os.execute(([[cd %s && for f in slurmd.pid slurmctld.pid run/munged.pid; do
      [ -e $f ] || continue
      pid=$(cat $f); kill $pid; i=0
      while [ -e $f ] && [ $i -lt 50 ]; do sleep 0.1; i=$((i + 1)); done
    done > /dev/null 2>&1]]):format(run.quote(place)))
    folder.remove(place)
  end
  for _ = 1, 100 do
    if ask(("SLURM_CONF=%s/slurm.conf sinfo -h -o %%T"):format(place)):find "^idle" then return cluster end
    os.execute "sleep 0.1"
  end
  local said = ask(("cat %s/start.log; tail -n 3 %s/*.log"):format(place, place))
  cluster.stop()
  return nil, "needs Slurm, which does not start here: " .. said
end

return slurm
