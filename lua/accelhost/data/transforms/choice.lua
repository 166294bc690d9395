--- Transforms of transforms: RandomApply, RandomChoice, RandomOrder.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local rng_streams = require "accelhost.data.rng_streams"

local fail, signature = arguments.fail, arguments.signature
local choice = {}

local function check_list(what, list)
  if #list == 0 then fail("%s: transforms: expected at least one", what) end
  return list
end

local function text_of(name, list)
  local lines = {}
  for i = 1, #list do lines[i] = "\n    " .. tostring(list[i]):gsub("\n", "\n    ") end
  return ("%s(%s\n)"):format(name, table.concat(lines))
end

local RandomApply = class.new "RandomApply"
choice.RandomApply = RandomApply

local read_apply = signature("RandomApply", {"transforms: callables", {"p: probability", 0.5}})

-- Return the values after transforms i, i + 1, ... of a list, one after the other.
local function chained(list, i, ...)
  if i > #list then return ... end
  return chained(list, i + 1, list[i](...))
end

--- All of these transforms, one after the other, with probability p.
--
--   transforms.RandomApply({transforms.RandomInvert(1)}, 1)(image):size(-1)  --> 28
function RandomApply:init(...)
  self.transforms, self.p = read_apply(...)
  check_list("RandomApply", self.transforms)
end

function RandomApply:__call(...)
  if not rng_streams.chance(self.p) then return ... end
  return chained(self.transforms, 1, ...)
end

function RandomApply:__tostring() return text_of("RandomApply", self.transforms) end

local RandomChoice = class.new "RandomChoice"
choice.RandomChoice = RandomChoice

local read_choice = signature("RandomChoice", {"transforms: callables", {"p: list"}})

--- One of these transforms, of images or of batches (MixUp, CutMix).
--
--   transforms.RandomChoice({transforms.RandomInvert(1), transforms.RandomInvert(1)})(image):size(-1)  --> 28
---@param p? number[]|table how likely each is; default: all alike
function RandomChoice:init(...)
  local p
  self.transforms, p = read_choice(...)
  check_list("RandomChoice", self.transforms)
  if p and #p ~= #self.transforms then
    fail("RandomChoice: p: %d numbers for %d transforms", #p, #self.transforms)
  end
  self.p = {}
  for i = 1, #self.transforms do
    local weight = p and p[i] or 1
    if type(weight) ~= "number" or weight < 0 then
      fail("RandomChoice: p: expected numbers of at least 0, item %d is %s", i, arguments.describe(weight))
    end
    self.p[i] = weight
  end
end

function RandomChoice:__call(...)
  local at = rng_streams.tensors(function() return C.multinomial(C.tensor(self.p, {dtype = "float32"}), 1):item() end)
  return self.transforms[at + 1](...)
end

function RandomChoice:__tostring() return text_of("RandomChoice", self.transforms) end

local RandomOrder = class.new "RandomOrder"
choice.RandomOrder = RandomOrder

local read_order = signature("RandomOrder", {"transforms: callables"})

--- All of these transforms, in a random order.
--
--   transforms.RandomOrder({transforms.RandomInvert(1)})(image):size(-1)  --> 28
function RandomOrder:init(...)
  self.transforms = check_list("RandomOrder", read_order(...))
end

function RandomOrder:__call(image)
  for _, at in ipairs(rng_streams.shuffled(#self.transforms)) do image = self.transforms[at + 1](image) end
  return image
end

function RandomOrder:__tostring() return text_of("RandomOrder", self.transforms) end

return choice
