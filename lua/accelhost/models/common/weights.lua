--- A checkpoint's weights in a model's names: older names, those of other libraries, prefixes, tied weights, and
--- mismatches.
local arguments = require "accelhost.util.arguments"
local files = require "accelhost.io"
local shards = require "accelhost.checkpoint.shards"

local fail = arguments.fail
local weights = {}

-- Buffers that older versions wrote and no model reads.
local needless = {
  "embeddings%.position_ids$", "attn%.bias$", "attn%.masked_bias$", "attention%.bias$", "attention%.masked_bias$",
  "rotary_emb%.inv_freq$", "EncDecAttention%.relative_attention_bias%.weight$",
}

--- All tensors of a folder's files by name, the first models' names of a norm's weights (gamma, beta) renamed. They are
--- views of the mapped files.
---@return table<string, Tensor>
function weights.read(what, folder)
  local state = {}
  for _, file in ipairs(shards.files(what, folder)) do
    local part = files.load(file)
    if type(part) ~= "table" or getmetatable(part) ~= nil then
      fail("%s: '%s' holds %s, not tensors by name", what, file, arguments.describe(part))
    end
    for name, tensor in pairs(part) do
      name = name:gsub("([Nn]orm)%.gamma$", "%1.weight"):gsub("([Nn]orm)%.beta$", "%1.bias")
      state[name] = tensor
    end
  end
  return state
end

-- Does any name begin with it?
local function has(names, prefix)
  for name in pairs(names) do
    if name:sub(1, #prefix) == prefix then return true end
  end
  return false
end

-- Rename tensors to the model's names.
local function rename(state, renamed)
  local result = {}
  for name, tensor in pairs(state) do result[renamed[name] or name] = tensor end
  return result
end

--- Replace the model's names in a list by those of checkpoints.
---@param renamed table<string, string> names in checkpoints -> the model's
function weights.restore_names(names, renamed)
  for stored, own in pairs(renamed) do
    for i, name in ipairs(names) do
      if name == own then names[i] = stored end
    end
  end
end

-- Heads are checkpointed with their base model under a prefix, base models without: rename to the model's form.
local function fit_prefix(state, own, prefix)
  prefix = prefix .. "."
  local is_headed = has(own, prefix)
  if is_headed == has(state, prefix) then return state end
  local result = {}
  for name, tensor in pairs(state) do
    if is_headed then
      result[own[prefix .. name] and prefix .. name or name] = tensor
    else
      result[name:sub(1, #prefix) == prefix and name:sub(#prefix + 1) or name] = tensor
    end
  end
  return result
end

local function drop_needless(state, own, patterns)
  for _, name in ipairs(arguments.sorted_keys(state)) do
    for _, pattern in ipairs(patterns) do
      if own[name] == nil and name:find(pattern) then state[name] = nil end
    end
  end
end

-- A tied weight is stored in a file under either name.
local function fill_tied(state, tied)
  for name, source in pairs(tied) do
    state[source] = state[source] or state[name]
    state[name] = state[source]
  end
end

-- Remove tensors of another shape and report them.
local function take_mismatched(state, own)
  local mismatched = {}
  for _, name in ipairs(arguments.sorted_keys(own)) do
    local found = state[name]
    local quantises = found and found:is_floating_point() and not own[name]:is_floating_point() -- its layer checks it
    if found and not quantises and arguments.shape_text(found) ~= arguments.shape_text(own[name]) then
      mismatched[#mismatched + 1] = {name, found:shape(), own[name]:shape()}
      state[name] = nil
    end
  end
  return mismatched
end

--- Replace a model's tensors by a checkpoint's: nothing is copied until it is written to.
---@param model PreTrainedModel
---@param state table<string, Tensor>
---@param ignore_mismatched boolean leave tensors of another shape out; else they are an error
---@return {missing_keys: string[], unexpected_keys: string[], mismatched_keys: table[]}
function weights.assign(model, state, ignore_mismatched)
  local own = model:state_dict()
  state = model:own_names(state, own)
  state = fit_prefix(rename(state, model.renamed), own, model.base_model_prefix)
  drop_needless(state, own, needless)
  drop_needless(state, own, model.unread)
  fill_tied(state, model:tied_weights())
  local mismatched = ignore_mismatched and take_mismatched(state, own) or {}
  local result = model:load_state_dict(state, {strict = false, assign = true})
  result.mismatched_keys = mismatched
  return result
end

--- Return the file of a folder that has a tensor, else the folder.
---@param name string as in the model
---@return string
function weights.file_of(what, folder, name)
  for _, file in ipairs(shards.files(what, folder)) do
    local part = files.load(file)
    if type(part) == "table" and part[name] ~= nil then return file end
  end
  return folder
end

-- Return the first names of a list, and the number of the others.
local function some(names)
  local parts = {}
  for i = 1, math.min(#names, 8) do parts[i] = names[i] end
  if #names > 8 then parts[9] = ("and %d more"):format(#names - 8) end
  return table.concat(parts, ", ")
end

--- Return the mismatches of a load for the user, in lines; none when all fits.
---@param model PreTrainedModel
---@param result table result of assign
function weights.differences(model, path, result)
  local lines, shapes = {}, {}
  for i, each in ipairs(result.mismatched_keys) do
    shapes[i] = ("%s (%s there, %s here)"):format(each[1], table.concat(each[2], "x"), table.concat(each[3], "x"))
  end
  local differs, missing = {}, {}
  for _, each in ipairs(result.mismatched_keys) do differs[each[1]] = true end
  for _, name in ipairs(result.missing_keys) do
    if not differs[name] then missing[#missing + 1] = name end
  end
  if #missing > 0 then
    lines[#lines + 1] = ("%s: new weights, not in '%s': %s; train the model before it is used"):format(model._name,
      path, some(missing))
  end
  if #shapes > 0 then
    lines[#lines + 1] = ("%s: new weights, of another shape in '%s': %s; train the model before it is used"):format(
      model._name, path, some(shapes))
  end
  if #result.unexpected_keys > 0 then
    lines[#lines + 1] = ("%s: unused weights of '%s': %s"):format(model._name, path, some(result.unexpected_keys))
  end
  return lines
end

return weights
