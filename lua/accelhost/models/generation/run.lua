--- A model in the middle of a text: the tokens so far, with the keys and values of those that it has computed.
local C = require "accelhost._C"
local cache = require "accelhost.models.common.cache"
local processors = require "accelhost.models.generation.processors"

local Run = {}
Run.__index = Run

--- Start a run. `start` has ids [rows, tokens], mask (nil: there is no padding), past (of earlier tokens) and more,
--- further inputs of every step, whose tensors have a row for each text.
---@param model table
---@param o table all options
---@param start table
---@return generation.Run
function Run.new(model, o, start)
  local run = setmetatable({model = model, o = o, ids = start.ids, mask = start.mask, past = start.past}, Run)
  run.more, run.first, run.before = start.more or {}, start.ids:size(1), model:_virtual_tokens()
  local padding = run.mask and run.mask:ne(0):to("int64"):argmax(1, true)
  run.place = {first = run.first, padding = padding}
  run.processors = processors.list(o, run.place)
  return run
end

-- Return the rows of each tensor in a table of inputs.
local function select_rows(value, rows)
  if C.is_tensor(value) then return value:index_select(0, rows) end
  if type(value) ~= "table" then return value end
  local selected = {}
  for key, item in pairs(value) do selected[key] = select_rows(item, rows) end
  return selected
end

--- Replace the rows by these rows, some of them repeated.
---@param rows Tensor [rows] int64
---@param keeps_ids? boolean the ids are replaced by the caller
function Run:select(rows, keeps_ids)
  if not keeps_ids then self.ids = self.ids:index_select(0, rows) end
  self.mask = self.mask and self.mask:index_select(0, rows)
  self.past = self.past and cache.select(self.past, rows)
  self.more = select_rows(self.more, rows)
  local place = self.place
  place.padding = place.padding and place.padding:index_select(0, rows)
end

-- Tokens count from 0 in each row, padding not.
local function positions(mask) return (mask:cumsum(-1) - 1):clamp_min(0) end

--- Compute the tokens that were not yet computed.
---@param keep integer number of last tokens whose logits are returned
---@return Tensor [rows, keep, words] float32
function Run:forward(keep)
  local ids, mask, model = self.ids, self.mask, self.model
  local before, valid = self.before, model:_valid_length()
  local seen = self.past and cache.seen(self.past[1]) - before or 0
  if seen + before <= valid and ids:size(1) + before > valid then self.past, seen = nil, 0 end
  local given = {}
  for name, value in pairs(self.more) do given[name] = value end
  given.attention_mask, given.past_key_values, given.use_cache = mask, self.past, self.o.use_cache
  if mask then given.position_ids = positions(mask) end
  if seen > 0 then
    ids = ids:narrow(1, seen, ids:size(1) - seen)
    if mask then given.position_ids = given.position_ids:narrow(1, seen, ids:size(1)) end
  end
  given.logits_to_keep = keep
  local output = model(model:_step_inputs(given, ids))
  self.past = output.past_key_values
  return output.logits:to "float32"
end

--- Append a column of tokens.
---@param tokens Tensor [rows, tokens]
function Run:append(tokens)
  self.ids = C.cat({self.ids, tokens}, 1)
  if self.mask then self.mask = C.cat({self.mask, C.ones_like(tokens):to "int64"}, 1) end
end

--- Set the tokens; they begin with those that were computed.
---@param ids Tensor [rows, tokens]
function Run:set(ids)
  local more = ids:size(1) - self.ids:size(1)
  if self.mask and more > 0 then
    self.mask = C.cat({self.mask, self.mask:new_ones({ids:size(0), more})}, 1)
  elseif self.mask and more < 0 then
    self.mask = self.mask:narrow(1, 0, ids:size(1))
  end
  self.ids = ids
end

--- Return the scores of the next tokens, after all processors.
---@param logits Tensor [rows, words]
---@param ids? Tensor tokens before them; default all
---@return Tensor
function Run:scores(logits, ids) return processors.apply(self.processors, ids or self.ids, logits) end

--- Return the likeliest or drawn tokens [rows, 1].
---@param scores Tensor [rows, words]
---@return Tensor int64
function Run:choose(scores)
  if not self.o.do_sample then return scores:argmax(-1, true) end
  return C.multinomial(C.softmax(scores, -1), 1)
end

return Run
