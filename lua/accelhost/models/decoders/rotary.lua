--- Rotary position embeddings (Su et al., 2021) in the scalings of published models: pairs of features of queries and
--- keys are rotated by angles that grow with the token's position.
--
-- Feature i of a head is paired with feature i + dims / 2. Features beyond `dims` are unchanged.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, describe = arguments.fail, arguments.describe
local rotary = {}

-- The frequencies of a scaling: function(p, dims, length, most) -> the frequency of each pair and a factor of cosines
-- and sines. p: the parameters; length: number of positions of the text; most: max_position_embeddings.

local function plain_frequencies(base, dims)
  local list = {}
  for i = 0, dims / 2 - 1 do list[i + 1] = 1 / base ^ (2 * i / dims) end
  return list
end

local function linear_frequencies(p, dims)
  local list = plain_frequencies(p.rope_theta, dims)
  for i = 1, #list do list[i] = list[i] / p.factor end
  return list, 1
end

local function dynamic_frequencies(p, dims, length, most)
  local stretch = p.factor * math.max(length, most) / most - (p.factor - 1)
  return plain_frequencies(p.rope_theta * stretch ^ (dims / (dims - 2)), dims), 1
end

-- YaRN's factor of cosines and sines.
local function yarn_attention(p)
  if p.attention_factor then return p.attention_factor end
  local function scale(weight) return p.factor <= 1 and 1 or 0.1 * weight * math.log(p.factor) + 1 end
  local own, all = p.mscale or 0, p.mscale_all_dim or 0
  return own ~= 0 and all ~= 0 and scale(own) / scale(all) or scale(1)
end

-- Fast pairs keep their frequency, slow ones are divided by the factor; in between is a ramp (Peng et al., 2023).
local function yarn_frequencies(p, dims)
  local function pair_of(rotations)
    return dims * math.log(p.original_max_position_embeddings / (rotations * 2 * math.pi))
      / (2 * math.log(p.rope_theta))
  end
  local low, high = pair_of(p.beta_fast or 32), pair_of(p.beta_slow or 1)
  if p.truncate ~= false then low, high = math.floor(low), math.ceil(high) end
  low, high = math.max(low, 0), math.min(high, dims - 1)
  if low == high then high = high + 0.001 end
  local list = plain_frequencies(p.rope_theta, dims)
  for i = 1, #list do
    local slow = math.min(math.max((i - 1 - low) / (high - low), 0), 1)
    list[i] = list[i] / p.factor * slow + list[i] * (1 - slow)
  end
  return list, yarn_attention(p)
end

local function llama3_frequencies(p, dims)
  local list = plain_frequencies(p.rope_theta, dims)
  local original, low, high = p.original_max_position_embeddings, p.low_freq_factor, p.high_freq_factor
  for i = 1, #list do
    local wavelength = 2 * math.pi / list[i]
    if wavelength > original / low then
      list[i] = list[i] / p.factor
    elseif wavelength >= original / high then
      local smooth = (original / wavelength - low) / (high - low)
      list[i] = (1 - smooth) * list[i] / p.factor + smooth * list[i]
    end
  end
  return list, 1
end

-- A factor for each pair, of short texts or of long ones (Ding et al., 2024).
local function longrope_frequencies(p, dims, length, most)
  local original = p.original_max_position_embeddings
  local factors = length > original and p.long_factor or p.short_factor
  local list = plain_frequencies(p.rope_theta, dims)
  for i = 1, #list do list[i] = list[i] / factors[i] end
  local factor, scale = p.factor or most / original, p.attention_factor
  return list, scale or factor <= 1 and 1 or math.sqrt(1 + math.log(factor) / math.log(original))
end

-- Scaling -> its frequencies, the parameters that it requires, and whether it depends on the text's length.
local scalings = {
  default = {function(p, dims) return plain_frequencies(p.rope_theta, dims), 1 end, {}},
  linear = {linear_frequencies, {"factor"}},
  dynamic = {dynamic_frequencies, {"factor"}, true},
  yarn = {yarn_frequencies, {"factor", "original_max_position_embeddings"}},
  llama3 = {llama3_frequencies, {
    "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
  }},
  longrope = {longrope_frequencies, {"short_factor", "long_factor", "original_max_position_embeddings"}, true},
}

-- Parameter -> the kind of its values.
local kinds = {
  rope_type = "string", rope_theta = "positive", partial_rotary_factor = "positive", factor = "positive",
  original_max_position_embeddings = "positive", attention_factor = "positive", beta_fast = "positive",
  beta_slow = "positive", mscale = "number", mscale_all_dim = "number", truncate = "flag", low_freq_factor = "positive",
  high_freq_factor = "positive", short_factor = "list", long_factor = "list",
}

local function check_parameter(what, name, value)
  local kind = kinds[name]
  if not kind then
    fail("%s: rope_parameters: '%s' is not implemented (known: %s)", what, tostring(name),
      table.concat(arguments.sorted_keys(kinds), ", "))
  elseif kind == "list" then
    local fine = type(value) == "table"
    for _, factor in ipairs(fine and value or {}) do fine = fine and type(factor) == "number" and factor > 0 end
    if not fine then
      fail("%s: rope_parameters: %s: expected numbers above 0, got %s", what, name, describe(value))
    end
  else
    arguments.check(what, "rope_parameters: " .. name, kind, value)
  end
end

--- Return parameters in the form of transformers 5: with rope_type, rope_theta and, where the scaling requires it,
--- original_max_position_embeddings.
---@param what string the configuration's class, for messages
---@param given? table rope_parameters, or rope_scaling of older files
---@param defaults table values of parameters that `given` lacks
---@param most integer max_position_embeddings
function rotary.parameters(what, given, defaults, most)
  if given ~= nil and (type(given) ~= "table" or given[1] ~= nil) then
    fail("%s: rope_parameters: expected a table of fields, got %s", what, describe(given))
  end
  local p = {}
  for name, value in pairs(given or {}) do
    if value ~= C.json.null then p[name] = value end
  end
  p.rope_type, p.type = p.rope_type or p.type or "default", nil
  for name, value in pairs(defaults) do
    if p[name] == nil then p[name] = value end
  end
  for _, name in ipairs(arguments.sorted_keys(p)) do check_parameter(what, name, p[name]) end
  local scaling = scalings[p.rope_type]
  if not scaling then
    fail("%s: rope_parameters: rope_type '%s' is not implemented (known: %s)", what, p.rope_type,
      table.concat(arguments.sorted_keys(scalings), ", "))
  end
  for _, name in ipairs(scaling[2]) do
    if name == "original_max_position_embeddings" then p[name] = p[name] or most end
    if p[name] == nil then fail("%s: rope_parameters: %s requires '%s'", what, p.rope_type, name) end
  end
  return p
end

--- The rotation of heads.
---@class rotary.Rotary
---@field dims integer rotated features of a head
---@field varies boolean the frequencies depend on the text's length
---@field frequencies fun(length: integer): number[], number

--- Make a rotation from parameters in the form of `rotary.parameters`.
---@param p table
---@param head_dim integer
---@param most integer max_position_embeddings
---@return rotary.Rotary
function rotary.new(what, p, head_dim, most)
  local dims = math.floor(head_dim * (p.partial_rotary_factor or 1))
  if dims < 2 or dims % 2 ~= 0 or dims > head_dim then
    fail("%s: rope_parameters: %d of a head's %d features are rotated; expected an even number of them", what, dims,
      head_dim)
  end
  for _, name in ipairs {"short_factor", "long_factor"} do
    if p.rope_type == "longrope" and #p[name] ~= dims / 2 then
      fail("%s: rope_parameters: %s: expected %d numbers, got %d", what, name, dims / 2, #p[name])
    end
  end
  local scaling = scalings[p.rope_type]
  return {
    dims = dims, varies = scaling[3] or false,
    frequencies = function(length) return scaling[1](p, dims, length, most) end,
  }
end

-- Return the frequencies of all features as a tensor, negative for the first half, and the factor. The last ones are
-- kept: a captured step may not write tensors.
local function frequencies_of(self, length, dtype, device)
  local key = ("%s %s %s"):format(dtype, device, self.varies and length or "")
  if self.key ~= key then
    local list, scale = self.frequencies(length)
    local half = C.tensor(list, {dtype = dtype, device = device})
    self.key, self.last, self.scale = key, C.cat {-half, half}, scale
  end
  return self.last, self.scale
end

--- Return the cosines and sines [..., tokens, dims] of positions, the sines of the first half negated: in float64 for
--- models in float64, else in float32.
---@param self rotary.Rotary
---@param positions Tensor [tokens] or [batch, tokens]
---@param length? integer number of positions of the text; by default, one more than the last position
---@param dtype string of the model
---@return Tensor
---@return Tensor
function rotary.angles(self, positions, length, dtype)
  if self.varies then length = length or positions:max():item() + 1 end
  dtype = dtype == "float64" and dtype or "float32"
  local frequencies, scale = frequencies_of(self, length, dtype, positions.device)
  local angles = positions:to(dtype):unsqueeze(-1) * frequencies
  local cos, sin = angles:cos(), angles:sin()
  if scale ~= 1 then cos, sin = cos * scale, sin * scale end
  if cos:dim() == 3 then cos, sin = cos:unsqueeze(1), sin:unsqueeze(1) end
  return cos, sin
end

-- The same by ops that cards have.
local function by_ops(x, cos, sin)
  local half = cos:size(-1) / 2
  local swapped = C.cat({x:narrow(-1, half, half), x:narrow(-1, 0, half)}, -1)
  local scaled = x * cos
  local sum = C.addcmul(scaled, swapped, sin)
  scaled:free() -- of the size of x, as swapped is; the graph holds those that it reads
  swapped:free()
  local turned = sum:to(x.dtype)
  if sum.dtype ~= x.dtype then sum:free() end
  return turned
end

--- Rotate the features of heads.
---@param x Tensor [batch, heads, tokens, width]
---@param cos Tensor of `rotary.angles`
---@param sin Tensor
---@return Tensor of the dtype of x
function rotary.apply(x, cos, sin)
  local dims, width = cos:size(-1), x:size(-1)
  local rotated = dims == width and x or x:narrow(-1, 0, dims)
  local turned = x.is_cuda and by_ops(rotated, cos, sin) or C.rotary(rotated, cos, sin)
  if dims == width then return turned end
  local rest = x:narrow(-1, dims, width - dims)
  local all = C.cat({turned, rest}, -1)
  for _, part in ipairs {rotated, turned, rest} do part:free() end
  return all
end

return rotary
