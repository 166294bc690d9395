--- The process of a launched function: it receives the call from the session that started it, runs it, and as rank 0
--- sends its results back.
local C = require "accelhost._C"
local names = require "accelhost.launcher.names"
local pack = require "accelhost.launcher.pack"
local unpack_values = require "accelhost.launcher.unpack"
local framing = require "accelhost.launcher.framing"

local function count_and_list(...) return select("#", ...), {...} end

local function answer(classes, count, results)
  if C.comm.rank() ~= 0 then return end
  local titles = {}
  for i = 1, count do titles[i] = count == 1 and "its result" or ("its result %d"):format(i) end
  framing.send(C.channel.send, (pack.values("launcher", results, count, titles, classes, true)))
end

--- Receive the call and answer it.
return function()
  local call = framing.receive()
  package.path, package.cpath = call.path, call.cpath
  rawset(_G, "arg", call.arg)
  names.find {"accelhost"} -- which installs its own print and pairs
  local values, count, classes = unpack_values(call.values)
  C.random.set_rng_state(call.random)
  C.device.set_default_device(call.device)
  C.dtype.set_default_dtype(call.dtype)
  answer(classes, count_and_list(values[1](unpack(values, 2, count))))
end
