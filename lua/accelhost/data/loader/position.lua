--- The position of a loader, to be saved and restored.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local kinds = require "accelhost.util.kinds"

local fail, describe, is_count = arguments.fail, arguments.describe, kinds.is_count
local native = C.data

-- Return the sampler's own generator, nil where it has none.
local function sampler_generator(self)
  local sampler = self.sampler
  local generator = sampler and sampler.generator
  return generator ~= self.generator and C.random.is_generator(generator) and generator or nil
end

--- Add state_dict and load_state_dict to the DataLoader class.
---@param DataLoader table
return function(DataLoader)
  --- Return the loader's position, as numbers and strings: epoch, position (samples that all processes together have
  --- received in that epoch; batches, with a batch sampler of the script's own), and the random state of the pass.
  --- While the last batch is being processed this is the start of the next epoch. The state is the same on all
  --- processes (except `seed`, from which transforms draw, where the order is not random), and a job of another number
  --- of processes, or of other batch sizes, can continue from it; of a stream with a method shard only one of as many
  --- processes with the same batches. Generators of the loader's and its sampler's own are part of the state.
  --
  --   for x in loader do break end
  --   loader:state_dict().position  --> 2
  ---@return table
  function DataLoader:state_dict()
    local pass, resume = self._current, self._resume
    local state = {epoch = self._next_epoch, position = 0, unit = self.partition:unit()}
    if pass and not pass.ended and not pass.last then
      state.epoch, state.position = pass.epoch, pass.start + pass.rounds * self.partition:round_size()
      pass.draw_hex = pass.draw_hex or pass.draw and native.to_hex(pass.draw) or nil
      pass.seed_hex = pass.seed_hex or native.to_hex(pass.seed)
      state.draw, state.seed = pass.draw_hex, pass.seed_hex
    elseif resume then
      state.position = resume.place
      state.draw = resume.draw and native.to_hex(resume.draw) or nil
      state.seed = resume.seed and native.to_hex(resume.seed) or nil
    end
    local own = sampler_generator(self)
    state.generator = self.generator and native.to_hex(self.generator:get_state())
    state.sampler_generator = own and native.to_hex(own:get_state())
    return state
  end

  --- Continue from the position of `state_dict`: the next pass starts at that position of that epoch, in the same
  --- order, and yields the samples that the earlier one had not.
  --
  --   for x in loader do break end
  --   local again = data.DataLoader(set, {batch_size = 2})
  --   again:load_state_dict(loader:state_dict())
  --   for x, number in again do print(number) break end  --> tensor([2, 3])
  ---@param state table
  function DataLoader:load_state_dict(state)
    if type(state) ~= "table" or not is_count(state.epoch, 0) or not is_count(state.position, 0) then
      fail("load_state_dict: expected a loader's state (epoch and position), got %s", describe(state))
    end
    if state.generator and not self.generator then
      fail("load_state_dict: the state holds a generator, but this loader has none")
    end
    local own = sampler_generator(self)
    if state.sampler_generator and not own then
      fail("load_state_dict: the state holds a generator of the sampler, but this loader's sampler has none")
    end
    if state.position > 0 and state.unit and state.unit ~= self.partition:unit() then
      fail("load_state_dict: the state counts %s, this loader counts %s: their batches are made in different ways",
        state.unit, self.partition:unit())
    end
    self._current, self._resume = nil, nil
    self.epoch, self._next_epoch = state.epoch, state.epoch
    if state.generator then self.generator:set_state(native.from_hex(state.generator)) end
    if state.sampler_generator then own:set_state(native.from_hex(state.sampler_generator)) end
    if state.position > 0 then
      self._resume = {
        place = state.position, draw = state.draw and native.from_hex(state.draw),
        seed = state.seed and native.from_hex(state.seed),
      }
    end
  end
end
