--- Assisted generation: several tokens are proposed, by a smaller model or from earlier in the text, and the model
--- checks them in one pass. Greedy texts are those of greedy search; drawn ones have the model's distribution
--- (Leviathan et al., 2023, algorithm 1).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local cache = require "accelhost.models.common.cache"
local Run = require "accelhost.models.generation.run"
local search = require "accelhost.models.generation.search"
local stopping = require "accelhost.models.generation.stopping"

local assisted = {}

local function is_end(o, token)
  for _, id in ipairs(o.eos) do
    if token == id then return true end
  end
  return false
end

-- Remove the keys and values of tokens that were not accepted, all but `seen`. `owned`: tokens that were added last.
local function forget(run, seen, owned)
  seen = seen + run.before
  if run.past and cache.seen(run.past[1]) > seen then run.past = cache.crop(run.past, seen, owned) end
end

-- An assistant model proposes its own continuation, until it is not sure of a token.
local function by_model(assistant, o, start)
  local own = arguments.copy(o)
  own.min_new_tokens, own.min_length = nil, 0
  local draft = Run.new(assistant, own, {ids = start.ids})
  return function(ids, most)
    local tokens, chances = {}, {}
    forget(draft, ids:size(1) - 1)
    draft:set(ids)
    for i = 1, most do
      local scores = draft:scores(draft:forward(1):select(1, -1))
      local chosen, p = draft:choose(scores), C.softmax(scores, -1)
      tokens[i], chances[i] = chosen, p
      draft:append(chosen)
      local token = chosen:item()
      if is_end(o, token) or p[0][token]:item() < o.assistant_confidence_threshold then break end
    end
    return C.cat(tokens, 1), C.cat(chances, 0)
  end
end

local function is_forbidden(run, ids, token)
  local scores = run:scores(C.ones({1, run.model.config.vocab_size}, {device = ids.device}), ids)
  return scores[0][token]:item() <= -3.4028234663852886e38
end

-- Return the places after earlier occurrences of the last `size` tokens of a row.
local function occurrences(row, size)
  local list = {}
  for at = 1, #row - size do
    local same = true
    for i = 0, size - 1 do same = same and row[at + i] == row[#row - size + 1 + i] end
    if same then list[#list + 1] = at + size end
  end
  return list
end

-- Return the tokens from `at` that may follow the text.
local function continuation(run, ids, row, at, most)
  local found = {}
  for i = at, math.min(at + most - 1, #row) do
    local before = #found > 0 and C.cat({ids, C.tensor({found}, {dtype = "int64", device = ids.device})}, 1) or ids
    if #run.processors > 0 and is_forbidden(run, before, row[i]) then break end
    found[#found + 1] = row[i]
  end
  return found
end

-- Tokens after an earlier occurrence of the last ones are proposed.
local function by_lookup(run)
  local o = run.o
  return function(ids, most)
    local row = ids[0]:tolist()
    for size = math.min(o.max_matching_ngram_size, #row - 1), 1, -1 do
      for _, at in ipairs(occurrences(row, size)) do
        local found = continuation(run, ids, row, at, math.min(most, o.prompt_lookup_num_tokens))
        if #found > 0 then
          for i, token in ipairs(found) do
            if is_end(o, token) then found = {unpack(found, 1, i - 1)} break end
          end
          return #found > 0 and C.tensor({found}, {dtype = "int64", device = ids.device}) or nil
        end
      end
    end
  end
end

-- Return the scores [count + 1, words] of the proposed tokens and of the one after them.
local function checked_scores(run, ids, proposed)
  local count = proposed and proposed:size(1) or 0
  run:set(proposed and C.cat({ids, proposed}, 1) or ids)
  local logits, rows = run:forward(count + 1), {}
  for i = 0, count do rows[i + 1] = run:scores(logits:select(1, i), run.ids:narrow(1, 0, ids:size(1) + i)) end
  return C.cat(rows, 0), logits[0]
end

-- Accept each drawn token with probability p / q; in place of the first that is not, draw from the excess of p over q.
local function accept(proposed, q, scores)
  local p, count = C.softmax(scores, -1), proposed:size(1)
  local index = proposed:reshape(-1, 1)
  local ratio = (p:narrow(0, 0, count):gather(1, index) / q:gather(1, index)):reshape(-1)
  local kept = C.rand_like(ratio):le(ratio):to("int64"):cumprod(0):sum():item()
  local last = p[kept]
  if kept < count then
    local rest = (last - q[kept]):clamp_min(0)
    last = rest / rest:sum()
  end
  return C.cat({proposed:narrow(1, 0, kept), C.multinomial(last, 1):view(1, 1)}, 1)
end

-- Accept proposed tokens up to the first that the model does not choose, which its own choice replaces.
local function agree(run, proposed, scores)
  local chosen = run:choose(scores):reshape(1, -1)
  local count = proposed and proposed:size(1) or 0
  if count == 0 then return chosen end
  local same = chosen:narrow(1, 0, count):eq(proposed):to "int64"
  return chosen:narrow(1, 0, same:cumprod(1):sum():item() + 1)
end

-- Cut tokens at the first that ends the text, and at the greatest length.
local function until_end(o, tokens, left)
  local count = math.min(tokens:size(1), left)
  for i, token in ipairs(tokens[0]:tolist()) do
    if i <= count and is_end(o, token) then count = i end
  end
  return tokens:narrow(1, 0, count)
end

local function check(run)
  local o = run.o
  if run.ids:size(0) > 1 or o.num_return_sequences > 1 then
    arguments.fail("generate: assisted generation continues one text, got %d", run.ids:size(0) * o.num_return_sequences)
  elseif not o.use_cache then
    arguments.fail "generate: assisted generation requires use_cache"
  elseif o.assistant_model and o.assistant_model.config.vocab_size ~= run.model.config.vocab_size then
    arguments.fail("generate: assistant_model: expected a vocabulary of %d tokens, got %d",
      run.model.config.vocab_size, o.assistant_model.config.vocab_size)
  end
end

--- Continue a text.
---@param run generation.Run
---@return table sequences, and scores and logits where they are requested
function assisted.run(run)
  check(run)
  local o, ids, valid = run.o, run.ids, run.model:_valid_length() - run.before
  local ends, put, finish = stopping.criteria(o), search.output(o)
  local result, collect = search.collector(o)
  local propose = o.assistant_model and by_model(o.assistant_model, o, {ids = ids}) or by_lookup(run)
  put(ids, true)
  while true do
    local length = ids:size(1)
    local most = o.last - length - 1
    if o.assistant_model then most = math.min(most, o.num_assistant_tokens) end
    if length <= valid then most = math.min(most, valid - length) end
    local proposed, q
    if most > 0 then proposed, q = propose(ids, most) end
    local scores, logits = checked_scores(run, ids, proposed)
    local tokens = o.do_sample and q and accept(proposed, q, scores) or agree(run, proposed, scores)
    tokens = until_end(o, tokens, o.last - length)
    for i = 0, tokens:size(1) - 1 do
      collect(scores:narrow(0, i, 1), logits:narrow(0, i, 1))
      put(tokens:narrow(1, i, 1))
    end
    ids = C.cat({ids, tokens:to(ids.dtype)}, 1)
    run:set(ids)
    forget(run, ids:size(1) - 1, proposed and proposed:size(1) + 1 or 1)
    if ids:size(1) >= o.last or ends and ends(ids, scores:narrow(0, tokens:size(1) - 1, 1)):item() then break end
  end
  finish()
  result.sequences, result.past_key_values = ids, run.past
  return result
end

return assisted
