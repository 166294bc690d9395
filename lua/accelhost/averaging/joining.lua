--- Processes with unequal numbers of inputs: whoever is through takes part, with nothing, in what the others still do.
--
-- In each round every process tells whether it is still there and what it is about to do; those that are through answer
-- until nobody is left (PyTorch's "shadowing").
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

-- One run of a function.
---@class Joining
---@field speaker integer the highest rank that took part in the last round: buffers and weights are its
---@field wanted boolean[] what any process is about to do, as of `ask`
---@field through boolean is this process?
local Joining = class.new "Joining"

---@param native userdata the processes
---@param options {count: integer, throw_on_early_termination?: boolean} count: of what may be done in a round
function Joining:init(native, options)
  self.native, self.options = native, options
  self.speaker, self.wanted, self.through = 0, {}, false
end

--- A round: what this process is about to do, a flag for each thing; without flags it is through. A collective.
---@param flags? boolean[]
---@return boolean # is anybody left?
function Joining:ask(flags)
  local own, count = {flags and 1 or 0}, self.options.count
  for i = 1, count do own[i + 1] = flags and flags[i] and 1 or 0 end
  own = C.tensor(own, {dtype = "int64", device = "cpu"})
  local all, left = own:new_empty({self.native:size(), count + 1}), 0
  self.native:collective("all_gather", all, own)
  self.wanted = {}
  for rank, row in ipairs(all:tolist()) do
    if row[1] == 1 then
      left, self.speaker = left + 1, rank - 1
      for i = 1, count do self.wanted[i] = self.wanted[i] or row[i + 1] == 1 end
    end
  end
  if self.options.throw_on_early_termination and left > 0 and left < self.native:size() then
    arguments.fail("Join: a process is through with its inputs, and throw_on_early_termination ends all%s",
      self.through and " (this one is)" or "")
  end
  return left > 0
end

--- This process is through: stay with the others until they are, doing `round` with each of theirs.
---@param round fun()
function Joining:stay(round)
  self.through = true
  while self:ask() do round() end
end

return Joining
