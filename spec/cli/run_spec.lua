local folder = require "spec.support.folder"
local run = require "spec.support.run"
local terminal = require "spec.support.terminal"

local function write(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end

describe("accelhost", function()
  it("prints its version", function()
    local result = run.host {"--version"}
    assert.matches("^accelhost %d+%.%d+%.%d+\n$", result.stdout)
    run.succeeds(result)
  end)

  it("lists its commands in --help, and without arguments with exit code 2", function()
    local result = run.host {"--help"}
    run.succeeds(result)
    for _, command in ipairs {"run", "launch", "data"} do assert.matches("\n  " .. command .. " ", result.stdout) end
    for _, words in ipairs {"--version", "--help", "launch --help"} do
      local full = run.program {"sh", "-c", '"$0" ' .. words .. " > /dev/full; echo $?", run.path}
      assert.equal("1\n", full.stdout)
      assert.matches("accelhost: cannot write: No space left on device", full.stderr)
    end
    assert.equal(2, run.host({}).code)
  end)

  it("prints its version after a command too", function()
    local version = run.host({"--version"}).stdout
    for _, words in ipairs {{"-v"}, {"run", "--version"}, {"launch", "--version"}, {"data", "--version"}} do
      local result = run.host(words)
      assert.same({0, version}, {result.code, result.stdout})
    end
  end)

  it("reports that a word is neither a command nor a file", function()
    for word, hint in pairs {
      frobnicate = "accelhost --help lists the commands", confg = "did you mean 'config'?",
      lanch = "did you mean 'launch'?",
      torchrun = "here: accelhost launch --num_processes N script.lua",
      version = "did you mean '--version'?",
    } do
      local result = run.host {word}
      assert.same({2, ("accelhost: there is neither a command nor a file '%s' (%s)\n"):format(word, hint)},
        {result.code, result.stderr})
    end
  end)

  it("prints versions, machine and settings by env", function()
    local result = run.host({"env"}, {env = {ACCELHOST_DATA = "/sets"}})
    run.succeeds(result)
    assert.matches("^accelhost +%d+%.%d+%.%d+\nLuaJIT +LuaJIT 2", result.stdout)
    assert.matches("\nprocessors +%d+, threads of an op: %d+\n", result.stdout)
    assert.matches("\ndata sets +/sets\n", result.stdout)
    assert.matches("\nACCELHOST_DATA /sets\n", result.stdout)
    local here = assert(io.popen("pwd -P")):read()
    assert.matches("\ndata sets +" .. here:gsub("%p", "%%%0") .. "/data\n",
      run.host({"env"}, {env = {ACCELHOST_DATA = false}}).stdout)
    assert.matches("\ndata sets +" .. here:gsub("%p", "%%%0") .. "/my/sets\n",
      run.host({"env"}, {env = {ACCELHOST_DATA = "my/sets"}}).stdout)
    assert.equal(2, run.host({"env", "more"}).code)
  end)

  it("reports by env that oneDNN selects bfloat16 where ACCELHOST_CPU names a level", function()
    local script = [[
      local get, C = os.getenv, require "accelhost._C"
      C.system.bf16 = arg[1]
      os.getenv = function(name) if name == "ACCELHOST_CPU" then return arg[2] end return get(name) end
      for _, row in ipairs(require("accelhost.util.environment").rows("")) do
        if row[1] == "bf16 kernels" then print(row[2]) end
      end]]
    local function line(text, level) return run.host({"-e", script, text, level}).stdout end
    assert.equal("avx512_bf16\n", line("avx512_bf16"))
    assert.equal("avx512_bf16 (by oneDNN, which ACCELHOST_CPU does not limit; ACCELHOST_BF16=float32 does)\n",
      line("avx512_bf16", "v2"))
    assert.equal("through float32 (no oneDNN)\n", line("through float32 (no oneDNN)", "v2"))
  end)

  it("shows by env that there is a secret, and not the secret", function()
    local result = run.host({"env"}, {env = {ACCELHOST_SECRET = "one two three four", ACCELHOST_SECRET_FILE = "/f"}})
    assert.matches("\nACCELHOST_SECRET %(set, 18 bytes%)\n", result.stdout)
    assert.matches("\nACCELHOST_SECRET_FILE /f\n", result.stdout)
    assert.is_nil(result.output:find("one two", 1, true))
  end)

  it("has help for every command, wrapped between words at the terminal's width, at most 100 columns", function()
    local commands = {"run", "examples/mnist.lua"}
    for _, command in ipairs(require("accelhost.docs.commands").of(run.path)) do
      commands[#commands + 1] = command.name
    end
    assert.is_true(#commands > 14)
    for columns, most in pairs {["60"] = 60, ["80"] = 80, ["300"] = 100} do
      local widest = 0
      for _, command in ipairs(commands) do
        local result = run.host({command, "--help"}, {env = {COLUMNS = columns}})
        run.succeeds(result)
        assert.matches("^usage: accelhost", result.stdout)
        for line in result.stdout:gmatch "[^\n]+" do
          local is_word = line:find "^ *%S+$" -- and cannot be broken
          assert.is_true((#line <= most or is_word ~= nil) and not line:find " $", command .. ": " .. line)
          widest = math.max(widest, #line)
        end
      end
      assert.is_true(widest > most - 4)
    end
    local at = terminal.open({run.path, "sweep", "--help"}, {columns = 50})
    at:wait "130%s+interrupted"
    at:close()
    for line in at:shown():gmatch "[^\n]+" do assert.is_true(#line <= 50, line) end
  end)
end)

describe("accelhost run", function()
  it("passes a script its arguments, in `arg` and as ...", function()
    local path = write "print(arg[0] ~= nil, arg[1], arg[2], select('#', ...), (...))"
    assert.equal("true\ta b\t-x\t2\ta b\n", run.host({path, "a b", "-x"}).stdout)
    os.remove(path)
  end)

  it("runs code with -e", function()
    local result = run.host {"-e", "print(1, ...)", "two"}
    run.prints("1\ttwo\n", result)
    run.succeeds(result)
  end)

  it("ends with 1 and one traceback on a script error, the library's frames folded", function()
    local path = write [[
local accelhost = require "accelhost"
local function work()
  local layer = accelhost.nn.Linear(3, 2)
  local y = layer(accelhost.zeros(4, 5))
  return y
end
local x = work()
]]
    local result = run.host {path}
    assert.equal(1, result.code)
    run.prints("", result)
    assert.matches(":4: in Linear.*linear: input %(4, 5%) does not fit weight %(2, 3%)", result.stderr)
    assert.matches("%(%d+ library frames?%)\n  [^\n]*:4: in work\n  [^\n]*:7: in main chunk\n$", result.stderr)
    os.remove(path)
  end)

  it("reports that a method of the script's own was called with '.'", function()
    local path = write [[
local accelhost = require "accelhost"
local Net = accelhost.nn.Module:extend "Net"
function Net:init() self.fc = accelhost.nn.Linear(3, 2) end
function Net:forward(x)
  return self.fc(x)
end
local net, x = Net(), accelhost.ones(1, 3)
if arg[1] == "none" then net.forward() end
if arg[1] == "tensor" then net.forward(x) end
net:forward(5)
]]
    local hint = ": write ':' instead of '.' (net:forward(...)); inside of it, " .. path .. ":5: "
    local tensor = run.host({path, "tensor"}).stderr
    assert.truthy(tensor:find(path .. ":9: forward: expected an object before it, got a tensor" .. hint
      .. "a tensor has no field or method 'fc'", 1, true), tensor)
    local none = run.host({path, "none"}).stderr
    assert.truthy(none:find(path .. ":8: forward: expected an object before it, got nil" .. hint, 1, true), none)
    assert.is_nil(run.host({path, "well"}).stderr:find("instead of", 1, true))
    os.remove(path)
  end)

  it("accepts any error value", function()
    assert.matches("error value of type table", run.host({"-e", "error({})"}).stderr)
    assert.matches("custom", run.host({"-e", "error(setmetatable({}, {__tostring = function() return 'custom' end}))"})
      .stderr)
    assert.matches("error value of type nil", run.host({"-e", "error()"}).stderr)
    assert.matches("error value of type table", run.host({"-e", "error(setmetatable({}, {__tostring = error}))"})
      .stderr)
  end)

  it("cuts the traceback of an endless recursion", function()
    local text = "local function f(x) local y = {x} return 1 + f(y) end f(1)"
    local _, lines = run.host({"-e", text}).stderr:gsub("\n", "")
    assert.is_true(lines <= 22)
  end)

  it("keeps the exit code of os.exit", function()
    assert.equal(7, run.host({"-e", "os.exit(7)"}).code)
  end)

  it("ends with 1 on a syntax error", function()
    local result = run.host {"-e", "x ="}
    assert.equal(1, result.code)
    assert.matches("unexpected symbol", result.stderr)
  end)

  it("ends with 2 on a script that is none, naming it", function()
    local result = run.host {"no/such/script.lua"}
    assert.equal(2, result.code)
    assert.matches("cannot read 'no/such/script.lua'", result.stderr)
    assert.matches("'spec' is a directory", run.host({"spec"}).stderr)
    assert.matches("did you mean 'launch'", run.host({"lanch", "x.lua"}).stderr)
  end)

  it("has written every printed line when it is killed, into a pipe, a file and under launch", function()
    local code = [[print "step 1" io.write("step ", 2, "\n") os.execute "kill -9 $PPID"]]
    local path = os.tmpname()
    local command = ("'%s' -e '%s'"):format(run.path, code)
    assert.equal("step 1\nstep 2\n", run.program({"sh", "-c", command .. " | cat"}).stdout)
    assert.equal("step 1\nstep 2\n", run.program({"sh", "-c", command .. " > " .. path .. "; cat " .. path}).stdout)
    os.remove(path)
    assert.equal("step 1\nstep 2\n", run.host({"launch", "--num_processes", "1", "-e", code}).stdout)
  end)

  it("survives closed standard streams, and notices a full disk", function()
    assert.equal("0\n", run.program({"sh", "-c", '"$0" -e "print(1)" <&- >&- 2>&-; echo $?', run.path}).stdout)
    local result = run.program {"sh", "-c", '"$0" -e "print(1)" > /dev/full; echo $?', run.path}
    run.prints("1\n", result)
    assert.matches("could not write", result.stderr)
    result = run.program {"sh", "-c", '"$0" -e "print(1) os.exit(0)" > /dev/full; echo $?', run.path}
    run.prints("1\n", result)
    assert.matches("could not write", result.stderr)
    result = run.program {"sh", "-c", '"$0" -e "io.stderr:write(1)" 2> /dev/full; echo $?', run.path}
    run.prints("1\n", result)
  end)

  it("reports that a file may not grow instead of being killed", function()
    local path = os.tmpname()
    local limited = 'ulimit -f 10; "$0" -e "for i = 1, 1e5 do print(i) end" > "$1"; echo $?'
    local result = run.program {"bash", "-c", limited, run.path, path}
    os.remove(path)
    run.prints("1\n", result)
    assert.matches("could not write", result.stderr)
  end)

  it("runs a script from stdin", function()
    local result = run.host({"-", "a"}, {stdin = "print(arg[0], ...)"})
    run.prints("-\ta\n", result)
    assert.matches("stdin:1: x", run.host({"-"}, {stdin = "error('x')"}).stderr)
  end)

  it("accepts the codes that os.exit accepts", function()
    for code, expected in pairs {["true"] = 0, ["false"] = 1, [""] = 0, ["3"] = 3, ["3, true"] = 3} do
      assert.equal(expected, run.host({"-e", "os.exit(" .. code .. ")"}).code)
    end
  end)

  it("reports how many arguments are too many", function()
    local many = {"-e", "print(select('#', ...), #arg)"}
    for i = 1, 7900 do many[2 + i] = "a" end
    assert.equal("7900\t7900\n", run.host(many).stdout)
    many[#many + 1] = "a"
    local result = run.host(many)
    assert.equal(2, result.code)
    assert.matches("7901 arguments are more than the 7900", result.stderr)
  end)

  it("reports a limit below which the libraries cannot start, at once", function()
    if run.no_memory_limit then return pending(run.no_memory_limit) end
    local product = "local x = require('accelhost').randn(300, 300) print(x:matmul(x):size(1))"
    if os.execute "taskset -c 0-1 true 2> /dev/null" ~= 0 then return pending "needs two processors" end
    for limit, message in pairs {
      ["-v 150000"] = "^accelhost: too little memory below the limit of address space or data %(ulimit %-v, ",
      ["-v 360000"] = "need 304 MB besides the program itself %(for 2 threads; OMP_NUM_THREADS=1 needs 168 MB%)\n$",
      ["-v 370000"] = "^accelhost: too little memory",
      ["-d 100000"] = "^accelhost: too little memory",
      ["-s 64"] = "^accelhost: the stack may have 64 KiB %(ulimit %-s%): at least 256 KiB are needed\n$",
    } do
      local result = run.program({"bash", "-c", "ulimit " .. limit .. '; taskset -c 0-1 "$0" -e "$1"; echo $?',
        run.path, product}, {env = {OMP_NUM_THREADS = false}})
      if result.stderr:find("Sanitizer", 1, true) then return pending "needs a build without a sanitizer" end
      assert.equal("1\n", result.stdout, limit)
      assert.matches(message, result.stderr)
    end
  end)

  it("limits a number of threads that libraries cannot have", function()
    local script = "print(require('accelhost').get_num_threads(), os.getenv 'OMP_NUM_THREADS')"
    for text, seen in pairs {["100000"] = "1024", ["99999999999999999999,4"] = "1024,4"} do
      local result = run.host({"-e", script}, {env = {OMP_NUM_THREADS = text}})
      assert.equal("1024\t" .. seen .. "\n", result.stdout)
      assert.equal(("accelhost: OMP_NUM_THREADS: expected at most 1024 threads, got %s: 1024 are used\n"):format(
        text:match "%d+"), result.stderr)
    end
    local job = run.host({"launch", "--num_processes", 2, "-e", script}, {env = {OMP_NUM_THREADS = "100000"}})
    assert.equal("[r0-r1] 1024\t1024\n", job.stdout)
    assert.equal(1, select(2, job.stderr:gsub("1024 are used", "")))
  end)

  it("passes scripts the environment unchanged", function()
    local unset = {OPENBLAS_CORETYPE = false}
    assert.equal("nil\n", run.host({"-e", "print(os.getenv('OPENBLAS_CORETYPE'))"}, {env = unset}).stdout)
  end)

  it("has OpenBLAS use kernels for the processor where it knows only older ones", function()
    local file = io.open "/proc/cpuinfo"
    local processor = file and file:read "*a" or ""
    if file then file:close() end
    if not processor:find "GenuineIntel.* avx2 " then return pending "needs an Intel processor" end
    local function blas(core)
      return run.host({"env"}, {env = {OPENBLAS_CORETYPE = core}}).stdout:match "BLAS[^\n]*"
    end
    assert.matches(processor:find " avx512dq " and "SkylakeX" or "Haswell", blas(false))
    assert.matches("Nehalem", blas "Nehalem")
  end)

  it("is not moved by a parent that ignores the end of children", function()
    local result = run.program {"env", "--ignore-signal=CHLD", run.path, "-e", "print(os.execute('exit 3') ~= -1)"}
    run.prints("true\n", result)
  end)

  it("ends with 2 on an unknown option, naming the nearest", function()
    local result = run.host {"run", "--git=off", "x.lua"}
    assert.equal(2, result.code)
    assert.matches("unknown option", result.stderr)
    local processes = run.host({"--num_processes", "2", "x.lua"}).stderr
    assert.matches("it is launch's: accelhost launch %-%-num_processes N", processes)
    assert.matches("unknown option '%-c' %(here: %-e CODE%)", run.host({"-c", "print(1)"}).stderr)
    assert.equal(2, run.host({"run", "--jit=maybe", "x.lua"}).code)
  end)

  it("switches the compiler off", function()
    assert.equal("false\n", run.host({"--jit=off", "-e", "print(jit.status() and true)"}).stdout)
    assert.equal("true\n", run.host({"-e", "print(jit.status() and true)"}).stdout)
  end)

  it("adds to a rounded product, interpreted and compiled", function()
    for _, mode in ipairs {"on", "off"} do
      assert.equal("0\n0\n0\n", run.host({"--jit=" .. mode, "-e", [[
        local rows = {}
        for i = 1, 200 do rows[i] = {0.1, 10, 1} end
        for _, f in ipairs {function(a, b, c) return a * b - c end, function(a, b, c) return c - a * b end,
          function(a, b, c) return -c + a * b end} do
          local sum = 0
          for _ = 1, 2 do
            for i = 1, #rows do
              local row = rows[i]
              sum = sum + math.abs(f(row[1], row[2], row[3]))
            end
          end
          print(sum)
        end]]}).stdout, mode)
    end
  end)

  it("switches it off where the system lets no program make code", function()
    local deny = "local ffi = require 'ffi' ffi.cdef [[int prctl(int, unsigned long, unsigned long, unsigned long, " ..
      "unsigned long); int execv(const char *, const char **);]] " ..
      "if ffi.C.prctl(65, 1, 0, 0, 0) ~= 0 then os.exit(9) end " ..
      "local words = ffi.new('const char *[7]', {arg[1], 'launch', '--num_processes', '2', '-e', arg[2]}) " ..
      "ffi.C.execv(arg[1], words)"
    local loop = "local s = 0 for i = 1, 1e5 do s = s + i end print(s, jit.status() and true)"
    local result = run.host {"--jit=off", "-e", deny, run.path, loop}
    if result.code == 9 then return pending "needs a kernel that can deny it" end
    assert.same(run.everyone(2, "5000050000\tfalse\n"), run.by_rank(result.stdout), result.output)
    assert.matches("LuaJIT's compiler is off", result.stderr)
  end)

  it("searches for modules next to the script as well", function()
    folder.with(function(path)
      local function put(name, text)
        local file = assert(io.open(path .. "/" .. name, "w"))
        file:write(text)
        file:close()
      end
      put("parts.lua", "return {name = 'parts'}")
      put("train.lua", "print(require('parts').name)")
      put("parts_too.lua", "return {name = ")
      put("broken.lua", "print(require('parts_too').name)")
      assert.equal("parts\n", run.host({path .. "/train.lua"}).stdout)
      assert.equal("parts\n", run.host({"launch", "--num_processes", "1", path .. "/train.lua"}).stdout)
      assert.equal("parts\n", run.host({"train.lua"}, {dir = path}).stdout)
      assert.matches("parts_too.lua:1: unexpected symbol near '<eof>'", run.host({path .. "/broken.lua"}).stderr)
    end)
  end)

  it("searches for modules in the script's folder whatever the folder is called", function()
    for _, name in ipairs {"a;b", "c?d", ";?;"} do
      folder.with(function(path)
        local place = path .. "/" .. name
        for _, file in ipairs {"parts.lua return 'parts'", "more/init.lua return 'more'", "broken.lua return (",
            "train.lua print(require 'parts', require 'more', pcall(require, 'broken'))", "lost.lua require 'gone'"} do
          local to, text = file:match "^(%S+) (.*)$"
          os.execute("mkdir -p " .. run.quote(place .. "/" .. (to:match "^(.*)/" or "")))
          local handle = assert(io.open(place .. "/" .. to, "w"))
          handle:write(text)
          handle:close()
        end
        for _, result in ipairs {run.host {place .. "/train.lua"}, run.host({name .. "/train.lua"},
            {dir = path}), run.host({"launch", place .. "/train.lua"})} do
          assert.matches("^parts\tmore\tfalse\terror loading module 'broken' from file '[^\n]*/broken.lua':\n" ..
            "\t[^\n]*/broken.lua:1: unexpected symbol near '<eof>'", result.stdout)
        end
        local lost = run.host {place .. "/lost.lua"}
        assert.truthy(lost.stderr:find("no file '" .. place .. "/gone/init.lua'", 1, true), lost.stderr)
      end)
    end
  end)

  it("reports the script's line at Ctrl-C, and dies of the signal", function()
    local ready = "local file = io.open(arg[1], 'w') file:write 'ready' file:close() "
    local step = "local a = require 'accelhost' local x = a.ones(2):tanh() " .. ready
      .. "\nwhile true do\n  x = x:tanh()\nend"
    for text, where in pairs {
      [step] = " at %-e:[23]", [ready .. "while true do end"] = "; the script runs in compiled code at %-e:1",
    } do
      local mark = os.tmpname()
      local result = run.program({"bash", "-c", [[
        env --default-signal=INT "$0" -e "$1" "$2" & child=$!
        for i in $(seq 600); do [ -s "$2" ] && break; sleep 0.1; done
        sleep 0.5; kill -INT $child; wait $child; echo $?]], run.path, text, mark}, {timeout = 30})
      os.remove(mark)
      run.prints("130\n", result)
      assert.matches("^\naccelhost: interrupted" .. where, result.stderr)
    end
  end)

  it("reports the source line of a warning", function()
    local code = "local a = require 'accelhost'\n" ..
      "local s = a.optim.lr_scheduler.StepLR(a.optim.SGD{a.ones(1)}, 1)\ns:step()"
    assert.matches("^warning: scheduler:step%(%) before optimizer:step%(%): .* %(%-e:3%)\n$",
      run.host({"-e", code}).stderr)
  end)

  it("reads the library from a checkout when asked", function()
    local result = run.host({"-e", "print(require('accelhost')._VERSION)"}, {env = {ACCELHOST_LUA = "lua"}})
    assert.matches("^%d+%.%d+%.%d+\n$", result.stdout)
  end)
end)
