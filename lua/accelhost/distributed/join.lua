--- Join: processes with unequal numbers of inputs.
--
-- With every forward of the first object that takes part the processes tell each other who is still there, whether a
-- backward will average, and go on; who is through answers the same question until nobody is left, and does in between
-- what each object's hook says (PyTorch's "shadowing").
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local protect = require "accelhost.util.protect"
local fail, describe = arguments.fail, arguments.describe

local join = {}

-- One run of a function.
---@class Joining
---@field speaker integer the highest rank that still has inputs
---@field synchronises boolean will the backward of this round average?
local Joining = class.new "Joining"

function Joining:init(objects, options)
  self.objects, self.options = objects, options
  self.group = objects[1]._group
  self.speaker, self.synchronises = 0, false
end

-- model -> the run that it is in
local active = setmetatable({}, {__mode = "k"})

--- The run that a model is in, nil for none.
---@param object table
---@return Joining?
function join.of(object) return active[object] end

-- What all processes say: is it still there, will it average, does it stop?
local function ask(self, present, averages)
  local native = self.group.native
  local own = C.tensor({present and 1 or 0, averages and 1 or 0}, {dtype = "int64", device = "cpu"})
  local all = own:new_empty({self.group:size(), 2})
  native:collective("all_gather", all, own)
  local left = 0
  self.synchronises = false
  for rank, row in ipairs(all:tolist()) do
    if row[1] == 1 then
      left, self.speaker = left + 1, rank - 1
      self.synchronises = self.synchronises or row[2] == 1
    end
  end
  return left
end

local function stop(self)
  fail("Join: a process is through with its inputs, and throw_on_early_termination ends all%s",
    self.through and " (this one is)" or "")
end

--- A forward of one of the objects begins.
---@param object table
function Joining:notify(object)
  if object ~= self.objects[1] then return end
  local left = ask(self, true, object:_will_average())
  if left < self.group:size() and self.options.throw_on_early_termination then stop(self) end
  for _, one in ipairs(self.objects) do
    if one._before_round then one:_before_round(self) end
  end
end

-- This process is through: stay with the others until they are.
local function shadow(self)
  local hooks = {}
  for i, object in ipairs(self.objects) do hooks[i] = object:join_hook(self.options) end
  self.through = true
  while ask(self, false, false) > 0 do
    if self.options.throw_on_early_termination then stop(self) end
    for _, hook in ipairs(hooks) do hook.main_hook(self) end
  end
  for _, hook in ipairs(hooks) do hook.post_hook(self) end
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
  local joining = Joining(objects, options)
  for _, object in ipairs(objects) do active[object] = joining end
  return protect(function(fine)
    for _, object in ipairs(objects) do active[object] = nil end
    if fine then shadow(joining) end
  end, fn)
end

local read_join = arguments.signature("Join", {
  "joinables: list", "fn: function", {"enable: flag", true}, {"throw_on_early_termination: flag", false},
  {"divide_by_initial_world_size: flag", true},
})

--- Run fn, in which processes may have unequal numbers of inputs, for several models at once: each of them is called
--- once for each backward, the first one before the others. See DistributedDataParallel:join.
--
--   local Join = dist.algorithms.join.Join
--   Join({ddp}, function() ddp(x):sum():backward() end)
---@param joinables DistributedDataParallel[]
---@param fn function
---@param enable? boolean default true; false: just run fn
---@param throw_on_early_termination? boolean default false; true: all processes raise as soon as one is through
---@param divide_by_initial_world_size? boolean default true; false: by the number of processes that still have inputs
---@return any # what fn returns
function join.Join(...)
  local objects, fn, enable, throw, divide = read_join(...)
  return run(objects, {
    enable = enable, throw_on_early_termination = throw, divide_by_initial_world_size = divide,
  }, fn)
end

local read_of_model = arguments.signature("DistributedDataParallel:join", {
  "fn: function", {"divide_by_initial_world_size: flag", true}, {"enable: flag", true},
  {"throw_on_early_termination: flag", false},
})

--- The method `join` of a model.
---@param model DistributedDataParallel
---@param ... any
---@return any
function join.of_model(model, ...)
  local fn, divide, enable, throw = read_of_model(...)
  return run({model}, {
    enable = enable, throw_on_early_termination = throw, divide_by_initial_world_size = divide,
  }, fn)
end

return join
