--- Training steps of a script, with each allocation recorded: accelhost estimate-memory --trace.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local blocks = require "accelhost.estimate.blocks"
local peak_table = require "accelhost.estimate.peak_table"

local fail = arguments.raise
local trace = C.trace

-- The errors that end the script.
local after_last_step, by_exit = {}, {}

local function address_of(tensor)
  local hex = tostring(tensor:data_ptr()):match "0x(%x+)"
  return hex and tonumber(hex, 16)
end

-- Add {address, bytes, kind, time} of each tensor in a nested table; `time`: when it was there, nil: at the end.
local function add_owned(owned, value, kind, time)
  if C.is_tensor(value) then
    if value.device ~= "cpu" then
      fail("--trace: expected a script that trains on the CPU, whose memory is measured, got %s on %s", kind,
        value.device)
    end
    local bytes = value:numel() * value:element_size()
    if bytes > 0 then
      owned[#owned + 1] = {address = address_of(value), bytes = bytes, kind = kind, time = time}
    end
  elseif type(value) == "table" then
    for _, item in pairs(value) do add_owned(owned, item, kind, time) end
  end
end

local function each_parameter(optimizer, fn)
  for _, group in ipairs(optimizer.param_groups) do
    for _, parameter in ipairs(group.params) do fn(parameter) end
  end
end

-- Follow the steps of all optimizers. Return their record, {optimizers, steps, owned, intervals}.
local function follow_steps(optim, steps)
  local run = {optimizers = {}, counts = {}, owned = {}, intervals = {}, steps = 0}
  local function is_complete()
    for _, count in pairs(run.counts) do
      if count < steps then return false end
    end
    return true
  end
  local function before(optimizer)
    if run.ended or run.counts[optimizer] == steps then error(after_last_step, 0) end
    local now = C.system.now()
    run.intervals[#run.intervals + 1] = {begin = now, stop = math.huge}
    each_parameter(optimizer, function(parameter) add_owned(run.owned, parameter.grad, "gradients", now) end)
  end
  local function after(optimizer)
    if not run.counts[optimizer] then run.optimizers[#run.optimizers + 1] = optimizer end
    run.counts[optimizer] = (run.counts[optimizer] or 0) + 1
    run.steps = math.max(run.steps, run.counts[optimizer])
    run.intervals[#run.intervals].stop = C.system.now()
    if run.counts[optimizer] < steps or not is_complete() then return end
    run.ended = true
    error(after_last_step, 0)
  end
  local handles = {optim.register_optimizer_step_pre_hook(before), optim.register_optimizer_step_post_hook(after)}
  function run.remove()
    for _, handle in ipairs(handles) do handle:remove() end
  end
  return run
end

-- Run the script until its last step, its end or its error. Return the error's text, nil without one, and whether it
-- called os.exit.
local function run_script(path, words)
  local chunk, message = loadfile(path)
  if not chunk then fail("%s", message) end
  local exit = os.exit
  os.exit = function() error(by_exit, 0) end -- luacheck: ignore 122
  local fine, result = xpcall(function() return chunk(unpack(words)) end, function(value)
    return (value == after_last_step or value == by_exit) and value or tostring(value)
  end)
  os.exit = exit -- luacheck: ignore 122
  local ended = fine or result == after_last_step or result == by_exit
  return not ended and result or nil, result == by_exit
end

--- Print the memory of a script's first steps at its peak; raises a text for the user.
---@param path string of the script
---@param steps integer of an optimizer
---@param words string[] arguments of the script
return function(accelhost, path, steps, words)
  local run = follow_steps(accelhost.optim, steps)
  trace.start(false, true, true, true)
  local message, exited = run_script(path, words)
  io.stdout:flush()
  local recording = trace.stop()
  run.remove()
  if message then fail("%s", message) end
  if run.steps == 0 then
    fail("%s: expected a script that trains, got one that %s without a step of an optimizer of accelhost.optim", path,
      exited and "called os.exit" or "ended")
  end
  for _, optimizer in ipairs(run.optimizers) do
    each_parameter(optimizer, function(parameter) add_owned(run.owned, parameter, "parameters") end)
    add_owned(run.owned, optimizer:state_dict().state, "optimizer state")
  end
  run.path, run.wanted = path, steps
  if C.system.isatty(1) then io.write "\r\27[K" end -- a progress bar that the script has not closed
  io.write(peak_table(blocks.at_peak(recording, run), run), "\n")
end
