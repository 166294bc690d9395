--- Sensors of cards by NVML, here the simulated one: accelhost.cuda, trackers and accelhost top.
local accelhost = require "accelhost"
local run = require "spec.support.run"
local sim = require "spec.support.sim"

local SIMULATED = {ACCELHOST_SIM_DEVICES = 3}

local function case(sentence, expected, code, env)
  sim.case(sentence, function()
    local result = sim.host('local accelhost = require "accelhost"\n' .. code, env or SIMULATED)
    assert.equal(expected, result.stdout, result.stderr)
  end)
end

describe("Sensors of a CUDA device", function()
  case("are read by PyTorch's names", "91 40 51 400500 1000\n", [[
    local cuda = accelhost.cuda
    print(("%d %d %d %d %d"):format(cuda.utilization(1), cuda.memory_usage "cuda:1", cuda.temperature(1),
      cuda.power_draw(1), cuda.clock_rate(1)))]])

  case("are those of its card where CUDA_VISIBLE_DEVICES names others", "92\n90\n", [[
    print(accelhost.cuda.utilization(0)) print(accelhost.cuda.utilization(1))]],
    {ACCELHOST_SIM_DEVICES = 3, CUDA_VISIBLE_DEVICES = "2,0"})

  case("are a table of those that the card has", "3 0 nil 256\n", [[
    local first, last = accelhost.cuda.sensors(0), accelhost.cuda.sensors(2)
    print(("%d %d %s %d"):format(first.ecc_corrected, first.ecc_uncorrected, last.ecc_corrected,
      last.memory_used / 2 ^ 20))]])

  it("are nil without a device", function()
    if accelhost.cuda.is_available() then return pending "needs a machine without a GPU" end
    assert.is_nil(accelhost.cuda.sensors())
    assert.error_matches(function() accelhost.cuda.temperature() end, "cuda.temperature: there is no CUDA device")
  end)

  case("are logged with the other values on request", "0.5 50\n0.5 nil\n0.5 7\n", [[
    local function logged(options, values)
      local seen
      options.log_with = {name = "seen", log = function(_, all) seen = all end}
      local accelerator = accelhost.Accelerator(options)
      accelerator:init_trackers "test"
      accelerator:log(values, 1)
      local gpu = seen.gpu
      print(("%s %s"):format(seen.loss, type(gpu) == "table" and ("%d"):format(gpu.temperature) or tostring(gpu)))
    end
    logged({log_gpu = true}, {loss = 0.5})
    logged({}, {loss = 0.5})
    logged({log_gpu = true}, {loss = 0.5, gpu = 7})]])
end)

describe("accelhost top", function()
  sim.simulated_case("has a line for each card, with the ranks that use it", function()
    local env = {ACCELHOST_CUDA = "sim", ACCELHOST_SIM_DEVICES = 2, ACCELHOST_TEST_DEVICE = false}
    local result = run.host({"top", "--once"}, {env = env})
    assert.matches("\nGPU +NAME +BUSY +MEMORY +TEMP +POWER +ECC ERRORS +RANKS\n" ..
      "  0  simulated GPU +90%%  256M of 1.0G  50 C  401 of 700 W  3 corrected, 0 not +%-\n" ..
      "  1  simulated GPU +91%%  256M of 1.0G  51 C  401 of 700 W  %- +%-\n", result.stdout, nil, nil, result.stderr)
    local seen = accelhost.json.decode(run.host({"top", "--once", "--json"}, {env = env}).stdout)
    assert.equal(2, #seen.gpus)
    assert.equal(3, seen.gpus[1].ecc_corrected)
    assert.equal(91, seen.gpus[2].utilization)
  end)

  sim.simulated_case("names the ranks of jobs on a card", function()
    local script = [[
      "$0" launch --num_processes 2 spec/distributed/cases/stuck.lua stop >/dev/null 2>&1 & job=$!
      SECONDS=0
      while [ $SECONDS -lt 30 ]; do
        pids=$("$0" top --once --json $job | grep -o '"pid": [0-9]*' | grep -o '[0-9]*' | tr '\n' ' ')
        output=$(ACCELHOST_CUDA=sim ACCELHOST_SIM_PIDS="$pids" "$0" top --once --json $job)
        case $output in *'"ranks": [0, 1]'*) break;; esac
      done
      kill -KILL $job
      printf '%s\n' "$output"]]
    local result = run.program({"bash", "-c", script, run.path}, {timeout = 60})
    local seen = accelhost.json.decode(result.stdout)
    assert.same({0, 1}, seen.gpus[1].ranks)
    assert.same({}, seen.gpus[2].ranks)
  end)
end)
