--- The items of a container are one ordered list, however they were registered.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local pack = require "accelhost.launcher.pack"
local unpack_values = require "accelhost.launcher.unpack"

local nn = accelhost.nn

local function names(module)
  local list = {}
  for name in module:named_children() do list[#list + 1] = name end
  return table.concat(list, " ")
end

local function classes(module)
  local list = {}
  for i, item in ipairs(module) do list[i] = item._name end
  return table.concat(list, " ")
end

-- Adds a number to its input, so that a forward shows which items ran, and in which order.
local Digit = nn.Module:extend "Digit"
function Digit:init(digit) self.digit = digit end
function Digit:forward(x) return x * 10 + self.digit end

local ways = {
  ["add_module"] = function(s)
    s:add_module("a", Digit(1))
    s:add_module("b", Digit(2))
  end,
  ["register_module"] = function(s)
    s:register_module("a", Digit(1))
    s:register_module("b", Digit(2))
  end,
  ["assignment to a name"] = function(s)
    s.a = Digit(1)
    s.b = Digit(2)
  end,
  ["assignment to a numeral"] = function(s) s["4"] = Digit(1) s["5"] = Digit(2) end,
  ["set_submodule"] = function(s)
    s:set_submodule("x", Digit(1))
    s:set_submodule("1", Digit(2))
  end,
  ["append"] = function(s) s:append(Digit(1)):append(Digit(2)) end,
  ["insert"] = function(s) s:insert(1, Digit(2)):insert(1, Digit(1)) end,
  ["extend"] = function(s) s:extend {Digit(1), Digit(2)} end,
  ["table.insert"] = function(s)
    table.insert(s, Digit(2))
    table.insert(s, 1, Digit(1))
  end,
  ["index"] = function(s)
    s[1] = Digit(1)
    s[2] = Digit(2)
  end,
}

describe("A Sequential runs modules registered by", function()
  for how, register in pairs(ways) do
    it(how, function()
      local net = nn.Sequential()
      register(net)
      assert.equal(2, #net)
      assert.equal(12, net(0))
      assert.equal(2, #net:children())
      assert.equal(2, net[2].digit)
      local list = nn.ModuleList()
      register(list)
      assert.equal(2, #list)
      assert.equal("Digit Digit", classes(list))
    end)
  end

  it("several ways, in one order", function()
    local net = nn.Sequential(Digit(1))
    net.second = Digit(2)
    net:append(Digit(3))
    net:add_module("3", Digit(4))
    net["9"] = Digit(5)
    assert.equal(12345, net(0))
    assert.equal("0 second 2 3 9", names(net))
    assert.equal(5, #net)
    net.second = Digit(7)
    assert.equal(17345, net(0))
    assert.equal(net[2], net.second)
    assert.equal(net[4], net["3"])
    assert.equal(net[-1], net["9"])
  end)
end)

describe("The items of a container", function()
  local function three()
    return nn.Sequential {{"a", Digit(1)}, {"b", Digit(2)}, {"c", Digit(3)}}
  end

  it("are replaced in place by index or name", function()
    local net = three()
    net[1] = Digit(4)
    net.b = Digit(5)
    net[-1] = Digit(6)
    assert.equal(456, net(0))
    assert.equal("a b c", names(net))
    assert.equal(4, net.a.digit)
    net[1], net[2] = net[2], net[1]
    assert.equal(546, net(0))
    assert.equal("a b c", names(net))
    assert.equal(5, net.a.digit)
  end)

  for how, remove in pairs {
    ["pop"] = function(net) assert.equal(2, net:pop(2).digit) end,
    ["pop from the end"] = function(net) assert.equal(2, net:pop(-2).digit) end,
    ["table.remove"] = function(net) assert.equal(2, table.remove(net, 2).digit) end,
    ["assignment of nil to the index"] = function(net) net[2] = nil end,
    ["assignment of nil to the name"] = function(net) net.b = nil end,
  } do
    it("are removed by " .. how, function()
      local net = three()
      remove(net)
      assert.equal(13, net(0))
      assert.equal(2, net:len())
      assert.equal("a c", names(net))
      assert.equal(3, net.c.digit)
      assert.is_nil(net.b)
      net:append(Digit(8))
      assert.equal(138, net(0))
      assert.equal("a c 2", names(net))
    end)
  end

  it("keep their names when some are removed and others added in between", function()
    local net = three()
    table.remove(net, 1)
    table.insert(net, Digit(4))
    assert.equal("b c 2", names(net))
    assert.equal(2, net.b.digit)
    table.insert(net, 1, Digit(5))
    assert.equal("0 b c 3", names(net))
    net[1] = nil
    assert.equal(234, net(0))
    for i = 3, 1, -1 do net[i] = nil end
    assert.equal("", names(net))
    assert.equal(7, net(7))
  end)

  it("are sliced as string.sub counts", function()
    local net = three()
    local part = net:slice(2)
    assert.equal(23, part(0))
    assert.equal("b c", names(part))
    assert.equal(net[2], part[1])
    assert.equal(12, net:slice(1, -2)(0))
    assert.equal(0, #net:slice(3, 2))
    assert.equal("1 2", names(nn.Sequential(Digit(1), Digit(2), Digit(3)):slice(2)))
    assert.equal("0 1", names(nn.ModuleList {Digit(1), Digit(2), Digit(3)}:slice(-2)))
    assert.equal(12, nn.Sequential(unpack(net, 1, 2))(0))
  end)

  it("have the order of registration in the state and when printed", function()
    local net = nn.Sequential()
    net:add_module("fc", nn.Linear(1, 2))
    net.act = nn.ReLU()
    net:append(nn.Linear(2, 1, {bias = false}))
    local keys = {}
    for name in nn.utils.state_pairs(net:state_dict()) do keys[#keys + 1] = name end
    assert.same({"fc.weight", "fc.bias", "2.weight"}, keys)
    assert.equal("Sequential(\n  (fc): Linear(in_features=1, out_features=2, bias=True)\n  (act): ReLU()\n"
      .. "  (2): Linear(in_features=2, out_features=1, bias=False)\n)", tostring(net))
    local other = nn.Sequential {{"fc", nn.Linear(1, 2)}, {"act", nn.ReLU()}, {"2", nn.Linear(2, 1, {bias = false})}}
    other:load_state_dict(net:state_dict())
    check.near(check.flat(net.fc.weight), other[1].weight, 0)
    other:load_state_dict(net:state_dict(), true, true)
    assert.equal(net.fc.weight:data_ptr(), other.fc.weight:data_ptr())
  end)

  it("are copied, and sent to other processes, with their order and names", function()
    local net = three()
    net:insert(2, Digit(9))
    local packed = pack.values("test", {net}, 1, {"net"})
    local sent = unpack_values(C.codec.unpack(assert(C.codec.pack(packed))))[1]
    for _, copy in ipairs {net:deepcopy(), sent} do
      assert.equal(1923, copy(0))
      assert.equal("a 1 b c", names(copy))
      copy:pop(1)
      copy.d = Digit(4)
      assert.equal(9234, copy(0))
    end
    assert.equal(1923, net(0))
  end)

  it("are those of a subclass that registers them in init", function()
    local Net = nn.Sequential:extend "Net"
    function Net:init()
      self.first = Digit(1)
      self:add_module("second", Digit(2))
      self.scale = 3
    end
    local net = Net()
    assert.equal(12, net(0))
    assert.equal(3, net.scale)
    assert.equal("first second", names(net))
    assert.equal("Net", net:slice(1, 1)._name)
  end)

  it("reach each module once in apply, and train and eval", function()
    local net, seen = three(), {}
    net:apply(function(module) seen[#seen + 1] = module.digit or 0 end)
    assert.same({1, 2, 3, 0}, seen)
    assert.is_false(net:eval().c.training)
  end)

  it("refuse names and values that would not be found again", function()
    local net = three()
    check.raises("Sequential.a is a module: expected a module or nil, got number 1", function() net.a = 1 end)
    check.raises("'insert' is a method", function() net.insert = Digit(1) end)
    check.raises("'x.y' cannot be the name of a module", function() net:add_module("x.y", Digit(1)) end)
    check.raises("Sequential: two items are named 'a'", function() nn.Sequential {{"a", Digit(1)}, {"a", Digit(2)}} end)
    check.raises("register_buffer: Sequential already has a field 'a'", function()
      net:register_buffer("a", accelhost.ones(1))
    end)
    check.raises("Sequential: items count from 1, there is no item 0; the last is item -1", function()
      return net[0]
    end)
    check.raises("Sequential: items count from 1, there is no item -4", function() return net[-4] end)
    assert.equal(123, net(0))
    local odd = nn.Sequential()
    odd["1"] = Digit(1)
    check.raises("Sequential: items 1 and 2 would both be named '1'", function() odd:append(Digit(2)) end)
    assert.equal("1", names(odd))
  end)
end)

describe("The parameters of a ParameterList", function()
  local function parameter(value) return nn.Parameter(accelhost.full({1}, value)) end

  it("are one list, however they were registered", function()
    local list = nn.ParameterList {parameter(1)}
    list:register_parameter("1", parameter(2))
    list.extra = parameter(3)
    table.insert(list, parameter(4))
    local keys = {}
    for name in list:named_parameters() do keys[#keys + 1] = name end
    assert.same({"0", "1", "extra", "3"}, keys)
    assert.equal(4, #list)
    local sum = 0
    for _, item in ipairs(list) do sum = sum + item:item() end
    assert.equal(10, sum)
    list[3] = parameter(5)
    assert.equal(5, list.extra:item())
    list.extra = nil
    list[1] = nil
    assert.same({2, 4}, {list:parameters()[1]:item(), list:parameters()[2]:item()})
    assert.equal(4, list["1"]:item())
    assert.is_nil(list["2"])
    assert.equal(2, #list:deepcopy():parameters())
    check.raises("ParameterList: item 3: expected an nn.Parameter, got a tensor", function()
      list:append(accelhost.ones(1))
    end)
  end)
end)

describe("The items of a ModuleDict", function()
  it("are one list, however they were registered", function()
    local dict = nn.ModuleDict {{"b", Digit(1)}}
    dict:add_module("a", Digit(2))
    dict.c = Digit(3)
    dict["1"] = Digit(4)
    dict.b = nil
    dict:update {{"a", Digit(5)}}
    assert.same({"a", "c", "1"}, dict:keys())
    assert.equal(3, dict:len())
    assert.equal("a c 1", names(dict))
    assert.equal(5, dict:values()[1].digit)
  end)
end)
