-- The threads of kernels and libraries are those of one pool.
local run = require "spec.support.run"

-- Runs a call four times in a separate process and prints the threads that there are before and after each. Tensors
-- are made on one thread, so that new threads are the call's.
local SCRIPT = [[
  local accelhost, lfs = require "accelhost", require "lfs"
  accelhost.set_num_threads(1)
  local a = accelhost.rand(%d, %d) + accelhost.eye(%d)
  local function threads()
    local ids = {}
    for id in lfs.dir "/proc/self/task" do ids[#ids + 1] = id:match "%%d+" end
    table.sort(ids)
    return table.concat(ids, " ")
  end
  accelhost.set_num_threads(2)
  print(threads())
  for _ = 1, 4 do
    local result = %s
    print(threads())
  end
]]

describe("the threads of", function()
  for name, case in pairs {
    ["a product"] = {600, "a:matmul(a)"},
    ["a product of float64"] = {300, [[a:to("float64"):matmul(a:to("float64"))]]},
    ["a layer"] = {600, "accelhost.nn.functional.linear(a, a)"},
    ["a decomposition"] = {400, "accelhost.linalg.qr(a)"},
    ["a solver"] = {600, "accelhost.linalg.solve(a, a)"},
  } do
    it(name .. " are kept from one call to the next", function()
      local script = SCRIPT:format(case[1], case[1], case[1], case[2])
      local result = run.host {"-e", script}
      assert.same({0, ""}, {result.code, result.stderr})
      local before, first, others = result.stdout:match "^([^\n]*)\n([^\n]*\n)(.*)$"
      assert.equal(select(2, before:gsub("%d+", "")) + 1, select(2, first:gsub("%d+", "")))
      assert.equal(first:rep(3), others)
    end)
  end
end)

describe("the functions of OpenMP", function()
  it("that a library calls are those of the program, so that its threads are", function()
    if run.program({"nm", "--version"}).code ~= 0 then return pending "needs nm (binutils)" end
    local function symbols(path, kind)
      local found = {}
      for line in run.program({"nm", "-D", path}).stdout:gmatch "[^\n]+" do
        local letter, name = line:match "(%a) (%a+_[%w_]+)"
        if letter == kind and (name:find "^GOMP_" or name:find "^omp_") then found[name] = true end
      end
      return found
    end
    local own, libraries = symbols(run.path, "T"), {}
    local script = "require('accelhost._C').system.libraries() print(io.open('/proc/self/maps'):read '*a')"
    local maps = run.host({"-e", script}).stdout
    assert.matches("/libopenblas", maps)
    for path in maps:gmatch "(/%S*%.so[%d.]*)\n" do libraries[path] = not path:find "libgomp" end
    for path, calls in pairs(libraries) do
      for name in pairs(calls and symbols(path, "U") or {}) do
        assert.is_true(own[name], ("%s calls %s, which the program does not define"):format(path, name))
      end
    end
    assert.is_true(own.GOMP_parallel)
  end)
end)

describe("the number of threads", function()
  local script = "print(require('accelhost').get_num_threads(), require('accelhost._C').system.cpu_count())"

  it("follows the affinity mask", function()
    local result = run.program({"taskset", "-c", "0", run.path, "-e", script}, {env = {OMP_NUM_THREADS = false}})
    if result.stderr:find("taskset", 1, true) then return pending "needs processor 0" end
    run.prints("1\t1\n", result)
  end)

  it("is that of the mask under OMP_PROC_BIND, which binds ranks to their own processors", function()
    if not run.program({"taskset", "-c", "0,1", "true"}).stderr:find "^$" then return pending "needs two processors" end
    local where = script .. " print(io.open('/proc/self/status'):read('*a'):match 'Cpus_allowed_list:%s*(%S+)')"
    local function bound(...)
      return run.program({"taskset", "-c", "0,1", run.path, ...},
        {env = {OMP_PROC_BIND = "true", OMP_NUM_THREADS = false}})
    end
    assert.equal("2\t2\n0\n", bound("-e", where).stdout)
    local job = bound("launch", "--num_processes", "2", "-e", where)
    assert.same({[0] = "1\t1\n0\n", [1] = "1\t1\n1\n"}, run.by_rank(job.stdout))
    job = bound("launch", "--num_processes", "3", "-e", where)
    assert.same({[0] = "1\t1\n0\n", [1] = "1\t1\n1\n", [2] = "1\t1\n0\n"}, run.by_rank(job.stdout))
  end)

  -- A control group with one and a half processors at most, for the length of a command ("$@").
  local quota = [[
    group=/sys/fs/cgroup/accelhost-spec.$$
    grep -q cpu /sys/fs/cgroup/cgroup.subtree_control 2> /dev/null && mkdir $group 2> /dev/null &&
      echo "${LIMIT}000 100000" > $group/cpu.max || {
      rmdir $group 2> /dev/null; group=/sys/fs/cgroup/cpu/accelhost-spec.$$
      mkdir $group 2> /dev/null && echo 100000 > $group/cpu.cfs_period_us &&
        echo ${LIMIT}000 > $group/cpu.cfs_quota_us || exit 77
    }
    (echo $BASHPID > $group/cgroup.procs && exec "$@"); code=$?
    rmdir $group; exit $code]]

  it("follows a quota of processor time, rounded up, unless OMP_NUM_THREADS is set", function()
    local function limited(limit, threads, words)
      return run.program({"bash", "-c", quota, "bash", run.path, unpack(words or {"-e", script})},
        {env = {OMP_NUM_THREADS = threads, LIMIT = limit}})
    end
    local half = limited("50", false)
    if half.code ~= 0 then return pending "needs leave to make a control group" end
    assert.equal("1\t1\n", half.stdout)
    assert.equal("3\t1\n", limited("50", "3").stdout)
    local job = limited("100", false, {"launch", "--num_processes", "2", "-e", script})
    assert.same({[0] = "1\t1\n", [1] = "1\t1\n"}, run.by_rank(job.stdout))
    local processors = run.host {"-e", "print(require('accelhost._C').system.cpu_count())"}
    if tonumber(processors.stdout) >= 2 then assert.equal("2\t2\n", limited("150", false).stdout) end
  end)
end)

describe("OpenBLAS and oneDNN", function()
  it("are loaded by their first call, not at the start", function()
    local result = run.host {"-e", [[
      local accelhost = require "accelhost"
      local function loaded()
        local maps = io.open("/proc/self/maps"):read "*a"
        return tostring(maps:find "/libopenblas" ~= nil) .. " " .. tostring(maps:find "/libdnnl" ~= nil)
      end
      local small, large = accelhost.ones(8, 8), accelhost.ones(200, 200)
      local sum = large:add(1):sum():item()
      local at_start = loaded()
      local product = small:matmul(small):sum():item()
      local after_small = loaded()
      print(sum, at_start, product, after_small, large:matmul(large):sum():item(), loaded())
      print(select(2, require("accelhost._C").system.libraries()) ~= nil)
    ]]}
    local values, has_onednn = result.stdout:match "([^\n]*)\n(%a+)\n"
    assert.equal("80000\tfalse false\t512\ttrue false\t8000000\ttrue " .. has_onednn, values)
  end)

  it("report why they cannot be loaded, from whichever thread has tried", function()
    for _, batch in ipairs {1, 8} do
      local result = run.host {"-e", [[
        local ffi = require "ffi"
        local x = require("accelhost").ones({tonumber(arg[1]), 300, 300}, {dtype = "float64"})
        ffi.cdef "struct limit { unsigned long now, most; }; int setrlimit(int, const struct limit *);"
        assert(ffi.C.setrlimit(7, ffi.new("struct limit", 0, 0)) == 0) -- no more files
        print(pcall(x.matmul, x, x))
        print(pcall(x.matmul, x[0], x[0]))]], batch}
      local text = "false\t[^\n]*OpenBLAS: libopenblas[^\n]*: cannot open shared object file: [^\n]*\n"
      assert.matches("^" .. text .. text .. "$", result.stdout)
    end
  end)
end)
