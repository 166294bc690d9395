-- Every option of every layer, loss, data set, sampler and loader changes something or is refused.
local accelhost = require "accelhost"
local arguments = require "accelhost.util.arguments"
local surface = require "spec.support.surface"
local nn, data = accelhost.nn, accelhost.data

local images = accelhost.linspace(-2, 2, 2 * 4 * 6 * 6):view(2, 4, 6, 6)
local rows = images:view(-1):narrow(0, 0, 64):view(2, 4, 8)
local logits, classes = rows:select(0, 0), accelhost.tensor({0, 3, 1, 2}, {dtype = "int64"})
local chances = logits:sigmoid()
local mixed, other, volumes = (logits * 7):sin(), (logits * 11):cos(), images:unsqueeze(2)
local cubes = images:view(1, 2, 4, 6, 6)
local signs = (mixed - 0.1):sign()
local instance = {momentum = {track_running_stats = true, momentum = 0.5}, bias = {affine = true, bias = false},
  dtype = {affine = true, dtype = "float64"}}
local weights = accelhost.tensor {1, 2, 3, 4, 5, 6, 7, 8}

-- class -> {required arguments, inputs, values of options where other_value does not find one that matters, inputs that
-- fit the layer with an option only}
local layers = {
  Linear = {{8, 3}, {rows}}, Bilinear = {{8, 8, 3}, {rows, rows}},
  Conv1d = {{4, 4, 3}, {rows}, {groups = 2, padding = 1}}, Conv2d = {{4, 4, 3}, {images}, {groups = 2, padding = 1}},
  ConvTranspose1d = {{4, 4, 3}, {rows}, {groups = 2, padding = 1, output_padding = {stride = 2, output_padding = 1}}},
  ConvTranspose2d = {{4, 4, 3}, {images}, {groups = 2, padding = 1, output_padding = {stride = 2, output_padding = 1}}},
  Conv3d = {{4, 4, {1, 3, 3}}, {volumes}, {groups = 2, padding = 1}},
  ConvTranspose3d = {{4, 4, 3}, {volumes},
    {groups = 2, padding = 1, output_padding = {stride = 2, output_padding = 1}}},
  MaxPool3d = {{3}, {cubes}, {padding = 1, dilation = {2, dilation = 2}, ceil_mode = {4, 3, ceil_mode = true}}},
  AvgPool3d = {{3}, {cubes}, {padding = 1, ceil_mode = {4, 3, ceil_mode = true},
    count_include_pad = {3, padding = 1, count_include_pad = false}}},
  AdaptiveMaxPool1d = {{2}, {rows}}, AdaptiveMaxPool2d = {{2}, {images}}, AdaptiveMaxPool3d = {{2}, {cubes}},
  LPPool1d = {{2, 2}, {rows}, {ceil_mode = {2, 3, {ceil_mode = true}}}},
  LPPool2d = {{2, 2}, {images}, {ceil_mode = {2, 5, {ceil_mode = true}}}},
  LPPool3d = {{2, 2}, {cubes}, {ceil_mode = {2, 4, {ceil_mode = true}}}},
  MaxUnpool1d = {{2}, {rows, accelhost.zeros({2, 4, 8}, {dtype = "int64"})}, {stride = 3, padding = 1}},
  MaxUnpool2d = {{2}, {images, accelhost.zeros({2, 4, 6, 6}, {dtype = "int64"})}, {stride = 3, padding = 1}},
  MaxUnpool3d = {{2}, {cubes, accelhost.zeros({1, 2, 4, 6, 6}, {dtype = "int64"})}, {stride = 3, padding = 1}},
  FractionalMaxPool2d = {{2, 3}, {images}, {
    output_size = {2, output_size = 2}, output_ratio = {2, output_ratio = 0.5},
    _random_samples = accelhost.full({2, 4, 2}, 0.3),
  }},
  FractionalMaxPool3d = {{2, 2}, {cubes}, {
    output_size = {2, output_size = 3}, output_ratio = {2, output_ratio = 0.5},
    _random_samples = accelhost.full({1, 2, 3}, 0.3),
  }},
  SyncBatchNorm = {{4}, {images}},
  BatchNorm1d = {{4}, {rows}}, BatchNorm2d = {{4}, {images}}, BatchNorm3d = {{4}, {volumes}}, LayerNorm = {{8}, {rows}},
  RMSNorm = {{8}, {rows}}, GroupNorm = {{2, 4}, {rows}}, LocalResponseNorm = {{2}, {rows}},
  InstanceNorm1d = {{4}, {rows}, instance}, InstanceNorm2d = {{4}, {images}, instance},
  InstanceNorm3d = {{4}, {volumes}, instance}, CELU = {{}, {rows}}, SELU = {{}, {rows}}, Mish = {{}, {rows}},
  Hardswish = {{}, {rows}}, Hardsigmoid = {{}, {rows}}, Threshold = {{0.5, 3}, {rows}},
  RReLU = {{}, {rows}, {lower = 0.2, upper = 0.5}}, Hardshrink = {{}, {rows}}, Softshrink = {{}, {rows}},
  GLU = {{}, {rows}, {dim = 1}}, Softmin = {{}, {rows}, {dim = 0}}, PReLU = {{}, {rows}, {num_parameters = 4}},
  Dropout3d = {{}, {volumes}}, AlphaDropout = {{}, {rows}}, FeatureAlphaDropout = {{}, {rows}},
  CosineSimilarity = {{}, {mixed, other}, {dim = 0, eps = 9}}, PairwiseDistance = {{}, {logits, chances}, {p = 1}},
  MarginRankingLoss = {{}, {mixed, other, signs}}, HingeEmbeddingLoss = {{}, {logits, signs}},
  SoftMarginLoss = {{}, {logits, signs}},
  CosineEmbeddingLoss = {{}, {mixed, mixed + signs * 0.5, signs:select(1, 0)}, {margin = 0.2}},
  MultiMarginLoss = {{}, {logits, classes}, {p = 2, weight = weights}},
  MultiLabelMarginLoss = {{}, {logits, classes:unsqueeze(1):tile(1, 8)}},
  MultiLabelSoftMarginLoss = {{}, {logits, chances}, {weight = weights}},
  TripletMarginLoss = {{}, {mixed, other, other + 0.5}, {margin = 3}},
  TripletMarginWithDistanceLoss = {{}, {mixed, other, other + 0.5},
    {distance_function = function(a, b) return (a - b):abs():amax(-1) end, margin = 3}},
  PoissonNLLLoss = {{}, {logits, mixed:abs() * 5}, {eps = {log_input = false, eps = 0.3}}},
  CTCLoss = {{}, {rows:log_softmax(-1), accelhost.tensor({{1, 3}, {1, 3}, {1, 2}, {3, 3}}, {dtype = "int64"}),
    {2, 2, 2, 2}, {1, 2, 2, 2}}, {blank = {zero_infinity = true, blank = 2}}},
  GaussianNLLLoss = {{}, {logits, chances, chances}, {eps = 0.6}},
  Embedding = {{9, 3}, {classes}, {padding_idx = 1, max_norm = 0.5, norm_type = 1,
    _weight = accelhost.ones(9, 3), _freeze = true}},
  EmbeddingBag = {{9, 3}, {classes, accelhost.tensor({0, 2}, {dtype = "int64"})},
    {padding_idx = 1, max_norm = 0.5, norm_type = 1, _weight = accelhost.ones(9, 3)}},
  Dropout = {{}, {rows}}, Dropout1d = {{}, {rows}}, Dropout2d = {{}, {images}},
  MaxPool1d = {{2}, {rows}, {stride = 1, padding = 1, ceil_mode = {3, 2, ceil_mode = true}}},
  MaxPool2d = {{3}, {images}, {padding = 1, ceil_mode = {5, 2, ceil_mode = true}}},
  AvgPool1d = {{2}, {rows}, {stride = 1, padding = 1, ceil_mode = {3, 2, ceil_mode = true},
    count_include_pad = {2, padding = 1, count_include_pad = false}}},
  AvgPool2d = {{3}, {images}, {padding = 1, ceil_mode = {5, 2, ceil_mode = true},
    count_include_pad = {3, padding = 1, count_include_pad = false}}},
  Upsample = {{}, {images}, {mode = {size = 3, mode = "bicubic"},
    align_corners = {size = 3, mode = "bilinear", align_corners = true},
    recompute_scale_factor = {scale_factor = 1.3, mode = "bilinear", recompute_scale_factor = true}}},
  UpsamplingNearest2d = {{}, {images}}, UpsamplingBilinear2d = {{}, {images}},
  Unfold = {{2}, {images}}, Fold = {{4, 2}, {accelhost.linspace(0, 1, 36):view(1, 4, 9)}, nil, {
    dilation = {accelhost.ones(1, 4, 4)}, stride = {accelhost.ones(1, 4, 4)}, padding = {accelhost.ones(1, 4, 49)},
  }},
  Flatten = {{}, {rows}, {start_dim = 0, end_dim = 1}},
  MultiheadAttention = {{8, 2}, {rows, rows, rows}, {kdim = {8, 2, {kdim = 4}}, vdim = {8, 2, {vdim = 4}}},
    {kdim = {rows, rows:narrow(2, 0, 4), rows}, vdim = {rows, rows, rows:narrow(2, 0, 4)}}},
  TransformerEncoderLayer = {{8, 2}, {rows}}, TransformerDecoderLayer = {{8, 2}, {rows, rows * 0.5}},
  TransformerDecoder = {{nn.TransformerDecoderLayer(8, 2), 2}, {rows, rows * 0.5}, {norm = nn.LayerNorm(8)}},
  Transformer = {{8, 2, 1, 1, 16}, {rows, rows * 0.5}, {
    custom_encoder = nn.TransformerEncoder(nn.Identity(), 0), custom_decoder = nn.TransformerDecoder(nn.Identity(), 0),
  }},
  RNN = {{8, 3}, {rows}, {dropout = {num_layers = 2, dropout = 0.5}}}, RNNCell = {{8, 3}, {logits}},
  LSTM = {{8, 3}, {rows}, {dropout = {num_layers = 2, dropout = 0.5}}}, LSTMCell = {{8, 3}, {logits}},
  GRU = {{8, 3}, {rows}, {dropout = {num_layers = 2, dropout = 0.5}}}, GRUCell = {{8, 3}, {logits}},
  ReLU = {{}, {rows}}, ReLU6 = {{}, {rows}}, GELU = {{}, {rows}}, SiLU = {{}, {rows}}, LeakyReLU = {{}, {rows}},
  ELU = {{}, {rows}}, Hardtanh = {{}, {rows}, {min_val = -0.5, max_val = 0.5}},
  Softplus = {{}, {rows}, {threshold = 0}}, Softmax = {{}, {rows}, {dim = 0}}, LogSoftmax = {{}, {rows}, {dim = 0}},
  AdaptiveLogSoftmaxWithLoss = {{8, 5, {2}}, {logits, classes}},
  CrossEntropyLoss = {{}, {logits, classes}, {weight = weights, ignore_index = 3}},
  NLLLoss = {{}, {logits, classes}, {weight = weights, ignore_index = 3}},
  MSELoss = {{}, {logits, chances}}, L1Loss = {{}, {logits, chances}}, SmoothL1Loss = {{}, {logits, chances}},
  HuberLoss = {{}, {logits, chances}, {delta = 0.1}},
  BCELoss = {{}, {chances, chances}, {weight = weights}},
  BCEWithLogitsLoss = {{}, {logits, chances}, {weight = weights, pos_weight = weights}},
  KLDivLoss = {{}, {logits, chances}},
}

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
  local inputs = case[4] and case[4][option] or case[2]
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

describe("The options of", function()
  for name, case in pairs(layers) do
    it("nn." .. name, function()
      local values, special = case[1], case[3]
      for _, row in ipairs(arguments.signatures[name]) do
        if not row.required then
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
    end)
  end

  it("every layer are looked at here", function()
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
