--- Beam search, with the scores and the end conditions of transformers: of each text the best `num_beams`
--- continuations are extended, and the best complete ones are kept.
local C = require "accelhost._C"
local search = require "accelhost.models.generation.search"
local stopping = require "accelhost.models.generation.stopping"

local beams = {}
local FAR = -1e9

-- Return the beams [batch, k, ...] with these numbers [batch, k].
local function gather(tensor, index)
  if tensor:dim() == 2 then return tensor:gather(1, index) end
  local batch, count = tensor:size(0), tensor:size(1)
  local first = C.arange(batch, {device = tensor.device}):unsqueeze(1) * count
  return tensor:flatten(0, 1):index_select(0, (index + first):flatten()):unflatten(0, {batch, -1})
end

-- The state of a search, [batch, beams, ...]: `running`, texts with their scores, and `done`, complete ones; `parents`
-- are the rows that each token extended.
local function new_state(run, batch)
  local o, device = run.o, run.ids.device
  local count, first = o.num_beams, run.first
  local fill = -1
  if #o.eos > 0 then fill = o.pad_token_id ~= 0 and o.pad_token_id or o.eos[1] end -- as transformers: 0 is not used
  local texts = C.full({batch, count, o.last}, fill, {dtype = "int64", device = device})
  texts:narrow(2, 0, first):copy_(run.ids:view(batch, count, first))
  local parents = C.full({batch, count, o.last - first}, -1, {dtype = "int64", device = device})
  local scores = C.zeros({batch, count}, {device = device})
  if count > 1 then scores:narrow(1, 1, count - 1):fill_(FAR) end
  return {
    running = {texts = texts, scores = scores, parents = parents},
    done = {texts = texts:clone(), scores = C.full({batch, count}, FAR, {device = device}), parents = parents:clone(),
      complete = C.zeros({batch, count}, {dtype = "bool", device = device})},
    open = C.ones({batch, 1}, {dtype = "bool", device = device}), length = first, first = first, batch = batch,
    keep = math.max(2, 1 + #o.eos) * count,
  }
end

-- Return the best continuations of the running texts.
local function candidates(state, o, scores)
  local found, index
  if o.do_sample then
    index = C.multinomial(C.softmax(scores, -1), state.keep)
    local order
    found, order = C.sort(scores:gather(1, index), 1, true)
    index = index:gather(1, order)
  else
    found, index = C.topk(scores, state.keep, 1)
  end
  local words = scores:size(1) / o.num_beams
  local beam, running = index:floor_divide(words), state.running
  local texts, parents = gather(running.texts, beam), gather(running.parents, beam)
  texts:select(2, state.length):copy_(index:remainder(words))
  local first = C.arange(state.batch, {device = index.device}):unsqueeze(1) * o.num_beams
  parents:select(2, state.length - state.first):copy_(beam + first)
  return {texts = texts, scores = found, parents = parents}
end

-- Return the candidates [batch, keep] that are complete.
local function complete(state, o, ends, found, scores)
  local device = found.texts.device
  if state.length + 1 >= o.last then return C.ones({state.batch, state.keep}, {dtype = "bool", device = device}) end
  if not ends then return C.zeros({state.batch, state.keep}, {dtype = "bool", device = device}) end
  return ends(found.texts:narrow(2, 0, state.length + 1):flatten(0, 1), scores):view(state.batch, state.keep)
end

local function far(mask) return mask:to "float32" * FAR end

local function continue_running(state, o, found, ended)
  local scores = found.scores + far(ended)
  local _, best = C.topk(scores, o.num_beams, 1)
  state.running = {
    texts = gather(found.texts, best), scores = gather(scores, best), parents = gather(found.parents, best),
  }
end

local function keep_complete(state, o, found, ended)
  local done, count = state.done, o.num_beams
  local new = ended:clone()
  new:narrow(1, count, state.keep - count):fill_(false)
  local scores = found.scores / (state.length + 1 - state.first) ^ o.length_penalty
  if o.early_stopping == true then scores = scores + far(done.complete:all(1, true)) end
  scores = scores + far(state.open:logical_not())
  scores = scores + far(new:logical_not())
  local merged = C.cat({done.scores, scores}, 1)
  local _, best = C.topk(merged, count, 1)
  state.done = {
    texts = gather(C.cat({done.texts, found.texts}, 1), best), scores = gather(merged, best),
    parents = gather(C.cat({done.parents, found.parents}, 1), best),
    complete = gather(C.cat({done.complete, new}, 1), best),
  }
end

-- A text stays open while its best running continuation may become better than its worst complete one.
local function update_open(state, o)
  local length = state.length - state.first
  if o.early_stopping == "never" and o.length_penalty > 0 then length = o.last - state.first end
  local best = state.running.scores:narrow(1, 0, 1) / length ^ o.length_penalty
  local worst = C.where(state.done.complete, state.done.scores:amin(1, true), C.full_like(state.done.scores, FAR))
  state.open = state.open:logical_and(best:gt(worst):any(1, true))
end

local function goes_on(state, o, ended)
  local full = o.early_stopping == true and state.done.complete:all():item()
  return state.open:any():item() and not full and not ended:all():item()
end

local function results(state, o, result, run)
  local done, count = state.done, o.num_return_sequences
  local function best(tensor) return tensor:narrow(1, 0, count):flatten(0, 1) end
  local parents = best(done.parents)
  local length = parents:ge(0):sum(1):max():item()
  result.sequences = best(done.texts):narrow(1, 0, state.first + length)
  result.sequences_scores = o.output_scores and best(done.scores) or nil
  result.beam_indices = parents:narrow(1, 0, length)
  result.past_key_values = run.past
  return result
end

--- Continue texts by beam search.
---@param run generation.Run
---@return table sequences, beam_indices, and sequences_scores, scores and logits where they are requested
function beams.run(run)
  local o, batch = run.o, run.ids:size(0)
  local ends = stopping.criteria(o)
  local result, collect = search.collector(o)
  local logits = search.prefill(run, o.num_beams)
  local state = new_state(run, batch)
  while true do
    local scores = run:scores(C.log_softmax(logits, -1))
    collect(scores, logits)
    local sums = scores:view(batch, o.num_beams, -1) + state.running.scores:unsqueeze(2)
    local found = candidates(state, o, sums:flatten(1))
    local ended = complete(state, o, ends, found, scores)
    continue_running(state, o, found, ended)
    keep_complete(state, o, found, ended)
    local parents = state.running.parents:select(2, state.length - state.first):flatten()
    state.length = state.length + 1
    update_open(state, o)
    if not goes_on(state, o, ended) then break end
    run:select(parents, true)
    run:set(state.running.texts:narrow(2, 0, state.length):flatten(0, 1))
    logits = run:forward(1):select(1, -1)
  end
  return results(state, o, result, run)
end

return beams
