--- Iteration over a batch sampler from a later position.
--
-- A position is counted in samples where the batches are cut from a sampler's order (BatchSampler, StreamBatches), else
-- in batches: `iteration.unit` returns the count of a full batch.
local iteration = {}

-- iter functions with a position: iter(draw, from)
local accepts_position = {}
-- those whose iteration is a function of the draw, so that it can be repeated
local repeatable = {}

--- Register an iter function that accepts a position.
---@param iter function
---@param repeats boolean its iteration is a function of the draw
function iteration.register(iter, repeats)
  accepts_position[iter], repeatable[iter] = true, repeats
end

--- Can its iteration begin at any given position?
function iteration.accepts_position(sampler) return accepts_position[sampler.iter] == true end

--- Is its iteration, and that of the sampler below, a function of the draw?
function iteration.repeats(sampler)
  return repeatable[sampler.iter] == true and (not sampler.sampler or iteration.repeats(sampler.sampler))
end

--- Are positions of a batch sampler counted in samples?
function iteration.counts_samples(batches)
  return accepts_position[batches.iter] == true and batches.batch_size ~= nil
end

--- Return the step of the position for a full batch of a batch sampler.
---@return integer
function iteration.unit(batches)
  return iteration.counts_samples(batches) and batches.batch_size or 1
end

-- Return the next batches from the start, at most `count`, and the step of the position for them.
local function head_of(next_batch, batches, count)
  local head, position = {}, 0
  for i = 1, count do
    local batch = next_batch()
    if not batch then break end
    head[i] = batch
    position = position + (iteration.unit(batches) > 1 and #batch or 1)
  end
  return head, position
end

-- Return a repeated head; a generator of the script's own continues as if its iteration had not been repeated.
local function repeated_head(batches, draw, count)
  local generator = batches.sampler and batches.sampler.generator
  local saved = generator and generator:get_state()
  local head = head_of(batches:iter(draw), batches, count)
  if generator then generator:set_state(saved) end
  return head
end

--- The batches from a position on.
---@param batches table a batch sampler
---@param draw userdata?
---@param from integer
---@return fun(): table?, any
function iteration.from(batches, draw, from)
  if from == 0 then return batches:iter(draw) end
  if accepts_position[batches.iter] then return batches:iter(draw, from) end
  local next_batch = batches:iter(draw)
  for _ = 1, from do
    if not next_batch() then break end
  end
  return next_batch
end

--- The batches from a position on, and a function that returns the first `count` batches of the whole iteration; nil
--- when it begins with them.
---@param draw userdata?
---@param from integer
---@return fun(): table?
---@return (fun(): table[])?
function iteration.with_head(batches, draw, from, count)
  if from == 0 then return batches:iter(draw), nil end
  if iteration.repeats(batches) then
    return iteration.from(batches, draw, from), function() return repeated_head(batches, draw, count) end
  end
  if from % iteration.unit(batches) > 0 then return iteration.from(batches, draw, from), nil end
  local next_batch = batches:iter(draw)
  local head, position = head_of(next_batch, batches, count)
  if position > from then
    -- The iteration continues within its head.
    local at = math.floor(from / iteration.unit(batches))
    local following = next_batch
    next_batch = function()
      at = at + 1
      if head[at] then return head[at] end
      return following()
    end
    return next_batch, function() return head end
  end
  while position < from do
    local batch = next_batch()
    if not batch then break end
    position = position + (iteration.unit(batches) > 1 and #batch or 1)
  end
  return next_batch, function() return head end
end

return iteration
