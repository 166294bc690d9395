-- Hosts that exchange by MPI: the plugin accelhost-mpi.so under Open MPI's mpirun.
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local hosts = require "spec.support.hosts"
local lfs = require "lfs"
local run = require "spec.support.run"
local scenes = require "spec.support.scenes"

local function missing()
  if hosts.missing() then return hosts.missing() end
  if run.program({"sh", "-c", "mpirun --version | grep -q 'Open MPI'"}, {timeout = 20}).code ~= 0 then
    return "needs Open MPI's mpirun"
  end
  local plugin = io.open(run.path:match "^.*/" .. "accelhost-mpi.so")
  if not plugin then return "needs accelhost-mpi.so, which is built where mpicc is" end
  plugin:close()
end

-- `mpi COUNT WORDS...`: two ranks on each of COUNT hosts, by an agent in place of ssh.
local begin = [[
  prepare() {
    n=$1
    for i in $(seq $n); do echo "10.77.0.$i slots=2"; done >$d/hostfile
    printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nk=${1##*.}; shift\n' >$d/agent
    printf 'exec testhosts on "$k" sh -c "$*"\n' >>$d/agent; chmod +x $d/agent
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=$d/agent
    export OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24
    export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24
  }
  mpi() {
    prepare $1; shift
    from=$EPOCHREALTIME
    mpirun -n $((2 * n)) --hostfile $d/hostfile --map-by slot --bind-to none "$host" "$@"; code=$?
    echo "seconds $(echo "$EPOCHREALTIME - $from" | bc)"
    return $code
  }
]]

local losses = files.numbers

describe("Hosts that exchange by MPI", function()
  local reason = missing()
  if reason then
    it("are tried under mpirun", function() pending(reason) end)
    return
  end

  local dir, count_of_places = nil, 0
  setup(function() dir = folder.make() end)
  teardown(function() folder.remove(dir) end)

  local function new_place()
    count_of_places = count_of_places + 1
    local place = ("%s/%d"):format(dir, count_of_places)
    assert(lfs.mkdir(place))
    return place
  end
  local function mpi(count, words, env, place)
    local text = ("d=%s\n%smpi %d %s"):format(place or new_place(), begin, count, words)
    local result = hosts.run(count, text, {timeout = 150, env = env})
    result.seconds = tonumber(result.stdout:match "seconds ([%d.]+)")
    return result
  end
  local head = "local a = require 'accelhost' local d = a.distributed d.init_process_group()\n"
  local function script(lua, count, env)
    local place = new_place()
    return mpi(count or 2, files.write(place .. "/script.lua", head .. lua), env, place)
  end
  local scene = scenes.new(it, 3)

  scene("need no address and no secret, and map the plugin only then", function()
    local lua = [[
      local maps = io.open("/proc/self/maps")
      local mapped = maps:read "*a":find("accelhost-mpi.so", 1, true) ~= nil
      maps:close()
      for _, n in ipairs {1, 70000, 3000000} do
        local t = a.full({n}, d.get_rank() + 1)
        d.all_reduce(t)
        assert(t:min():item() == 10 and t:max():item() == 10)
      end
      local list = {}
      d.all_gather_object(list, ("%d%s"):format(d.get_rank(), ("x"):rep(100000)))
      for r = 1, 4 do assert(#list[r] == 100001 and list[r]:sub(1, 1) == tostring(r - 1)) end
      d.destroy_process_group()
      print(("rank %s %s"):format(os.getenv "OMPI_COMM_WORLD_RANK", mapped))]]
    return unpack(run.at_once {function() return script(lua) end,
      function() return script(lua, 2, {ACCELHOST_WIRE = "tcp", MASTER_ADDR = "10.77.0.1"}) end})
  end, function(by_mpi, by_tcp)
    assert.equal(0, by_mpi.code, by_mpi.output)
    -- Open MPI's own warning, of a child that began its program first
    assert.equal("", (by_mpi.stderr:gsub("%[[^\n]*plm:rsh: Warning: setpgid[^\n]*\n", "")))
    for r = 0, 3 do assert.matches(("rank %d true"):format(r), by_mpi.stdout) end
    assert.equal(0, by_tcp.code, by_tcp.output)
    for r = 0, 3 do assert.matches(("rank %d false"):format(r), by_tcp.stdout) end
  end)

  -- Without mpirun's key in the environment, as ranks of srun are, Open MPI's MPI_Init makes one of the job's number.
  scene("believe no key that MPI_Init has made of the job's number", function()
    local function guess(secret, guessed)
      return function()
        local place = new_place()
        files.write(place .. "/script.lua", head .. ([[
          if d.get_rank() == 0 then
            local file = io.open(%q, "w")
            file:write(os.getenv "OMPI_MCA_orte_precondition_transports" or "none")
            file:close()
            assert(os.rename(%q, %q))
          end
          while not io.open(%q) do os.execute "sleep 0.1" end
          d.barrier()]]):format(place .. "/key.part", place .. "/key.part", place .. "/key", place .. "/over"))
        return hosts.run(2, ("d=%s\n%s"):format(place, begin) .. ([[
          prepare 2; %s
          mpirun -n 4 --hostfile $d/hostfile --map-by slot --bind-to none env -u OMPI_MCA_orte_precondition_transports \
            MASTER_PORT=29777 "$host" $d/script.lua >$d/output 2>&1 &
          until [ -e $d/key ] || [ $SECONDS -gt 30 ]; do sleep 0.05; done
          RANK=4 WORLD_SIZE=5 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29777 \
            ACCELHOST_TIMEOUT=5 ACCELHOST_SECRET=%s on 2 -e "require('accelhost').distributed.init_process_group()"
          touch $d/over; wait; echo "key $(cat $d/key)"; cat $d/output]]):format(secret, guessed),
          {timeout = 90})
      end
    end
    return unpack(run.at_once {guess("", "$(cat $d/key)"),
      guess("export ACCELHOST_SECRET=the-secret-of-this-job", "the-secret-of-this-job")})
  end, function(guessed, known)
    assert.matches("key 0000%x+%-%x+", guessed.stdout)
    assert.matches("it has another secret", (hosts.said(guessed, 2)), nil, guessed.output)
    -- One that knows the secret is let in, and finds a job of another size.
    assert.matches("node1 is configured for 4 ranks, and node2 for 5", (hosts.said(known, 2)), nil, known.output)
  end)

  scene("end soon when a rank fails, is killed, or leaves out a collective", function()
    local function case(what, env)
      return function()
        -- mpirun sends SIGTERM to the others when it hears of a rank's end, which may be before they do.
        return script(([[
          local me = d.get_rank() == 3 require("accelhost._C").system.catch_signal "TERM"
          d.barrier()
          if me then %s end
          d.all_reduce(a.ones(1000000))]]):format(what), 2, env)
      end
    end
    local short = {ACCELHOST_TIMEOUT = "2"}
    return unpack(run.at_once {case "error 'cause'", case "os.execute 'kill -KILL $PPID'",
      case("os.execute 'kill -STOP $PPID'", short), case("os.execute 'sleep 20'", short)})
  end, function(fails, killed, stopped, absent)
    for _, result in ipairs {fails, killed, stopped, absent} do assert.not_equal(0, result.code) end
    assert.matches("script.lua:4: cause", fails.output)
    assert.is_true(fails.seconds < 10)
    assert.matches("lost rank 3, which died %(rank 3 [^\n]*, on node2%)", killed.output)
    assert.is_true(killed.seconds < 10)
    assert.matches("timed out after 2 s: rank 3 was last seen at", stopped.output)
    assert.is_true(stopped.seconds < 15)
    assert.matches("timed out after 2 s", absent.output)
    assert.is_true(absent.seconds < 15)
  end)

  -- Ranks that reduce without end, while a failure is injected into their hosts; the processes left at the end.
  local function disturb(command, text)
    local place = new_place()
    files.write(place .. "/script.lua", head .. ([[
      d.barrier()
      if d.get_rank() == 0 then io.open(%q, "w"):close() end
      while true do d.all_reduce(a.ones(1000000)) end]]):format(place .. "/begun"))
    return hosts.run(2, ("d=%s\n%s"):format(place, begin) .. [[
      prepare 2
      ]] .. command .. [[ $d/script.lua >$d/output 2>&1 &
      until [ -e $d/begun ]; do sleep 0.05; done
      left() { for k in 1 2; do testhosts on $k ps -eo stat,comm 2>/dev/null | grep -v '^Z' | grep accelhost; done; }
      stop() {
        until grep -q 'lost rank 2' "$@" || [ $SECONDS -gt 30 ]; do sleep 0.05; done
        kill -TERM $(pgrep -x mpirun); sleep 1; kill -KILL $(pgrep -x mpirun)
        until [ -z "$(left)" ] || [ $SECONDS -gt 40 ]; do sleep 0.1; done
      }
      ]] .. text .. "\nwait; cat $d/output; left", {timeout = 60, env = {ACCELHOST_HEARTBEAT = "2"}})
  end

  -- mpirun itself waits for the host that it does not reach.
  scene("end by name of the host whose cable is pulled", function()
    return disturb("mpi 2", "testhosts down 2; stop $d/output")
  end, function(result)
    assert.matches("lost rank 2, which died: host node2 is gone: it has been silent for 2", result.output)
    assert.not_matches("%S+ +accelhost\n", result.stdout)
  end)

  -- mpirun may have stopped to show the ranks' output.
  scene("report in their logs which host was switched off", function()
    return disturb("\"$host\" launch --hostfile $d/hostfile --num_processes 4 --log_dir $d/logs",
      "testhosts kill 2; stop -r $d/logs; cat $d/logs/*/rank.*/stderr")
  end, function(result)
    assert.matches("lost rank 2, which died: host node2 is gone: ", result.output)
    assert.not_matches("%S+ +accelhost\n", result.stdout)
  end)

  for _, count in ipairs {2, 4} do
    it(("train BasicNet on %d of them as as many ranks on one do"):format(count), function()
      local words = "examples/mnist.lua --smoke --dtype float64 --no_dropout --train_size 256 --batch_size 8 " ..
        "--log_losses " .. dir
      local result = mpi(count, ("%s/many%d"):format(words, count))
      assert.equal(0, result.code, result.output)
      result = run.program({"sh", "-c", ("exec %s launch --num_processes %d %s/one%d"):format(run.path, 2 * count,
        words, count)}, {timeout = 120})
      assert.equal(0, result.code, result.output)
      local expected, got = losses(("%s/one%d"):format(dir, count)), losses(("%s/many%d"):format(dir, count))
      assert.is_true(#expected > 3)
      assert.equal(#expected, #got)
      for i, loss in ipairs(expected) do
        assert.is_true(math.abs(got[i] - loss) <= 1e-12, ("step %d: %.17g, %.17g"):format(i, loss, got[i]))
      end
    end)
  end

  it("refuse unknown transports, and ranks that MPI does not know", function()
    local result = script("", 2, {ACCELHOST_WIRE = "udp"})
    assert.matches("ACCELHOST_WIRE: expected tcp or mpi, got 'udp'", result.output)
    local env = {RANK = "0", WORLD_SIZE = "2", LOCAL_RANK = "0", LOCAL_WORLD_SIZE = "1", ACCELHOST_WIRE = "mpi"}
    local init = "require('accelhost').distributed.init_process_group()"
    result = run.host({"-e", init}, {timeout = 20, env = env})
    assert.matches("ACCELHOST_WIRE: mpi is for ranks that mpirun or srun has started", result.output)
    local slurm = {SLURM_PROCID = "0", SLURM_NTASKS = "2", SLURM_LOCALID = "0", SLURM_NODEID = "0", SLURM_STEP_ID = "0",
      SLURM_JOB_ID = "1", SLURM_STEP_NUM_NODES = "2", SLURM_STEP_TASKS_PER_NODE = "1(x2)", ACCELHOST_WIRE = "mpi",
      RANK = false, WORLD_SIZE = false, LOCAL_RANK = false, LOCAL_WORLD_SIZE = false, ACCELHOST_JOB = false,
      OMPI_MCA_ess_singleton_isolated = "1", PMI_FD = "99"}
    result = run.host({"-e", init}, {timeout = 20, env = slurm})
    assert.not_equal(0, result.code)
    assert.matches("MPI sees this process alone where the job has 2 ranks", result.output)
    slurm.PMI_FD = false
    result = run.host({"-e", init}, {timeout = 20, env = slurm})
    assert.matches("ACCELHOST_WIRE: mpi needs srun %-%-mpi=pmix", result.output)
  end)

  it("refuse a plugin of another version, and name the packages where there is none", function()
    local place = new_place()
    local result = run.program({"cp", run.path, place .. "/accelhost"}, {timeout = 20})
    assert.equal(0, result.code, result.output)
    local function try(env)
      local words = ("%sd=%s; host=%s/accelhost; mpi 2 -e \"require('accelhost').distributed.init_process_group()\"")
        :format(begin, new_place(), place)
      return hosts.run(2, words, {timeout = 60, env = env})
    end
    local wanted, silent = unpack(run.at_once {function() return try {ACCELHOST_WIRE = "mpi"} end, try})
    assert.matches("transport mpi is Open MPI's %(Debian: openmpi%-bin; to build: libopenmpi%-dev%)", wanted.output)
    assert.matches("MASTER_ADDR has to be the address of rank 0's %(mpirun %-x MASTER_ADDR=ADDRESS%), as there is " ..
      "no accelhost%-mpi.so", silent.output)
    local built = run.program({"sh", "-c", "echo 'unsigned ah_mpi_plugin[16] = {99};' | cc -shared -fPIC -x c -o " ..
      place .. "/accelhost-mpi.so -"}, {timeout = 30})
    if built.code ~= 0 then return pending "needs a C compiler" end
    assert.matches("accelhost%-mpi.so has interface 99, this program 2: build both again", try().output)
  end)
end)
