--- RNN, LSTM, GRU, their cells, and batches of unequal lengths. Numbers of scripts/fixtures/recurrent.py.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixture = require("spec.support.fixtures").load("recurrent").cases
local gradcheck = require "spec.support.gradcheck"
local tensors = require "spec.support.tensors"

local nn = accelhost.nn
local rnn = nn.utils.rnn

local INPUT, HIDDEN, STEPS, BATCH = 2, 3, 4, 3
local LENGTHS = {3, 4, 1}
local EXACT = 1e-13

local weighed = tensors.weighed

local function make(case)
  accelhost.manual_seed(3)
  return nn[case.name](INPUT, HIDDEN, case.layers, {
    bias = case.bias, batch_first = case.batch_first, bidirectional = case.bidirectional, dtype = "float64",
    nonlinearity = case.nonlinearity, proj_size = case.proj_size,
  })
end

local draw = tensors.leaf

local function states_of(case)
  local rows = case.layers * (case.bidirectional and 2 or 1)
  local hidden = draw(rows, BATCH, case.proj_size or HIDDEN)
  return case.name == "LSTM" and {hidden, draw(rows, BATCH, HIDDEN)} or hidden
end

local function as_list(state)
  return accelhost.is_tensor(state) and {state} or state
end

local function check_sums(expected, model, what)
  for name, parameter in model:named_parameters() do
    check.near(expected[name], weighed(parameter.grad), EXACT, what .. name)
  end
end

local function title(case)
  return ("%s%s of %d layers%s%s"):format(case.name, case.nonlinearity == "relu" and " (relu)" or "", case.layers,
    case.bidirectional and " in both directions" or "", case.proj_size and " with projections" or "")
end

describe("a recurrent layer", function()
  for _, case in ipairs(fixture) do
    it("returns PyTorch's outputs, states and gradients: " .. title(case), function()
      local model = make(case)
      local x = case.batch_first and draw(BATCH, STEPS, INPUT) or draw(STEPS, BATCH, INPUT)
      local state = states_of(case)
      local output, last = model(x, state)
      check.near(case.output, output, EXACT)
      local loss = (output * accelhost.arange(output:numel(), {dtype = "float64"}):reshape(output:shape()):sin()):sum()
      for _, part in ipairs(as_list(last)) do loss = loss + (part * part):sum() end
      loss:backward()
      check.near(case.loss, loss:item(), EXACT)
      check.near(case.grad_input, weighed(x.grad), EXACT)
      for i, part in ipairs(as_list(state)) do check.near(case.grad_state[i], weighed(part.grad), EXACT) end
      check_sums(case.grads, model, "gradient of ")
      assert.equal(case.text, tostring(model))
    end)

    it("returns PyTorch's numbers for sequences of unequal lengths: " .. title(case), function()
      local model = make(case)
      local _ = case.batch_first and draw(BATCH, STEPS, INPUT) or draw(STEPS, BATCH, INPUT)
      states_of(case)
      local padded = accelhost.randn(STEPS, BATCH, INPUT, {dtype = "float64"})
      local packed, last = model(rnn.pack_padded_sequence(padded, LENGTHS, {enforce_sorted = false}))
      check.near(case.packed_data, packed.data, EXACT)
      check.near(case.batch_sizes, packed.batch_sizes, 0)
      local unpacked, lengths = rnn.pad_packed_sequence(packed)
      check.near(case.unpacked, unpacked, EXACT)
      check.near(case.lengths, lengths, 0)
      check.near(case.packed_last, as_list(last)[1], EXACT)
      unpacked:square():sum():backward()
      check_sums(case.packed_grads, model, "gradient of ")
    end)
  end

  it("has the gradients of finite differences, also of each output alone", function()
    for _, name in ipairs {"RNN", "LSTM", "GRU"} do
      local model = nn[name](INPUT, HIDDEN, 2, {bidirectional = true, dtype = "float64"})
      local inputs = {draw(3, 2, INPUT), draw(4, 2, HIDDEN), draw(4, 2, HIDDEN)}
      for which = 1, name == "LSTM" and 3 or 2 do
        gradcheck.gradcheck(function(x, h, c)
          local output, state = model(x, name == "LSTM" and {h, c} or h)
          return ({output, as_list(state)[1], as_list(state)[2]})[which]
        end, {inputs[1], inputs[2], name == "LSTM" and inputs[3] or nil})
      end
    end
  end)

  it("with projections has first and second derivatives", function()
    local model = nn.LSTM(INPUT, HIDDEN, 2, {bidirectional = true, proj_size = 2, dtype = "float64"})
    local inputs = {draw(3, 2, INPUT), draw(4, 2, 2), draw(4, 2, HIDDEN)}
    for which = 1, 3 do
      local function run(x, h, c)
        local output, state = model(x, {h, c})
        return ({output, state[1], state[2]})[which]
      end
      gradcheck.gradcheck(run, inputs)
      if which == 1 then gradcheck.gradgradcheck(run, inputs) end
    end
  end)

  it("with projections has PyTorch's weights, and states as wide as the projection", function()
    local model = nn.LSTM(4, 8, {proj_size = 3, bias = false})
    local names = {}
    for name, weight in model:named_parameters() do
      names[#names + 1] = ("%s (%d, %d)"):format(name, weight:size(0), weight:size(1))
    end
    assert.same({"weight_ih_l0 (32, 4)", "weight_hh_l0 (32, 3)", "weight_hr_l0 (3, 8)"}, names)
    local other = nn.LSTM(4, 8, 1, false, false, 0, false, 3)
    other:load_state_dict(model:state_dict())
    local x = accelhost.randn(5, 2, 4)
    local output, state = other(x)
    check.near(check.flat((model(x))), output, 0)
    assert.same({5, 2, 3}, output:shape())
    assert.same({1, 2, 3}, state[1]:shape())
    assert.same({1, 2, 8}, state[2]:shape())
    assert.same({5, 0, 3}, (model(accelhost.randn(5, 0, 4))):shape())
    assert.equal(0, nn.LSTM(4, 8, {proj_size = 0}).proj_size)
    check.raises("LSTM: proj_size: expected a size below hidden_size = 8, or 0 for no projections, got 8", function()
      nn.LSTM(4, 8, {proj_size = 8})
    end)
    check.raises("LSTM: hidden: expected shape (1, 2, 3) (layers * directions, batch, proj_size), got (1, 2, 8)",
      function() model(x, {accelhost.zeros(1, 2, 8), accelhost.zeros(1, 2, 8)}) end)
    check.raises("GRU: unknown option 'proj_size'", function() nn.GRU(4, 8, {proj_size = 3}) end)
  end)

  it("refuses an input without features, as PyTorch does", function()
    for _, name in ipairs {"RNN", "LSTM", "GRU"} do
      check.raises(name .. ": input_size: expected an integer of at least 1, got number 0", function()
        nn[name](0, 3)
      end)
    end
  end)

  it("refuses a second derivative by name", function()
    local model = nn.GRU(INPUT, HIDDEN, {dtype = "float64"})
    local x = draw(3, 2, INPUT)
    check.raises("recurrent", function()
      local grad = accelhost.autograd.grad((model(x)):sum(), {x}, {create_graph = true})[1]
      grad:square():sum():backward()
    end)
  end)

  it("accepts a sequence without a batch, and continues from a state", function()
    for _, name in ipairs {"RNN", "LSTM", "GRU"} do
      local model = nn[name](INPUT, HIDDEN)
      local x = accelhost.randn(6, INPUT)
      local whole, last = model(x)
      assert.same({6, HIDDEN}, whole:shape())
      assert.same({1, HIDDEN}, as_list(last)[1]:shape())
      local first, state = model(x[{{0, 2}}])
      local second, rest = model(x[{{2, 6}}], state)
      check.near(check.flat(whole), accelhost.cat({first, second}, 0), 1e-6)
      check.near(check.flat(as_list(last)[1]), as_list(rest)[1], 1e-6)
    end
  end)

  it("is the same on any number of threads and in halves nearly so", function()
    local model = nn.LSTM(16, 32, 2)
    local x = accelhost.randn(7, 64, 16)
    local expected = model(x)
    local threads = accelhost.get_num_threads()
    accelhost.set_num_threads(threads == 1 and 2 or 1)
    local other = model(x)
    accelhost.set_num_threads(threads)
    check.near(check.flat(expected), other, 1e-5)
    check.near(check.flat(expected), model:to("bfloat16")(x:to "bfloat16"):to "float32", 5e-2)
  end)

  it("drops out between layers in training only", function()
    local model = nn.LSTM(INPUT, 8, 2, {dropout = 0.5})
    local x = accelhost.randn(5, 4, INPUT)
    assert.is_false((model(x)):equal((model(x))))
    model:eval()
    assert.is_true((model(x)):equal((model(x))))
  end)

  it("learns: an LSTM remembers the first symbol of a sequence", function()
    accelhost.manual_seed(0)
    local lstm, head = nn.LSTM(2, 16, {batch_first = true}), nn.Linear(16, 2)
    local parameters = lstm:parameters()
    for _, parameter in ipairs(head:parameters()) do parameters[#parameters + 1] = parameter end
    local optimizer = accelhost.optim.Adam(parameters, {lr = 0.03})
    local loss
    for _ = 1, 120 do
      local symbols = accelhost.randint(0, 2, {64, 5})
      local output = lstm(nn.functional.one_hot(symbols, 2):to "float32")
      loss = nn.functional.cross_entropy(head(output:select(1, -1)), symbols:select(1, 0))
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
    end
    assert.is_true(loss:item() < 0.1, "loss " .. loss:item())
  end)

  it("reports which size does not fit", function()
    local lstm = nn.LSTM(10, 20, 2)
    check.raises("LSTM: expected an input whose last size is input_size = 10, got (5, 3, 11)",
      function() lstm(accelhost.ones(5, 3, 11)) end)
    check.raises("LSTM: expected an input of 2 or 3 dims, got (10,)", function() lstm(accelhost.ones(10)) end)
    check.raises("LSTM: expected a state {hidden, cell}, got a tensor", function()
      lstm(accelhost.ones(5, 3, 10), accelhost.zeros(2, 3, 20))
    end)
    check.raises("LSTM: hidden: expected shape (2, 3, 20) (layers * directions, batch, hidden_size), got (1, 3, 20)",
      function() lstm(accelhost.ones(5, 3, 10), {accelhost.zeros(1, 3, 20), accelhost.zeros(2, 3, 20)}) end)
    check.raises("RNN: unknown nonlinearity 'gelu' (known: tanh, relu)",
      function() nn.RNN(1, 2, {nonlinearity = "gelu"}) end)
    check.raises("linear", function() nn.GRU(2, 3)(accelhost.ones(4, 1, 2):to "float64") end)
  end)
end)

describe("a sequence without steps", function()
  it("is refused", function()
    check.raises("GRU: expected at least one step, got an empty sequence", function()
      nn.GRU(2, 3)(accelhost.zeros(0, 4, 2))
    end)
  end)
end)

describe("an empty batch", function()
  it("has an empty output in every layer and cell", function()
    for _, name in ipairs {"RNN", "LSTM", "GRU"} do
      local output = nn[name](INPUT, HIDDEN, {batch_first = true})(accelhost.zeros(0, 2, INPUT))
      assert.same({0, 2, HIDDEN}, output:shape())
      local x = accelhost.zeros({0, INPUT}, {requires_grad = true})
      local hidden = nn[name .. "Cell"](INPUT, HIDDEN)(x)
      assert.same({0, HIDDEN}, hidden:shape())
      hidden:sum():backward()
      assert.same({0, INPUT}, x.grad:shape())
    end
  end)
end)

describe("a recurrent cell", function()
  it("is one step of the layer with the same weights", function()
    for _, name in ipairs {"RNN", "LSTM", "GRU"} do
      local layer, cell = nn[name](INPUT, HIDDEN), nn[name .. "Cell"](INPUT, HIDDEN)
      local state = {}
      for _, part in ipairs {"weight_ih", "weight_hh", "bias_ih", "bias_hh"} do state[part] = layer[part .. "_l0"] end
      cell:load_state_dict(state)
      local x = accelhost.randn(1, 5, INPUT)
      local output = layer(x)
      check.near(check.flat(output), (cell(x[{0}])), 1e-6)
      local alone = cell(x[{0, 1}])
      assert.same({HIDDEN}, alone:shape())
      check.near(check.flat(output[{0, 1}]), alone, 1e-6)
    end
    local h, c = nn.LSTMCell(INPUT, HIDDEN)(accelhost.ones(4, INPUT))
    assert.same({4, HIDDEN}, h:shape())
    assert.same({4, HIDDEN}, c:shape())
  end)
end)

describe("nn.utils.rnn", function()
  it("pads, packs and restores its input", function()
    local list = {accelhost.arange(3), accelhost.arange(5), accelhost.arange(1)}
    local padded = rnn.pad_sequence(list, {batch_first = true, padding_value = -1})
    assert.same({{0, 1, 2, -1, -1}, {0, 1, 2, 3, 4}, {0, -1, -1, -1, -1}}, padded:tolist())
    assert.same({{-1, -1, 0, 1, 2}, {0, 1, 2, 3, 4}, {-1, -1, -1, -1, 0}},
      rnn.pad_sequence(list, {batch_first = true, padding_value = -1, padding_side = "left"}):tolist())
    local packed = rnn.pack_sequence(list, {enforce_sorted = false})
    assert.same({0, 0, 0, 1, 1, 2, 2, 3, 4}, packed.data:tolist())
    assert.same({3, 2, 2, 1, 1}, packed.batch_sizes:tolist())
    local back, lengths = rnn.pad_packed_sequence(packed, {batch_first = true, padding_value = -1, total_length = 6})
    assert.same({{0, 1, 2, -1, -1, -1}, {0, 1, 2, 3, 4, -1}, {0, -1, -1, -1, -1, -1}}, back:tolist())
    assert.same({3, 5, 1}, lengths:tolist())
    local again = rnn.unpad_sequence(padded, lengths, {batch_first = true})
    for i, sequence in ipairs(list) do assert.is_true(sequence:equal(again[i])) end
    for i, sequence in ipairs(rnn.unpack_sequence(packed)) do assert.is_true(list[i]:equal(sequence)) end
    check.raises("packed_sequences: expected a PackedSequence, got a table", function() rnn.unpack_sequence {} end)
    assert.same({2, 0, 1}, rnn.invert_permutation(accelhost.tensor({1, 2, 0}, {dtype = "int64"})):tolist())
  end)

  it("refuses lengths that do not fit", function()
    local x = accelhost.ones(4, 2, 3)
    check.raises("the lengths do not fall: 4 after 2 (enforce_sorted = false sorts them)",
      function() rnn.pack_padded_sequence(x, {2, 4}) end)
    check.raises("expected 2 lengths, one for each sequence", function() rnn.pack_padded_sequence(x, {2}) end)
    check.raises("length 1 is number 5, expected an integer from 1 to 4",
      function() rnn.pack_padded_sequence(x, {4, 5}) end)
    check.raises("total_length 3 is less than the longest sequence, 4",
      function() rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, {4, 2}), {total_length = 3}) end)
    check.raises("expected a PackedSequence, got a tensor", function() rnn.pad_packed_sequence(x) end)
  end)
end)
