--- The report of `accelhost env`: the program, the machine and the settings.
local C = require "accelhost._C"

local environment = {}

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text
end

-- The shared libraries in use whose name matches, by their files.
local function libraries(pattern)
  local names, seen = {}, {}
  for path in read("/proc/self/maps"):gmatch "%s(/[^\n]+)\n" do
    local name = path:match "([^/]+)$"
    if not seen[path] and name:find(pattern) then
      seen[path] = true
      names[#names + 1] = path
    end
  end
  return #names > 0 and table.concat(names, ", ") or "in the program, or not there"
end

-- Return a variable's value for a report. A secret is no part of a report: only its length is shown.
local function shown(name, value)
  return name == "ACCELHOST_SECRET" and ("(set, %d bytes)"):format(#value) or value
end

-- Settings: the variables of the environment that the program reads.
local function settings()
  local list = {}
  for entry in read("/proc/self/environ"):gmatch "[^%z]+" do
    if entry:find "^ACCELHOST_" or entry:find "^OMP_" or entry:find "^OPENBLAS_" or entry:find "^GOMP_" then
      list[#list + 1] = entry
    end
  end
  table.sort(list)
  return list
end

-- The file of settings that `accelhost launch` would read.
local function config_file(path)
  if path == "" then return "none" end
  local file = io.open(path, "rb")
  if file then file:close() end
  return file and path or "none (" .. path .. " is not there)"
end

-- A folder, from the root on.
local function absolute(path)
  if path:sub(1, 1) == "/" then return path end
  return ((C.system.working_folder() .. "/" .. path):gsub("^//", "/"))
end

-- Describe the target of the kernels: one processor, or the level of x86-64 in use.
local function kernels()
  local level = C.system.kernels
  return level == "native" and "for one processor, that of the build (make ARCH=portable: for all)" or "for " .. level
end

-- Describe the instructions for products in bfloat16: those of oneDNN, which chooses by the processor alone.
local function bf16()
  local text, level = C.system.bf16, os.getenv "ACCELHOST_CPU"
  if not level or level == "" or text:find "^through" then return text end
  return text .. " (by oneDNN, which ACCELHOST_CPU does not limit; ACCELHOST_BF16=float32 does)"
end

-- CUDA's devices, or why there are none.
local function add_devices(rows)
  local missing = C.device.missing "cuda"
  rows[#rows + 1] = {"CUDA", missing and "not used: " .. missing or C.device.describe("cuda", -1) or "there"}
  for i = 0, missing and -1 or C.device.device_count "cuda" - 1 do
    rows[#rows + 1] = {"cuda:" .. i, C.device.describe("cuda", i) or "there"}
  end
end

--- The lines, each {name, value}.
---@param config string? path of the file of settings, "" for none
function environment.rows(config)
  local memory = tonumber(read("/proc/meminfo"):match "MemTotal:%s*(%d+)") or 0
  local blas, onednn = C.system.libraries()
  local rows = {
    {"accelhost", C.system.version},
    {"LuaJIT", jit.version .. ", " .. (jit.status() and "compiler on" or "compiler off")},
    {"system", ("%s %s, %s"):format(jit.os, read("/proc/sys/kernel/osrelease"):match "%S*", jit.arch)},
    {"processor", read("/proc/cpuinfo"):match "model name%s*:%s*([^\n]+)" or "?"},
    {"processors", ("%d, threads of an op: %d"):format(C.system.cpu_count(), C.system.get_num_threads())},
    {"memory", ("%.1f GiB"):format(memory / 2 ^ 20)},
    {"kernels", kernels()},
    {"BLAS", blas or "not there"},
    {"", libraries "^libopenblas"},
    {"oneDNN", onednn or "not there: convolutions are slower"},
    {"", libraries "^libdnnl"},
    {"bf16 kernels", bf16()},
  }
  add_devices(rows)
  for _, row in ipairs {
    {"seed", os.getenv "ACCELHOST_SEED" and "from ACCELHOST_SEED" or "new for each run; ACCELHOST_SEED=n repeats one"},
    {"data sets", absolute(os.getenv "ACCELHOST_DATA" or "data")},
    {"settings", config_file(config or "")},
  } do
    rows[#rows + 1] = row
  end
  for _, entry in ipairs(settings()) do
    local name, value = entry:match "^([^=]+)=(.*)$"
    rows[#rows + 1] = {name, shown(name, value)}
  end
  return rows
end

--- Print them.
---@param config string?
function environment.print(config)
  for _, row in ipairs(environment.rows(config)) do io.write(("%-12s %s\n"):format(row[1], row[2])) end
end

return environment
