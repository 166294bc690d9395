-- All ranks meet once; then the last one does what the argument says, and the others wait for it.
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local what = ...
local rank, size = comm.rank(), comm.size()
local odd = rank == size - 1
local tensor = accelhost.full({10}, 1)

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
