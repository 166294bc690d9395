--- The ends of texts: tokens, strings, time and functions of the caller.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe
local stopping = {}

local function by_token(eos)
  return function(ids)
    local last = ids:select(1, -1)
    local ended = last:eq(eos[1])
    for i = 2, #eos do ended = ended:logical_or(last:eq(eos[i])) end
    return ended
  end
end

local function by_time(seconds)
  local begin = C.system.now()
  return function(ids)
    local over = C.system.now() - begin > seconds
    return C.full({ids:size(0)}, over, {dtype = "bool", device = ids.device})
  end
end

-- Return true if a string ends in the last of the tokens.
local function ends_in_last(tokenizer, row, strings, most)
  local first = math.max(1, #row - most)
  local all = tokenizer:decode({unpack(row, first)})
  local before = #row > first and tokenizer:decode({unpack(row, first, #row - 1)}):gsub("\239\191\189+$", "") or ""
  for _, text in ipairs(strings) do
    local at = math.max(1, #before - #text + 2)
    if all:find(text, at, true) then return true end
  end
  return false
end

local function by_string(strings, tokenizer)
  if not tokenizer then fail "generate: stop_strings: expected the option tokenizer too" end
  if type(strings) == "string" then strings = {strings} end
  local most = 0
  for _, text in ipairs(strings) do most = math.max(most, #text) end
  return function(ids)
    local ended, count = {}, math.min(ids:size(1), most + 8)
    for i, row in ipairs(ids:narrow(1, ids:size(1) - count, count):tolist()) do
      ended[i] = ends_in_last(tokenizer, row, strings, most + 8)
    end
    return C.tensor(ended, {dtype = "bool", device = ids.device})
  end
end

local function by_function(given)
  return function(ids, scores)
    local ended = given(ids, scores)
    if type(ended) == "boolean" then return C.full({ids:size(0)}, ended, {dtype = "bool", device = ids.device}) end
    if not C.is_tensor(ended) or ended.dtype ~= "bool" or ended:numel() ~= ids:size(0) then
      fail("generate: stopping_criteria: expected true, false or a bool for each of %d rows, got %s", ids:size(0),
        describe(ended))
    end
    return ended:reshape(-1)
  end
end

--- Return a function(ids [rows, tokens], scores) -> the rows that end, [rows] bool; nil where a text can end at its
--- greatest length only.
---@param o table all options
---@return (fun(ids: Tensor, scores: Tensor): Tensor)?
function stopping.criteria(o)
  local list = {}
  if #o.eos > 0 then list[1] = by_token(o.eos) end
  if o.stop_strings then list[#list + 1] = by_string(o.stop_strings, o.tokenizer) end
  if o.max_time then list[#list + 1] = by_time(o.max_time) end
  for _, given in ipairs(o.stopping_criteria or {}) do list[#list + 1] = by_function(given) end
  if #list == 0 then return nil end
  return function(ids, scores)
    local ended = list[1](ids, scores)
    for i = 2, #list do ended = ended:logical_or(list[i](ids, scores)) end
    return ended
  end
end

return stopping
