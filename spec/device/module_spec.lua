--- Modules and functions of nn on "far" while the default device is the CPU: a layer's intermediate tensors must be
-- stored where its input is, and the results are the CPU's to the bit.
local accelhost = require "accelhost"
local check = require "spec.support.check"

local nn, F = accelhost.nn, accelhost.nn.functional

local function randn(...) return accelhost.randn(...) end
local function long(values) return accelhost.tensor(values, {dtype = "int64"}) end
local function unit(...) return accelhost.rand(...) end

local function tracked(o)
  return {affine = true, track_running_stats = true, device = o.device}
end

-- name -> constructor of the module (given {device =}) and its inputs
local layers = {
  Identity = {function() return nn.Identity() end, function() return randn(2, 3) end},
  Linear = {function(o) return nn.Linear(3, 4, o) end, function() return randn(2, 3) end},
  NonDynamicallyQuantizableLinear = {function(o) return nn.NonDynamicallyQuantizableLinear(3, 4, o) end,
    function() return randn(2, 3) end},
  Bilinear = {function(o) return nn.Bilinear(3, 4, 5, o) end, function() return randn(2, 3), randn(2, 4) end},
  Conv1d = {function(o) return nn.Conv1d(2, 3, 3, o) end, function() return randn(2, 2, 8) end},
  Conv2d = {function(o) return nn.Conv2d(3, 8, 3, o) end, function() return randn(2, 3, 8, 8) end},
  Conv3d = {function(o) return nn.Conv3d(2, 3, 2, o) end, function() return randn(2, 2, 4, 4, 4) end},
  ConvTranspose3d = {function(o) return nn.ConvTranspose3d(2, 3, 2, o) end, function() return randn(2, 2, 3, 3, 3) end},
  ConvTranspose1d = {function(o) return nn.ConvTranspose1d(2, 3, 3, o) end, function() return randn(2, 2, 8) end},
  ConvTranspose2d = {function(o) return nn.ConvTranspose2d(3, 8, 3, o) end, function() return randn(2, 3, 8, 8) end},
  BatchNorm1d = {function(o) return nn.BatchNorm1d(3, o) end, function() return randn(4, 3) end},
  BatchNorm2d = {function(o) return nn.BatchNorm2d(3, o) end, function() return randn(4, 3, 2, 2) end},
  BatchNorm3d = {function(o) return nn.BatchNorm3d(3, o) end, function() return randn(2, 3, 2, 2, 2) end},
  SyncBatchNorm = {function(o) return nn.SyncBatchNorm(3, o) end, function() return randn(2, 3, 2, 2) end},
  InstanceNorm1d = {function(o) return nn.InstanceNorm1d(3, tracked(o)) end, function() return randn(2, 3, 4) end},
  InstanceNorm2d = {function(o) return nn.InstanceNorm2d(3, tracked(o)) end, function() return randn(2, 3, 2, 2) end},
  InstanceNorm3d = {function(o) return nn.InstanceNorm3d(3, tracked(o)) end,
    function() return randn(2, 3, 2, 2, 2) end},
  RMSNorm = {function(o) return nn.RMSNorm({3}, o) end, function() return randn(4, 3) end},
  LocalResponseNorm = {function() return nn.LocalResponseNorm(2) end, function() return randn(2, 4, 3) end},
  LayerNorm = {function(o) return nn.LayerNorm({3}, o) end, function() return randn(4, 3) end},
  GroupNorm = {function(o) return nn.GroupNorm(2, 4, o) end, function() return randn(2, 4, 3) end},
  Embedding = {function(o)
    return nn.Embedding(5, 3, {padding_idx = 1, device = o.device})
  end, function() return long {{0, 1}, {4, 2}} end},
  EmbeddingBag = {function(o)
    return nn.EmbeddingBag(5, 3, {padding_idx = 1, mode = "max", max_norm = 1, device = o.device})
  end, function() return long {0, 1, 4, 2}, long {0, 1, 1} end},
  Dropout = {function() return nn.Dropout(0.5) end, function() return randn(4, 8) end},
  Dropout1d = {function() return nn.Dropout1d(0.5) end, function() return randn(4, 8, 3) end},
  Dropout2d = {function() return nn.Dropout2d(0.5) end, function() return randn(4, 8, 3, 3) end},
  MaxPool1d = {function() return nn.MaxPool1d(2) end, function() return randn(2, 3, 8) end},
  MaxPool2d = {function() return nn.MaxPool2d(2) end, function() return randn(2, 3, 8, 8) end},
  MaxPool3d = {function() return nn.MaxPool3d(2) end, function() return randn(2, 3, 4, 4, 4) end},
  AvgPool3d = {function() return nn.AvgPool3d(2) end, function() return randn(2, 3, 4, 4, 4) end},
  AdaptiveAvgPool3d = {function() return nn.AdaptiveAvgPool3d(3) end, function() return randn(2, 3, 4, 5, 4) end},
  AdaptiveMaxPool1d = {function() return nn.AdaptiveMaxPool1d(3) end, function() return randn(2, 3, 8) end},
  AdaptiveMaxPool2d = {function() return nn.AdaptiveMaxPool2d(3) end, function() return randn(2, 3, 8, 8) end},
  AdaptiveMaxPool3d = {function() return nn.AdaptiveMaxPool3d(3) end, function() return randn(2, 3, 4, 5, 4) end},
  LPPool1d = {function() return nn.LPPool1d(2, 2) end, function() return unit(2, 3, 8) end},
  LPPool2d = {function() return nn.LPPool2d(2, 2) end, function() return unit(2, 3, 8, 8) end},
  LPPool3d = {function() return nn.LPPool3d(2, 2) end, function() return unit(2, 3, 4, 4, 4) end},
  MaxUnpool1d = {function() return nn.MaxUnpool1d(2) end, function() return randn(1, 1, 2), long {{{1, 3}}} end},
  MaxUnpool2d = {function() return nn.MaxUnpool2d(2) end, function() return randn(1, 1, 1, 2), long {{{{4, 2}}}} end},
  MaxUnpool3d = {function() return nn.MaxUnpool3d(2) end,
    function() return randn(1, 1, 1, 1, 2), long {{{{{4, 2}}}}} end},
  FractionalMaxPool2d = {function(o)
    return nn.FractionalMaxPool2d(2, {output_size = 3, _random_samples = accelhost.full({2, 3, 2}, 0.6, o)})
  end, function() return randn(2, 3, 8, 8) end},
  FractionalMaxPool3d = {function(o)
    return nn.FractionalMaxPool3d(2, {output_ratio = 0.5, _random_samples = accelhost.full({2, 3, 3}, 0.6, o)})
  end, function() return randn(2, 3, 4, 4, 4) end},
  AvgPool1d = {function() return nn.AvgPool1d(2) end, function() return randn(2, 3, 8) end},
  AvgPool2d = {function() return nn.AvgPool2d(2) end, function() return randn(2, 3, 8, 8) end},
  AdaptiveAvgPool1d = {function() return nn.AdaptiveAvgPool1d(3) end, function() return randn(2, 3, 8) end},
  AdaptiveAvgPool2d = {function() return nn.AdaptiveAvgPool2d(3) end, function() return randn(2, 3, 8, 8) end},
  Upsample = {function() return nn.Upsample {scale_factor = 1.5, mode = "bicubic"} end, function()
    return randn(2, 3, 4, 4)
  end},
  UpsamplingNearest2d = {function() return nn.UpsamplingNearest2d(3) end, function() return randn(2, 3, 4, 4) end},
  UpsamplingBilinear2d = {function() return nn.UpsamplingBilinear2d(3) end, function() return randn(2, 3, 4, 4) end},
  Unfold = {function() return nn.Unfold(2) end, function() return randn(2, 3, 4, 4) end},
  Fold = {function() return nn.Fold(3, 2) end, function() return randn(2, 8, 4) end},
  PixelShuffle = {function() return nn.PixelShuffle(2) end, function() return randn(2, 4, 3, 3) end},
  PixelUnshuffle = {function() return nn.PixelUnshuffle(2) end, function() return randn(2, 3, 4, 4) end},
  ChannelShuffle = {function() return nn.ChannelShuffle(2) end, function() return randn(2, 4, 3, 3) end},
  Flatten = {function() return nn.Flatten() end, function() return randn(2, 3, 4) end},
  Unflatten = {function() return nn.Unflatten(1, {3, 4}) end, function() return randn(2, 12) end},
  ReLU = {function() return nn.ReLU() end, function() return randn(2, 3) end},
  GELU = {function() return nn.GELU() end, function() return randn(2, 3) end},
  SiLU = {function() return nn.SiLU() end, function() return randn(2, 3) end},
  Tanh = {function() return nn.Tanh() end, function() return randn(2, 3) end},
  Sigmoid = {function() return nn.Sigmoid() end, function() return randn(2, 3) end},
  LeakyReLU = {function() return nn.LeakyReLU() end, function() return randn(2, 3) end},
  ELU = {function() return nn.ELU() end, function() return randn(2, 3) end},
  Softplus = {function() return nn.Softplus() end, function() return randn(2, 3) end},
  Softmax = {function() return nn.Softmax(1) end, function() return randn(2, 3) end},
  LogSoftmax = {function() return nn.LogSoftmax(1) end, function() return randn(2, 3) end},
  Hardtanh = {function() return nn.Hardtanh() end, function() return randn(2, 3) end},
  ReLU6 = {function() return nn.ReLU6() end, function() return randn(2, 3) end},
  CELU = {function() return nn.CELU() end, function() return randn(2, 3) end},
  SELU = {function() return nn.SELU() end, function() return randn(2, 3) end},
  Mish = {function() return nn.Mish() end, function() return randn(2, 3) end},
  Hardswish = {function() return nn.Hardswish() end, function() return randn(2, 3) end},
  Hardsigmoid = {function() return nn.Hardsigmoid() end, function() return randn(2, 3) end},
  LogSigmoid = {function() return nn.LogSigmoid() end, function() return randn(2, 3) end},
  Softsign = {function() return nn.Softsign() end, function() return randn(2, 3) end},
  Tanhshrink = {function() return nn.Tanhshrink() end, function() return randn(2, 3) end},
  Hardshrink = {function() return nn.Hardshrink() end, function() return randn(2, 3) end},
  Softshrink = {function() return nn.Softshrink() end, function() return randn(2, 3) end},
  RReLU = {function() return nn.RReLU() end, function() return randn(2, 3) end},
  GLU = {function() return nn.GLU() end, function() return randn(2, 4) end},
  Threshold = {function() return nn.Threshold(0.1, 2) end, function() return randn(2, 3) end},
  Softmin = {function() return nn.Softmin(1) end, function() return randn(2, 3) end},
  Softmax2d = {function() return nn.Softmax2d() end, function() return randn(2, 3, 2, 2) end},
  PReLU = {function(o) return nn.PReLU(3, o) end, function() return randn(2, 3, 4) end},
  Dropout3d = {function() return nn.Dropout3d(0.5) end, function() return randn(4, 8, 2, 3, 3) end},
  AlphaDropout = {function() return nn.AlphaDropout(0.5) end, function() return randn(4, 8) end},
  FeatureAlphaDropout = {function() return nn.FeatureAlphaDropout(0.5) end, function() return randn(4, 8, 3) end},
  ConstantPad1d = {function() return nn.ConstantPad1d(1, 3) end, function() return randn(2, 3, 4) end},
  ConstantPad2d = {function() return nn.ConstantPad2d(1, 3) end, function() return randn(2, 3, 4, 4) end},
  ConstantPad3d = {function() return nn.ConstantPad3d(1, 3) end, function() return randn(2, 3, 4, 4, 4) end},
  ZeroPad1d = {function() return nn.ZeroPad1d(1) end, function() return randn(2, 3, 4) end},
  ZeroPad2d = {function() return nn.ZeroPad2d(1) end, function() return randn(2, 3, 4, 4) end},
  ZeroPad3d = {function() return nn.ZeroPad3d(1) end, function() return randn(2, 3, 4, 4, 4) end},
  ReflectionPad1d = {function() return nn.ReflectionPad1d(1) end, function() return randn(2, 3, 4) end},
  ReflectionPad2d = {function() return nn.ReflectionPad2d(1) end, function() return randn(2, 3, 4, 4) end},
  ReflectionPad3d = {function() return nn.ReflectionPad3d(1) end, function() return randn(2, 3, 4, 4, 4) end},
  ReplicationPad1d = {function() return nn.ReplicationPad1d(1) end, function() return randn(2, 3, 4) end},
  ReplicationPad2d = {function() return nn.ReplicationPad2d(1) end, function() return randn(2, 3, 4, 4) end},
  ReplicationPad3d = {function() return nn.ReplicationPad3d(1) end, function() return randn(2, 3, 4, 4, 4) end},
  CircularPad1d = {function() return nn.CircularPad1d(1) end, function() return randn(2, 3, 4) end},
  CircularPad2d = {function() return nn.CircularPad2d(1) end, function() return randn(2, 3, 4, 4) end},
  CircularPad3d = {function() return nn.CircularPad3d(1) end, function() return randn(2, 3, 4, 4, 4) end},
  Sequential = {function(o) return nn.Sequential(nn.Linear(3, 4, o), nn.ReLU(), nn.Linear(4, 2, o)) end,
    function() return randn(2, 3) end},
  MultiheadAttention = {function(o)
    return nn.MultiheadAttention(8, 2, {batch_first = true, add_bias_kv = true, add_zero_attn = true,
      device = o.device})
  end, function() return randn(2, 5, 8), randn(2, 5, 8), randn(2, 5, 8) end},
  TransformerEncoderLayer = {function(o)
    return nn.TransformerEncoderLayer(8, 2, {dim_feedforward = 16, batch_first = true, device = o.device})
  end, function() return randn(2, 5, 8) end},
  TransformerEncoder = {function(o)
    return nn.TransformerEncoder(function()
      return nn.TransformerEncoderLayer(8, 2, {dim_feedforward = 16, device = o.device})
    end, 2)
  end, function() return randn(5, 2, 8) end},
  TransformerDecoderLayer = {function(o)
    return nn.TransformerDecoderLayer(8, 2, {dim_feedforward = 16, device = o.device})
  end, function() return randn(5, 2, 8), randn(4, 2, 8) end},
  TransformerDecoder = {function(o)
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, {dim_feedforward = 16, device = o.device}), 2)
  end, function() return randn(5, 2, 8), randn(4, 2, 8) end},
  Transformer = {function(o) return nn.Transformer(8, 2, 1, 1, 16, {device = o.device}) end,
    function() return randn(5, 2, 8), randn(4, 2, 8) end},
  RNN = {function(o) return nn.RNN(3, 4, 2, o) end, function() return randn(5, 2, 3) end},
  LSTM = {function(o) return nn.LSTM(3, 4, {bidirectional = true, device = o.device}) end,
    function() return randn(5, 2, 3) end},
  GRU = {function(o) return nn.GRU(3, 4, 2, o) end, function() return randn(5, 2, 3) end},
  RNNCell = {function(o) return nn.RNNCell(3, 4, o) end, function() return randn(2, 3) end},
  LSTMCell = {function(o) return nn.LSTMCell(3, 4, o) end, function() return randn(2, 3) end},
  GRUCell = {function(o) return nn.GRUCell(3, 4, o) end, function() return randn(2, 3), randn(2, 4) end},
  AdaptiveLogSoftmaxWithLoss = {function(o) return nn.AdaptiveLogSoftmaxWithLoss(5, 9, {2, 5}, 2, o) end,
    function() return randn(4, 5), long {0, 8, 3, 1} end},
  CrossEntropyLoss = {function() return nn.CrossEntropyLoss {label_smoothing = 0.1} end,
    function() return randn(3, 4), long {0, 3, 1} end},
  NLLLoss = {function() return nn.NLLLoss() end, function() return randn(3, 4), long {0, 3, 1} end},
  MSELoss = {function() return nn.MSELoss() end, function() return randn(3, 4), randn(3, 4) end},
  L1Loss = {function() return nn.L1Loss() end, function() return randn(3, 4), randn(3, 4) end},
  SmoothL1Loss = {function() return nn.SmoothL1Loss() end, function() return randn(3, 4), randn(3, 4) end},
  HuberLoss = {function() return nn.HuberLoss() end, function() return randn(3, 4), randn(3, 4) end},
  BCELoss = {function() return nn.BCELoss() end, function() return unit(3, 4), unit(3, 4) end},
  BCEWithLogitsLoss = {function() return nn.BCEWithLogitsLoss() end, function() return randn(3, 4), unit(3, 4) end},
  CosineSimilarity = {function() return nn.CosineSimilarity() end, function() return randn(3, 4), randn(3, 4) end},
  PairwiseDistance = {function() return nn.PairwiseDistance() end, function() return randn(3, 4), randn(3, 4) end},
  MarginRankingLoss = {function() return nn.MarginRankingLoss() end,
    function() return randn(4), randn(4), randn(4):sign() end},
  HingeEmbeddingLoss = {function() return nn.HingeEmbeddingLoss() end, function() return randn(4), randn(4):sign() end},
  SoftMarginLoss = {function() return nn.SoftMarginLoss() end, function() return randn(4), randn(4):sign() end},
  CosineEmbeddingLoss = {function() return nn.CosineEmbeddingLoss() end,
    function() return randn(3, 4), randn(3, 4), randn(3):sign() end},
  MultiMarginLoss = {function(o) return nn.MultiMarginLoss {weight = accelhost.ones({4}, o)} end,
    function() return randn(3, 4), long {0, 3, 1} end},
  MultiLabelMarginLoss = {function() return nn.MultiLabelMarginLoss() end,
    function() return randn(2, 3), long {{0, 2, -1}, {1, -1, 0}} end},
  MultiLabelSoftMarginLoss = {function() return nn.MultiLabelSoftMarginLoss() end,
    function() return randn(3, 4), unit(3, 4) end},
  TripletMarginLoss = {function() return nn.TripletMarginLoss {swap = true} end,
    function() return randn(3, 4), randn(3, 4), randn(3, 4) end},
  TripletMarginWithDistanceLoss = {function() return nn.TripletMarginWithDistanceLoss() end,
    function() return randn(3, 4), randn(3, 4), randn(3, 4) end},
  PoissonNLLLoss = {function() return nn.PoissonNLLLoss {full = true} end, function() return randn(3), unit(3) * 4 end},
  GaussianNLLLoss = {function() return nn.GaussianNLLLoss {full = true} end,
    function() return randn(3), randn(3), unit(3) end},
  CTCLoss = {function() return nn.CTCLoss() end,
    function() return randn(5, 2, 4), long {{1, 2, 2}, {3, 1, 0}}, long {5, 4}, long {3, 2} end},
  KLDivLoss = {function() return nn.KLDivLoss() end, function() return randn(3, 4), unit(3, 4) end},
}
-- Containers, and a base that is not made.
local others = {ModuleList = true, ModuleDict = true, ParameterList = true, ParameterDict = true, RNNBase = true}

local function same(what, expected, got)
  assert.equal("far:0", got.device, what)
  assert.same(check.flat(expected), check.flat(got), what)
end

local function moved(tensors)
  local there = {}
  for i, tensor in ipairs(tensors) do there[i] = tensor:to "far" end
  return there
end

-- Forward and backward with fixed random numbers; leaves are the floating inputs.
local function run(fn, inputs)
  for _, input in ipairs(inputs) do
    if input:is_floating_point() then input:requires_grad_() end
  end
  accelhost.manual_seed(3)
  local output = fn(unpack(inputs))
  if output.requires_grad then (output * output):sum():backward() end
  return output:detach()
end

describe("on another device", function()
  for name, layer in pairs(layers) do
    it("a moved nn." .. name .. " does what it does on the CPU", function()
      accelhost.manual_seed(1)
      local here = layer[1] {device = "cpu"}
      accelhost.manual_seed(1)
      local there = layer[1]({device = "cpu"}):to "far"
      local inputs = {layer[2]()}
      local inputs_there = moved(inputs)
      same("output", run(here, inputs), run(there, inputs_there))
      for i, input in ipairs(inputs) do
        if input.grad then same("gradient of input " .. i, input.grad, inputs_there[i].grad) end
      end
      local parameters = here:parameters()
      for i, parameter in ipairs(there:parameters()) do
        if parameters[i].grad then same("gradient of parameter " .. i, parameters[i].grad, parameter.grad) end
      end
      local state = here:state_dict()
      for key, tensor in pairs(there:state_dict()) do same(key, state[key], tensor) end
    end)
  end

  it("each layer is tested", function()
    local file = assert(io.open "lua/accelhost/nn/init.lua")
    local names = file:read("*a"):match "local files = (%b{})"
    file:close()
    for name in names:gmatch '"([%w_]+)"' do
      assert(layers[name] or others[name], "nn." .. name .. " is missing in this spec")
    end
  end)

  it("layers are made there when asked for", function()
    for _, layer in pairs(layers) do
      for key, tensor in pairs(layer[1]({device = "far:1"}):state_dict()) do
        assert.equal("far:1", tensor.device, key)
      end
    end
  end)

  local functions = {
    gumbel_softmax = function(x) return F.gumbel_softmax(x, {hard = true}) end,
    normalize = function(x) return F.normalize(x) end,
    cosine_similarity = function(x) return F.cosine_similarity(x, x * 2) end,
    pairwise_distance = function(x) return F.pairwise_distance(x, x * 2) end,
    pad = function(x) return F.pad(x, {1, 2, -1, 1}, {value = 3}) end,
    one_hot = function(x) return F.one_hot(x:gt(0):long()):float() end,
    attention = function(x)
      local q = x:view(1, 4, 6)
      return F.scaled_dot_product_attention(q, q, q, {is_causal = true})
    end,
    attention_without_scores = function(x)
      local q = x:view(1, 1, 24, 1)
      return F.scaled_dot_product_attention(q, q, q, {is_causal = true})
    end,
    varlen_attn = function(x)
      local q, cu = x:view(4, 2, 3), accelhost.tensor({0, 1, 4}, {dtype = "int32", device = x.device})
      return F.varlen_attn(q, q, q, cu, cu, 3, 3, {is_causal = true})
    end,
    repeat_interleave = function(x) return x:repeat_interleave(x:gt(0):long():select(1, 0), 0) end,
    split = function(x) return x:split(3)[2] end,
    take_mask = function(x) return x[x:gt(0)] end,
    dropout = function(x) return F.dropout(x, 0.3) end,
    multinomial = function(x) return x:softmax(1):multinomial(3):float() end,
  }
  for name, fn in pairs(functions) do
    it(name .. " does what it does on the CPU", function()
      accelhost.manual_seed(1)
      local x = randn(4, 6)
      local y = x:to "far"
      same("result", run(fn, {x}), run(fn, {y}))
      if x.grad then same("gradient", x.grad, y.grad) end
    end)
  end

  it("initialisers fill where the tensor is", function()
    for _, name in ipairs {"xavier_uniform_", "kaiming_normal_", "orthogonal_", "trunc_normal_", "eye_", "zeros_"} do
      accelhost.manual_seed(1)
      local here = nn.init[name](accelhost.empty(4, 3))
      accelhost.manual_seed(1)
      same(name, here, nn.init[name](accelhost.empty({4, 3}, {device = "far"})))
    end
    accelhost.manual_seed(1)
    local here = nn.init.sparse_(accelhost.empty(4, 3), 0.5)
    accelhost.manual_seed(1)
    same("sparse_", here, nn.init.sparse_(accelhost.empty({4, 3}, {device = "far"}), 0.5))
  end)

  it("a state_dict is loaded across devices", function()
    local here, there = nn.BatchNorm1d(3), nn.BatchNorm1d(3, {device = "far"})
    here(randn(4, 3))
    there:load_state_dict(here:state_dict())
    for key, tensor in pairs(there:state_dict()) do same(key, here:state_dict()[key], tensor) end
    here:load_state_dict(there:state_dict())
    assert.equal("cpu", here.weight.device)
  end)

  it("a module goes there and back with its gradients", function()
    local net = nn.Linear(3, 2)
    net(randn(4, 3)):sum():backward()
    local weight, grad = net.weight, net.weight.grad:tolist()
    net:to "far:1"
    assert.equal(weight, net.weight)
    assert.equal("far:1", net.weight.device)
    assert.equal("far:1", net.weight.grad.device)
    net:cpu()
    assert.equal("cpu", net.bias.device)
    assert.same(grad, net.weight.grad:tolist())
  end)

  it("clipping and norms of gradients stay there", function()
    local net = nn.Linear(3, 2, {device = "far"})
    net(randn({4, 3}, {device = "far"})):sum():backward()
    local norm = nn.utils.clip_grad_norm_(net:parameters(), 0.1)
    assert.equal("far:0", norm.device)
    assert.equal("far:0", net.weight.grad.device)
    nn.utils.clip_grad_value_(net:parameters(), 0.01)
  end)
end)
