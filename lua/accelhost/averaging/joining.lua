--- Processes with unequal numbers of inputs: one that has completed joins, with nothing, the collectives of the others.
--
-- In each round every process reports whether it is active and which operations it starts next; those that have
-- completed answer until all have (PyTorch's "shadowing").
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"

-- One run of a function.
---@field speaker integer the highest rank that participated in the last round: buffers and weights are its
---@field wanted boolean[] the operations that any process starts next, as of `ask`
---@field through boolean is this process?
local Joining = class.new "Joining"

---@param native userdata the processes
---@param options {count: integer, throw_on_early_termination?: boolean} count: of the operations of a round
function Joining:init(native, options)
  self.native, self.options = native, options
  self.speaker, self.wanted, self.through = 0, {}, false
end

--- Run a round: the operations that this process starts next, a flag for each; without flags it has completed. A
--- collective.
---@param flags? boolean[]
---@return boolean # is any process still active?
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
    arguments.fail("Join: a process has no inputs left, and throw_on_early_termination ends all%s",
      self.through and " (this one is)" or "")
  end
  return left > 0
end

--- Mark this process as completed: stay with the others until they are, doing `round` with each of theirs.
---@param round fun()
function Joining:stay(round)
  self.through = true
  while self:ask() do round() end
end

return Joining
