--- Layers, losses and functions against PyTorch's numbers, of scripts/fixtures/modules.py, which says what a case is;
--- and their second derivatives against differences.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixture = require "spec.fixtures.modules"
local gradcheck = require "spec.support.gradcheck"

local nn, F = accelhost.nn, accelhost.nn.functional
local EXACT = 1e-11

local function weighed(tensor)
  local flat = tensor:reshape(-1):to "float64"
  return (flat * accelhost.arange(1, flat:numel() + 1, {dtype = "float64"}):sin()):sum()
end

local function draw(text)
  local kind, rest = text:match "^(.- ?)([%d,]*)$"
  local sizes = {}
  for size in rest:gmatch "%d+" do sizes[#sizes + 1] = tonumber(size) end
  if kind == "" then return accelhost.randn(sizes, {dtype = "float64", requires_grad = true}) end
  if kind == "rand " then return accelhost.rand(sizes, {dtype = "float64", requires_grad = true}) end
  if kind == "sign " then return accelhost.randn(sizes, {dtype = "float64"}):sign() end
  return accelhost.randint(tonumber(kind:match "%d+"), sizes)
end

local function make(case)
  local text = case.call:gsub("%)%.eval%(%)", "):eval()")
  local chunk = assert(loadstring("return " .. text))
  accelhost.manual_seed(3)
  local made = setfenv(chunk, {nn = nn, F = F, accelhost = accelhost, ipairs = ipairs, unpack = unpack})()
  return nn.is_module(made) and made:double() or made
end

local function inputs_of(case)
  accelhost.manual_seed(5)
  local inputs = {}
  for i, text in ipairs(case.inputs) do inputs[i] = draw(text) end
  return inputs
end

local function check_state(case, made)
  assert.equal(case.text, tostring(made))
  local keys = {}
  for key in require("accelhost.nn.module").state_pairs(made:state_dict()) do keys[#keys + 1] = key end
  assert.same(case.keys, keys)
end

local function check_gradients(case, made, inputs, results)
  local total = 0
  for _, result in ipairs(results) do
    if result.requires_grad then total = total + weighed(result) end
  end
  total:backward()
  for i, expected in ipairs(case.grads) do
    if expected then
      check.near(expected, weighed(inputs[i].grad), case.tolerance or EXACT, "gradient of input " .. i)
    else
      assert.is_nil(inputs[i].grad)
    end
  end
  for name, expected in pairs(case.parameters or {}) do
    check.near(expected, weighed(made:get_parameter(name).grad), EXACT, "gradient of " .. name)
  end
end

describe("PyTorch's numbers come from", function()
  for number, case in ipairs(fixture) do
    it(case.call .. " (" .. number .. ")", function()
      local made = make(case)
      if nn.is_module(made) then check_state(case, made) end
      local inputs = inputs_of(case)
      local results = {made(unpack(inputs))}
      assert.equal(#case.outputs, #results)
      for i, expected in ipairs(case.outputs) do
        assert.same(expected.sizes, results[i]:shape())
        check.near(expected.sum, weighed(results[i]), EXACT, "output " .. i)
      end
      if case.grads then check_gradients(case, made, inputs, results) end
    end)
  end
end)

-- What draws random numbers would draw others for each difference.
local function is_random(case)
  return case.call:find "RReLU" or case.call:find "rrelu" or case.call:find "Dropout" or case.call:find "Fractional"
    or case.call:find "dtype ="
end

describe("Second derivatives are those of differences for", function()
  for number, case in ipairs(fixture) do
    local elements, differentiable = 0, false
    for _, input in ipairs(inputs_of(case)) do
      elements, differentiable = elements + input:numel(), differentiable or input.requires_grad
    end
    if case.grads and differentiable and elements <= 40 and not is_random(case) and not case.first_only then
      it(case.call .. " (" .. number .. ")", function()
        local made = make(case)
        local function call(...)
          return made(...)
        end
        gradcheck.gradgradcheck(call, inputs_of(case), {atol = 1e-4, rtol = 1e-3})
      end)
    end
  end
end)

describe("What does not fit is named by", function()
  local zeros = accelhost.zeros
  local function long(values) return accelhost.tensor(values, {dtype = "int64"}) end
  for message, call in pairs {
    ["glu: expected an even size of dim 1, got input (2, 3)"] = function() F.glu(zeros(2, 3), 1) end,
    ["celu: alpha: expected a number other than 0"] = function() F.celu(zeros(2), 0) end,
    ["rrelu: expected lower <= upper, got 0.5 and 0.25"] = function() F.rrelu(zeros(2), 0.5, 0.25) end,
    ["prelu: weight: expected 1 number or one for each of 3 channels, got shape (2,)"] = function()
      F.prelu(zeros(2, 3), zeros(2))
    end,
    ["Softmax2d: expected an input of 3 or 4 dims, got 2"] = function() nn.Softmax2d()(zeros(2, 3)) end,
    ["Softmin: 'dim' is missing"] = function() nn.Softmin()(zeros(2)) end,
    ["instance_norm: expected more than 1 value per channel, got input (2, 3, 1)"] = function()
      F.instance_norm(zeros(2, 3, 1))
    end,
    ["InstanceNorm2d: expected an input of 4 channels, got 3"] = function()
      nn.InstanceNorm2d(4, {affine = true})(zeros(1, 3, 2, 2))
    end,
    ["BatchNorm3d: expected an input of 5 dims, got 4"] = function() nn.BatchNorm3d(2)(zeros(1, 2, 2, 2)) end,
    ["ConstantPad2d: padding: expected an integer or a table of 4, got 3"] = function()
      nn.ConstantPad2d({1, 2, 3}, 0)
    end,
    ["CircularPad2d: expected an input of 3 or 4 dims, got (2, 3)"] = function() nn.CircularPad2d(1)(zeros(2, 3)) end,
    ["multi_margin_loss: target 4 is outside 0..3"] = function() F.multi_margin_loss(zeros(2, 4), long {0, 4}) end,
    ["multi_margin_loss: p: expected 1 or 2, got 3"] = function()
      F.multi_margin_loss(zeros(2, 4), long {0, 1}, 3)
    end,
    ["multilabel_margin_loss: expected a target of the input's shape (2, 4), got (2, 3)"] = function()
      F.multilabel_margin_loss(zeros(2, 4), long {{0, 1, 2}, {0, 1, 2}})
    end,
    ["gaussian_nll_loss: var: shape (2,) does not fit input (3, 4)"] = function()
      F.gaussian_nll_loss(zeros(3, 4), zeros(3, 4), zeros(2))
    end,
    ["gaussian_nll_loss: var: expected no number below 0"] = function()
      F.gaussian_nll_loss(zeros(2), zeros(2), accelhost.tensor {1, -1})
    end,
    ["mse_loss: weight: expected the input's shape (2,), got (1,)"] = function()
      F.mse_loss(zeros(2), zeros(2), {weight = zeros(1)})
    end,
    ["MarginRankingLoss: expected 3 arguments, got 4"] = function()
      nn.MarginRankingLoss()(zeros(2), zeros(2), zeros(2), zeros(2))
    end,
    ["hinge_embedding_loss: 'target' is missing"] = function() nn.HingeEmbeddingLoss()(zeros(2)) end,
    ["feature_alpha_dropout: expected an input of at least 2 dims, got 1"] = function()
      F.feature_alpha_dropout(zeros(2), {training = true})
    end,
    ["Embedding: sparse: there are no sparse tensors here"] = function() nn.Embedding(3, 2, {sparse = true}) end,
    ["EmbeddingBag: _weight: expected shape (3, 2), got (2, 2)"] = function()
      nn.EmbeddingBag(3, 2, {_weight = zeros(2, 2)})
    end,
    ["embedding_bag: a one-dimensional input needs offsets"] = function() F.embedding_bag(long {0}, zeros(2, 2)) end,
    ["embedding_bag: offsets: expected 0 as the first, got 1"] = function()
      F.embedding_bag(long {0, 1}, zeros(2, 2), long {1})
    end,
    ["embedding_bag: offsets: expected rising numbers up to 2, got 3 after 0"] = function()
      F.embedding_bag(long {0, 1}, zeros(2, 2), long {0, 3})
    end,
    ["embedding_bag: per_sample_weights need mode 'sum', got 'mean'"] = function()
      F.embedding_bag(long {{0, 1}}, zeros(2, 2), {per_sample_weights = zeros(1, 2)})
    end,
    ["embedding_bag: scale_grad_by_freq does not go with mode 'max'"] = function()
      F.embedding_bag(long {{0, 1}}, zeros(2, 2), {mode = "max", scale_grad_by_freq = true})
    end,
    ["AdaptiveLogSoftmaxWithLoss: cutoffs: expected rising numbers in 1..8, got 5, 3"] = function()
      nn.AdaptiveLogSoftmaxWithLoss(4, 9, {5, 3})
    end,
    ["AdaptiveLogSoftmaxWithLoss: target 9 is outside 0..8"] = function()
      nn.AdaptiveLogSoftmaxWithLoss(4, 9, {3})(zeros(1, 4), long {9})
    end,
    ["pdist: expected an input (N, D), got (2,)"] = function() F.pdist(zeros(2)) end,
  } do
    it(message, function() check.raises(message, call) end)
  end
end)

describe("A function in place", function()
  it("is an op's, too, where the option says so", function()
    local x = accelhost.tensor {-1, 2}
    assert.are_not.equal(x, F.relu(x, false))
    assert.are_not.equal(x, F.relu(x, {inplace = false}))
    assert.same({-1, 2}, x:tolist())
    assert.equal(x, F.relu(x, {inplace = true}))
    assert.same({0, 2}, x:tolist())
    check.raises("relu: inplace: expected true or false, got number 1", function() F.relu(x, {inplace = 1}) end)
    check.raises("unknown option 'inplaec'", function() F.relu(x, {inplaec = true}) end)
  end)

  it("writes into its input and keeps the gradient", function()
    for _, name in ipairs {"celu", "selu", "mish", "relu6"} do
      local x = accelhost.randn({3, 4}, {dtype = "float64", requires_grad = true})
      local copy = x:clone()
      local y = F[name](copy, {inplace = true})
      assert.equal(copy, y)
      assert.is_true(y:allclose(F[name](x)))
      gradcheck.gradcheck(function(input) return F[name .. "_"](input:clone()) end, {x})
    end
  end)
end)

describe("A transformer", function()
  it("masks the future", function()
    local mask = nn.Transformer.generate_square_subsequent_mask(2)
    assert.same({{0, -math.huge}, {0, 0}}, mask:tolist())
    local layer = nn.TransformerEncoderLayer(4, 2, 8, 0)
    local x = accelhost.randn(3, 1, 4)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    local wanted, hinted = layer(x, mask), layer(x, mask, {is_causal = true})
    check.near(check.flat(wanted), hinted, 1e-6)
    x[2] = 9
    check.near(check.flat(wanted:narrow(0, 0, 2)), layer(x, mask):narrow(0, 0, 2), 1e-6)
  end)

  it("copies the layer that it is given", function()
    local layer = nn.TransformerEncoderLayer(4, 2, 8)
    local encoder = nn.TransformerEncoder(layer, 2)
    assert.is_true(encoder.layers[1].linear1.weight:equal(encoder.layers[2].linear1.weight))
    assert.are_not.equal(encoder.layers[1].linear1.weight, encoder.layers[2].linear1.weight)
  end)

  it("says what does not fit", function()
    check.raises("Transformer: expected src and tgt of one batch with 4 features, got (3, 2, 4) and (3, 1, 4)",
      function() nn.Transformer(4, 2, 1, 1, 8)(accelhost.zeros(3, 2, 4), accelhost.zeros(3, 1, 4)) end)
    check.raises("is_causal needs an attn_mask", function()
      nn.TransformerEncoderLayer(4, 2, 8)(accelhost.zeros(3, 2, 4), {is_causal = true})
    end)
    check.raises("scaled_dot_product_attention: with enable_gqa the heads of key and value divide the query's, got "
      .. "(1, 2, 4, 2) and (1, 3, 4, 2)", function()
      local q, k = accelhost.zeros(1, 3, 4, 2), accelhost.zeros(1, 2, 4, 2)
      F.scaled_dot_product_attention(q, k, k, {enable_gqa = true})
    end)
  end)
end)

describe("An embedding", function()
  it("cuts the rows that are used in its weight, and no others", function()
    local weight = accelhost.tensor {{3, 4}, {0.3, 0.4}, {6, 8}}
    local layer = nn.Embedding.from_pretrained(weight, {max_norm = 1})
    layer(accelhost.tensor({0, 1}, {dtype = "int64"}))
    check.near({0.6, 0.8, 0.3, 0.4, 6, 8}, layer.weight, 1e-6)
  end)

  it("is made from a matrix, frozen or not", function()
    assert.is_false(nn.Embedding.from_pretrained(accelhost.ones(2, 3)).weight.requires_grad)
    local bag = nn.EmbeddingBag.from_pretrained(accelhost.ones(2, 3), false, {mode = "sum"})
    assert.is_true(bag.weight.requires_grad)
    assert.same({{2, 2, 2}}, bag(accelhost.tensor({{0, 1}}, {dtype = "int64"})):tolist())
  end)

  it("gives zeros for an empty bag", function()
    for _, mode in ipairs {"sum", "mean", "max"} do
      local bag = nn.EmbeddingBag(3, 2, {mode = mode})
      local result = bag(accelhost.tensor({1}, {dtype = "int64"}), accelhost.tensor({0, 1, 1}, {dtype = "int64"}))
      assert.same({3, 2}, result:shape())
      assert.same({{0, 0}, {0, 0}}, result:narrow(0, 1, 2):tolist())
    end
  end)
end)

describe("ctc_loss", function()
  local function long(values) return accelhost.tensor(values, {dtype = "int64"}) end
  local targets = long {{1, 2, 2}, {3, 1, 0}}
  local function loss(x) return F.ctc_loss(x:log_softmax(-1), targets, {6, 4}, {3, 2}, 0, "none") end

  it("has the gradients of differences, and none of higher order", function()
    local x = accelhost.randn({6, 2, 4}, {dtype = "float64", requires_grad = true})
    gradcheck.gradcheck(loss, {x})
    check.raises("backward of ctc: its second derivative is not implemented", function()
      accelhost.autograd.grad(loss(x):sum(), x, {create_graph = true})
    end)
  end)

  it("agrees between dtypes and for targets in rows or one after the other", function()
    local x = accelhost.randn {6, 2, 4}
    check.near(check.flat(loss(x:double())), loss(x), 1e-5)
    local flat = F.ctc_loss(x:log_softmax(-1), long {1, 2, 2, 3, 1}, long {6, 4}, long {3, 2}, 0, "none")
    check.near(check.flat(flat), loss(x), 0)
    assert.equal("bfloat16", loss(x:bfloat16()).dtype)
  end)

  it("costs inf, or 0 on demand, where the target does not fit the steps", function()
    local x = accelhost.zeros({2, 1, 3}, {requires_grad = true}):log_softmax(-1)
    assert.equal(math.huge, F.ctc_loss(x, long {{1, 1}}, {2}, {2}, {reduction = "none"}):item())
    assert.equal(0, F.ctc_loss(x, long {{1, 1}}, {2}, {2}, {reduction = "none", zero_infinity = true}):item())
    local inner = x:detach():requires_grad_()
    F.ctc_loss(inner, long {{1, 1}}, {2}, {2}):backward()
    assert.is_true(inner.grad:isnan():all():item())
  end)

  for message, call in pairs {
    ["ctc_loss: input_lengths: expected numbers in 0..6, got 7 at 1"] = {targets, {6, 7}, {3, 2}},
    ["ctc_loss: target_lengths: expected numbers in 0..3, got 4 at 0"] = {targets, {6, 6}, {4, 2}},
    ["ctc_loss: target_lengths: expected 2 lengths, got 3 numbers"] = {targets, {6, 6}, {4, 2, 1}},
    ["ctc_loss: target 4 of sequence 1 is outside 0..3"] = {long {{1, 2}, {1, 4}}, {6, 6}, {2, 2}},
    ["ctc_loss: targets: expected the 5 labels that target_lengths add up to, got 4"] =
      {long {1, 2, 2, 3}, {6, 6}, {3, 2}},
    ["ctc_loss: blank: expected a class in 0..3, got 4"] = {targets, {6, 6}, {3, 2}, 4},
    ["ctc_loss: targets: expected int64 for a batch of 2, got int64 (1, 3)"] =
      {targets:narrow(0, 0, 1), {6, 6}, {3, 2}},
  } do
    it("says " .. message, function()
      check.raises(message, function() F.ctc_loss(accelhost.zeros(6, 2, 4), unpack(call)) end)
    end)
  end
end)

describe("SyncBatchNorm", function()
  it("takes the place of every batch norm of a module, with its tensors", function()
    local net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm2d(3, {affine = false})))
    local weight, keys = net[2].weight, {}
    for key in pairs(net:state_dict()) do keys[#keys + 1] = key end
    assert.equal(net, nn.SyncBatchNorm.convert_sync_batchnorm(net))
    assert.equal("SyncBatchNorm", net[2]._name)
    assert.equal("SyncBatchNorm", net[3][1]._name)
    assert.equal(weight, net[2].weight)
    local state = net:state_dict()
    for _, key in ipairs(keys) do assert.is_not_nil(state[key]) end
    assert.equal("SyncBatchNorm", nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm3d(2))._name)
  end)

  it("says what does not fit", function()
    check.raises("SyncBatchNorm: process_group: expected a group of processes, got 'world'", function()
      nn.SyncBatchNorm(2, {process_group = "world"})
    end)
    check.raises("SyncBatchNorm: expected an input (N, 2, ...), got (3, 3)", function()
      nn.SyncBatchNorm(2)(accelhost.zeros(3, 3))
    end)
  end)
end)

-- The same tensor in other memory: its last dim is not its fastest.
local function restrided(tensor)
  if tensor:dim() < 2 or tensor:numel() == 0 then return tensor end
  return tensor:detach():transpose(0, -1):contiguous():transpose(0, -1)
end

local function as_list(...) return {...} end

describe("The same numbers come from inputs in other memory, and nearly the same from float32, with", function()
  for number, case in ipairs(fixture) do
    local floats = false
    for _, input in ipairs(inputs_of(case)) do floats = floats or input:is_floating_point() end
    if floats and not is_random(case) and not case.call:find "float64" and not case.call:find ":double" then
      it(case.call .. " (" .. number .. ")", function()
        local inputs, moved, single = inputs_of(case), {}, {}
        for i, input in ipairs(inputs) do
          moved[i] = restrided(input)
          single[i] = input:is_floating_point() and input:detach():float() or input
        end
        accelhost.manual_seed(8)
        local wanted = as_list(make(case)(unpack(inputs)))
        accelhost.manual_seed(8)
        local made = make(case)
        local got = as_list(made(unpack(moved)))
        made = make(case)
        if nn.is_module(made) then made:float() end
        local rough = as_list(made(unpack(single)))
        for i, result in ipairs(wanted) do
          check.near(check.flat(result), got[i], 1e-12)
          if result:is_floating_point() then
            assert.equal("float32", rough[i].dtype)
            check.near(check.flat(result), rough[i], 2e-4)
          end
        end
      end)
    end
  end
end)

describe("A batch of nothing", function()
  it("passes layers of volumes", function()
    local x = accelhost.zeros({0, 2, 4, 4, 4}, {requires_grad = true})
    for _, layer in ipairs {
      nn.Conv3d(2, 3, 2), nn.ConvTranspose3d(2, 3, 2), nn.MaxPool3d(2, {return_indices = true}), nn.AvgPool3d(2),
      nn.AdaptiveMaxPool3d(2, {return_indices = true}), nn.AdaptiveAvgPool3d(2), nn.InstanceNorm3d(2),
      nn.FractionalMaxPool3d(2, {output_size = 2, return_indices = true}), nn.LPPool3d(2, 2), nn.CircularPad3d(1),
    } do
      local y = layer(x)
      assert.equal(0, y:size(0))
      y:sum():backward()
    end
  end)
end)

describe("Halves keep their dtype in", function()
  local labels = accelhost.tensor({0, 3}, {dtype = "int64"})
  for name, call in pairs {
    poisson_nll_loss = function(x) return F.poisson_nll_loss(x, labels:unsqueeze(1):tile(1, 4), {full = true}) end,
    gaussian_nll_loss = function(x) return F.gaussian_nll_loss(x, x * 0.5, 0.3) end,
    multi_margin_loss = function(x) return F.multi_margin_loss(x, labels) end,
    rms_norm = function(x) return F.rms_norm(x, 4) end,
    local_response_norm = function(x) return F.local_response_norm(x:unsqueeze(2), 2) end,
    rrelu = function(x) return F.rrelu(x, {training = true}) end,
    ctc_loss = function(x)
      return F.ctc_loss(x:unsqueeze(1):log_softmax(-1), labels:narrow(0, 1, 1):unsqueeze(0), {2}, {1})
    end,
  } do
    it(name, function()
      for _, dtype in ipairs {"bfloat16", "float16"} do
        local x = accelhost.randn(2, 4):to(dtype):requires_grad_()
        local y = call(x)
        assert.equal(dtype, y.dtype)
        y:sum():backward()
        assert.equal(dtype, x.grad.dtype)
      end
    end)
  end
end)
