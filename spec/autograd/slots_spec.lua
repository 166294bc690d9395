--- Gradients of a prepared model, which are stored in the gradient arena: on the CPU, with the bits of other gradients.
local accelhost = require "accelhost"
local nn, optim = accelhost.nn, accelhost.optim

local function prepared(net)
  local accelerator = accelhost.Accelerator {cpu = true}
  return accelerator:prepare(net, optim.SGD(net:parameters(), {lr = 1})), accelerator
end

-- Run y:backward(): op -> number of its calls.
local function calls_of_backward(y)
  local counts = {}
  local profile = accelhost.profiler.profile(function() y:backward() end)
  for _, row in ipairs(profile:key_averages()) do counts[row.key] = row.count end
  return counts
end

-- The gradients of a net after `times` backwards.
local function gradients(make, is_prepared, times)
  accelhost.manual_seed(3)
  local net = make()
  if is_prepared then net = prepared(net) end
  for _ = 1, times do net(accelhost.randn {5, 12}):square():sum():backward() end
  local all = {}
  for i, p in ipairs(net:parameters()) do all[i] = p.grad:clone() end
  return all
end

local Twice = nn.Module:extend "Twice"
function Twice:init() self.map = nn.Linear(12, 12) end
function Twice:forward(x) return self.map(self.map(x):tanh()) end

local Again = nn.Module:extend "Again"
function Again:init() self.first, self.map = nn.Linear(12, 12), nn.Linear(12, 4) end
function Again:forward(x)
  return accelhost.utils.checkpoint.checkpoint(function(y) return self.map(y:tanh()) end, self.first(x))
end

local Half = nn.Module:extend "Half"
function Half:init() self.map = nn.Linear(12, 7):to "bfloat16" end
function Half:forward(x) return self.map(x:to "bfloat16"):float() end

-- Rows of a table by numbers that repeat, and, with `outputs`, products with the whole table that many times.
local Table = nn.Module:extend "Table"
function Table:init(dtype, outputs, padding_idx)
  self.rows, self.outputs = nn.Embedding(9, 12, {padding_idx = padding_idx}):to(dtype), outputs
end
function Table:forward(x)
  local y = self.rows((x:abs() * 3):to "int64":clamp(0, 8)):sum(1)
  for _ = 1, self.outputs do y = nn.functional.linear(y, self.rows.weight):mm(self.rows.weight:detach()) end
  return y:float()
end
local function table_of(...)
  local options = {...}
  return function() return Table(unpack(options)) end
end

local nets = {
  ["a linear map"] = function() return nn.Linear(12, 7) end,
  ["one without bias"] = function() return nn.Linear(12, 7, false) end,
  ["one that is used twice"] = Twice,
  ["one that is computed again"] = Again,
  ["one stored by columns"] = function() return require("accelhost.models.decoders.gpt2").Conv1D(7, 12) end,
  ["an MLP with GELU by tanh"] = function()
    return nn.Sequential(nn.Linear(12, 16), nn.GELU {approximate = "tanh"}, nn.Linear(16, 3))
  end,
  ["an MLP with GELU"] = function() return nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 3)) end,
  ["a linear map of bfloat16"] = Half,
  ["a table of rows"] = table_of("float32", 0),
  ["one with a row for padding"] = table_of("float32", 0, 1),
  ["one that is the output too"] = table_of("float32", 1),
  ["one that is the output twice"] = table_of("float32", 2),
  ["one of float64 that is the output too"] = table_of("float64", 1),
  ["one of bfloat16 that is the output too"] = table_of("bfloat16", 1),
  ["one of float16"] = table_of("float16", 0),
  ["a convolution"] = function()
    return nn.Sequential(nn.Unflatten(1, {1, 3, 4}), nn.Conv2d(1, 3, 3, {padding = 1}), nn.ReLU(), nn.Conv2d(3, 2, 1))
  end,
  ["a convolution of volumes"] = function()
    return nn.Sequential(nn.Unflatten(1, {1, 2, 2, 3}), nn.Conv3d(1, 2, 2, {padding = 1}))
  end,
}

describe("The gradients in the arena", function()
  local default

  setup(function()
    default = accelhost.get_default_device()
    accelhost.set_default_device "cpu"
  end)
  teardown(function() accelhost.set_default_device(default) end)

  for title, make in pairs(nets) do
    for times = 1, 2 do
      it(("have the bits of others, of %s after %d backwards"):format(title, times), function()
        local wanted, found = gradients(make, false, times), gradients(make, true, times)
        assert.is_true(#wanted > 0)
        for i in ipairs(wanted) do assert.is_true(found[i]:equal(wanted[i]), i) end
      end)
    end
  end

  it("of a linear map are its products, without a copy", function()
    local net = prepared(nn.Linear(12, 7, false))
    local y = net(accelhost.randn {5, 12}):sum()
    local counts = calls_of_backward(y)
    assert.equal(1, counts.linear_weight_backward_into)
    assert.is_nil(counts.copy_)
  end)

  it("of a table and of a convolution are stored by their kernels, also added to those of the output", function()
    local function copies(net, x)
      local counts = calls_of_backward(prepared(net)(x):sum())
      return (counts.copy_ or 0) + (counts.add or 0)
    end
    assert.equal(0, copies(Table("float32", 0), accelhost.randn {5, 12}))
    assert.equal(0, copies(Table("float32", 1), accelhost.randn {5, 12}))
    assert.equal(0, copies(nn.Conv2d(1, 2, 3, {bias = false}), accelhost.randn {2, 1, 5, 5}))
  end)

  it("of a table without a slot are added to those of the output", function()
    local net = Table("float32", 1)
    local y = net(accelhost.randn {5, 12}):sum()
    local counts = calls_of_backward(y)
    assert.equal(1, counts.embedding_backward_add)
    assert.is_nil(counts.embedding_backward)
  end)

  it("are those that a hook of the weight returns", function()
    local net = prepared(nn.Linear(12, 7))
    local x = accelhost.randn {5, 12}
    net.weight:register_hook(function(grad) return grad * 2 end)
    net(x):sum():backward()
    assert.is_true(net.weight.grad:equal(accelhost.ones {7, 5}:mm(x) * 2))
  end)

  it("are refused with create_graph", function()
    local net = prepared(nn.Linear(12, 7))
    local ok, message = pcall(function() net(accelhost.randn {5, 12}):sum():backward {create_graph = true} end)
    assert.is_false(ok)
    assert.matches("create_graph cannot write into a prepared parameter's gradient", tostring(message))
  end)
end)
