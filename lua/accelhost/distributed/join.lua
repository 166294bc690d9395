--- Join: processes with unequal numbers of inputs, for DistributedDataParallel.
--
-- A round (averaging/joining.lua) begins with every forward of the first participating object; a process that has ended
-- runs each object's hook.
local Joining = require "accelhost.averaging.joining"
local arguments = require "accelhost.util.arguments"
local protect = require "accelhost.util.protect"
local fail, describe = arguments.fail, arguments.describe

local join = {}

-- model -> the run that it is in
local active = setmetatable({}, {__mode = "k"})

--- A forward of a model that is in a run begins.
---@param object table
function join.notify(object)
  local joining = active[object]
  if not joining or object ~= joining.objects[1] then return end
  joining:ask {object:_will_average()}
  for _, one in ipairs(joining.objects) do
    if one._before_round then one:_before_round(joining) end
  end
end

-- Run each object's hook on a process that has no inputs left.
local function shadow(joining)
  local hooks = {}
  for i, object in ipairs(joining.objects) do hooks[i] = object:join_hook(joining.options) end
  joining:stay(function()
    for _, hook in ipairs(hooks) do hook.main_hook(joining) end
  end)
  for _, hook in ipairs(hooks) do hook.post_hook(joining) end
end

local function check_objects(objects)
  if #objects == 0 then fail("Join: joinables: expected at least one model, got none") end
  for i, object in ipairs(objects) do
    if type(object) ~= "table" or type(object.join_hook) ~= "function" then
      fail("Join: joinables: item %d: expected a DistributedDataParallel, got %s", i, describe(object))
    end
    if object._group ~= objects[1]._group then fail("Join: joinables: expected models of one process group") end
    if active[object] then fail("Join: joinables: item %d is in a join already", i) end
  end
end

local function run(objects, options, fn)
  if options.enable == false then return fn() end
  check_objects(objects)
  options.count = 1
  local joining = Joining(objects[1]._group.native, options)
  joining.objects = objects
  for _, object in ipairs(objects) do active[object] = joining end
  return protect(function(fine)
    for _, object in ipairs(objects) do active[object] = nil end
    if fine then shadow(joining) end
  end, fn)
end

--- Run fn, in which processes may have unequal numbers of inputs, for several models at once: each of them is called
--- once for each backward, the first one before the others. See DistributedDataParallel:join.
--
--   local Join = dist.algorithms.join.Join
--   Join({ddp}, function() ddp(x):sum():backward() end)
---@param joinables DistributedDataParallel[]
---@param enable? boolean default true; false: just run fn
---@param throw_on_early_termination? boolean default false; true: all processes raise as soon as one has no inputs left
---@param divide_by_initial_world_size? boolean default true; false: by the number of processes that still have inputs
---@return any # the results of fn
join.Join = arguments.checked("Join", {
  "joinables: list", "fn: function", {"enable: flag", true}, {"throw_on_early_termination: flag", false},
  {"divide_by_initial_world_size: flag", true},
}, function(objects, fn, enable, throw, divide)
  return run(objects, {
    enable = enable, throw_on_early_termination = throw, divide_by_initial_world_size = divide,
  }, fn)
end)

local read_of_model = arguments.signature("DistributedDataParallel:join", {
  "fn: function", {"divide_by_initial_world_size: flag", true}, {"enable: flag", true},
  {"throw_on_early_termination: flag", false},
})

--- The method `join` of a model.
---@param model DistributedDataParallel
function join.of_model(model, ...)
  local fn, divide, enable, throw = read_of_model(...)
  return run({model}, {
    enable = enable, throw_on_early_termination = throw, divide_by_initial_world_size = divide,
  }, fn)
end

return join
