--- make bench: each row a workload, ours and a peer's, measured in turn in fresh processes.
--
-- Prints one table and writes the same as JSON. A ratio over 1 means that we are ahead. The peer for training is
-- PyTorch in its best configuration on a CPU (OpenBLAS for OpenMP, tcmalloc, DDP with bucket views and a static graph),
-- on ready batches; a row that ends in _loader compares our loader with the peer's ready batches. The peer for the
-- all-reduce is Open MPI where mpicc is installed, else gloo. Pins of OpenBLAS in the environment are removed on both
-- sides. With --against the peer of every row is another build of the host.
local accelhost = require "accelhost"
local now = require("accelhost._C").system.now

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local options = accelhost.parse_args {
  description = "Measures each workload here and with a peer, in turn, in fresh processes.",
  {"repeat", 5, "fresh processes of each side", integer = true, minimum = 1},
  {"json", "build/bench.json", "where the table is written as JSON"},
  {"rows", "", "names of rows, all when empty"},
  {"host", "./accelhost", "the program that is measured"},
  {"against", nil, "another build as the peer of every row", type = "string"},
  {"no_peer", false, "our side only"},
  {"gate", nil, "exit with 1 if a row is behind its peer by more than this percentage", type = "number"},
}
local with_torch = not options.no_peer and not options.against

local function first_line(command)
  local pipe = io.popen(command .. " 2>/dev/null")
  local line = pipe:read("*l")
  pipe:close()
  return line
end

local host = options.host
local pins = {}
for _, name in ipairs {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} do
  local set = os.getenv(name)
  if set then pins[#pins + 1] = name .. "=" .. set end
end
local clean = "env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE -u OPENBLAS_NUM_THREADS"

-- The first interpreter that imports a package, and the package's version: that of `install-deps.sh bench-new` before
-- others.
local function find_python(package)
  for _, name in ipairs {"build/bench-env/bin/python3", "python3", "python", "/usr/bin/python3",
    "/usr/local/bin/python3"} do
    local version = first_line(("%s -c 'import %s; print(%s.__version__)'"):format(name, package, package))
    if version then return name, version end
  end
end
local python, torch_version
if with_torch then python, torch_version = find_python "torch" end
local blas_dir = first_line("ls -d /usr/lib/*/openblas-openmp")
local tcmalloc = first_line("ls /usr/lib/*/libtcmalloc_minimal.so.4")
local peer_env = clean .. (blas_dir and " LD_LIBRARY_PATH=" .. blas_dir or "")
  .. (tcmalloc and " LD_PRELOAD=" .. tcmalloc or "")

local scratch = os.tmpname()
os.remove(scratch)
os.execute("mkdir -p " .. scratch)
local mpi
if with_torch and first_line("command -v mpicc") and first_line("command -v mpirun") then
  if os.execute(("mpicc -O2 -o %s/allreduce %s/peers/allreduce.c 2>/dev/null"):format(scratch, here)) == 0 then
    mpi = first_line("mpirun --version")
  end
end
-- The least that an all-reduce can cost: the bare cycle, compiled here.
local bare = with_torch and
  os.execute(("gcc -O3 -march=native -o %s/cycle %s/peers/cycle.c 2>/dev/null"):format(scratch, here)) == 0

-- The line of an error's text that has the cause: Python's last one, before any traceback of ours the first one.
local function cause(text)
  local first, last
  for line in text:gmatch "[^\r\n]+" do
    first, last = first or line, line:find "%S" and line or last
  end
  return text:find("Traceback", 1, true) and last or first or "no message"
end

-- Run a command line; returns its "name value" lines as a table, nil after printing the cause when it failed.
local function measure(name, command)
  local log = scratch .. "/stderr"
  local begin = ("%.6f"):format(now())
  local pipe = io.popen(("BENCH_START=%s; export BENCH_START; %s 2> %s; echo status $?"):format(begin, command, log))
  local result = {}
  for line in pipe:lines() do
    local key, value = line:match("^(%S+)%s+(%S+)$")
    if key then result[key] = tonumber(value) end
  end
  pipe:close()
  if result.status == 0 then return result end
  local file = io.open(log)
  io.stderr:write(("\r\27[K%s failed: %s\n"):format(name, cause(file and file:read "*a" or "")))
  if file then file:close() end
  return nil
end

local function run_by(program, script, arguments, processes, threads)
  local launch = processes > 1 and ("launch --num_processes %d "):format(processes) or ""
  return ("%s OMP_NUM_THREADS=%d %s %s%s/ours/%s %s"):format(clean, threads, program, launch, here, script, arguments)
end
local function ours(...) return run_by(host, ...) end

-- Ranks are started by hand: torchrun of Debian's package does not run.
local function torch(script, arguments, processes, threads, interpreter)
  interpreter = interpreter or python
  if not interpreter then return nil end
  local base = ("%s OMP_NUM_THREADS=%d %s %s/peers/%s %s"):format(peer_env, threads, interpreter, here, script,
    arguments)
  if processes == 1 then return base end
  return ("rm -f %s/store; export WORLD_SIZE=%d BENCH_STORE=%s/store; for r in $(seq 1 %d); do RANK=$r %s & done; "
    .. "RANK=0 %s; s=$?; wait; (exit $s)"):format(scratch, processes, scratch, processes - 1, base, base)
end

-- A workload is measured once per turn on both sides; rows read its results.
local workloads = {}
local function training(name, net, steps, processes, threads, blocks)
  local batches = ("%s %d %d"):format(net, steps, blocks or 7)
  local through_loader = batches .. " loader"
  workloads[name] = {
    ours = ours("train.lua", batches, processes, threads),
    peer = torch("train.py", batches, processes, threads),
    peer_name = python and "PyTorch " .. torch_version,
  }
  workloads[name .. "_loader"] = {
    ours = ours("train.lua", through_loader, processes, threads),
    peer_of = name,
    peer_name = python and "PyTorch " .. torch_version .. ", ready batches",
  }
  if options.against then
    local other, name_of_other = options.against, "the other build"
    workloads[name].peer = run_by(other, "train.lua", batches, processes, threads)
    workloads[name .. "_loader"].peer = run_by(other, "train.lua", through_loader, processes, threads)
    workloads[name .. "_loader"].peer_of = nil
    workloads[name].peer_name, workloads[name .. "_loader"].peer_name = name_of_other, name_of_other
  end
end
-- Compiled steps, against PyTorch's and (`own`) against the same step as it is, on one thread.
local compiled = {tiny = 5000, mlp = 500, lstm = 20, char_gpt = 4}
for net, steps in pairs(compiled) do
  local plain = ("%s %d 7"):format(net, steps)
  local own = ours("train.lua", plain .. " compiled", 1, 1)
  workloads["compiled_" .. net] = {
    ours = own,
    peer = options.against and run_by(options.against, "train.lua", plain .. " compiled", 1, 1)
      or torch("train.py", plain, 1, 1),
    peer_name = options.against and "the other build" or python and "PyTorch " .. torch_version,
  }
  workloads["compiled_" .. net .. "_own"] = {ours = own, peer = ours("train.lua", plain, 1, 1),
    peer_name = "the step as it is"}
end
training("mnist_cnn_1t", "mnist_cnn", 10, 1, 1)
training("mnist_cnn_2t", "mnist_cnn", 10, 1, 2)
training("mnist_cnn_2p", "mnist_cnn", 10, 2, 1)
training("mlp_1t", "mlp", 500, 1, 1)
training("mlp_2t", "mlp", 500, 1, 2)
training("mlp_2p", "mlp", 200, 2, 1)
local resnets = {"resnet18_28", "resnet18_32", "resnet18_28_float64"}
for _, net in ipairs(resnets) do training(net, net, 1, 1, 1, 5) end
for _, net in ipairs {"cnn", "wide", "gpt"} do
  for _, dtype in ipairs {"float32", "bfloat16"} do
    local arguments = ("%s %s 15"):format(net, dtype)
    workloads[("step_%s_%s"):format(net, dtype)] = {
      ours = ours("precision.lua", arguments, 1, 1),
      peer = options.against and run_by(options.against, "precision.lua", arguments, 1, 1)
        or torch("precision.py", arguments, 1, 1),
      peer_name = options.against and "the other build" or python and "PyTorch " .. torch_version,
    }
  end
end
for name, dtype in pairs {gpt_peak_mb = "float32", gpt_peak_mb_bfloat16 = "bfloat16"} do
  workloads[name] = {
    ours = ours("gpt_peak.lua", dtype .. " 4", 1, 2),
    peer = options.against and run_by(options.against, "gpt_peak.lua", dtype .. " 4", 1, 2)
      or torch("gpt_peak.py", dtype .. " 4", 1, 2),
    peer_name = options.against and "the other build" or python and "PyTorch " .. torch_version,
  }
end
for _, tokens in ipairs {256, 1024} do
  local arguments = tokens .. " 7"
  workloads["attention_" .. tokens] = {
    ours = ours("attention.lua", arguments, 1, 1),
    peer = options.against and run_by(options.against, "attention.lua", arguments, 1, 1)
      or torch("attention.py", arguments, 1, 1),
    peer_name = options.against and "the other build" or python and "PyTorch " .. torch_version,
  }
end
-- All-reduces of a buffer in the shared arena, as gradients are, or in ordinary memory. The bare cycle is for 2 ranks
-- and does not have the cost of a call, so it is a bound for large buffers alone.
local all_reduces = {
  {"allreduce_4k", 1024, 2000, 2}, {"allreduce_64k", 16384, 2000, 2}, {"allreduce_1m", 262144, 500, 2},
  {"allreduce_4m8", 1199882, 200, 2}, {"allreduce_4m8_private", 1199882, 200, 2}, {"allreduce_40m", 10485760, 30, 2},
  {"allreduce_400m", 104857600, 5, 2}, {"allreduce_64k_4p", 16384, 200, 4}, {"allreduce_4m8_4p", 1199882, 50, 4},
  {"allreduce_4m8_8p", 1199882, 20, 8},
}
local bare_of = {}
for _, case in ipairs(all_reduces) do
  local name, count, turns, processes = unpack(case)
  local call = ("%d %d"):format(count, turns)
  local arguments = call .. (name:find "private" and " private" or " arena")
  workloads[name] = {
    ours = ours("allreduce.lua", arguments, processes, 1),
    peer = options.against and run_by(options.against, "allreduce.lua", arguments, processes, 1) or mpi
      and ("%s mpirun --allow-run-as-root --oversubscribe -np %d %s/allreduce %s"):format(clean, processes, scratch,
        call)
      or torch("allreduce.py", call, processes, 1),
    peer_name = options.against and "the other build" or mpi
      or python and "gloo of PyTorch " .. torch_version,
  }
  if processes == 2 and count > 1e5 and arguments:find "arena" then
    bare_of[#bare_of + 1] = name
    workloads[name .. "_bare"] = {
      ours = workloads[name].ours,
      peer = bare and ("%s/cycle %s"):format(scratch, call) or nil,
      peer_name = "the bare cycle in C",
    }
  end
end
-- The same script on both sides, in two processes.
local function pair(name, script, arguments)
  workloads[name] = {
    ours = ours(script .. ".lua", arguments, 2, 1),
    peer = options.against and run_by(options.against, script .. ".lua", arguments, 2, 1)
      or torch(script .. ".py", arguments, 2, 1),
    peer_name = options.against and "the other build" or python and "gloo of PyTorch " .. torch_version,
  }
end
local hooks, sizes = {"none", "fp16", "bf16", "power_sgd", "batched_power_sgd"}, {1, 256, 262144}
for _, hook in ipairs(hooks) do pair("hook_" .. hook, "hooks", hook .. " 20") end
for _, size in ipairs(sizes) do pair("message_" .. 4 * size, "pingpong", size .. (size > 1e5 and " 500" or " 5000")) end
if not options.against then -- PyTorch's match no sums of several buckets over gloo, or raise an assertion
  workloads.hook_power_sgd.peer, workloads.hook_batched_power_sgd.peer = nil, nil
end

-- One thread on both sides; the data are in the folder of the specs' data.
local data_dir = os.getenv "ACCELHOST_DATA" or "data"
local tokenizings = {bert_sst2 = "minilm sst2", bert_shakespeare = "minilm tinyshakespeare",
  gpt2_sst2 = "tokenizers/gpt2 sst2", gpt2_shakespeare = "tokenizers/gpt2 tinyshakespeare",
  llama3_sst2 = "llama3 sst2", llama3_shakespeare = "llama3 tinyshakespeare", unigram_sst2 = "unigram sst2",
  unigram_shakespeare = "unigram tinyshakespeare"}
local tokenizer_folder = {llama3 = "tokenizers/gpt2", unigram = "minilm"}
local fast_python, fast_version
if with_torch then fast_python, fast_version = find_python "tokenizers" end
for name, arguments in pairs(tokenizings) do
  local tokenizer, text = arguments:match "^(%S+) (%S+)$"
  arguments = data_dir .. " " .. arguments
  workloads["tokenize_" .. name] = {
    needs = {data_dir .. "/" .. (tokenizer_folder[tokenizer] or tokenizer), data_dir .. "/" .. text},
    ours = ours("tokenizing.lua", arguments, 1, 1),
    peer = options.against and run_by(options.against, "tokenizing.lua", arguments, 1, 1)
      or fast_python and ("RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false %s %s/peers/tokenizing.py %s"):format(
        fast_python, here, arguments),
    peer_name = options.against and "the other build" or fast_version and "tokenizers " .. fast_version,
  }
end

-- The character GPT of the examples.
for threads = 1, 2 do
  workloads[("char_gpt_%dt"):format(threads)] = {
    ours = ours("char_gpt.lua", "bench 8 7", 1, threads),
    peer = options.against and run_by(options.against, "char_gpt.lua", "bench 8 7", 1, threads)
      or torch("char_gpt.py", "bench 8 7", 1, threads),
    peer_name = options.against and "the other build" or python and "PyTorch " .. torch_version,
  }
end

-- Two threads while `count` other programs are busy: against the peer under the same load, and (`own`) against one
-- thread of ours, which a second thread should never make slower: alone for one program, under the load of two.
local function with_busy_loops(count, command)
  local loop = "timeout 900 sh -c 'while :; do :; done' & b=\"$b $!\"; "
  return command and ("(b=; %s%s; s=$?; kill $b; exit $s)"):format(loop:rep(count), command)
end
for name, script in pairs {mnist_cnn = "train.lua mnist_cnn 10 7", mlp = "train.lua mlp 500 7",
  char_gpt = "char_gpt.lua bench 8 7"} do
  local file, arguments = script:match "^(%S+) (.*)$"
  for count, suffix in ipairs {"_2t_busy", "_2t_busy2"} do
    local busy, one = with_busy_loops(count, ours(file, arguments, 1, 2)), ours(file, arguments, 1, 1)
    workloads[name .. suffix] = {
      ours = busy,
      peer = with_busy_loops(count, options.against and run_by(options.against, file, arguments, 1, 2)
        or torch((file:gsub("lua$", "py")), arguments, 1, 2)),
      peer_name = options.against and "the other build" or python and "PyTorch " .. torch_version,
    }
    workloads[name .. suffix .. "_own"] = {
      ours = busy, peer = count == 1 and one or with_busy_loops(count, one),
      peer_name = count == 1 and "1 thread, alone" or "1 thread under that load",
    }
  end
end

-- Fine-tuning a checkpoint, against transformers on PyTorch.
local transformers_python, transformers_version
if with_torch then transformers_python, transformers_version = find_python "transformers" end
for shape, counts in pairs {["1t"] = {1, 1}, ["2t"] = {1, 2}, ["2p"] = {2, 1}} do
  local processes, threads = counts[1], counts[2]
  -- More blocks here: on some virtual machines the first write to a huge page costs 5 ms, in the first 30 steps.
  local blocks, peer_blocks = data_dir .. " bench 8 11", data_dir .. " bench 8 5"
  workloads["minilm_ft_" .. shape] = {
    needs = {data_dir .. "/minilm", data_dir .. "/sst2"},
    ours = ours("minilm_ft.lua", blocks, processes, threads),
    peer = options.against and run_by(options.against, "minilm_ft.lua", blocks, processes, threads)
      or transformers_python and torch("minilm_ft.py", peer_blocks, processes, threads, transformers_python) or nil,
    peer_name = options.against and "the other build"
      or transformers_version and "transformers " .. transformers_version .. ", PyTorch " .. torch_version,
  }
end

-- A decoder of SmolLM2-135M's shape: training steps; a prompt and the tokens after it.
for _, what in ipairs {"train", "write"} do
  local arguments = what .. " 5"
  workloads["decoder_" .. what] = {
    ours = ours("decoder.lua", arguments, 1, 1),
    peer = options.against and run_by(options.against, "decoder.lua", arguments, 1, 1)
      or transformers_python and torch("decoder.py", arguments, 1, 1, transformers_python) or nil,
    peer_name = options.against and "the other build"
      or transformers_version and "transformers " .. transformers_version .. ", PyTorch " .. torch_version,
  }
end

-- The same tokens with quantised weights, next to bfloat16.
for _, dtype in ipairs {"int8", "nf4"} do
  workloads["decoder_write_" .. dtype] = {
    ours = ours("decoder.lua", "write 5 " .. dtype, 1, 1), peer = ours("decoder.lua", "write 5 bfloat16", 1, 1),
    peer_name = "bfloat16",
  }
end

-- The same tokens next to llama.cpp (peers/llama_cpp.py), in elapsed time, with weights of the same width.
local llama_rows, llama_cpp = {}, os.getenv "LLAMA_CPP"
for _, dtype in ipairs {"bfloat16", "int8", "nf4"} do
  for threads = 1, 2 do
    local name, arguments = ("decoder_write_%s_%dt"):format(dtype, threads), "5 " .. dtype
    llama_rows[#llama_rows + 1] = name
    workloads[name] = {
      ours = ours("decoder.lua", "write " .. arguments, 1, threads),
      peer = options.against and run_by(options.against, "decoder.lua", "write " .. arguments, 1, threads)
        or llama_cpp and python and torch("llama_cpp.py", arguments, 1, threads) or nil,
      peer_name = options.against and "the other build" or "llama.cpp",
    }
  end
end

-- Fine-tuning steps: {row, script, arguments, the peer's packages next to PyTorch, only in float32 and on one thread}.
-- Names of the others end in the dtype, `_2t` or both. bfloat16 is that of autocast, in decoders that of the weights.
local transformers_name = transformers_version and "transformers " .. transformers_version
local peft_version = transformers_python
  and first_line(transformers_python .. " -c 'import peft; print(peft.__version__)'")
local fine_tunings = {
  {"encoder_full", "encoder", "full 7 %s", transformers_name},
  {"encoder_padded", "encoder", "padded 7 %s", transformers_name, true},
  {"vision_resnet18_224", "vision", "resnet18 8 224 7 %s", "torchvision, timm"},
  {"vision_resnet50_224", "vision", "resnet50 8 224 7 %s", "torchvision, timm"},
  {"vision_resnet18_64", "vision", "resnet18 32 64 7 %s", "torchvision, timm", true},
  {"vision_resnet50_64", "vision", "resnet50 32 64 7 %s", "torchvision, timm", true},
  {"vision_vit_tiny_224", "vision", "vit_tiny_patch16_224 8 224 7 %s", "torchvision, timm"},
  {"decoder_full", "decoder", "tune 7 %s full", transformers_name},
  {"decoder_lora", "decoder", "tune 7 %s lora",
    peft_version and ("%s, peft %s"):format(transformers_name, peft_version)},
}
local fine_tuning_rows = {}
local function fine_tuning(case, dtype, threads)
  local name, script, arguments = case[1], case[2], case[3]:format(dtype)
  if dtype ~= "float32" or script == "decoder" then name = name .. "_" .. dtype end
  if threads > 1 then name = ("%s_%dt"):format(name, threads) end
  fine_tuning_rows[#fine_tuning_rows + 1] = {name, threads}
  workloads[name] = {
    ours = ours(script .. ".lua", arguments, 1, threads),
    peer = options.against and run_by(options.against, script .. ".lua", arguments, 1, threads)
      or transformers_python and case[4] and torch(script .. ".py", arguments, 1, threads, transformers_python) or nil,
    peer_name = options.against and "the other build"
      or transformers_python and case[4] and ("%s, PyTorch %s"):format(case[4], torch_version),
  }
end
for _, case in ipairs(fine_tunings) do
  for _, dtype in ipairs {"float32", "bfloat16"} do
    for threads = 1, 2 do
      if not case[5] or (dtype == "float32" and threads == 1) then fine_tuning(case, dtype, threads) end
    end
  end
end

-- Two processes against twice the rate of one that runs alone, and two threads against one.
local scaled = {}
for net, steps in pairs {mnist_cnn = 10, mlp = 200, resnet18_28 = 2, bert_tiny = 10, char_gpt = 10, wide = 5} do
  local arguments = ("%s %d 7"):format(net, steps)
  local name, threads = net .. "_2p_scaling", net .. "_2t_scaling"
  scaled[#scaled + 1], scaled[#scaled + 2] = name, threads
  workloads[threads] = {
    ours = ours("train.lua", arguments, 1, 2),
    peer = options.against and run_by(options.against, "train.lua", arguments, 1, 2)
      or ours("train.lua", arguments, 1, 1),
    peer_name = options.against and "the other build" or "1 thread",
  }
  workloads[name] = {
    ours = ours("train.lua", arguments, 2, 1),
    peer = options.against and run_by(options.against, "train.lua", arguments, 2, 1)
      or ours("train.lua", arguments, 1, 1),
    peer_factor = not options.against and 2 or nil,
    peer_name = options.against and "the other build" or "twice 1 process, alone",
  }
end
table.sort(scaled)

local rows = {}
local function row(name, workload, key, unit, less_is_better)
  rows[#rows + 1] = {name = name, workload = workload, key = key, unit = unit, less = less_is_better}
end
for _, net in ipairs {"mnist_cnn", "mlp"} do
  for _, shape in ipairs {"1t", "2t", "2p"} do
    local name = net .. "_" .. shape
    row(name, name, "items_per_s", "images/s")
    row(name .. "_loader", name .. "_loader", "items_per_s", "images/s")
  end
end
for _, net in ipairs(resnets) do row(net, net, "items_per_s", "images/s") end
for _, net in ipairs {"tiny", "mlp", "lstm", "char_gpt"} do
  for _, name in ipairs {"compiled_" .. net, "compiled_" .. net .. "_own"} do row(name, name, "step_ms", "ms", true) end
end
row("startup_first_step", "mnist_cnn_2t", "first_step_s", "s", true)
row("startup_first_step_2p", "mnist_cnn_2p", "first_step_s", "s", true)
row("rss_mnist", "mnist_cnn_1t", "peak_mb", "MB", true)
row("rss_mnist_2p", "mnist_cnn_2p", "peak_mb", "MB per rank", true)
for _, name in ipairs {"gpt_peak_mb", "gpt_peak_mb_bfloat16"} do row(name, name, "peak_mb", "MB", true) end
for _, case in ipairs(all_reduces) do row(case[1], case[1], "call_us", "us", true) end
for _, name in ipairs(bare_of) do row(name .. "_bare", name .. "_bare", "call_us", "us", true) end
for _, name in ipairs(scaled) do row(name, name, "items_per_s", "items/s") end
for _, net in ipairs {"cnn", "wide", "gpt"} do
  for _, dtype in ipairs {"float32", "bfloat16"} do
    local name = ("step_%s_%s"):format(net, dtype)
    row(name, name, "step_ms", "ms of processor time", true)
  end
end
for _, name in ipairs {"attention_256", "attention_1024"} do
  row(name, name, "call_ms", "ms of processor time", true)
end
for _, name in ipairs {"bert_sst2", "bert_shakespeare", "gpt2_sst2", "gpt2_shakespeare"} do
  row("tokenize_" .. name, "tokenize_" .. name, "call_ms", "ms", true)
end
for _, name in ipairs {"char_gpt_1t", "char_gpt_2t"} do row(name, name, "tokens_per_s", "tokens/s") end
for _, net in ipairs {"char_gpt", "mnist_cnn", "mlp"} do
  for _, load in ipairs {"_2t_busy", "_2t_busy_own", "_2t_busy2", "_2t_busy2_own"} do
    local is_text = net == "char_gpt"
    row(net .. load, net .. load, is_text and "tokens_per_s" or "items_per_s", is_text and "tokens/s" or "images/s")
  end
end
for _, shape in ipairs {"1t", "2t", "2p"} do
  row("minilm_ft_" .. shape, "minilm_ft_" .. shape, "tokens_per_s", "tokens/s")
end
row("decoder_train", "decoder_train", "step_ms", "ms of processor time", true)
for _, case in ipairs(fine_tuning_rows) do
  local name, threads = unpack(case)
  if threads == 1 then
    row(name, name, "step_ms", "ms of processor time", true)
  else
    row(name, name, "step_elapsed_ms", "ms", true)
  end
  row(name .. "_peak_mb", name, "peak_mb", "MB", true)
end
row("decoder_prompt", "decoder_write", "prompt_ms", "ms of processor time", true)
row("decoder_token", "decoder_write", "token_ms", "ms of processor time", true)
for _, dtype in ipairs {"int8", "nf4"} do
  row("decoder_token_" .. dtype, "decoder_write_" .. dtype, "token_ms", "ms of processor time", true)
end
for _, name in ipairs(llama_rows) do row(name, name, "token_elapsed_ms", "ms", true) end
for _, hook in ipairs(hooks) do row("hook_" .. hook, "hook_" .. hook, "step_ms", "ms", true) end
for _, size in ipairs(sizes) do row("message_" .. 4 * size, "message_" .. 4 * size, "message_us", "us", true) end

if options.rows:find "%S" then
  local wanted, kept = {}, {}
  for name in options.rows:gmatch "[^%s,]+" do wanted[name] = true end
  for _, item in ipairs(rows) do
    if wanted[item.name] then
      kept[#kept + 1] = item
      wanted[item.name] = nil
    end
  end
  local unknown = next(wanted)
  if unknown then
    io.stderr:write("bench: no row '", unknown, "'\n")
    os.exit(2)
  end
  rows = kept
end

-- Rows whose data are not there are left out, with one line each.
local function is_there(path) return os.execute(("test -e '%s'"):format(path)) == 0 end
local possible = {}
for _, item in ipairs(rows) do
  local missing
  for _, path in ipairs(workloads[item.workload].needs or {}) do missing = missing or not is_there(path) and path end
  if missing then
    print(("%s is left out: '%s' is missing (ACCELHOST_DATA names the folder of data sets)"):format(item.name, missing))
  else
    possible[#possible + 1] = item
  end
end
rows = possible

-- Rows without a peer here are measured all the same.
local alone = {}
for _, item in ipairs(rows) do
  local workload = workloads[item.workload]
  if not (workload.peer or workload.peer_of and workloads[workload.peer_of].peer) then
    alone[#alone + 1] = item.name
  end
end
if #alone > 0 and not options.no_peer then print("rows without a peer here: " .. table.concat(alone, ", ")) end

-- The chosen workloads, in the order of the rows; a loader workload needs its peer's.
local order, seen = {}, {}
local function need(name)
  if seen[name] then return end
  seen[name] = true
  local workload = workloads[name]
  if workload.peer_of then need(workload.peer_of) end
  order[#order + 1] = name
  workload.results = {ours = {}, peer = {}}
end
for _, item in ipairs(rows) do need(item.workload) end

local processor = first_line("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo") or "?"
local cores = first_line("nproc")
local kind = first_line([[awk -F': ' '/^(cpu family|model)\t/ {printf "%s%d", sep, $2; sep = "."} /^$/ {exit}' ]]
  .. "/proc/cpuinfo")
print(("machine: %s, %s processors"):format(processor, cores))
print("ours: " .. (first_line("readlink -f " .. host) or host):gsub("^.*/([^/]+/[^/]+)$", "%1") .. ", " .. jit.version)
print("peer: " .. (options.against or python and ("PyTorch %s of %s%s%s"):format(torch_version, python,
  blas_dir and ", OpenBLAS for OpenMP" or ", its own BLAS choice", tcmalloc and ", tcmalloc" or "")
  or "no PyTorch found") .. "; collectives: " .. (mpi or python and "gloo" or "none"))
local load = tonumber((first_line("cat /proc/loadavg") or "0"):match("^%S+"))
if load > 0.5 then print(("load average %.1f: other work disturbs these numbers"):format(load)) end
print("removed from the environment of both: " .. (#pins > 0 and table.concat(pins, " ") or "nothing was set"))

for turn = 1, options["repeat"] do
  for _, name in ipairs(order) do
    local workload = workloads[name]
    -- The first side changes from turn to turn.
    for side = 1, 2 do
      local who = (side + turn) % 2 == 0 and "ours" or "peer"
      if workload[who] and not workload[who .. "_failed"] then
        io.stderr:write(("\rturn %d of %d: %s, %s\27[K"):format(turn, options["repeat"], name, who))
        local result = measure(("%s (%s)"):format(name, who), workload[who])
        if result then
          table.insert(workload.results[who], result)
        else
          workload[who .. "_failed"] = true
        end
      end
    end
  end
end
io.stderr:write("\r\27[K")
os.execute("rm -rf " .. scratch)

local function median(results, key)
  local values = {}
  for _, result in ipairs(results) do
    if result[key] then values[#values + 1] = result[key] end
  end
  if #values == 0 then return nil end
  table.sort(values)
  local middle = math.floor(#values / 2)
  return #values % 2 == 1 and values[middle + 1] or (values[middle] + values[middle + 1]) / 2
end

local function shown(value)
  if not value then return "-" end
  return (value >= 1000 and "%.0f" or value >= 10 and "%.1f" or "%.3f"):format(value)
end

print(("%-22s %12s %12s  %-12s %7s"):format("row", "ours", "peer", "unit", "ratio"))
local report = {}
for _, item in ipairs(rows) do
  local workload = workloads[item.workload]
  local peer_results = workloads[workload.peer_of or item.workload].results.peer
  local mine, theirs = median(workload.results.ours, item.key), median(peer_results, item.key)
  theirs = theirs and theirs * (workload.peer_factor or 1)
  local ratio = mine and theirs and (item.less and theirs / mine or mine / theirs)
  print(("%-22s %12s %12s  %-12s %7s"):format(item.name, shown(mine), shown(theirs), item.unit,
    ratio and ("%.2f"):format(ratio) or "-"))
  local null = accelhost.json.null
  report[#report + 1] = {
    name = item.name, unit = item.unit, ours = mine or null, peer = theirs or null, ratio = ratio or null,
    peer_name = workload.peer_name or null,
  }
end

local behind = {}
for _, item in ipairs(report) do
  if options.gate and type(item.ratio) == "number" and item.ratio < 1 - options.gate / 100 then
    behind[#behind + 1] = ("%s %.1f %%"):format(item.name, 100 * (1 - item.ratio))
  end
end
local file = assert(io.open(options.json, "w"))
file:write(accelhost.json.encode({
  machine = {
    processor = processor, family_and_model = kind, processors = tonumber(cores), date = os.date "!%Y-%m-%d",
    luajit = jit.version, torch = torch_version, collectives = mpi or python and "gloo",
    pins_removed = table.concat(pins, " "), load_before = load, ["repeat"] = options["repeat"],
  },
  rows = report,
}, {indent = 2}), "\n")
file:close()
print("written to " .. options.json)
if #behind > 0 then
  print(("more than %g %% behind: "):format(options.gate) .. table.concat(behind, ", "))
  os.exit(1)
end
