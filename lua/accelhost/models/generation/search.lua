--- Greedy search and sampling: one token after the other.
local C = require "accelhost._C"
local captured = require "accelhost.models.generation.captured"
local stopping = require "accelhost.models.generation.stopping"

local search = {}

--- Return the function that receives the prompt and then each column of tokens, and the one that ends the output.
---@param o table all options
---@return fun(tokens: Tensor, is_prompt: boolean?)
---@return fun()
function search.output(o)
  local streamer = o.streamer
  local function put(tokens, is_prompt)
    if o.on_token and not is_prompt then o.on_token(tokens) end
    if type(streamer) == "function" then
      if not is_prompt then streamer(tokens) end
    elseif streamer then
      streamer:put(is_prompt and tokens or tokens:reshape(-1))
    end
  end
  local function finish()
    if streamer and type(streamer) ~= "function" and streamer.finish then streamer:finish() end
  end
  return put, finish
end

--- Return lists that scores and logits of each step are added to, as far as they are requested, and the function that
--- adds.
---@param o table all options
---@return table result
---@return fun(scores: Tensor, logits: Tensor)
function search.collector(o)
  local result = {scores = o.output_scores and {} or nil, logits = o.output_logits and {} or nil}
  return result, function(scores, logits)
    if not o.return_dict_in_generate then return end
    if result.scores then result.scores[#result.scores + 1] = scores end
    if result.logits then result.logits[#result.logits + 1] = logits end
  end
end

-- Compute the prompt, each different row once, and continue it `times` times.
local function first_logits(run, times)
  local logits = run:forward(1):select(1, -1)
  if times > 1 then
    local rows = C.arange(run.ids:size(0), {device = run.ids.device}):repeat_interleave(times, 0)
    run:select(rows)
    logits = logits:index_select(0, rows)
  end
  return logits
end

-- Return a run of the first row alone, and the number of rows, where all are equal.
local function one_row(run)
  local rows = run.ids:size(0)
  if rows == 1 or run.mask or run.past or next(run.more) then return 1 end
  if not run.ids:eq(run.ids:narrow(0, 0, 1)):all():item() then return 1 end
  run.ids = run.ids:narrow(0, 0, 1)
  return rows
end

--- Compute the prompt of a run whose rows are repeated afterwards.
---@param run generation.Run
---@param times integer
---@return Tensor logits [rows, words] of the next tokens
function search.prefill(run, times) return first_logits(run, times * one_row(run)) end

-- Can scores and logits be held by the results or by a function of the caller?
local function keeps_scores(o)
  return o.return_dict_in_generate or o.logits_processor ~= nil or o.stopping_criteria ~= nil
end

--- Continue texts by the likeliest or by drawn tokens.
---@param run generation.Run
---@return table sequences, and scores and logits where they are requested
function search.run(run)
  local o = run.o
  local ends, put, finish = stopping.criteria(o), search.output(o)
  local result, collect = search.collector(o)
  put(run.ids, true)
  local logits = search.prefill(run, o.num_return_sequences)
  local step, keeps = captured.new(run), keeps_scores(o)
  local open = C.ones({run.ids:size(0), 1}, {dtype = "bool", device = run.ids.device})
  while true do
    local scores = run:scores(logits)
    collect(scores, logits)
    local tokens = run:choose(scores):to(run.ids.dtype)
    if ends then tokens = C.where(open, tokens, C.full_like(tokens, o.pad)) end
    run:append(tokens)
    put(tokens)
    if ends then
      open = open:logical_and(ends(run.ids, scores):logical_not():unsqueeze(1))
      if not open:any():item() then break end
    end
    if not keeps then -- both are as wide as the vocabulary
      if scores ~= logits then scores:free() end
      logits:free()
    end
    if run.ids:size(1) >= o.last then break end
    logits = step and step:forward(keeps) or run:forward(1):select(1, -1)
  end
  if step then step:finish() end
  finish()
  result.sequences, result.past_key_values = run.ids, run.past
  return result
end

return search
