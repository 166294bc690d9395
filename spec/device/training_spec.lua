--- Training loops on "far": losses and weights are the CPU's to the bit.
local accelhost = require "accelhost"
local optimizers = require "spec.cases.optimizers"
local tensors = require "spec.support.tensors"

local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

local weights = tensors.weights

local names = optimizers.names(function(row) return not row.matrix and not row.closure end)

local function maker(name)
  return function(parameters) return optim[name](parameters, optimizers.train(name)) end
end

local function train(device, make_optimizer)
  accelhost.manual_seed(2)
  local net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)):to(device)
  local optimizer = make_optimizer(net:parameters())
  local x, y = accelhost.randn(16, 5):to(device), accelhost.randint(0, 3, {16}):to(device)
  local losses = {}
  for step = 1, 5 do
    local loss = F.cross_entropy(net(x), y)
    optimizer:zero_grad()
    loss:backward()
    nn.utils.clip_grad_norm_(net:parameters(), 0.5)
    optimizer:step()
    losses[step] = loss:item()
  end
  return {losses, weights(net), optimizer:state_dict().state}
end

local counters = {step = true, mu_product = true, eta = true, mu = true}

describe("a training loop", function()
  for _, name in ipairs(names) do
    it("with " .. name .. " computes the CPU's bits on a far device", function()
      local here, there = train("cpu", maker(name)), train("far", maker(name))
      assert.same(here[1], there[1])
      assert.same(here[2], there[2])
      for _, values in pairs(there[3]) do
        for key, value in pairs(values) do
          if accelhost.is_tensor(value) then
            assert.equal(counters[key] and "cpu" or "far:0", value.device, key)
          end
        end
      end
    end)
  end

  it("reads its batches from data that is stored there", function()
    local x, y = accelhost.arange(12, {device = "far", dtype = "float32"}):view(6, 2), accelhost.arange(6)
    local function batches(set)
      accelhost.manual_seed(4)
      local seen = {}
      for rows, labels in accelhost.data.DataLoader(set, {batch_size = 4, shuffle = true}) do
        seen[#seen + 1] = {rows:tolist(), labels:tolist(), rows.device == "far:0" and labels.device == "far:0"}
      end
      return seen
    end
    local here = batches(accelhost.data.TensorDataset(x:cpu(), y))
    local there = batches(accelhost.data.TensorDataset(x, y:to "far"))
    assert.is_true(there[1][3] and there[2][3])
    for i, batch in ipairs(here) do assert.same({batch[1], batch[2]}, {there[i][1], there[i][2]}) end
    local mixed = batches(accelhost.data.TensorDataset(x, y))
    assert.same({here[1][1], here[1][2]}, {mixed[1][1], mixed[1][2]})
  end)

  it("continues when the model moves in the middle", function()
    local make = maker "AdamW"
    accelhost.manual_seed(2)
    local net = nn.Linear(4, 2)
    local optimizer = make(net:parameters())
    local x = accelhost.randn(8, 4)
    local stay = nn.Linear(4, 2)
    stay:load_state_dict(net:state_dict())
    local other = make(stay:parameters())
    for step = 1, 4 do
      if step == 3 then net:to "far" end
      optimizer:zero_grad()
      other:zero_grad()
      net(x:to(net.weight.device)):square():sum():backward()
      stay(x):square():sum():backward()
      optimizer:step()
      other:step()
    end
    assert.same(weights(stay), weights(net))
  end)
end)
