local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "nn"
local gradcheck = require "spec.support.gradcheck"
local activations = require "spec.cases.activations"
local signatures = require("accelhost.util.arguments").signatures

local nn, F = accelhost.nn, accelhost.nn.functional

--- Run a Lua expression with the given names.
local function evaluate(text, environment)
  local chunk = assert(loadstring(text:find "^return" and text or "return " .. text))
  return setfenv(chunk, environment)()
end

local function double(values, shape)
  return accelhost.tensor(values, {dtype = "float64"}):reshape(shape)
end

describe("A new layer", function()
  for _, case in ipairs(fixtures.initial) do
    it("draws PyTorch's numbers: " .. case.make, function()
      accelhost.manual_seed(0)
      local state = evaluate(case.make, {nn = nn}):state_dict()
      local count = 0
      for _ in pairs(state) do count = count + 1 end
      assert.equal(#case.state, count)
      for _, entry in ipairs(case.state) do
        assert.is_not_nil(state[entry[1]], entry[1])
        check.near(accelhost.tensor(entry[2]):tolist(), state[entry[1]], 0, entry[1])
      end
    end)
  end

  it("has the dtype that was asked for", function()
    assert.equal("float64", nn.Linear(2, 2, {dtype = "float64"}).bias.dtype)
    assert.equal("float64", nn.Conv2d(1, 1, 1, {dtype = "float64"}).weight.dtype)
    assert.equal("float64", nn.BatchNorm2d(1, {dtype = "float64"}).running_var.dtype)
    assert.equal("float64", nn.MultiheadAttention(2, 1, {dtype = "float64"}).out_proj.weight.dtype)
    assert.equal("float64", nn.TransformerEncoderLayer(2, 1, {dtype = "float64"}).linear2.weight.dtype)
  end)

  it("names wrong and missing arguments", function()
    check.raises("Linear: 'out_features' is missing", function() nn.Linear(3) end)
    check.raises("Linear: unknown option 'biass' (known: in_features, out_features, bias, device, dtype)", function()
      nn.Linear(3, 4, {biass = false})
    end)
    check.raises("Linear: 'bias' is given twice, by place and by name", function()
      nn.Linear(3, 4, true, {bias = false})
    end)
    check.raises("Linear: expected at most 5 arguments", function() nn.Linear(1, 2, true, nil, nil, 6) end)
    check.raises("Conv2d: kernel_size: expected a number or a table of 2, got a table", function()
      nn.Conv2d(1, 1, {1, 2, 3})
    end)
    check.raises("must be divisible by groups 2", function() nn.Conv2d(3, 4, 1, {groups = 2}) end)
    check.raises("Conv2d: unknown padding 'full'", function() nn.Conv2d(1, 1, 1, {padding = "full"}) end)
    check.raises("padding 'same' needs stride 1", function() nn.Conv2d(1, 1, 3, {padding = "same", stride = 2}) end)
    check.raises("Dropout: p: expected a probability between 0 and 1, got number 2", function() nn.Dropout(2) end)
    check.raises("Embedding: padding_idx 5 is outside of the 3 rows", function()
      nn.Embedding(3, 2, {padding_idx = 5})
    end)
    check.raises("num_channels 3 must be divisible by num_groups 2", function() nn.GroupNorm(2, 3) end)
    check.raises("embed_dim 3 must be divisible by num_heads 2", function() nn.MultiheadAttention(3, 2) end)
    check.raises("CrossEntropyLoss: unknown reduction 'average'", function()
      nn.CrossEntropyLoss {reduction = "average"}
    end)
    check.raises("unknown activation 'tanh' (known: relu, gelu)", function()
      nn.TransformerEncoderLayer(2, 1, {activation = "tanh"})
    end)
  end)

  it("accepts its arguments by name, too", function()
    assert.equal("Linear(in_features=3, out_features=4, bias=False)",
      tostring(nn.Linear {in_features = 3, out_features = 4, bias = false}))
  end)
end)

describe("nn.init", function()
  for number, case in ipairs(fixtures.inits) do
    it("fills as PyTorch does: " .. case.call, function()
      accelhost.manual_seed(3)
      local t = accelhost.empty {4, 6}
      local result = evaluate("init." .. case.call, {init = nn.init, t = t})
      assert.equal(t, result)
      check.near(case.values, t, 2e-6, "case " .. number)
    end)
  end

  it("works on parameters without recording", function()
    local weight = nn.Parameter(accelhost.empty {2, 2})
    nn.init.constant_(weight, 3)
    assert.same({{3, 3}, {3, 3}}, weight:tolist())
    assert.is_true(weight.is_leaf and weight.requires_grad)
    nn.init.eye_(weight)
    assert.same({{1, 0}, {0, 1}}, weight:tolist())
  end)

  it("makes orthogonal rows or columns", function()
    for _, sizes in ipairs {{3, 5}, {5, 3}, {4, 2, 2}} do
      local t = nn.init.orthogonal_(accelhost.empty(sizes), 2):reshape(sizes[1], -1)
      if t:size(0) > t:size(1) then t = t:transpose(0, 1) end
      local product = t:matmul(t:transpose(0, 1))
      check.near(check.flat(accelhost.eye(t:size(0)) * 4), product, 1e-5)
    end
  end)

  it("knows the gains", function()
    assert.equal(1, nn.init.calculate_gain "linear")
    assert.equal(math.sqrt(2), nn.init.calculate_gain "relu")
    check.near(math.sqrt(2 / 1.04), nn.init.calculate_gain("leaky_relu", 0.2), 1e-15)
    check.raises("unknown nonlinearity 'swish'", function() nn.init.calculate_gain "swish" end)
    check.raises("xavier_uniform_: expected a tensor of at least 2 dims, got shape (3,)", function()
      nn.init.xavier_uniform_(accelhost.empty(3))
    end)
    check.raises("unknown mode 'fan' (known: fan_in, fan_out)", function()
      nn.init.kaiming_normal_(accelhost.empty {2, 2}, {mode = "fan"})
    end)
  end)
end)

describe("A loss or function", function()
  it("warns of a target of another shape", function()
    local said = {}
    local stderr = io.stderr
    io.stderr = {write = function(_, ...) said[#said + 1] = table.concat {...} end} -- luacheck: ignore
    local fine, loss = pcall(F.mse_loss, accelhost.zeros(2, 5), accelhost.ones(2, 1))
    io.stderr = stderr -- luacheck: ignore
    assert.is_true(fine)
    assert.equal(1, loss:item())
    assert.equal(1, #said)
    assert.same({"warning: mse_loss: input (2, 5) and target (2, 1) have different shapes and are broadcast\n"},
      {(said[1]:gsub(" %([^()]*:%d+%)\n$", "\n"))})
  end)

  local x = double(fixtures.query, {6, 4})
  local y = double(fixtures.memory, {10, 4}):narrow(0, 0, 6)
  local environment = {
    nn = nn, F = F, x = x, y = y, unit = y:sigmoid(),
    labels = accelhost.tensor({0, 3, 1, 2, -100, 3}, {dtype = "int64"}),
    weight = accelhost.tensor({0.5, 1, 2, 1.5}, {dtype = "float64"}),
  }
  for _, case in ipairs(fixtures.losses) do
    it("returns PyTorch's number: " .. case[1]:gsub("^return ", ""), function()
      check.near(case[2], evaluate(case[1], environment), 1e-12)
    end)
  end

  it("keeps weights as buffers", function()
    local loss = nn.CrossEntropyLoss(accelhost.ones(3))
    assert.equal("float32", loss:state_dict().weight.dtype)
    assert.equal("float64", loss:double().weight.dtype)
  end)

  it("is named when it does not exist", function()
    check.raises("nn.functional has no 'relloo'", function() return F.relloo end)
    check.raises("nn has no 'Lineer' (did you mean 'Linear'?)", function() return nn.Lineer end)
  end)
end)

describe("An activation with inplace = true", function()
  local function has_inplace(name)
    local class, found = nn[name], false -- loads its signature
    for _, option in ipairs(class and signatures[name] or {}) do found = found or option.name == "inplace" end
    return found
  end

  for _, row in ipairs(activations) do
    local name, arguments = row[1], row[2]
    local function make(options)
      local all = {unpack(arguments)}
      all[#all + 1] = options
      return nn[name](unpack(all)):eval()
    end
    if has_inplace(name) then
      it("writes into its input: " .. name, function()
        local values = accelhost.tensor {-8, -0.5, 0.5, 8}
        local kept, changed = values:clone():requires_grad_(), values:clone():requires_grad_()
        local wanted = make {}(kept)
        local input = changed * 1
        local output = make {inplace = true}(input)
        assert.equal(input, output)
        assert.same(wanted:tolist(), input:tolist())
        wanted:sum():backward()
        output:sum():backward()
        assert.same(kept.grad:tolist(), changed.grad:tolist())
      end)
    end
  end

  it("also the dropout of channels", function()
    for name, shape in pairs {Dropout = {4, 4}, Dropout1d = {2, 4, 3}, Dropout2d = {2, 4, 3, 3}} do
      local input = accelhost.ones(shape)
      assert.equal(input, nn[name](0.5, {inplace = true})(input))
      assert.is_false(input:equal(accelhost.ones(shape)))
    end
  end)
end)

describe("Layers check their arguments", function()
  it("and name layer, argument, the expected and the received value", function()
    check.raises("Linear: in_features: expected an integer of at least 0, got '784'", function()
      nn.Linear("784", 1)
    end)
    check.raises('Linear: device: expected a device name such as "cpu", got number 5', function()
      nn.Linear(10, 10, true, 5)
    end)
    check.raises("Conv2d: kernel_size: expected an integer of at least 1 or a table of them, got number 0", function()
      nn.Conv2d(1, 1, 0)
    end)
    check.raises("Dropout: p: expected a probability between 0 and 1, got number 2", function() nn.Dropout(2) end)
    check.raises("MSELoss: unknown reduction 'men' (known: none, mean, sum) (did you mean 'mean'?)", function()
      nn.MSELoss("men")
    end)
  end)
end)

describe("MaxPool1d", function()
  it("returns the indices of the largest values too", function()
    local values, places = nn.MaxPool1d(2, {return_indices = true})(accelhost.tensor {{{1, 5, 7, 3}}})
    assert.same({{{5, 7}}}, values:tolist())
    assert.same({{{1, 2}}}, places:tolist())
  end)
end)

describe("Multi-head attention", function()
  local query, memory = double(fixtures.query, {3, 2, 4}), double(fixtures.memory, {5, 2, 4})
  local causal = accelhost.tensor {{false, true, true}, {false, false, true}, {false, false, false}}
  local padding = accelhost.tensor {{false, false, true}, {false, false, false}}
  local memory_padding = accelhost.tensor {{false, true, false, false, true}, {false, false, false, false, false}}
  local soft = accelhost.linspace(-1, 1, 9, {dtype = "float64"}):reshape(3, 3)
  local per_head = accelhost.linspace(-1, 1, 36, {dtype = "float64"}):reshape(4, 3, 3)

  local cases = {
    self = {{}, query, query, query},
    cross = {{}, query, memory, memory},
    causal = {{}, query, query, query, {attn_mask = causal}},
    soft = {{}, query, query, query, {attn_mask = soft, average_attn_weights = false}},
    per_head = {{}, query, query, query, {attn_mask = per_head}},
    padding = {{}, query, query, query, {key_padding_mask = padding, attn_mask = causal}},
    memory_padding = {{}, query, memory, memory, {key_padding_mask = memory_padding}},
    no_weights = {{}, query, query, query, {attn_mask = causal, need_weights = false}},
    batch_first = {{batch_first = true}, query:transpose(0, 1), memory:transpose(0, 1), memory:transpose(0, 1)},
    unbatched = {{}, query:select(1, 0), memory:select(1, 0), memory:select(1, 0)},
    bias_kv = {{add_bias_kv = true}, query, memory, memory, {key_padding_mask = memory_padding}},
    zero_attn = {{add_zero_attn = true}, query, query, query, {attn_mask = causal}},
    separate = {{kdim = 4, vdim = 2}, query, memory, memory:narrow(-1, 0, 2)},
  }
  -- In the unbatched case key and value are one tensor, as in PyTorch.
  cases.unbatched[4] = cases.unbatched[3]
  cases.batch_first[4] = cases.batch_first[3]

  for name, expected in pairs(fixtures.attention) do
    it("returns PyTorch's output, weights and gradients: " .. name, function()
      local case = cases[name]
      accelhost.manual_seed(2)
      local attention = nn.MultiheadAttention(4, 2, case[1]):double()
      local output, weights = attention(case[2], case[3], case[4], case[5])
      check.near(expected.output, output, 2e-7, "output")
      if expected.weights then
        check.near(expected.weights, weights, 2e-7, "weights")
      else
        assert.is_nil(weights)
      end
      (output * output):sum():backward()
      check.near(expected.grad, (attention.in_proj_weight or attention.k_proj_weight).grad, 1e-6, "gradient")
    end)
  end

  it("names masks of the wrong shape or dtype", function()
    local attention = nn.MultiheadAttention(4, 2):double()
    check.raises("expected an attn_mask of shape (3, 3) or (4, 3, 3), got (2, 3)", function()
      attention(query, query, query, {attn_mask = padding})
    end)
    check.raises("expected a key_padding_mask of shape (2, 3), got (3, 3)", function()
      attention(query, query, query, {key_padding_mask = causal})
    end)
    check.raises("a mask must be bool or floating, got int64", function()
      attention(query, query, query, {attn_mask = causal:to "int64"})
    end)
    check.raises("was expecting embedding dimension of 4, but got 3", function()
      local small = query:narrow(-1, 0, 3)
      attention(small, small, small)
    end)
  end)

  it("is part of the encoder layer", function()
    accelhost.manual_seed(4)
    local layer = nn.TransformerEncoderLayer(4, 2, {dim_feedforward = 8, dropout = 0}):double()
    check.near(fixtures.encoder, layer(query, {src_mask = causal}), 1e-6)
    accelhost.manual_seed(4)
    layer = nn.TransformerEncoderLayer(4, 2,
      {dim_feedforward = 8, dropout = 0, activation = "gelu", norm_first = true, batch_first = true}):double()
    check.near(fixtures.encoder_norm_first, layer(query:transpose(0, 1), {src_key_padding_mask = padding}), 1e-6)
  end)

  it("is stacked by the encoder, each layer with its own weights", function()
    local encoder = nn.TransformerEncoder(function()
      return nn.TransformerEncoderLayer(4, 2, {dim_feedforward = 8, dropout = 0, dtype = "float64"})
    end, 2, nn.LayerNorm(4, {dtype = "float64"}))
    assert.equal(26, #encoder:parameters())
    assert.is_not.equal(encoder.layers[1].linear1.weight, encoder.layers[2].linear1.weight)
    local expected = encoder.norm(encoder.layers[2](encoder.layers[1](query, causal), causal))
    check.near(check.flat(expected), encoder(query, causal), 1e-15)
  end)
end)

describe("A layer", function()
  it("normalises batches in training and keeps statistics", function()
    local norm = nn.BatchNorm1d(1, {momentum = 0.5, dtype = "float64"})
    local x = double({1, 2, 3, 6}, {4, 1})
    local y = norm(x)
    check.near({-2, -1, 0, 3}, y * math.sqrt(3.5 + 1e-5), 1e-12)
    assert.equal(1.5, norm.running_mean:item())
    check.near(0.5 + 0.5 * 14 / 3, norm.running_var, 1e-12)
    assert.equal(1, norm.num_batches_tracked:item())
    norm:eval()
    check.near((1 - 1.5) / math.sqrt(0.5 + 7 / 3 + 1e-5), norm(double({1}, {1, 1})), 1e-12)
    norm:train()
    check.raises("expected more than 1 value per channel in training", function() norm(double({1}, {1, 1})) end)
  end)

  it("averages all batches when momentum is false", function()
    local norm = nn.BatchNorm1d(1, {momentum = false})
    norm(accelhost.tensor {{1}, {3}})
    norm(accelhost.tensor {{5}, {7}})
    assert.equal(4, norm.running_mean:item())
  end)

  it("drops whole channels", function()
    accelhost.manual_seed(0)
    local x = accelhost.ones {4, 8, 2, 2}
    local y = nn.Dropout2d(0.5)(x):sum({2, 3})
    local zeros = 0
    for _, value in ipairs(check.flat(y)) do
      assert.is_true(value == 0 or value == 8)
      if value == 0 then zeros = zeros + 1 end
    end
    assert.is_true(zeros > 4 and zeros < 28)
    assert.equal(x, nn.Dropout2d(0.5):eval()(x))
    assert.equal(x, nn.Dropout(0.5):eval()(x))
  end)

  it("accepts three dims for [N, C, L] in Dropout2d, and two for [C, L] in Dropout1d", function()
    accelhost.manual_seed(0)
    assert.same({{{0}, {0}, {2}}}, nn.Dropout2d(0.5)(accelhost.ones(1, 3, 1)):tolist())
    local y = nn.Dropout1d(0.5)(accelhost.ones(64, 3))
    assert.is_true(y:amin(1):equal(y:amax(1)))
  end)

  it("reads rows and leaves the padding row without gradient", function()
    local embedding = nn.Embedding(4, 2, {padding_idx = -1})
    assert.equal(3, embedding.padding_idx)
    local rows = embedding(accelhost.tensor({{0, 3}, {0, 1}}, {dtype = "int64"}))
    assert.same({2, 2, 2}, {rows:size(0), rows:size(1), rows:size(2)})
    rows:sum():backward()
    assert.same({{2, 2}, {1, 1}, {0, 0}, {0, 0}}, embedding.weight.grad:tolist())
    local fixed = nn.Embedding.from_pretrained(accelhost.eye(2))
    assert.same({0, 1}, fixed(accelhost.tensor(1, {dtype = "int64"})):tolist())
    assert.is_false(fixed.weight.requires_grad)
  end)

  it("keeps the size with padding 'same'", function()
    local conv = nn.Conv2d(1, 1, {3, 5}, {padding = "same"})
    local y = conv(accelhost.ones {1, 1, 4, 4})
    assert.same({4, 4}, {y:size(2), y:size(3)})
    assert.equal("Conv2d(1, 1, kernel_size=(3, 5), stride=(1, 1), padding=same)", tostring(conv))
  end)

  it("multiplies two inputs: Bilinear", function()
    local layer = nn.Bilinear(2, 3, 2, {dtype = "float64"})
    local a, b = double({1, 2, 3, 4}, {2, 2}), double({1, 0, -1, 2, 1, 0}, {2, 3})
    local y = layer(a, b)
    for n = 0, 1 do
      for o = 0, 1 do
        local expected = layer.bias[o] + a[n]:matmul(layer.weight[o]):matmul(b[n])
        check.near(expected:item(), y[n][o], 1e-12)
      end
    end
  end)

  it("refuses inputs of Bilinear whose rows or features do not fit", function()
    local layer, ones = nn.Bilinear(2, 3, 4), accelhost.ones
    assert.same({5, 4}, layer(ones {5, 2}, ones {5, 3}):shape())
    assert.same({4}, layer(ones {2}, ones {3}):shape())
    local function refused(a, b) check.raises("bilinear: inputs", function() layer(ones(a), ones(b)) end) end
    refused({5, 4}, {5, 3})
    refused({5, 2}, {5, 6})
    refused({5, 2}, {1, 3})
    refused({5, 2}, {3})
    refused({1, 2}, {})
    refused({5, 3}, {5, 2})
  end)

  it("refuses groups of no channels", function()
    check.raises("do not make 2 groups", function() nn.functional.group_norm(accelhost.ones {1, 0}, 2) end)
  end)

  it("has gradients that agree with finite differences", function()
    local inputs = {
      {nn.Linear(3, 2), {2, 3}}, {nn.Conv2d(1, 2, 2), {1, 1, 3, 3}}, {nn.LayerNorm(3), {2, 3}},
      {nn.GroupNorm(1, 2), {1, 2, 3}}, {nn.BatchNorm1d(2), {3, 2}}, {nn.Softplus(), {3}}, {nn.SiLU(), {3}},
      {nn.ELU(), {4}}, {nn.LeakyReLU(), {4}}, {nn.AvgPool2d(2), {1, 1, 4, 4}},
    }
    for _, case in ipairs(inputs) do
      local module = case[1]:double()
      local count = 1
      for _, size in ipairs(case[2]) do count = count * size end
      local values = {}
      for i = 1, count do values[i] = ((i * 37) % 19) / 9.7 - 0.93 end
      local x = accelhost.tensor(values, {dtype = "float64"}):reshape(case[2]):clone()
      x.requires_grad = true
      gradcheck.gradcheck(function(t) return module(t) end, {x})
    end
  end)
end)

describe("Batch normalisation of an empty batch", function()
  for _, sizes in ipairs {{0, 5}, {0, 5, 9}, {0, 5, 2, 2}, {2, 5, 0, 2}, {0, 5, 2, 2, 2}} do
    it(("of %d dims has an empty result and unchanged statistics, as in PyTorch"):format(#sizes), function()
      local norm = nn["BatchNorm" .. math.max(1, #sizes - 2) .. "d"](5)
      local x = accelhost.zeros(sizes, {requires_grad = true})
      local y = norm(x)
      assert.same(sizes, y:shape())
      check.near({0, 0, 0, 0, 0}, norm.running_mean, 0)
      check.near({1, 1, 1, 1, 1}, norm.running_var, 0)
      assert.equal(1, norm.num_batches_tracked:item())
      y:sum():backward()
      assert.same(sizes, x.grad:shape())
      check.near({0, 0, 0, 0, 0}, norm.weight.grad, 0)
      check.near({0, 0, 0, 0, 0}, norm.bias.grad, 0)
      assert.same(sizes, norm:eval()(x):shape())
    end)
  end
end)
