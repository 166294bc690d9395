--- The scripts that test a card (scripts/gpu), on a machine without one: the program, nvcc and NVIDIA's tools are
--- replaced by scripts.
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local lfs = require "lfs"

local blind = {CUDA_VISIBLE_DEVICES = "", ACCELHOST_CUDA = false, ACCELHOST_TEST_DEVICE = false,
  LD_LIBRARY_PATH = false, SECTIONS = false, SPECS = false, OUT = false}

local function with(env)
  local all = {}
  for _, list in ipairs {blind, env} do
    for name, value in pairs(list) do all[name] = value end
  end
  return {env = all, timeout = 100}
end

local function script(path, text)
  files.write(path, "#!/bin/sh\n" .. text)
  os.execute("chmod +x " .. run.quote(path))
end

-- A build folder whose program is a script, and a folder of tools for PATH.
local function make_build(path, program)
  local build, bin = path .. "/build", path .. "/bin"
  for _, name in ipairs {build, bin, build .. "/host", build .. "/host/cuda"} do assert(lfs.mkdir(name)) end
  script(build .. "/accelhost", program)
  return build, bin
end

describe("gpu-checks", function()
  -- A program that sees a card; its benches print their threads.
  local HOST = [[
case "$*" in
env) echo "libraries: $LD_LIBRARY_PATH" ;;
*describe*) echo "a card, capability 9.0" ;;
*bench/gpu/run.lua*) echo "threads: $TORCHINDUCTOR_COMPILE_THREADS" ;;
*) echo "0 calls, done" ;;
esac]]

  local function check(path, env)
    local build, bin = make_build(path, HOST)
    script(bin .. "/python", ('[ "$1" != -c ] || echo %s/packages/cudnn/lib'):format(path))
    script(bin .. "/compute-sanitizer", [[
case "$*" in
*memcheck*) echo "========= ERROR SUMMARY: 0 errors"; exit 1 ;;
*racecheck*) echo "========= RACECHECK SUMMARY: 0 hazards displayed"; exit 0 ;;
*synccheck*) echo "========= ERROR SUMMARY: 3 errors"; echo "========= at fold_f32+0x20"; exit 99 ;;
*)
    [ -z "${ENDED:-}" ] || kill "$(cat "$ENDED")"
    exec sleep ${SLEEPS:-0}
    ;;
esac]])
    env.PATH, env.PYTHON, env.NVCC = bin .. ":" .. os.getenv "PATH", bin .. "/python", "false"
    -- The script's number is in the file $ENDED, for a tool that ends it.
    local words = {"sh", "-c", '[ -z "$ENDED" ] || echo $$ >"$ENDED"; exec scripts/gpu/checks.sh "$@"', "sh", build,
      path .. "/results"}
    local result = run.program(words, with(env))
    return result, files.read(path .. "/results/goals.txt")
  end

  it("searches the libraries of Python's packages, and not CUDA's folder of older drivers", function()
    folder.with(function(path)
      local result = check(path, {SECTIONS = "none"})
      local libraries = result.stdout:match "libraries: ([^\n]*)"
      assert.truthy(libraries:find(path .. "/packages/cudnn/lib", 1, true), libraries)
      assert.is_nil(libraries:find "compat")
    end)
  end)

  it("counts a tool's exit status 1 as missed, although it found nothing, and one past its time as open", function()
    folder.with(function(path)
      local result, goals = check(path, {SECTIONS = "sanitizer", SECONDS_IN_ALL = "30", SLEEPS = "100"})
      assert.equal(1, result.code)
      local function verdict(tool) return goals:match("\n" .. tool .. " finds nothing in the kernels|[^|]*|(%l+)|") end
      assert.same({"missed", "met", "missed", "open"},
        {verdict "memcheck", verdict "racecheck", verdict "synccheck", verdict "initcheck"})
    end)
  end)

  it("runs specs, sanitizers and benches one after the other, and PyTorch compiles by 4 processes", function()
    folder.with(function(path)
      local result = check(path, {SPECS = "spec/none", SECONDS_IN_ALL = "60", SECTIONS = "specs sanitizer benches"})
      local order = {}
      for title in result.stdout:gmatch "\n== (%l[%l-]*)" do order[#order + 1] = title end
      assert.same({"specs", "compute-sanitizer", "rates", "goals"}, order)
      assert.matches("\nthreads: 4\n", result.stdout)
    end)
  end)

  it("packs the logs that exist at the signal that ends it, and ends its tools", function()
    folder.with(function(path)
      local began = os.time()
      local result = check(path, {SECTIONS = "smoke sanitizer", SECONDS_IN_ALL = "480", SLEEPS = "10001",
        ENDED = path .. "/ended"})
      assert.equal(143, result.code, result.output)
      assert.is_true(os.time() - began < 30)
      assert.matches("ended by a signal.*one op of each kind agrees with float64 on the CPU +met", result.stdout)
      local list = run.program({"tar", "-tzf", path .. "/results/logs.tar.gz"}).stdout
      for _, name in ipairs {"versions", "smoke", "memcheck", "initcheck"} do
        assert.truthy(list:find("logs/" .. name .. ".log", 1, true), list)
      end
      local left = run.program {"sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 1000[1]'"}
      assert.equal("", left.stdout)
    end)
  end)
end)

describe("scripts/gpu/images.sh", function()
  -- Kernels run if the plugin has the text $LOADS; `describe` names the cards that they were compiled for.
  local HOST = [[
case "$*" in
*describe*) echo "kernels for sm_80 sm_$ARCH by CUDA" ;;
*) grep -q "$LOADS" "${0%/*}/accelhost-cuda.so" || { echo "cannot be loaded by this driver"; exit 1; } ;;
esac]]

  local function images(path, env, tools)
    local build, bin = make_build(path, HOST)
    files.write(build .. "/accelhost-cuda.so", "old")
    if tools then
      script(bin .. "/nvcc", [[
[ "$1" != --version ] || { echo "Cuda compilation tools, release 13.0, V13.0.88"; exit; }
while [ $# -gt 1 ]; do [ "$1" != -o ] || echo image >"$2"; shift; done]])
      script(bin .. "/cc", [[while [ $# -gt 1 ]; do [ "$1" != -o ] || echo new >"$2"; shift; done]])
    end
    env.PATH, env.NVCC = bin .. ":" .. os.getenv "PATH", tools and bin .. "/nvcc" or bin .. "/none"
    local result = run.program({"scripts/gpu/images.sh", build, "9.0"}, with(env))
    return result, files.read(build .. "/accelhost-cuda.so")
  end

  it("keeps kernels that run and are compiled for the card", function()
    folder.with(function(path)
      local result, plugin = images(path, {LOADS = "old", ARCH = "90 "}, true)
      assert.same({0, "the kernels of this build support sm_90\n", "old"}, {result.code, result.stdout, plugin})
    end)
  end)

  it("builds them again where they do not run, although they are compiled for the card", function()
    folder.with(function(path)
      local result, plugin = images(path, {LOADS = "new", ARCH = "90 "}, true)
      assert.same({0, "the kernels were built here for sm_90 by CUDA 13.0\n", "new\n"},
        {result.code, result.stdout, plugin})
    end)
  end)

  it("builds them again where the driver would compile them", function()
    folder.with(function(path)
      local result, plugin = images(path, {LOADS = "\\(old\\|new\\)", ARCH = "89 "}, true)
      assert.same({0, "new\n"}, {result.code, plugin}, result.output)
    end)
  end)

  it("fails with the reason where those built here do not run either, or nvcc is missing", function()
    folder.with(function(path)
      local result = images(path, {LOADS = "other", ARCH = "90 "}, true)
      assert.same({1, "the kernels built here do not run: cannot be loaded by this driver\n"},
        {result.code, result.stdout})
    end)
    folder.with(function(path)
      local result = images(path, {LOADS = "new", ARCH = "90 "})
      assert.same({1, "no nvcc or no C compiler here: cannot be loaded by this driver\n"},
        {result.code, result.stdout})
    end)
  end)
end)

describe("scripts/gpu/bundle.sh", function()
  it("leaves out none of the specs of cards", function()
    local text = [[
      eval "$(grep "^unused=" scripts/gpu/bundle.sh)"
      echo spec/models/gpt2_spec.lua | grep -cE "$unused"
      scripts/device-specs.sh cuda | grep -E "$unused"]]
    assert.equal("1\n", run.program {"sh", "-c", text}.stdout)
  end)

  it("fails where bundle and tree are larger than their limit", function()
    local host = run.path:gsub("[^/]*$", "")
    if not lfs.attributes(host .. "accelhost-cuda.so") then return pending "needs the CUDA plugin" end
    folder.with(function(path)
      -- Copies of the scripts in a separate tree, which has nothing else to pack.
      local build = make_build(path, "")
      local copies = {["scripts/gpu/bundle.sh"] = "/scripts/gpu", ["scripts/gpu/start.sh"] = "/scripts/gpu",
        [host .. "accelhost"] = "/build", [host .. "accelhost-cuda.so"] = "/build",
        [host .. "libraries.so"] = "/build"}
      os.execute(("mkdir -p %s/scripts/gpu && git init -q %s"):format(path, path))
      for from, to in pairs(copies) do os.execute(("cp %s %s"):format(run.quote(from), run.quote(path .. to))) end
      os.execute(("cp %s/accelhost-cuda.so %s/host/cuda/one.o"):format(build, build))
      os.execute(("head -c 42000000 /dev/urandom > %s/op_args.h"):format(build))
      local result = run.program({path .. "/scripts/gpu/bundle.sh", "build"}, with {XZ_PRESET = "0"})
      if result.stderr:find "busted is not here" then return pending "needs Busted" end
      assert.equal(1, result.code, result.output)
      assert.matches("gpu%-bundle: build/bundle has %d+ KB and the tree %d+ KB, together more than 40 MB\n$",
        result.stderr)
    end)
  end)
end)

describe("The rule of a kernel's image", function()
  it("makes errors of nvcc's warnings only with WERROR", function()
    local function recipe(flags)
      local words = {"make", "-n", "-W", "host/cuda/kernels/index/count.cu", "BUILD=build", "CUDA_ARCHS=90", "NVRTC=",
        "NVCC=nvcc-of-another-version", flags, "build/host/cuda/kernels/index/count.fatbin"}
      local result = run.program(words, with {MAKEFLAGS = false, MAKELEVEL = false})
      assert.equal(0, result.code, result.output)
      return assert(result.stdout:match "nvcc%-of%-another%-version .- %-o ", result.stdout)
    end
    assert.is_nil(recipe("WERROR="):find("-Werror", 1, true))
    assert.truthy(recipe("WERROR=1"):find("-Werror all-warnings", 1, true))
  end)
end)
