local accelhost = require "accelhost"
local check = require "spec.support.check"

local nn = accelhost.nn

local function keys(module)
  local list = {}
  for name in module:named_parameters() do list[#list + 1] = name end
  return list
end

describe("A Sequential", function()
  it("runs its items in order and names them from 0", function()
    local net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert.same({"0.weight", "0.bias", "2.weight", "2.bias"}, keys(net))
    local x = accelhost.ones({1, 2})
    check.near(net[3](net[1](x):relu()):item(), net(x), 1e-7)
    assert.equal(3, #net)
    assert.equal(3, net:len())
  end)

  it("accepts a table, also of named items", function()
    local net = nn.Sequential {{"fc", nn.Linear(2, 2)}, {"act", nn.ReLU()}}
    assert.same({"fc.weight", "fc.bias"}, keys(net))
    assert.equal(net[1], net.fc)
    assert.equal(2, #nn.Sequential {nn.ReLU(), nn.ReLU()})
    assert.equal(5, nn.Sequential()(5))
  end)

  it("sees items that are replaced, added and removed", function()
    local net = nn.Sequential(nn.Linear(2, 2))
    local other = nn.Linear(2, 2, {bias = false})
    net[1] = other
    assert.same({"0.weight"}, keys(net))
    table.insert(net, nn.Linear(2, 1))
    net:append(nn.ReLU())
    assert.same({"0.weight", "1.weight", "1.bias"}, keys(net))
    table.remove(net, 1)
    assert.same({"0.weight", "0.bias"}, keys(net))
  end)

  it("refuses values that are not modules", function()
    check.raises("Sequential: item 2: expected a module, got a function; wrap it in a module", function()
      nn.Sequential(nn.ReLU(), function() end)
    end)
    check.raises("Sequential: item 1 is nil", function() nn.Sequential(nil, nn.ReLU()) end)
    local net = nn.Sequential(nn.ReLU())
    check.raises("Sequential: item 2: expected a module, got number 1", function() net[2] = 1 end)
    check.raises("Sequential: item 4 does not exist, there are 1", function() net[4] = nn.ReLU() end)
    table.insert(net, 3)
    check.raises("Sequential: item 2 is number 3, not a module", function() net:parameters() end)
  end)
end)

describe("A ModuleList", function()
  it("reports that items count from 1", function()
    local list = nn.ModuleList {nn.ReLU()}
    check.raises("ModuleList: items count from 1, there is no item 0", function() return list[0] end)
    assert.is_nil(list[2])
  end)

  it("is a Lua array of modules", function()
    local list = nn.ModuleList {nn.Linear(1, 1), nn.Linear(1, 1)}
    local count = 0
    for i, layer in ipairs(list) do
      count = count + 1
      assert.equal(list[i], layer)
    end
    assert.equal(2, count)
    assert.equal(2, #list)
    assert.same({"0.weight", "0.bias", "1.weight", "1.bias"}, keys(list))
    list:extend {nn.ReLU(), nn.Linear(1, 1, {bias = false})}
    assert.equal("3.weight", keys(list)[5])
  end)

  it("can be subclassed and loaded", function()
    local Stack = nn.ModuleList:extend "Stack"
    local a, b = Stack {nn.Linear(1, 1)}, Stack {nn.Linear(1, 1)}
    b:load_state_dict(a:state_dict())
    assert.equal(a[1].weight:item(), b[1].weight:item())
    assert.matches("^Stack%(", tostring(a))
  end)

  it("cannot be called", function()
    check.raises("a ModuleList cannot be called", function() nn.ModuleList {}(1) end)
    check.raises("ModuleList: expected a table of modules, got number 1", function() nn.ModuleList(1) end)
  end)
end)

describe("A ModuleDict", function()
  it("keeps the order of pairs, and sorts names without one", function()
    local dict = nn.ModuleDict {{"b", nn.Linear(1, 1)}, {"a", nn.ReLU()}}
    assert.same({"b", "a"}, dict:keys())
    assert.same({"a", "b"}, nn.ModuleDict {b = nn.ReLU(), a = nn.ReLU()}:keys())
    assert.equal(dict.b, dict["b"])
    assert.is_true(dict:contains "a")
    assert.is_false(dict:contains "c")
    dict.c = nn.Linear(1, 1)
    assert.equal(3, dict:len())
    local seen = {}
    for name, module in dict:items() do seen[#seen + 1] = name .. tostring(nn.is_module(module)) end
    assert.same({"btrue", "atrue", "ctrue"}, seen)
    assert.same({"b.weight", "b.bias", "c.weight", "c.bias"}, keys(dict))
  end)

  it("refuses values that are not modules", function()
    check.raises("ModuleDict: 'a': expected a module, got number 1", function() nn.ModuleDict {a = 1} end)
    check.raises("a ModuleDict cannot be called", function() nn.ModuleDict {}(1) end)
    check.raises("'items' is a method", function() nn.ModuleDict {items = nn.ReLU()} end)
  end)
end)

describe("A container", function()
  it("refuses items by name where their order counts", function()
    check.raises('Sequential: items of a table have no order by name: write {{"act", ...}, ...} instead of {act = ...}',
      function() nn.Sequential {act = nn.ReLU()} end)
    check.raises("ModuleList: items of a table have no order by name", function() nn.ModuleList {a = nn.ReLU()} end)
    check.raises("ModuleDict: items of a table have no order by name", function()
      nn.ModuleDict {{"a", nn.ReLU()}, b = nn.ReLU()}
    end)
    check.raises("ParameterList: items of a table have no order by name", function()
      nn.ParameterList {a = nn.Parameter(accelhost.zeros(1))}
    end)
  end)

  it("refuses a hole in its items", function()
    check.raises("Sequential: item 2 is nil", function() nn.Sequential {nn.ReLU(), nil, nn.ReLU()} end)
    check.raises("ModuleList: item 2 is nil", function() nn.ModuleList {nn.ReLU(), nil, nn.ReLU()} end)
  end)

  it("is walked by pairs, item by item", function()
    local function walked(object)
      local names = {}
      for name, item in pairs(object) do names[#names + 1] = tostring(name) .. "=" .. tostring(item) end
      return table.concat(names, " ")
    end
    assert.equal("b=ReLU() a=Tanh()", walked(nn.ModuleDict {{"b", nn.ReLU()}, {"a", nn.Tanh()}}))
    assert.equal("1=ReLU() 2=Tanh()", walked(nn.Sequential(nn.ReLU(), nn.Tanh())))
    assert.equal("1=ReLU()", walked(nn.ModuleList {nn.ReLU()}))
    local net = nn.Module()
    net.act = nn.ReLU()
    assert.equal("act=ReLU()", walked(net))
    assert.equal("a=1", walked {a = 1})
  end)
end)

describe("A list of parameters", function()
  it("registers them from 0", function()
    local list = nn.ParameterList {nn.Parameter(accelhost.zeros(1)), nn.Parameter(accelhost.ones(1))}
    list:append(nn.Parameter(accelhost.ones(2)))
    assert.same({"0", "1", "2"}, keys(list))
    local net = nn.Module()
    net.weights = list
    assert.same({"weights.0", "weights.1", "weights.2"}, keys(net))
    assert.equal(1, net:state_dict()["weights.1"]:item())
    assert.equal(3, #list)
  end)

  it("refuses plain tensors", function()
    check.raises("ParameterList: item 1: expected an nn.Parameter, got a tensor of shape (1,)", function()
      nn.ParameterList {accelhost.zeros(1)}
    end)
  end)

  it("may have names", function()
    local dict = nn.ParameterDict {{"scale", nn.Parameter(accelhost.ones(1))}}
    assert.same({"scale"}, keys(dict))
    assert.equal(1, dict.scale:item())
  end)
end)

describe("A list of modules", function()
  it("inserts a module at a position and removes one", function()
    local list = nn.Sequential {{"a", nn.ReLU()}, {"b", nn.Tanh()}}
    list:insert(2, nn.GELU())
    assert.equal("Sequential(\n  (a): ReLU()\n  (1): GELU(approximate='none')\n  (b): Tanh()\n)", tostring(list))
    assert.equal("ReLU", list:pop(1)._name)
    assert.equal("Tanh", list:pop()._name)
    assert.equal(1, #list)
    check.raises("pop: Sequential has 1 items, there is none at number 4", function() list:pop(4) end)
    check.raises("insert: Sequential has 1 items, there is no place 3", function() list:insert(3, nn.ReLU()) end)
  end)
end)

describe("A dict of modules", function()
  it("returns its values, removes one, and is emptied", function()
    local dict = nn.ModuleDict {{"b", nn.ReLU()}, {"a", nn.Tanh()}}
    assert.equal("ReLU", dict:values()[1]._name)
    assert.equal("Tanh", dict:get("a")._name)
    assert.is_nil(dict:get "c")
    assert.equal("ReLU", dict:pop("b")._name)
    check.raises("pop: ModuleDict has no 'b'", function() dict:pop "b" end)
    dict:clear()
    assert.equal(0, dict:len())
  end)
end)

describe("A list of parameters", function()
  it("is extended", function()
    local list = nn.ParameterList {nn.Parameter(accelhost.ones(1))}
    list:extend {nn.Parameter(accelhost.ones(2)), nn.Parameter(accelhost.ones(3))}
    assert.equal(3, #list:parameters())
  end)
end)
