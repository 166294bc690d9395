--- Padding of encoded samples to one width, for collators and Tokenizer:pad.
--
-- A sample is a table by name, of tensors [tokens] or tables of numbers: input_ids, attention_mask, token_type_ids and
-- special_tokens_mask are padded; columns with one number a sample are stacked.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe
local padding = {}

local IGNORED = -100

local function numbers_of(what, name, i, value)
  if C.is_tensor(value) and value:dim() <= 2 then return value:reshape(-1):tolist() end
  if type(value) ~= "table" then
    fail("%s: '%s' of sample %d: expected a tensor or a table of numbers, got %s", what, name, i, describe(value))
  end
  return value
end

-- One column of all samples, each row filled up to a width.
local function padded(what, name, features, width, filler, left)
  local rows = {}
  for i, sample in ipairs(features) do
    if sample[name] == nil then fail("%s: sample %d has no '%s', which sample 1 has", what, i, name) end
    local values, row = numbers_of(what, name, i, sample[name]), {}
    local before = left and width - #values or 0
    for k = 1, width do
      local value = values[k - before]
      row[k] = value == nil and filler or value
    end
    rows[i] = row
  end
  return C.tensor(rows, {dtype = "int64", device = "cpu"})
end

-- Stack a column of one number for each sample.
local function stacked(what, name, features)
  local values, whole = {}, true
  for i, sample in ipairs(features) do
    local value = sample[name]
    if C.is_tensor(value) and value:numel() == 1 then value = value:item() end
    if value == nil then fail("%s: sample %d has no '%s', which sample 1 has", what, i, name) end
    if type(value) == "boolean" then value = value and 1 or 0 end
    if type(value) ~= "number" then
      fail("%s: '%s' of sample %d: expected a number, got %s", what, name, i, describe(sample[name]))
    end
    values[i], whole = value, whole and value % 1 == 0
  end
  return C.tensor(values, {dtype = whole and "int64" or "float32", device = "cpu"})
end

local function longest(what, features)
  if type(features) ~= "table" or #features == 0 then fail("%s: expected a table of samples", what) end
  local width, shortest = 0, math.huge
  for i, sample in ipairs(features) do
    if type(sample) ~= "table" and type(sample) ~= "userdata" or C.is_tensor(sample) then
      fail("%s: sample %d: expected a table by name, got %s", what, i, describe(sample))
    end
    if sample.input_ids == nil then fail("%s: sample %d has no 'input_ids'", what, i) end
    local length = #numbers_of(what, "input_ids", i, sample.input_ids)
    width, shortest = math.max(width, length), math.min(shortest, length)
  end
  return width, shortest
end

-- The width that the options ask for.
local function width_of(what, features, options)
  local width, shortest = longest(what, features)
  if options.padding == false or options.padding == "do_not_pad" then
    if shortest < width then
      fail("%s: padding = false: expected samples of one length, got %d to %d tokens", what, shortest, width)
    end
    return width
  end
  if options.padding == "max_length" then width = math.max(width, options.max_length) end
  local multiple = options.pad_to_multiple_of
  return multiple and math.ceil(width / multiple) * multiple or width
end

local function attention_masks(what, features)
  local masks = {}
  for i, sample in ipairs(features) do
    local mask = {}
    for k = 1, #numbers_of(what, "input_ids", i, sample.input_ids) do mask[k] = 1 end
    masks[i] = {mask = mask}
  end
  return masks
end

--- Encoded inputs in any of their forms as a table of samples, and whether they are one sample alone.
---@param encoded table samples, columns of samples, or one sample
---@return table[] samples
---@return boolean single
function padding.samples_of(encoded)
  if type(encoded) ~= "table" then
    fail("tokenizer.pad: encoded_inputs: expected samples, or columns of them, got %s", describe(encoded))
  end
  if encoded[1] ~= nil then return encoded, false end
  local ids = encoded.input_ids
  if ids == nil then fail "tokenizer.pad: encoded_inputs has no 'input_ids'" end
  if C.is_tensor(ids) and ids:dim() == 1 or type(ids) == "table" and type(ids[1]) ~= "table"
    and not C.is_tensor(ids[1]) then
    return {encoded}, true
  end
  local samples, count = {}, C.is_tensor(ids) and ids:size(0) or #ids
  for i = 1, count do
    samples[i] = {}
    for name, column in pairs(encoded) do
      samples[i][name] = C.is_tensor(column) and column[i - 1] or column[i]
    end
  end
  return samples, false
end

--- The samples as a batch of int64 tensors [samples, width], attention_mask included; one number a sample as [samples].
--- Strings, and tables of any other column, are left out.
---@param what string the caller, for messages
---@param tokenizer table with pad_token_id, padding_side and pad_token_type_id
---@param features table[] samples
---@param options {padding?: any, max_length?: integer, pad_to_multiple_of?: integer, padding_side?: string}
---@param labels? boolean `label` and `label_ids` become `labels`, which is padded by -100
---@return table<string, userdata>
function padding.batch(what, tokenizer, features, options, labels)
  local width = width_of(what, features, options)
  if not tokenizer.pad_token_id then fail("%s: the tokenizer has no pad_token", what) end
  local fillers = {
    input_ids = tokenizer.pad_token_id, attention_mask = 0, token_type_ids = tokenizer.pad_token_type_id or 0,
    special_tokens_mask = 1,
  }
  local batch, left = {}, (options.padding_side or tokenizer.padding_side) == "left"
  for _, name in ipairs(arguments.sorted_keys(features[1])) do
    local value = features[1][name]
    local many = type(value) == "table" or C.is_tensor(value) and value:numel() ~= 1
    local target = labels and (name == "label" or name == "label_ids") and "labels" or name
    if fillers[name] then
      batch[name] = padded(what, name, features, width, fillers[name], left)
    elseif labels and target == "labels" and many then
      batch.labels = padded(what, name, features, width, IGNORED, left)
    elseif type(value) ~= "string" and not many then
      batch[target] = stacked(what, name, features)
    end
  end
  batch.attention_mask = batch.attention_mask
    or padded(what, "mask", attention_masks(what, features), width, 0, left)
  return batch
end

return padding
