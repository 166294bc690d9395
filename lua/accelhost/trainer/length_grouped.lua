--- LengthGroupedSampler: a random order in which samples of like length are adjacent, so that little is padded.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local data = require "accelhost.data"

local LengthGroupedSampler = data.Sampler:extend "LengthGroupedSampler"
LengthGroupedSampler.visits_once = true

local MOST = 50 -- batches that are sorted together

local function length_of(sample, name, i)
  local value = type(sample) == "table" and sample[name]
  if type(value) == "number" then return value end
  local ids = type(sample) == "table" and sample.input_ids
  if C.is_tensor(ids) then return ids:numel() end
  if type(ids) == "table" then return #ids end
  arguments.fail("train_sampling_strategy = 'group_by_length': sample %d has neither '%s' (a number) nor input_ids", i,
    name)
end

--- Batches of like length in random order, the longest sample first, so that memory that runs out does so at once.
---@param dataset Dataset
---@param batch_size integer samples of a group: those of an update's batch over all processes
---@param name string the field of a sample that has its length
function LengthGroupedSampler:init(dataset, batch_size, name)
  self.batch_size, self.lengths = batch_size, {}
  for i = 0, dataset:len() - 1 do self.lengths[i + 1] = length_of(dataset:get(i), name, i) end
end

function LengthGroupedSampler:len() return #self.lengths end

function LengthGroupedSampler:draw() -- luacheck: ignore self
  return C.randint(0, 256, {8}, {dtype = "uint8", device = "cpu"})
end

-- The order of a pass: pieces of some batches, each sorted from long to short, the piece with the longest one first.
local function order_of(self, draw)
  local seed, count, lengths = 0, #self.lengths, self.lengths
  for i = 0, 5 do seed = seed * 256 + draw[i]:item() end
  local generator = C.random.Generator(seed)
  local order = C.randperm(count, {generator = generator, device = "cpu"}):tolist()
  local piece = math.max(1, math.min(math.floor(count / (self.batch_size * 4)), MOST)) * self.batch_size
  local result, longest = {}, 1
  for from = 1, count, piece do
    local part = {unpack(order, from, math.min(from + piece - 1, count))}
    local place = {}
    for i, index in ipairs(part) do place[index] = i end
    table.sort(part, function(a, b)
      if lengths[a + 1] ~= lengths[b + 1] then return lengths[a + 1] > lengths[b + 1] end
      return place[a] < place[b]
    end)
    for _, index in ipairs(part) do
      result[#result + 1] = index
      if lengths[index + 1] > lengths[result[longest] + 1] then longest = #result end
    end
  end
  if count > 0 then result[1], result[longest] = result[longest], result[1] end
  return result
end

function LengthGroupedSampler:iter(draw, from)
  local order, at = order_of(self, draw or self:draw()), from or 0
  return function()
    at = at + 1
    return order[at]
  end
end

return LengthGroupedSampler
