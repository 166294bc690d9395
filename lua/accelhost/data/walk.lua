--- Walks over a batch sampler that begin at a later place.
--
-- A place is counted in samples where the batches are cut from a sampler's order (BatchSampler, StreamBatches), else
-- in batches: `walk.unit` returns the count of a full batch.
local walk = {}

-- iter functions with a place: iter(draw, from)
local takes_place = {}
-- those whose walk is a function of the draw, so that it can be repeated
local repeatable = {}

--- Register an iter function that accepts a place.
---@param iter function
---@param repeats boolean its walk is a function of the draw
function walk.register(iter, repeats)
  takes_place[iter], repeatable[iter] = true, repeats
end

--- Can its iteration begin at any given position?
---@param sampler table
---@return boolean
function walk.takes_place(sampler) return takes_place[sampler.iter] == true end

--- Is its walk, and that of the sampler below, a function of the draw?
---@param sampler table
---@return boolean
function walk.repeats(sampler)
  return repeatable[sampler.iter] == true and (not sampler.sampler or walk.repeats(sampler.sampler))
end

--- Are places of a batch sampler counted in samples?
---@param batches table
---@return boolean
function walk.counts_samples(batches)
  return takes_place[batches.iter] == true and batches.batch_size ~= nil
end

--- Return the step of the place for a full batch of a batch sampler.
---@param batches table
---@return integer
function walk.unit(batches)
  return walk.counts_samples(batches) and batches.batch_size or 1
end

-- Return the next batches from the start, at most `count`, and the step of the place for them.
local function head_of(take, batches, count)
  local head, place = {}, 0
  for i = 1, count do
    local batch = take()
    if not batch then break end
    head[i] = batch
    place = place + (walk.unit(batches) > 1 and #batch or 1)
  end
  return head, place
end

-- Return a repeated head; a generator of the script's own continues as if its walk had not been repeated.
local function repeated_head(batches, draw, count)
  local generator = batches.sampler and batches.sampler.generator
  local saved = generator and generator:get_state()
  local head = head_of(batches:iter(draw), batches, count)
  if generator then generator:set_state(saved) end
  return head
end

--- The batches from a place on.
---@param batches table a batch sampler
---@param draw userdata?
---@param from integer
---@return fun(): table?, any
function walk.from(batches, draw, from)
  if from == 0 then return batches:iter(draw) end
  if takes_place[batches.iter] then return batches:iter(draw, from) end
  local take = batches:iter(draw)
  for _ = 1, from do
    if not take() then break end
  end
  return take
end

--- The batches from a position on, and a function that returns the first `count` batches of the whole iteration; nil
--- when it begins with them.
---@param batches table
---@param draw userdata?
---@param from integer
---@param count integer
---@return fun(): table?
---@return (fun(): table[])?
function walk.with_head(batches, draw, from, count)
  if from == 0 then return batches:iter(draw), nil end
  if walk.repeats(batches) then
    return walk.from(batches, draw, from), function() return repeated_head(batches, draw, count) end
  end
  if from % walk.unit(batches) > 0 then return walk.from(batches, draw, from), nil end
  local take = batches:iter(draw)
  local head, place = head_of(take, batches, count)
  if place > from then
    -- The walk continues within its head.
    local at = math.floor(from / walk.unit(batches))
    local following = take
    take = function()
      at = at + 1
      if head[at] then return head[at] end
      return following()
    end
    return take, function() return head end
  end
  while place < from do
    local batch = take()
    if not batch then break end
    place = place + (walk.unit(batches) > 1 and #batch or 1)
  end
  return take, function() return head end
end

return walk
