-- A collective on devices, one a rank, that does not complete: device_fail.lua HOW. The last rank begins it, and
-- then fails by HOW; the others wait for the device. Prints the error they receive, and how often.
local ffi = require "ffi"
ffi.cdef "int setenv(const char *name, const char *value, int replace);"
ffi.cdef "int kill(int process, int signal); int getpid();"
local how = ...
local rank, size = tonumber(os.getenv "RANK"), tonumber(os.getenv "WORLD_SIZE")
local last = rank == size - 1
local faults = {error = "nccl:2", connect = "connect:1", init = "init:1"}
if faults[how] and last then ffi.C.setenv("ACCELHOST_SIM_FAIL", faults[how], 1) end

local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local device = "cuda:" .. rank
-- Large enough to be under way for a while.
local x = accelhost.ones(how == "error" and 10 or 2e6, {device = device})
local begun, reason = pcall(comm.all_reduce, accelhost.ones(3, {device = device}))
if faults[how] and how ~= "error" then -- the last rank fails where NCCL waits for it
  assert(not begun, "a collective has ended without a rank")
  print(reason)
  error "as expected"
end
assert(begun, reason)
accelhost.synchronize(device)

local acts = {
  kill = function() ffi.C.kill(ffi.C.getpid(), 9) end,
  stop = function() ffi.C.kill(ffi.C.getpid(), 19) end,
  error = function() end,
}
local work = comm.all_reduce_async(x)
if last then acts[how]() end
work:wait()
local function look() return x:sum():item() end
local ok, text = pcall(look)
assert(not ok, "a result was returned of a collective that cannot have ended")
print(text)
-- It stays so.
assert(not pcall(look), "the second read returned a result")
ok, text = pcall(comm.barrier)
assert(not ok and text:find("the group failed before", 1, true), text)
error "as expected"
