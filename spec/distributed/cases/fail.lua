-- All ranks meet once; then the last one fails as the argument selects, and the others wait for it.
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local what = ...
local rank, size = comm.rank(), comm.size()
local odd = rank == size - 1
local tensor = accelhost.full({10}, 1)

-- All but the last rank catch the failures that the last one causes.
local function catch(then_do)
  pcall(comm.all_reduce, accelhost.full({odd and 5 or 10}, 1))
  if then_do then then_do() end
end
if what:find("^all_caught") then
  comm.barrier()
  return catch(what == "all_caught_exit" and function() os.exit(0) end)
elseif what == "late_throw" then
  comm.barrier()
  if odd then error("boom") end
  return catch()
end

local acts = {
  throw = function() error("boom") end,
  kill = function() os.execute("kill -9 $PPID") end,
  segfault = function() os.execute("kill -SEGV $PPID") end,
  exit = function() os.exit(7) end,
  finish = function() os.exit(0) end,
  broadcast = function() comm.broadcast(tensor, 0) end,
  shape = function() comm.all_reduce(accelhost.full({2, 5}, 1)) end,
  dtype = function() comm.all_reduce(accelhost.full({10}, 1, {dtype = "float64"})) end,
  loop = function() while true do end end, -- luacheck: ignore
  caught = function()
    pcall(comm.all_reduce, accelhost.full({2, 5}, 1))
    comm.barrier()
  end,
}

comm.barrier()
if odd then
  acts[what]()
else
  comm.all_reduce(tensor)
end
