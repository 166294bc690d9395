-- The sources of a job's settings: flags, variables, a configuration file.
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local leave
local function launch(words, env)
  local all = {"launch"}
  for _, word in ipairs(words) do all[#all + 1] = word end
  return run.host(all, {timeout = 20, env = env})
end

-- {value, origin} by setting, as --show_config prints them.
local function shown(words, env)
  words[#words + 1] = "--show_config"
  local result = launch(words, env)
  assert.same({0, ""}, {result.code, result.stderr:match "^.-Try" or ""})
  local list = {}
  for line in result.stdout:gmatch "[^\n]+" do
    local name, value, origin = line:match "^(%S+) +(%S+) +(.*)$"
    if name then list[name] = {value, origin} end
  end
  return list, result
end

-- The error of wrong usage, whose exit code is 2.
local function refused(words, env)
  local result = launch(words, env)
  assert.equal(2, result.code, result.output)
  run.prints("", result)
  local line, hint = result.stderr:match "^accelhost launch: (.-)\n(.*)$"
  assert.equal("Try 'accelhost launch --help'.\n", hint)
  return line
end

describe("settings of a job", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("are read from a flag before a variable, a variable before the file, the file before the default", function()
    write("order.yaml", "timeout: 40\npatience: 4\ngrace: 5\n")
    local list, result = shown({"--config_file", "order.yaml", "--timeout=60"},
      {ACCELHOST_TIMEOUT = "50", ACCELHOST_PATIENCE = "3"})
    assert.same({"60", "--timeout"}, list.timeout)
    assert.same({"3", "ACCELHOST_PATIENCE"}, list.patience)
    assert.same({"5", "order.yaml:3"}, list.grace)
    assert.same({"0", "default"}, list.max_restarts)
    assert.equal("accelhost launch: timeout is 60 (--timeout), not 50 (ACCELHOST_TIMEOUT)\n" ..
      "accelhost launch: patience is 3 (ACCELHOST_PATIENCE), not 4 (order.yaml:2)\n", result.stderr)
  end)

  it("contradict each other in silence with --quiet, and not at all when they mean the same", function()
    write("same.yaml", "timeout: 60.0\n")
    assert.equal("", select(2, shown {"--config_file", "same.yaml", "--timeout", "60"}).stderr)
    assert.equal("", select(2, shown {"--config_file", "same.yaml", "--timeout", "61", "-q"}).stderr)
  end)

  it("are read from a file in the user's folder unless another source is named", function()
    assert.truthy(os.execute "mkdir -p own/accelhost house/.config/accelhost" == 0)
    write("own/accelhost/default_config.yaml", "num_processes: 5\n")
    write("house/.config/accelhost/default_config.yaml", "num_processes: 6\n")
    local here = require("lfs").currentdir()
    local own = {XDG_CONFIG_HOME = here .. "/own", HOME = here .. "/house", ACCELHOST_CONFIG_FILE = false}
    assert.same({"5", here .. "/own/accelhost/default_config.yaml:1"}, shown({}, own).num_processes)
    own.XDG_CONFIG_HOME = false
    assert.same({"6", here .. "/house/.config/accelhost/default_config.yaml:1"}, shown({}, own).num_processes)
    own.HOME = here
    assert.same({"1", "default"}, shown({}, own).num_processes)
    own.ACCELHOST_CONFIG_FILE = here .. "/own/accelhost/default_config.yaml"
    assert.equal("5", shown({}, own).num_processes[1])
    assert.equal("1", shown({}, {ACCELHOST_CONFIG_FILE = "", HOME = here .. "/house"}).num_processes[1])
  end)

  it("are the defaults where the home folder may not be searched", function()
    -- Root may search any folder: another user runs the program then.
    local user = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    local function run_as_user(text)
      local home = require("lfs").currentdir() .. "/closed"
      return run.program({"bash", "-c", "[ $(id -u) = 0 ] && as='" .. user .. "'; " .. text, run.path},
        {env = {HOME = home, XDG_CONFIG_HOME = false, ACCELHOST_CONFIG_FILE = false}})
    end
    if run_as_user('cd / && $as "$0" --version').code ~= 0 then return pending "needs a user who may run this" end
    assert.truthy(os.execute "mkdir -p closed/.config/accelhost && chmod 0 closed" == 0)
    local result = run_as_user('cd / && $as "$0" launch --num_processes 2 '
      .. '-e "require[[accelhost]].Accelerator():print(1)"')
    local named = run_as_user 'cd / && $as "$0" launch --config_file "$HOME/some.yaml" -e "print(1)"'
    os.execute "chmod 700 closed"
    assert.same({0, "", "1\n"}, {result.code, result.stderr, result.stdout})
    assert.equal(2, named.code)
    assert.matches("cannot read '[^\n]*/closed/some.yaml': Permission denied", named.stderr)
  end)

  it("may be written in JSON", function()
    write("some.json", [[{"num_processes": 3, "timeout": 1.5, "cpu": true, "log_dir": null, "tee": "0:3,1:2"}]])
    local list = shown {"--config_file", "some.json"}
    assert.same({"3", "some.json"}, list.num_processes)
    assert.same({"1.5", "true", "-", "0:3,1:2"},
      {list.timeout[1], list.cpu[1], list.log_dir[1], list.tee[1]})
  end)

  it("accept '-' for '_' in flags and keys, and other launchers' names with a hint", function()
    write("dash.yaml", "num-processes: 3\nuse_cpu: yes\nmaster-port: 29501\n")
    local list = shown {"--config-file", "dash.yaml", "--max-restarts=2"}
    assert.same({"3", "true", "29501", "2"},
      {list.num_processes[1], list.cpu[1], list.main_process_port[1], list.max_restarts[1]})
    local other, result = shown {"--nproc_per_node", "2", "--nnodes=1", "--standalone", "--rdzv_backend", "c10d"}
    assert.same({"2", "--nproc_per_node"}, other.nproc_per_node)
    assert.truthy(result.stderr:find("--nnodes is called --num_machines here", 1, true))
    assert.equal("num_processes (--num_processes) and nproc_per_node (--nproc_per_node) are the same on one " ..
      "machine: set only one", refused {"--nproc_per_node", "2", "--num_processes", "3"})
  end)

  it("reach the ranks", function()
    write("ranks.yaml", "num_processes: 2\nmixed_precision: bf16\ngradient_accumulation_steps: 4\nuse_cpu: true\n" ..
      "main_process_ip: 10.0.0.7\nmain_process_port: 4711\nnum_cpu_threads_per_process: 3\ndebug: true\n")
    local code = [[local names = {"ACCELHOST_MIXED_PRECISION", "ACCELHOST_GRADIENT_ACCUMULATION_STEPS",
      "ACCELHOST_USE_CPU", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "ACCELHOST_DEBUG"}
      for i, name in ipairs(names) do names[i] = os.getenv(name) end print(table.concat(names, " "))]]
    local result = launch({"--config_file", "ranks.yaml", "-e", code},
      {ACCELHOST_DEBUG = "alloc", OMP_NUM_THREADS = false})
    assert.same(run.everyone(2, "bf16 4 true 10.0.0.7 4711 3 alloc,comm\n"), run.by_rank(result.stdout), result.output)
    assert.equal("4,2\n", launch({"-e", "print(os.getenv 'OMP_NUM_THREADS')"}, {OMP_NUM_THREADS = "4,2"}).stdout)
  end)

  it("understand Accelerate's variables, after our own", function()
    local list = shown({}, {ACCELERATE_MIXED_PRECISION = "fp16", ACCELERATE_USE_CPU = "true",
      ACCELERATE_GRADIENT_ACCUMULATION_STEPS = "2", ACCELHOST_GRADIENT_ACCUMULATION_STEPS = "3"})
    assert.same({"fp16", "ACCELERATE_MIXED_PRECISION"}, list.mixed_precision)
    assert.same({"true", "ACCELERATE_USE_CPU"}, list.cpu)
    assert.same({"3", "ACCELHOST_GRADIENT_ACCUMULATION_STEPS"}, list.gradient_accumulation_steps)
    assert.equal("ACCELERATE_USE_FSDP: set it in the script: Accelerator{sharding = \"full\"}, or fsdp_plugin",
      refused({"-e", ""}, {ACCELERATE_USE_FSDP = "true"}))
    assert.equal(0, launch({"-e", ""}, {ACCELERATE_USE_FSDP = "false"}).code)
  end)

  it("count an empty variable as unset and report a misspelt one", function()
    assert.equal("default", shown({}, {ACCELHOST_TIMEOUT = ""}).timeout[2])
    local result = launch({"-e", "print(1)"}, {ACCELHOST_NUM_PROCESES = "3"})
    assert.same({0, "1\n"}, {result.code, result.stdout})
    assert.equal("accelhost launch: ACCELHOST_NUM_PROCESES is no variable of this program (did you mean " ..
      "ACCELHOST_NUM_PROCESSES?)\n", result.stderr)
  end)

  it("are reported by the outer launcher only in a rank that launches", function()
    local inner = "%s launch --timeout 5 --patience 4 -e 'print(os.getenv \"ACCELHOST_TIMEOUT\")'"
    local code = ("os.execute([[" .. inner .. "]])"):format(run.quote(run.path))
    local result = launch {"--timeout", "7", "--patience", "3", "-e", code}
    assert.same({0, "5\n", ""}, {result.code, result.stdout, result.stderr})
  end)

  it("start one rank on each processor with auto", function()
    local count = require("accelhost._C").system.cpu_count()
    assert.equal(tostring(count), shown({"--num_processes", "auto"}).num_processes[1])
  end)

  it("of wrong values are refused, with the place and the expected values", function()
    for _, case in ipairs {
      {{"--num_processes", "0"}, "--num_processes expects a whole number in 1..256 or auto, got '0'"},
      {{"--num_processes=-1"}, "--num_processes: expected a number, auto or gpu (got '-1')"},
      {{"--timeout", "soon"}, "--timeout expects a number in 0.001..1e+09, got 'soon'"},
      {{"--max_memory", "2X"}, "--max_memory expects a size such as 500M or 2G, of at least 1M, got '2X'"},
      {{"--mixed_precision", "bf61"}, "--mixed_precision expects no, bf16, fp16 or fp8, got 'bf61'"},
      {{"--tee", "4"}, "--tee expects 0 (nothing), 1 (output), 2 (errors) or 3 (both), or that by rank as in " ..
        "0:3,1:2, got '4'"},
      {{"--tee", "2:3", "--num_processes", "2"}, "--tee: there is no rank 2 among 2"},
      {{"--cpu=maybe"}, "--cpu expects true or false, got 'maybe'"},
      {{"--log_dir="}, "--log_dir expects a text, got nothing"},
      {{"--num_machines", "2"}, "--num_machines: the machines need the first one's address: --main_process_ip"},
      {{"--nnodes", "4:2"}, "--nnodes expects MIN:MAX, got '4:2'"},
      {{"--nnodes", "2:65"}, "--nnodes expects a whole number in 1..64, got '2:65'"},
      {{"--nnodes", "2:"}, "--nnodes expects a whole number in 1..64, got '2:'"},
      {{"--nnodes", "2:4"}, "--nnodes: the machines need the first one's address: --main_process_ip"},
      {{"--nnodes=2:4", "--master_addr=10.0.0.1", "--num_processes=8"}, "--num_processes: the ranks of 2:4 machines " ..
        "are not always 8: set their number on each by --nproc_per_node"},
      {{"--nnodes=2:4", "--master_addr=10.0.0.1", "--share=1:2"},
        "--share: 1:2 is for 2 ranks or machines, and 2:4 machines are not always as many"},
      {{"--nnodes=2:4", "--launcher=srun"}, "--nnodes: srun starts the ranks on a number of machines that stays"},
      {{"--last_call_timeout=-1"}, "--last_call_timeout expects a number in 0..1e+06, got '-1'"},
      {{"--rdzv_conf=last_call_timeout=5"},
        "--rdzv_conf: here: timeout (for the machines to meet) and last_call_timeout"},
      {{"--num_machines", "65"}, "--num_machines expects a whole number in 1..64, got '65'"},
      {{"--machine_rank", "1"},
        "--machine_rank: expected 0 for a job on one machine (set num_machines for more)"},
      {{"--nnodes=2", "--node_rank=2", "--master_addr=10.0.0.1"},
        "--node_rank: there is no machine 2 of 2; they count from 0"},
      {{"--nnodes=2", "--master_addr=10.0.0.1", "--master_port=0"},
        "--master_port: the machines need a port that all of them know"},
      {{"--num_machines=2", "--main_process_ip=10.0.0.1", "--num_processes=3"}, "--num_processes: 3 ranks are not " ..
        "the same number on each of 2 machines: set the number on each by --nproc_per_node"},
      {{"--gpu_ids", "0,,1"}, "--gpu_ids expects numbers or identifiers of GPUs, as in 0,1, or all, got '0,,1'"},
      {{"--gpu_ids", "1,2,1"}, "--gpu_ids: 1 is there twice"},
      {{"--gpu_ids", "0,"}, "--gpu_ids: '0,' ends with a comma"},
      {{"--multi_gpu", "--cpu"}, "--multi_gpu: not possible: ranks run on the CPU by --cpu"},
    } do
      case[1][#case[1] + 1] = "-e"
      case[1][#case[1] + 1] = ""
      assert.equal(case[2], refused(case[1]))
    end
    assert.equal("ACCELHOST_NUM_PROCESSES expects a whole number in 1..256 or auto, got '2.5'",
      refused({"-e", ""}, {ACCELHOST_NUM_PROCESSES = "2.5"}))
  end)

  it("that mean nothing here are refused, each with its reason", function()
    for flag, reason in pairs {
      ["--use_fsdp"] = "set it in the script", ["--fsdp_offload_params=true"] = "set it in the script",
      ["--use_deepspeed"] = "no DeepSpeed; use Accelerator{sharding", ["--zero_stage"] = "(ZeRO-3) in the script",
      ["--megatron_lm_tp_degree"] = "no Megatron-LM",
      ["--dynamo_backend=inductor"] = "use accelerator:compile(step) in the script",
      ["--virtual_local_rank"] = "each rank sees all GPUs", ["--tpu"] = "there are no TPUs here",
      ["--rdzv_backend=etcd"] = "machines meet at main_process_ip", ["--rdzv-endpoint=x:1"] = "meet at main_process_ip",
      ["--no_python"] = "ranks run Lua scripts", ["--mpirun_hostfile=x"] = "here: launcher and hostfile",
      ["--enable_cpu_affinity"] = "the system places processes", ["--shutdown_timeout=3"] = "here: --grace",
      ["--fp8_backend"] = "the script sets the recipe: TERecipeKwargs in kwargs_handlers",
      ["--parallelism_config_tp_size=2"] = "no tensor or pipeline parallelism",
    } do
      assert.truthy(refused({flag, "x.lua"}):find(reason, 1, true), flag)
    end
    assert.equal("unknown option '--num_proceses' (did you mean '--num_processes'?)",
      refused {"--num_proceses", "2", "x.lua"})
  end)

  it("are reported as launch's when a single run receives them", function()
    for flag, line in pairs {
      ["--num_processes"] = "--num_processes N", ["--mixed-precision=bf16"] = "--mixed_precision TYPE",
      ["--max_restarts"] = "--max_restarts N", ["--quiet"] = "--quiet",
    } do
      local result = run.host {flag, "2", "x.lua"}
      assert.same({2, ("accelhost run: unknown option '%s' (it is launch's: accelhost launch %s script.lua)\n" ..
        "Try 'accelhost run --help'.\n"):format(flag, line)}, {result.code, result.stderr})
    end
  end)

  it("are all in --help, in groups", function()
    local help = launch({"--help"}).stdout
    for name in launch({"--show_config"}).stdout:gmatch "([%w_]+) [^\n]*\n" do
      assert.truthy(help:find("\n  --" .. name .. " ", 1, true), name)
    end
    for _, group in ipairs {"processes", "training", "restarts", "limits", "output", "program"} do
      assert.truthy(help:find("\n" .. group .. ":\n", 1, true), group)
    end
    assert.is_nil(help:find " \n")
  end)
end)

describe("launch", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("hands a job over to mpirun or srun, by the command that --dry_run shows", function()
    write("hosts", "# slots\nnode7 slots=2\nnode8 slots=2\n")
    local function command(...)
      local words = {"--dry_run", ...}
      words[#words + 1] = "-e"
      words[#words + 1] = "return 'x'"
      local result = launch(words)
      assert.equal(0, result.code, result.output)
      local before, ranks = result.stdout:match "^(.*) %S*/accelhost (run .*)\n$"
      return before, ranks
    end
    local engine, ranks = command("--hostfile", "hosts", "-n", 4, "--mixed_precision", "bf16")
    assert.equal("mpirun -n 4 --hostfile hosts --map-by slot --bind-to none -x MASTER_ADDR=node7 " ..
      "-x ACCELHOST_MIXED_PRECISION=bf16", engine)
    assert.equal([[run -e 'return '\''x'\''']], ranks)
    assert.equal("mpirun -n 6 --map-by ppr:3:node --bind-to none", (command("--launcher", "mpirun", "--nnodes", 2,
      "--nproc_per_node", 3, "-q")))
    assert.equal("mpirun -n 2 --map-by slot --bind-to none --output-filename logs", (command("--launcher", "mpirun",
      "-n", 2, "--log_dir", "logs")))
    assert.equal("srun --ntasks 4 --nodes 2 --ntasks-per-node 2 --distribution=block --kill-on-bad-exit=1",
      (command("--launcher", "srun", "--num_machines", 2, "--num_processes", 4)))
    assert.equal("--max_restarts: srun starts the ranks, and does nothing like it",
      refused {"--launcher", "srun", "--max_restarts", 1, "-e", ""})
    assert.equal("--log_dir: srun starts the ranks, and does nothing like it",
      refused {"--launcher", "srun", "--log_dir", "logs", "-e", ""})
    assert.equal("--hostfile: srun has its nodes from Slurm", refused {"--launcher=srun", "--hostfile=x", "-e", ""})
    assert.equal("--dry_run: shows the command of --launcher mpirun or srun", refused {"--dry_run", "-e", ""})
    local wired = launch({"--dry_run", "--hostfile", "hosts", "-e", ""}, {ACCELHOST_WIRE = "mpi"})
    assert.matches(" %-x ACCELHOST_WIRE=mpi ", wired.stdout)
    local result = launch {"--hostfile", "none", "-e", ""}
    assert.same({3, "accelhost launch: the host file none: No such file or directory\n"}, {result.code, result.stderr})
  end)

  it("reports failures only with --quiet", function()
    local code = "if os.getenv 'RANK' == '1' then os.execute 'kill -STOP $PPID; sleep 1; kill -CONT $PPID' end"
    local words = {"--nproc_per_node", 2, "--nnodes", 1, "--monitor_interval", 0.05, "-e", code}
    local result = launch(words)
    assert.matches("%-%-nnodes is called", result.stderr)
    assert.matches("rank 1 was stopped by a signal", result.stderr)
    table.insert(words, 1, "--quiet")
    assert.same({0, ""}, {launch(words).code, launch(words).stderr})
    words[#words] = code .. " error 'lost'"
    result = launch(words)
    assert.equal(3, result.code)
    assert.matches("^accelhost launch: rank %d failed: %-e:1: lost\n", result.stderr)
  end)

  it("polls for stopped ranks at the interval of --monitor_interval", function()
    local code = "os.execute 'kill -STOP $PPID; sleep 1; kill -CONT $PPID'"
    assert.matches("rank 0 was stopped", launch({"--monitor_interval", 0.05, "-e", code}).stderr)
    assert.equal("", launch({"--monitor_interval", 60, "--patience", 60, "-e", code}).stderr)
  end)
end)

describe("a configuration file", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  -- The error of a file with this text.
  local function said(text, name)
    return refused {"--config_file", write(name or "c.yaml", text), "-e", ""}
  end

  it("of Accelerate's for CPUs loads", function()
    write("accelerate.yaml", [[
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_CPU
downcast_bf16: 'no'
dynamo_config:
  dynamo_backend: 'NO'
enable_cpu_affinity: false
fsdp_config: {}
ipex_config:
  ipex: false
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
mpirun_config: {}
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
command_file: null
commands: ~
deepspeed_config: {}
gpu_ids: all
main_process_ip: null
megatron_lm_config: {}
fp16: false
tpu_env: []
tpu_name: null
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: true
]])
    local list = shown {"--config_file", "accelerate.yaml"}
    assert.same({"2", "accelerate.yaml:16"}, list.num_processes)
    assert.same({"true", "no"}, {list.cpu[1], list.mixed_precision[1]})
  end)

  it("that requests an unsupported feature is refused with key, line and reason", function()
    assert.equal("c.yaml:2: distributed_type: expected NO, MULTI_CPU or MULTI_GPU; the script shards: " ..
      "Accelerator{sharding = \"full\"} (got 'FSDP')", said "debug: false\ndistributed_type: FSDP\n")
    assert.equal("c.yaml:2: fsdp_version: set it in the script: Accelerator{sharding = \"full\"}, or fsdp_plugin " ..
      "(got '2')",
      said "fsdp_config:\n  fsdp_version: 2\n")
    assert.equal("c.yaml:2: gradient_accumulation_steps: no DeepSpeed; use Accelerator{sharding = " ..
      "\"gradients\"} (ZeRO-2) or \"full\" (ZeRO-3) in the script",
      said "deepspeed_config:\n  gradient_accumulation_steps: 1\n")
    assert.equal("c.yaml:2: dynamo_backend: use accelerator:compile(step) in the script (the step as one graph) (" ..
      "got 'INDUCTOR')",
      said "dynamo_config:\n  dynamo_backend: INDUCTOR\n")
    assert.equal("c.json: compute_environment: jobs run on this machine (got 'AMAZON_SAGEMAKER')",
      said([[{"compute_environment": "AMAZON_SAGEMAKER"}]], "c.json"))
  end)

  it("with an unknown key is refused with the nearest one", function()
    assert.equal("c.yaml:2: unknown key 'num_procesess' (did you mean 'num_processes'?)",
      said "debug: false\nnum_procesess: 2\n")
    assert.equal("c.yaml:1: unknown key 'zzzz'", said "zzzz: 2\n")
    assert.equal("c.yaml:1: show_config: can only be set by a flag or an environment variable",
      said "show_config: true\n")
  end)

  it("with wrong types or nesting is refused", function()
    for text, line in pairs {
      ["num_processes: [1, 2]\n"] = "c.yaml:1: num_processes: expected a value, got a list",
      ["num_processes:\n  a: 1\n"] = "c.yaml:2: num_processes: expected a value, got a map",
      ["num_processes: two\n"] = "c.yaml:1: num_processes expects a whole number in 1..256 or auto, got 'two'",
      ["dynamo_config: 3\n"] = "c.yaml:1: dynamo_config: expected a map",
      ["- 1\n- 2\n"] = "c.yaml: expected keys and values, got a list",
      ["word\n"] = "c.yaml: expected keys and values, got a value",
      ["? [a]\n: b\n"] = "c.yaml: line 1: expected a key, got a list or a map",
      ["timeout: 1\ntimeout: 2\n"] = "c.yaml: line 2: duplicate key 'timeout'",
      ["cpu: true\nuse_cpu: true\n"] = "c.yaml:2: use_cpu: already set in c.yaml:1",
      ["num_processes: 1\nnproc_per_node: 2\n"] =
        "num_processes (c.yaml:1) and nproc_per_node (c.yaml:2) are the same on one machine: set only one",
    } do
      assert.equal(line, said(text))
    end
  end)

  it("is data only, and bounded", function()
    for text, line in pairs {
      ["a: &a [x]\nb: *a\n"] = "c.yaml: line 1: anchors (&name) are not supported",
      ["timeout: *a\n"] = "c.yaml: line 1: aliases (*name) are not supported",
      ["timeout: !!int 3\n"] = "c.yaml: line 1: tags (!name) are not supported",
      ["!!python/object:os.system {}\n"] = "c.yaml: line 1: tags (!name) are not supported",
      ["debug: false\n---\ndebug: true\n"] = "c.yaml: line 2: a second document begins",
      ["x: \"open"] = "c.yaml: line 1: no YAML: found unexpected end of stream",
      ["a: " .. ("["):rep(100)] = "c.yaml: line 1: nested too deep",
      ["a: [" .. ("1,"):rep(5000) .. "]"] = "c.yaml: more than 4096 values",
      [("#"):rep(300000)] = "c.yaml: expected at most 262144 bytes, got 262145",
      ["\0\1"] = "c.yaml: line 1: no YAML: control characters are not allowed",
    } do
      assert.equal(line, said(text))
    end
    assert.matches("^c.json: line 1: no JSON: duplicate object key", said([[{"timeout": 1, "timeout": 2}]], "c.json"))
    assert.equal("c.json: nested too deep", said(("["):rep(40) .. ("]"):rep(40), "c.json"))
    assert.matches("^c.json: line 1: no JSON: ", said("{", "c.json"))
  end)

  it("is silent when empty", function()
    for _, text in ipairs {"", "# a comment\n", "---\n", "{}", "num_processes: ~\nlog_dir: null\n"} do
      assert.equal("1", shown({"--config_file", write("empty.yaml", text)}).num_processes[1])
    end
  end)

  it("that cannot be read is an error, wherever it was named", function()
    assert.equal("cannot read 'none.yaml': No such file or directory", refused {"--config_file=none.yaml", "-e", ""})
    assert.equal("cannot read '.': it is a folder", refused({"-e", ""}, {ACCELHOST_CONFIG_FILE = "."}))
    assert.equal("/dev/zero: expected at most 262144 bytes, got 262145",
      refused {"--config_file", "/dev/zero", "-e", ""})
  end)
end)

describe("launch -m", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("runs the file that require would load, with its arguments", function()
    os.execute "mkdir pack"
    write("pack/train.lua", "print(arg[0], ...)")
    local result = launch {"--num_processes", 2, "-m", "pack.train", "a", "--b"}
    assert.same({0, run.everyone(2, "./pack/train.lua\ta\t--b\n")}, {result.code, run.by_rank(result.stdout)})
    assert.equal("./pack/train.lua\tc\n", run.host({"run", "--module", "pack.train", "c"}).stdout)
  end)

  it("reports where it searched for a missing module, and exits with code 2", function()
    local result = launch {"-m", "pack.none"}
    assert.equal(2, result.code)
    assert.matches("accelhost run: there is no module 'pack.none':", result.stderr)
    assert.matches("no file '%./pack/none.lua'", result.stderr)
    assert.equal("accelhost launch: -m expects the name of a module\nTry 'accelhost launch --help'.\n",
      launch({"-m"}).stderr)
  end)
end)
