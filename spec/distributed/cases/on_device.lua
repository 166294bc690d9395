-- Another case, with its tensors on this rank's device: on_device.lua CASE [cards], of that many cards (default: one a
-- rank).
local accelhost = require "accelhost"
local comm = require "accelhost._C".comm
local case, cards = arg[1], tonumber(arg[2]) or comm.size()
accelhost.set_default_device("cuda:" .. comm.rank() % cards)
table.remove(arg, 1)
table.remove(arg, 1)
assert(loadfile("spec/distributed/cases/" .. case .. ".lua"))(unpack(arg))
