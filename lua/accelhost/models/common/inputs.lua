--- The inputs of models: tensors by name, from a table or a tokenizer's batch, or the first one alone.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe
local inputs = {}

local checks = {
  tensor = {"a tensor", C.is_tensor},
  flag = {"true or false", function(value) return type(value) == "boolean" end},
  list = {"a table", function(value) return type(value) == "table" and not C.is_tensor(value) end},
  number = {"a number", function(value) return type(value) == "number" end},
}

local function add(what, given, known, batch, first)
  if type(batch) ~= "table" then
    fail("%s: expected tensors by name ({%s = ...}) or the %s, got %s", what, first, first, describe(batch))
  end
  for name, value in pairs(batch) do
    local kind = known[name]
    if not kind then
      local names = arguments.sorted_keys(known)
      fail("%s: unknown argument '%s' (known: %s)%s", what, tostring(name), table.concat(names, ", "),
        arguments.did_you_mean(tostring(name), names))
    end
    if not checks[kind][2](value) then
      fail("%s: %s: expected %s, got %s", what, name, checks[kind][1], describe(value))
    end
    given[name] = value
  end
end

--- The inputs of a model by name, checked.
---@param what string the class, for messages
---@param known table<string, string> name -> tensor, flag, list or number
---@param batch Tensor|table the first input, or a table by name
---@param more? table further ones by name
---@param first? string the name of an input that is passed alone; default input_ids
function inputs.read(what, known, batch, more, first)
  local given = {}
  first = first or "input_ids"
  if C.is_tensor(batch) then
    given[first] = batch
  else
    add(what, given, known, batch, first)
  end
  if more ~= nil then add(what, given, known, more, first) end
  return given
end

--- Sizes of the ids (or of vectors in their place): batch and tokens. Errors name the wrong input.
---@param most integer number of the model's positions
---@param past? integer number of tokens of earlier calls
---@return integer batch
---@return integer tokens
function inputs.sizes(what, given, most, past)
  local ids, vectors = given.input_ids, given.inputs_embeds
  if (ids == nil) == (vectors == nil) then fail("%s: expected either input_ids or inputs_embeds", what) end
  local name, dims, lead = ids and "input_ids" or "inputs_embeds", ids and 2 or 3, ids or vectors
  if lead:dim() ~= dims then
    fail("%s: %s: expected %d dims (batch, tokens%s), got shape %s", what, name, dims, ids and "" or ", width",
      arguments.shape_text(lead))
  end
  if ids and (ids:is_floating_point() or ids.dtype == "bool") then
    fail("%s: input_ids: expected integers, got %s (a tensor of Lua numbers is made with {dtype = \"int64\"})", what,
      ids.dtype)
  end
  local batch, tokens = lead:size(0), lead:size(1)
  if tokens + (past or 0) > most then
    local remedy = past and "" or ("; call the tokenizer with truncation = true, max_length = %d"):format(most)
    fail("%s: %d tokens are more than the model's %d positions%s", what, tokens + (past or 0), most, remedy)
  end
  return batch, tokens
end

--- Return the number of tokens of the keys and values of earlier calls.
---@param what string the class, for messages
---@param given table inputs by name
---@param layers integer
---@return integer
function inputs.seen(what, given, layers)
  local past = given.past_key_values
  if not past then return 0 end
  local ids = given.input_ids or given.inputs_embeds
  for i = 1, layers do
    local entry = past[i]
    if type(entry) ~= "table" or not C.is_tensor(entry[1]) or not C.is_tensor(entry[2]) or entry[1]:dim() ~= 4 then
      fail("%s: past_key_values: expected keys and values of %d layers", what, layers)
    elseif ids and ids:dim() > 0 and entry[1]:size(0) ~= ids:size(0) then
      fail("%s: past_key_values: they are of %d texts, the input of %d", what, entry[1]:size(0), ids:size(0))
    end
  end
  return past[1].seen or past[1][1]:size(2)
end

--- Raise unless a tensor has the sizes.
---@param tensor Tensor
---@param ... integer
function inputs.expect(what, name, tensor, ...)
  local sizes = {...}
  local shape = tensor:shape()
  local same = #shape == #sizes
  for i = 1, #sizes do same = same and shape[i] == sizes[i] end
  if not same then
    fail("%s: %s: expected shape (%s), got %s", what, name, table.concat(sizes, ", "), arguments.shape_text(tensor))
  end
end

return inputs
