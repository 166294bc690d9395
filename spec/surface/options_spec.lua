-- Every option of every layer, loss, data set, sampler and loader changes something or is refused.
local accelhost = require "accelhost"
local arguments = require "accelhost.util.arguments"
local layers = require "spec.cases.layers".by_name
local surface = require "spec.support.surface"
local nn, data = accelhost.nn, accelhost.data

-- The visible state of a layer (its text, its tensors, its outputs in training and in evaluation), and its first error.
local function look(class, values, options, inputs)
  accelhost.manual_seed(1)
  local arguments_of = {unpack(values)}
  arguments_of[#arguments_of + 1] = next(options) and options or nil
  local made, layer = pcall(class, unpack(arguments_of))
  if not made then return layer, layer end
  local seen, failure = {tostring(layer)}, nil
  for name, tensor in layer:named_parameters() do seen[#seen + 1] = name .. tostring(tensor) .. tensor.dtype end
  for name, tensor in layer:named_buffers() do seen[#seen + 1] = name .. tostring(tensor) .. tensor.dtype end
  for _, mode in ipairs {true, false} do
    layer:train(mode)
    local copies = {}
    for i, input in ipairs(inputs) do copies[i] = accelhost.is_tensor(input) and input:clone() or input end
    if #inputs == 3 and inputs[1] == inputs[2] and inputs[2] == inputs[3] then
      copies = {copies[1], copies[1], copies[1]}
    end
    local fine, first, second = pcall(layer, unpack(copies))
    seen[#seen + 1] = fine and tostring(first) .. tostring(second) .. tostring(rawequal(first, copies[1])) or first
    failure = failure or not fine and first or nil
  end
  for name, tensor in layer:named_buffers() do seen[#seen + 1] = name .. tostring(tensor) end
  return table.concat(seen, "\n"), failure
end

-- Raise unless the option changes the layer, or is refused by an error that names it. Without the option the layer may
-- refuse the inputs, but not with and without it.
local function has_effect(class, option, values, base, changed, inputs)
  local before, failure = look(class, values, base, inputs)
  local after, refusal = look(class, values, changed, inputs)
  assert.are_not.equal(before, after, option)
  if refusal then
    assert(not failure, failure)
    assert.truthy(refusal:find(option, 1, true), option .. " is not named: " .. refusal)
  end
end

-- The inputs for a layer with an option.
local function inputs_for(case, option)
  local inputs = case.inputs_of and case.inputs_of[option] or case.inputs
  if option ~= "dtype" then return inputs end
  local doubles = {}
  for i, input in ipairs(inputs) do
    doubles[i] = accelhost.is_tensor(input) and input.dtype == "float32" and input:double() or input
  end
  return doubles
end

local function other_value(row)
  local kind = row.kind
  if row.name == "dtype" then return "float64" end
  if kind.words then
    for _, word in ipairs(kind.words) do
      if word ~= row.default then return word end
    end
    return nil -- the only one
  end
  if kind.test(true) and kind.test(false) then return not row.default end
  for _, value in ipairs {0.25, 2, 3} do
    if kind.test(value) and value ~= row.default then return value end
  end
end

-- Does a constructor have options?
local function has_options(name)
  local class = nn[name] -- loads its signature
  for _, row in ipairs(class and arguments.signatures[name] or {}) do
    if not row.required then return true end
  end
  return false
end

-- Raise unless every option of a layer has an effect.
local function check_options(name, case)
    local values, special = case.arguments, case.options
    for _, row in ipairs(arguments.signatures[name]) do
      if not row.required and not (case.ignored and case.ignored[row.name]) then
        local given, inputs = special and special[row.name], inputs_for(case, row.name)
        if row.name == "device" then
          assert.truthy(look(nn[name], values, {device = "nowhere"}, inputs):find("nowhere", 1, true))
        elseif type(given) == "table" and getmetatable(given) == nil then
          local base, changed, own = {}, {}, {}
          for key, value in pairs(given) do
            if type(key) == "number" and type(value) ~= "table" then
              own[key] = value
            elseif type(value) == "table" then
              changed = value
            else
              changed[key] = value
              base[key] = key ~= row.name and value or nil
            end
          end
          if #own == 0 then own = values end
          if #own == 2 and #values == 1 then base.stride, changed.stride, own = own[2], own[2], {own[1]} end
          has_effect(nn[name], row.name, own, base, changed, inputs)
        else
          local value = given
          if value == nil then value = other_value(row) end
          if value ~= nil then has_effect(nn[name], row.name, values, {}, {[row.name] = value}, inputs) end
        end
      end
    end
end

describe("The options of", function()
  for name, case in pairs(layers) do
    if case.arguments and has_options(name) then
      it("nn." .. name, function() check_options(name, case) end)
    end
  end

  it("every layer are tested here", function()
    for _, entry in ipairs(surface.entries()) do
      local name = entry.title:match "^nn%.(%u%w+)$"
      local signature = name and arguments.signatures[name]
      local optional = 0
      for _, row in ipairs(signature or {}) do optional = optional + (row.required and 0 or 1) end
      assert(optional == 0 or layers[name] or name == "TransformerEncoder", tostring(name))
    end
  end)
end)

describe("The options of", function()
  local set = data.TensorDataset(accelhost.arange(10))
  local function orders(make)
    accelhost.manual_seed(3)
    local source, seen = make(), {}
    for _ = 1, 2 do
      local following = source:iter(source.draw and source:draw() or nil)
      for _ = 1, 50 do
        local index = following()
        if index == nil then break end
        seen[#seen + 1] = type(index) == "table" and "{" .. table.concat(index, " ") .. "}" or index
      end
      seen[#seen + 1] = "|"
    end
    return table.concat(seen, " ")
  end
  local samplers = {
    RandomSampler = {{set}, {replacement = true, num_samples = 4, generator = accelhost.Generator(9), seed = 5}},
    SubsetRandomSampler = {{{1, 2, 3, 4, 5}}, {generator = accelhost.Generator(9)}},
    WeightedRandomSampler = {{{1, 2, 3, 4, 5}, 4}, {replacement = false, generator = accelhost.Generator(9)}},
    DistributedSampler = {{11, 3, 0}, {shuffle = false, seed = 3, drop_last = true}},
    BatchSampler = {{data.SequentialSampler(10), 3}, {drop_last = true}},
  }
  for name, case in pairs(samplers) do
    it("data." .. name, function()
      local plain = orders(function() return data[name](unpack(case[1])) end)
      for option, value in pairs(case[2]) do
        local changed = orders(function()
          local values = {unpack(case[1])}
          values[#values + 1] = {[option] = value}
          return data[name](unpack(values))
        end)
        assert.are_not.equal(plain, changed, option)
      end
    end)
  end

  it("data.DataLoader", function()
    local function batches(options)
      accelhost.manual_seed(3)
      local loader, seen = data.DataLoader(set, options), {}
      for _ = 1, 2 do
        for batch in loader do seen[#seen + 1] = tostring(batch) end
      end
      return table.concat(seen, "\n") .. #loader
    end
    local plain = batches {}
    local generator = accelhost.Generator(4)
    for _, case in ipairs {
      {{batch_size = 3}}, {{shuffle = true}}, {{sampler = {3, 1}}}, {{batch_sampler = {{1, 2}, {4}}}},
      {{collate_fn = function(samples) return {#samples} end}}, {{batch_size = 3, drop_last = true}, {batch_size = 3}},
      {{shuffle = true, generator = generator}, {shuffle = true}}, {{shuffle = true, seed = 2}, {shuffle = true}},
    } do
      assert.are_not.equal(case[2] and batches(case[2]) or plain, batches(case[1]))
    end
    for _, option in ipairs {"timeout", "prefetch_factor", "persistent_workers"} do
      local value = option == "persistent_workers" or 3
      assert.is_false(pcall(batches, {[option] = value})) -- without workers; with them in spec/data/worker_spec.lua
      assert.equal(plain, batches {num_workers = 1, [option] = value})
    end
    assert.equal(plain, batches {prefetch = 5}) -- only how far ahead batches are gathered
  end)

  it("data.SyntheticDigits", function()
    local function digits(options)
      local made = data.SyntheticDigits(options)
      return #made .. tostring(made:get(0)) .. tostring(select(2, made:get(0))) .. tostring(made.data:select(0, 1))
    end
    local plain = digits {size = 4}
    for option, value in pairs {
      train = false, size = 5, seed = 1, transform = function(image) return image end,
      target_transform = function(label) return label + 100 end,
    } do
      local options = {size = 4}
      options[option] = value
      assert.are_not.equal(plain, digits(options), option)
    end
  end)
end)
