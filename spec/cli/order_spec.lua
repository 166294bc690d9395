-- LuaJIT walks a table's names in an order that depends on compiled traces and collections when they were made. The
-- texts, files and messages that are made of them must not.
local run = require "spec.support.run"

-- Prints the library's results for tables whose names are made in loops, some of which are compiled.
local script = [[
local accelhost = require "accelhost"
local nn, optim, data = accelhost.nn, accelhost.optim, accelhost.data

local function named(prefix, count, value)
  local t = {}
  for i = 1, count do t[prefix .. ("x"):rep(i % 7) .. i] = value(i) end
  return t
end

local function message(fn, ...)
  local fine, text = pcall(fn, ...)
  assert(not fine, "expected an error")
  print(text)
end

-- Errors name the first of several wrong names.
message(nn.Linear, 2, 3, named("o", 40, tostring))
message(accelhost.zeros, 2, named("o", 40, tostring))
message(accelhost.tensor, {1}, named("o", 40, tostring))
message(accelhost.parse_args, {named("o", 40, tostring)})
message(optim.SGD, {{params = {accelhost.ones(1)}, beta = 1, gama = 2, lrr = 3}})
message(optim.Adam, {accelhost.ones(1)}, {lr = -1, eps = -1, weight_decay = -1, betas = {2, 2}})
message(data.load_dataset, "csv", {data_files = "none", features = named("t", 40, tostring)})
message(accelhost.save, named("n", 40, function(i) return i end), os.tmpname() .. ".npz")
message(data.StackDataset, named("s", 40, function(i) return data.TensorDataset(accelhost.ones(i)) end))
local net = nn.Sequential(nn.Linear(2, 2))
message(net.load_state_dict, net, named("k", 40, function() return accelhost.ones(1) end))
local Listed = nn.Module:extend "Listed"
local listed = Listed()
for i = 1, 40 do listed["list" .. i] = {} end
for i = 1, 40 do listed["list" .. i][1] = nn.Linear(1, 1) end
message(listed.parameters, listed)
-- The nearest of several names that are equally near.
message(function() return accelhost.data.transforms.RandomApplx end)
message(function() return accelhost.ones(1).loo end)
message(function() return nn.functional.relx end)
message(function() return accelhost.Accelerator().prin end)

-- Values made of such tables.
print(accelhost.json.encode(named("j", 40, tostring)))
print(named("p", 40, tostring))
local dict = nn.ModuleDict(named("m", 40, function() return nn.ReLU() end))
for name in dict:items() do io.write(name, " ") end
accelhost.manual_seed(1)
local Noise = data.Dataset:extend "Noise"
function Noise:len() return 1 end
function Noise:get() return accelhost.rand(1):item() end
local sets = named("d", 40, function() return Noise() end)
local drawn = data.StackDataset(sets):get(0)
for i = 1, 40 do io.write(drawn["d" .. ("x"):rep(i % 7) .. i], " ") end
local batch = data.default_collate {named("c", 40, function(i) return i end), named("c", 40, function(i) return -i end)}
print(batch)
local optimizer = optim.AdamW(nn.Linear(2, 2):parameters())
print(optimizer, accelhost.json.encode(optimizer:state_dict()))

-- The contents of a file.
local path = os.tmpname()
accelhost.save({tensors = named("f", 40, function(i) return accelhost.ones(i % 3) end), numbers = named("g", 40,
  function(i) return i end)}, path .. ".safetensors")
local file = io.open(path .. ".safetensors", "rb")
print((file:read "*a":gsub("%c", ".")))
file:close()
os.remove(path .. ".safetensors")
os.remove(path)
]]

describe("The library's result for a table with names", function()
  local path = os.tmpname()
  setup(function()
    local file = assert(io.open(path, "w"))
    file:write(script)
    file:close()
  end)
  teardown(function() os.remove(path) end)

  local function output(...)
    local result = run.host({"run", ...}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    return result.stdout
  end

  it("is the same in every run, with LuaJIT's compiler and without", function()
    local first = output(path)
    for i = 2, 20 do assert.equal(first, output(i % 2 == 0 and "--jit=off" or "--jit=on", path)) end
  end)

  it("is the same in every rank", function()
    local result = run.host({"launch", "--num_processes", "3", path}, {timeout = 60})
    assert.equal(0, result.code, result.output)
    local said = run.by_rank(result.stdout)
    assert.same(run.everyone(3, said[0]), said)
  end)

  it("and the output of help about the library is the same in every run", function()
    local first
    for _ = 1, 10 do
      local text = run.host({"help"}).stdout .. run.host({"help", "optim"}).stdout
      first = first or text
      assert.equal(first, text)
    end
  end)
end)
