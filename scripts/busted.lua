--- Run Busted inside the host: ./accelhost scripts/busted.lua [options] spec...
--
--   --tally=FILE    write "N passed, N failed, N skipped" there instead of printing it last
--   --times=FILE    append a line for each spec file: its seconds, its CPU seconds, its path and its device
--
-- $ACCELHOST_TEST_DEVICE is the default device of the run, "cpu" without it.
--
-- Everything else is Busted's own (--filter=PATTERN, --shuffle, ...). Run from the root of the tree. The exit code is 0
-- when nothing failed. spec/support/report.lua prints the results.

local tally_path, times_path
local forwarded = {[0] = arg[0], "--output=accelhost"}
for index = 1, #arg do
  local value = arg[index]
  local option, path = value:match("^%-%-(t%a+)=(.+)$")
  if option == "tally" then
    tally_path = path
  elseif option == "times" then
    times_path = path
  else
    forwarded[#forwarded + 1] = value
  end
end
arg = forwarded

package.path = "./?.lua;./?/init.lua;./lua/?.lua;./lua/?/init.lua;" .. package.path
  .. ";/usr/local/share/lua/5.1/?.lua;/usr/local/share/lua/5.1/?/init.lua"
  .. ";/usr/share/lua/5.1/?.lua;/usr/share/lua/5.1/?/init.lua"

-- Tests that are pending without a reason fail in the report alone.
local failures = 0

local function write_tally(text)
  failures = tonumber(text:match "(%d+) failed") or failures
  local file = tally_path and assert(io.open(tally_path, "w"))
  if file then
    file:write(text, "\n")
    file:close()
  elseif text:find("passed") then
    print(text)
  end
end

local function write_time(name, seconds, cpu)
  local file = times_path and assert(io.open(times_path, "a"))
  if not file then return end
  file:write(("%7.1f %7.1f  %s\n"):format(seconds, cpu, name))
  file:close()
end

-- Busted restores package.loaded after each file. Modules loaded before it starts stay: one library for all specs, as a
-- script has it, and C modules that are opened once.
local function preload_library()
  local pipe = io.popen("find lua -name '*.lua' | LC_ALL=C sort")
  for path in pipe:lines() do
    local name = path:gsub("^lua/", ""):gsub("%.lua$", ""):gsub("/init$", ""):gsub("/", ".")
    local fine, message = pcall(require, name)
    if not fine then io.stderr:write("cannot load ", name, ": ", tostring(message), "\n") end
  end
  pipe:close()
end

package.preload["busted.outputHandlers.accelhost"] = function()
  return require("spec.support.report").handler(write_tally, write_time)
end

preload_library()

-- The same specs on another device: tensors without a device are made there.
-- Random numbers are the CPU's there, which fixtures hold, and float32 is rounded nowhere.
local device = os.getenv "ACCELHOST_TEST_DEVICE"
if device then
  local ffi = require "ffi"
  ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"
  ffi.C.setenv("ACCELHOST_CUDA_RANDOM", "cpu", 0)
  local accelhost = require "accelhost"
  accelhost.backends.cudnn.allow_tf32 = false
  accelhost.set_default_device(device)
end

-- On failure the runner throws nil, the 5.1 way to make an interpreter exit with 1.
local fine, message = pcall(function()
  local run = require "busted.runner"
  run({standalone = false})
  return nil
end)
if not fine and message ~= nil then io.stderr:write(tostring(message), "\n") end
io.stdout:flush()
os.exit(fine and failures == 0 and 0 or 1)
