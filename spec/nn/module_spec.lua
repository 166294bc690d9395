local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "nn"
local path = require("accelhost.nn.module").path

local nn = accelhost.nn

local Net = nn.Module:extend "Net"
function Net:init()
  self.fc1 = nn.Linear(2, 3)
  self.fc2 = nn.Linear(3, 1)
  self:register_buffer("count", accelhost.zeros(1))
end
function Net:forward(x) return self.fc2(self.fc1(x):relu()) end

local function names(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = name end
  return list
end

local function keys(state)
  return names(nn.utils.state_pairs(state))
end

describe("A module", function()
  it("registers assigned values, in order", function()
    local net = Net()
    assert.same({"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}, names(net:named_parameters()))
    assert.same({"count"}, names(net:named_buffers()))
    assert.same({"fc1", "fc2"}, names(net:named_children()))
    assert.same({"", "fc1", "fc2"}, names(net:named_modules()))
    assert.equal(4, #net:parameters())
    assert.equal(net.fc1.weight, net:parameters()[1])
    assert.equal(3, #net:modules())
    assert.equal(net.fc2, net:children()[2])
  end)

  it("keeps the position of values that are assigned again", function()
    local net = Net()
    local other = nn.Linear(2, 3, {bias = false})
    net.fc1 = other
    assert.equal(other, net.fc1)
    assert.same({"fc1.weight", "fc2.weight", "fc2.bias"}, names(net:named_parameters()))
  end)

  it("forgets values set to nil", function()
    local net = Net()
    net.fc1 = nil
    assert.is_nil(net.fc1)
    assert.same({"fc2"}, names(net:named_children()))
    net.fc1 = nn.Linear(2, 3)
    assert.same({"fc2", "fc1"}, names(net:named_children()))
  end)

  it("refuses a value of another kind under a registered name", function()
    local net = Net()
    check.raises("Linear.weight is a parameter: expected an nn.Parameter or nil, got number 3", function()
      net.fc1.weight = 3
    end)
    check.raises("Linear.weight is a parameter: expected an nn.Parameter or nil, got a plain tensor", function()
      net.fc1.weight = accelhost.zeros(2)
    end)
    check.raises("Net.fc1 is a module: expected a module or nil, got false", function() net.fc1 = false end)
    check.raises("Net.fc1 is a module: expected a module or nil, got a plain tensor", function()
      net.fc1 = accelhost.zeros(1)
    end)
    check.raises("Net.count is a buffer: expected a tensor or nil, got 'many'", function() net.count = "many" end)
  end)

  it("sees a value or a parameter replaced by a module", function()
    local net = Net()
    net.extra = false
    net.extra = nn.Linear(1, 1)
    assert.same({"fc1", "fc2", "extra"}, names(net:named_children()))
    net.extra = nil
    net.w = nn.Parameter(accelhost.zeros(2))
    net.w = nn.Linear(1, 1)
    assert.same({"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "w.weight", "w.bias"},
      names(net:named_parameters()))
  end)

  it("keeps a buffer a buffer", function()
    local net = Net()
    net.count = accelhost.ones(1)
    assert.same({"count"}, names(net:named_buffers()))
    net.count = nil
    assert.same({}, names(net:named_buffers()))
    net.count = accelhost.ones(1)
    assert.same({"count"}, names(net:named_buffers()))
  end)

  it("does not register a plain tensor as a parameter", function()
    local net = Net()
    net.scale = accelhost.ones(1)
    assert.equal(4, #net:parameters())
    check.raises("Linear.weight is a parameter: expected an nn.Parameter or nil, got a plain tensor", function()
      net.fc1.weight = accelhost.zeros({3, 2})
    end)
  end)

  it("needs no call of the parent's init", function()
    local Child = Net:extend "Child"
    function Child:init()
      Net.init(self)
      self.head = nn.Linear(1, 1)
    end
    assert.same({"fc1", "fc2", "head"}, names(Child():named_children()))
    local Bare = nn.Module:extend "Bare"
    function Bare:forward(x) return x end
    assert.equal(7, Bare()(7))
  end)

  it("inherits methods, fields of the class and __tostring", function()
    local Child = Net:extend "Child"
    Child.width = 5
    Child.__tostring = function() return "a child" end
    local Grandchild = Child:extend "Grandchild"
    local net = Grandchild()
    assert.equal(5, net.width)
    assert.equal("a child", tostring(net))
    net.width = 6
    assert.equal(6, net.width)
    assert.equal(5, Child.width)
    assert.equal("class Child", tostring(Child))
  end)

  it("passes several arguments and results through", function()
    local Pair = nn.Module:extend "Pair"
    function Pair:forward(...) return ... end
    local a, b, c = Pair()(1, nil, 3)
    assert.same({1, 3}, {a, c})
    assert.is_nil(b)
    assert.equal(0, select("#", Pair()()))
  end)

  it("counts a shared parameter once, and keeps both its names in the state", function()
    local Tied = nn.Module:extend "Tied"
    function Tied:init()
      self.a = nn.Linear(2, 2, {bias = false})
      self.b = nn.Linear(2, 2, {bias = false})
      self.b.weight = self.a.weight
      self.c = self.a
    end
    local net = Tied()
    assert.same({"a.weight"}, names(net:named_parameters()))
    assert.same({"a.weight", "b.weight", "c.weight"}, keys(net:state_dict()))
    assert.same({"a", "b"}, names(net:named_children()))
    net:load_state_dict(net:state_dict())
    net:double()
    assert.equal("float64", net.b.weight.dtype)
    assert.equal(net.a.weight, net.b.weight)
  end)

  it("lists the members of one level only when asked", function()
    local net = Net()
    net.w = nn.Parameter(accelhost.zeros(1))
    assert.same({"w"}, names(net:named_parameters {recurse = false}))
    assert.same({"w"}, names(net:named_parameters("", false)))
    assert.equal(1, #net:parameters(false))
    assert.same({"p.w", "p.fc1.weight"}, {unpack(names(net:named_parameters "p"), 1, 2)})
  end)

  it("finds members by path", function()
    local net = nn.Sequential(Net(), nn.ReLU())
    assert.equal(net[1].fc2, net:get_submodule "0.fc2")
    assert.equal(net[1].fc2.bias, net:get_parameter "0.fc2.bias")
    check.raises("Net has no module 'fc3'", function() net:get_submodule "0.fc3" end)
    check.raises("Linear has no parameter 'scale'", function() net:get_parameter "0.fc2.scale" end)
  end)

  it("switches training for the whole tree", function()
    local net = nn.Sequential(Net(), nn.Dropout())
    assert.is_true(net[1].fc1.training)
    assert.equal(net, net:eval())
    assert.is_false(net[1].fc1.training)
    assert.is_false(net[2].training)
    net:train()
    assert.is_true(net[2].training)
    check.raises("train: mode: expected true or false, got number 1", function() net:train(1) end)
  end)

  it("freezes parameters and clears gradients", function()
    local net = Net()
    net(accelhost.ones({1, 2})):sum():backward()
    assert.is_not_nil(net.fc1.weight.grad)
    net:zero_grad {set_to_none = false}
    assert.equal(0, net.fc2.bias.grad:item())
    net:zero_grad()
    assert.is_nil(net.fc1.weight.grad)
    net.fc1:requires_grad_(false)
    assert.is_false(net.fc1.weight.requires_grad)
    assert.is_true(net.fc2.weight.requires_grad)
  end)

  it("applies a function children first", function()
    local order = {}
    Net():apply(function(m) order[#order + 1] = m._name end)
    assert.same({"Linear", "Linear", "Net"}, order)
  end)

  it("can be a plain bag of modules", function()
    local bag = nn.Module()
    bag.fc = nn.Linear(1, 1)
    assert.equal(2, #bag:parameters())
    check.raises("Module has no forward", function() bag(1) end)
  end)
end)

describe("Converting a module", function()
  it("keeps the tensor objects, and so an optimizer's parameters", function()
    local net = Net()
    net(accelhost.ones({1, 2})):sum():backward()
    local weight, grad = net.fc1.weight, net.fc1.weight.grad:tolist()
    local buffer = net.count
    assert.equal(net, net:to "float64")
    assert.equal(weight, net.fc1.weight)
    assert.equal("float64", weight.dtype)
    assert.equal("float64", weight.grad.dtype)
    assert.same(grad, weight.grad:tolist())
    assert.equal(buffer, net.count)
    assert.equal("float64", net.count.dtype)
    assert.equal("float64", net(accelhost.ones({1, 2}, {dtype = "float64"})).dtype)
    net:float()
    assert.equal("float32", weight.dtype)
    assert.is_true(weight.requires_grad and weight.is_leaf)
    net:to {dtype = "bfloat16", device = "cpu"}
    assert.equal("bfloat16", weight.dtype)
    assert.equal("float16", net:half().fc1.bias.dtype)
  end)

  it("returns replaced tensors of another size to the system", function()
    local net = nn.Linear(4096, 8192, {bias = false})
    net:bfloat16()
    local kept = accelhost.memory_stats().cached
    assert.is_true(kept < 64 * 2 ^ 20, kept)
    assert.equal("bfloat16", net.weight.dtype)
  end)

  it("does not convert integers", function()
    local norm = nn.BatchNorm2d(2):double()
    assert.equal("int64", norm.num_batches_tracked.dtype)
    assert.equal("float64", norm.running_mean.dtype)
  end)

  it("refuses values that are not targets", function()
    check.raises("to: expected a dtype, a device or {dtype =, device =}, got number 3", function() Net():to(3) end)
    check.raises("to: unknown option 'type' (known: dtype, device, memory_format)", function()
      Net():to {type = "float32"}
    end)
    check.raises("float31", function() Net():to "float31" end)
  end)
end)

describe("A plain table of modules", function()
  it("is refused when it is assigned", function()
    local net = Net()
    check.raises("Net.layers is a plain table that holds modules, which the module would not find; use nn.ModuleList",
      function() net.layers = {nn.Linear(1, 1)} end)
    check.raises("use nn.ModuleList or nn.ModuleDict", function() net.layers = {deep = {nn.Linear(1, 1)}} end)
    check.raises("use nn.ParameterList", function() net.weights = {nn.Parameter(accelhost.zeros(1))} end)
    net.sizes = {1, 2, {3}}
    assert.equal(3, net.sizes[3][1])
  end)

  it("is found when it was filled later", function()
    local net = Net()
    net.layers = {}
    net.layers[1] = nn.Linear(1, 1)
    check.raises("Net.layers is a plain table", function() net:parameters() end)
    check.raises("Net.layers is a plain table", function() net:state_dict() end)
  end)
end)

describe("A module refuses", function()
  it("names that are methods, numbers, empty or dotted", function()
    local net = Net()
    check.raises("Net: 'parameters' is a method; choose another name for this module", function()
      net.parameters = nn.Linear(1, 1)
    end)
    check.raises("expected a name for a module, got number 1; use nn.ModuleList", function()
      net[1] = nn.Linear(1, 1)
    end)
    check.raises("'a.b' cannot be the name of a module", function() net:add_module("a.b", nn.Linear(1, 1)) end)
    check.raises("'' cannot be the name", function() net:register_buffer("", accelhost.zeros(1)) end)
  end)

  it("to register values of another kind", function()
    local net = Net()
    check.raises("register_buffer: Net already has a field 'fc1'", function()
      net:register_buffer("fc1", accelhost.zeros(1))
    end)
    check.raises("register_buffer: tensor: expected a tensor, got number 1", function()
      net:register_buffer("b", 1)
    end)
    check.raises("register_parameter: param: expected an nn.Parameter or nil, got a tensor of shape (1,)", function()
      net:register_parameter("w", accelhost.zeros(1))
    end)
    check.raises("add_module: 'module' is missing", function() net:add_module("m") end)
    check.raises("nn.Parameter: data: expected a tensor, got number 1", function() nn.Parameter(1) end)
    check.raises("extend: expected the name of the class, got nil", function() nn.Module:extend() end)
  end)
end)

describe("The state of a module", function()
  it("has PyTorch's keys", function()
    local state = Net():state_dict()
    assert.same({"count", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}, keys(state))
    assert.same({"net.count"}, {keys(Net():state_dict "net.")[1] and "net.count"})
  end)

  it("shares memory and has no gradient", function()
    local net = Net()
    local state = net:state_dict()
    assert.is_false(state["fc1.weight"].requires_grad)
    accelhost.no_grad(function() net.fc1.bias:fill_(4) end)
    assert.equal(4, state["fc1.bias"][0]:item())
  end)

  it("is copied in place when loaded", function()
    local a, b = Net(), Net()
    local weight = b.fc1.weight
    local result = b:load_state_dict(a:state_dict())
    assert.same({missing_keys = {}, unexpected_keys = {}}, result)
    assert.equal(weight, b.fc1.weight)
    assert.same(a.fc1.weight:tolist(), weight:tolist())
    assert.is_false(accelhost.nn.utils == nil)
    accelhost.no_grad(function() a.fc1.weight:zero_() end)
    assert.not_same(a.fc1.weight:tolist(), weight:tolist())
  end)

  it("leaves out buffers that are not persistent", function()
    local net = Net()
    net:register_buffer("mask", accelhost.ones(2), {persistent = false})
    assert.is_nil(net:state_dict().mask)
    assert.equal(2, #net:buffers())
    net:load_state_dict(net:state_dict())
  end)

  it("casts to the module's dtype", function()
    local net = Net():double()
    net:load_state_dict(Net():state_dict())
    assert.equal("float64", net.fc1.weight.dtype)
  end)

  it("names everything that does not fit, and then copies nothing", function()
    local net = Net()
    local before = net.fc2.weight:tolist()
    local state = Net():state_dict()
    state["fc1.weight"] = nil
    state["fc3.weight"] = accelhost.zeros(1)
    state["fc1.bias"] = accelhost.zeros(4)
    state.count = 3
    local message = check.raises("Error(s) in loading state_dict for Net:", function() net:load_state_dict(state) end)
    local function has(text) assert.is_truthy(message:find(text, 1, true), message) end
    has('Missing key(s) in state_dict: "fc1.weight". ')
    has('Unexpected key(s) in state_dict: "fc3.weight". ')
    has("size mismatch for fc1.bias: copying a param with shape (4,) from checkpoint, " ..
      "the shape in current model is (3,).")
    has("count: expected a tensor, got number 3")
    assert.same(before, net.fc2.weight:tolist())
  end)

  it("may be partial when not strict", function()
    local net = Net()
    local result = net:load_state_dict({["fc1.bias"] = accelhost.ones(3), other = accelhost.zeros(1)},
      {strict = false})
    assert.same({"count", "fc1.weight", "fc2.weight", "fc2.bias"}, result.missing_keys)
    assert.same({"other"}, result.unexpected_keys)
    assert.same({1, 1, 1}, net.fc1.bias:tolist())
    check.raises("size mismatch", function()
      net:load_state_dict({["fc1.bias"] = accelhost.ones(4)}, {strict = false})
    end)
    check.raises("load_state_dict: 'state_dict' is missing", function() net:load_state_dict() end)
  end)
end)

describe("A hook", function()
  it("sees and may replace the arguments", function()
    local net = nn.Linear(2, 1)
    local seen
    local handle = net:register_forward_pre_hook(function(module, arguments)
      seen = arguments[1]
      assert.equal(net, module)
      return arguments[1] * 2
    end)
    local x = accelhost.ones({1, 2})
    local doubled = net(x)
    assert.equal(x, seen)
    handle.remove()
    check.near(doubled:item(), net(x * 2), 1e-6)
  end)

  it("sees and may replace the output", function()
    local net = nn.Identity()
    local handle = net:register_forward_hook(function(_, arguments, output)
      assert.equal(arguments[1], output)
      return output + 1
    end)
    assert.equal(3, net(accelhost.tensor(2)):item())
    handle.remove()
    handle.remove()
    assert.equal(2, net(accelhost.tensor(2)):item())
  end)

  it("gets several outputs as a table", function()
    local Pair = nn.Module:extend "Pair"
    function Pair:forward(x) return x, x * 2 end
    local pair, got = Pair(), nil
    pair:register_forward_hook(function(_, _, output) got = #output end)
    local _, second = pair(accelhost.tensor(2))
    assert.equal(2, got)
    assert.equal(4, second:item())
  end)

  it("sees the gradients of a module and may replace the input's", function()
    local net = nn.Linear(2, 1, {bias = false})
    accelhost.no_grad(function() net.weight:fill_(3) end)
    local input_gradient, output_gradient
    net:register_full_backward_hook(function(_, grad_input, grad_output)
      input_gradient, output_gradient = grad_input[1]:tolist(), grad_output[1]:tolist()
      return grad_input[1] * 10
    end)
    local x = accelhost.ones({1, 2}, {requires_grad = true})
    net(x):sum():backward()
    assert.same({{3, 3}}, input_gradient)
    assert.same({{1}}, output_gradient)
    assert.same({{30, 30}}, x.grad:tolist())
  end)

  it("must be a function", function()
    check.raises("register_forward_hook: 'hook' is missing",
      function() Net():register_forward_hook() end)
  end)
end)

describe("The path of the running module", function()
  it("is that of the innermost one", function()
    local Probe, found = nn.Module:extend "Probe", nil
    function Probe:forward(x)
      found = path()
      return x
    end
    local net = nn.Module()
    net.layers = nn.ModuleList {nn.Sequential(nn.Identity(), Probe())}
    net.forward = function(self, x)
      for _, layer in ipairs(self.layers) do x = layer(x) end
      return x
    end
    net(1)
    assert.equal("layers.0.1 (Probe)", found)
    Probe()(1)
    assert.equal("Probe", found)
    assert.is_nil(path())
  end)

  it("is in the library's errors, and removed after one was caught", function()
    local net = nn.Sequential(nn.Identity(), nn.BatchNorm1d(3))
    check.raises("in 1 (BatchNorm1d): BatchNorm1d: expected an input of 2 or 3 dims, got 1", function()
      net(accelhost.zeros(3))
    end)
    assert.is_nil(path())
  end)
end)

describe("Printing a module", function()
  it("prints PyTorch's tree", function()
    local Shown = nn.Module:extend "Net"
    function Shown:init()
      self.conv1 = nn.Conv2d(1, 32, 3)
      self.conv2 = nn.Conv2d(32, 64, {3, 5}, {stride = 2, padding = 1, dilation = 2, groups = 2, bias = false})
      self.up = nn.ConvTranspose2d(2, 3, 2, {output_padding = 0, padding = 1})
      self.norm = nn.BatchNorm2d(64)
      self.norm1 = nn.BatchNorm1d(3, {momentum = 0.01, affine = false})
      self.group = nn.GroupNorm(2, 4)
      self.layer_norm = nn.LayerNorm({2, 3}, {eps = 1e-12})
      self.embedding = nn.Embedding(10, 3, {padding_idx = 0})
      self.body = nn.Sequential(nn.Linear(4, 2, {bias = false}), nn.ReLU {inplace = true}, nn.Sequential(nn.GELU()),
        nn.Dropout(0.25), nn.Dropout2d())
      self.pools = nn.ModuleDict {{"max", nn.MaxPool2d(2)}, {"avg", nn.AvgPool2d({2, 3}, {stride = 1, padding = 1})},
        {"one", nn.AdaptiveAvgPool2d {1, 1}}, {"two", nn.AdaptiveAvgPool2d(2)}}
      self.acts = nn.ModuleList {nn.GELU "tanh", nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.LeakyReLU(), nn.ELU(),
        nn.Softplus(), nn.Softmax {dim = -1}, nn.LogSoftmax(1), nn.Identity(), nn.Flatten(), nn.Unflatten(1, {2, 5}),
        nn.ReLU6(), nn.Hardtanh()}
      self.attention = nn.MultiheadAttention(4, 2)
      self.loss = nn.CrossEntropyLoss()
    end
    local net = Shown()
    assert.equal(fixtures.tree, tostring(net))
    assert.same(fixtures.state_keys, keys(net:state_dict()))
  end)

  it("prints equal neighbours of a ModuleList once", function()
    local list = nn.ModuleList {nn.Linear(1, 2), nn.Linear(1, 2), nn.ReLU()}
    assert.equal("ModuleList(\n  (0-1): 2 x Linear(in_features=1, out_features=2, bias=True)\n  (2): ReLU()\n)",
      tostring(list))
  end)

  it("copies itself with its ties and without its gradients", function()
    local net = Net()
    net.fc1.bias.requires_grad = false
    net.tied = nn.Linear(2, 3)
    net.tied.weight = net.fc1.weight
    net.sizes = {3, 1}
    net(accelhost.ones(1, 2)):sum():backward()
    local copy = net:deepcopy()
    assert.same(names(net:named_parameters()), names(copy:named_parameters()))
    assert.equal(tostring(net), tostring(copy))
    assert.is_true(copy.tied.weight == copy.fc1.weight and copy.fc1.weight ~= net.fc1.weight)
    assert.is_nil(copy.fc1.weight.grad)
    assert.is_false(copy.fc1.bias.requires_grad)
    assert.is_true(nn.is_parameter(copy.fc1.bias))
    accelhost.no_grad(function() copy.fc1.weight:fill_(7) end)
    copy.count:fill_(1)
    copy.sizes[1] = 5
    assert.is_true(net.fc1.weight:ne(7):all():item())
    assert.equal(0, net.count:item())
    assert.equal(3, net.sizes[1])
    assert.equal(1, copy:state_dict()["count"]:item())
  end)

  it("is called by no_grad and checkpoint like a function", function()
    local net, x = Net(), accelhost.ones(1, 2)
    assert.is_false(accelhost.no_grad(net, x).requires_grad)
    accelhost.utils.checkpoint.checkpoint(net, x):sum():backward()
    assert.equal(3, net.fc1.weight.grad:size(0))
  end)
end)

describe("A module's tree", function()
  local function net()
    local made = Net()
    made.body = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    return made
  end

  it("returns the module at a path, and replaces it by another", function()
    local made = net()
    assert.equal(made.body[2].running_mean, made:get_buffer "body.1.running_mean")
    check.raises("get_buffer: Linear has no buffer 'weight'", function() made:get_buffer "body.0.weight" end)
    made:set_submodule("body.0", nn.Identity())
    assert.equal("Identity", made.body[1]._name)
    made:set_submodule("head", nn.ReLU())
    assert.equal("ReLU", made.head._name)
    check.raises("get_submodule: Net has no module 'tail'", function()
      made:set_submodule("tail", nn.ReLU(), {strict = true})
    end)
  end)

  it("lists shared tensors once, or under each name", function()
    local made = net()
    made.again = made.body
    local function count(walk)
      local found = 0
      for _ in walk do found = found + 1 end
      return found
    end
    local once = count(made:named_parameters())
    assert.equal(once + 4, count(made:named_parameters {remove_duplicate = false}))
    assert.equal(count(made:named_modules()) + 3, count(made:named_modules {remove_duplicate = false}))
  end)

  it("is cast as a whole, and made empty on a device", function()
    local made = net():type "float64"
    assert.equal("float64", made.body[2].num_batches_tracked.dtype)
    assert.equal("cpu", made:to_empty("cpu").body[1].weight.device)
    check.raises("compile: not here: there is no compiler here", function() made:compile() end)
    check.raises("register_backward_hook: not here: use register_full_backward_hook", function()
      made:register_backward_hook(print)
    end)
  end)
end)

describe("Hooks of the state", function()
  it("see the state before and after it is collected, children first", function()
    local net, seen = nn.Sequential(nn.Linear(1, 1, {bias = false})), {}
    net[1]:register_state_dict_pre_hook(function(_, prefix, keep_vars)
      seen[#seen + 1] = "before " .. prefix .. tostring(keep_vars)
    end)
    net[1]:register_state_dict_post_hook(function(_, state, prefix)
      seen[#seen + 1] = "after " .. prefix
      state[prefix .. "more"] = accelhost.zeros(1)
    end)
    local handle = net:register_state_dict_post_hook(function(_, _, prefix)
      seen[#seen + 1] = "root '" .. prefix .. "'"
    end)
    local state = net:state_dict {keep_vars = true}
    assert.equal(net[1].weight, state["0.weight"])
    assert.is_not_nil(state["0.more"])
    assert.same({"before 0.true", "after 0.", "root ''"}, seen)
    handle.remove()
    net:state_dict()
    assert.equal(5, #seen)
  end)

  it("may rename loaded keys and allow missing ones", function()
    local net = nn.Linear(1, 1)
    net:register_load_state_dict_pre_hook(function(_, state, prefix)
      state[prefix .. "weight"], state[prefix .. "w"] = state[prefix .. "w"], nil
    end)
    local given = {w = accelhost.full({1, 1}, 7)}
    check.raises('Missing key(s) in state_dict: "bias"', function() net:load_state_dict(given) end)
    assert.is_not_nil(given.w)
    net:register_load_state_dict_post_hook(function(_, incompatible)
      assert.same({"bias"}, incompatible.missing_keys)
      incompatible.missing_keys[1] = nil
    end)
    net:load_state_dict(given)
    assert.equal(7, net.weight:item())
  end)

  it("replace the module's own tensors with assign", function()
    local net = nn.BatchNorm1d(2)
    local state = net:double():state_dict()
    local fresh = nn.BatchNorm1d(2)
    fresh:load_state_dict(state, {assign = true})
    assert.equal("float64", fresh.weight.dtype)
    assert.equal("float64", fresh.running_var.dtype)
    assert.is_true(nn.is_parameter(fresh.weight) and fresh.weight.requires_grad)
  end)

  it("carry a class's additions to the state", function()
    local Counter = nn.Module:extend "Counter"
    function Counter:init() self.steps = 0 end
    function Counter:get_extra_state() return {steps = self.steps} end
    function Counter:set_extra_state(state) self.steps = state.steps end
    local net, other = nn.ModuleList {Counter()}, nn.ModuleList {Counter()}
    net[1].steps = 5
    local state = net:state_dict()
    assert.same({steps = 5}, state["0._extra_state"])
    other:load_state_dict(state)
    assert.equal(5, other[1].steps)
    check.raises('Missing key(s) in state_dict: "0._extra_state"', function() other:load_state_dict {} end)
    check.raises("Linear has no extra state", function() nn.Linear(1, 1):get_extra_state() end)
  end)
end)

describe("A forward hook", function()
  -- Returns x times the option by.
  local Scale = nn.Module:extend "Scale"
  function Scale:forward(x, options) return x * (options and options.by or 1) end -- luacheck: ignore self
  local x = accelhost.tensor {1, 2}

  it("with_kwargs gets the options apart from the arguments", function()
    local net, seen = Scale(), {}
    net:register_forward_pre_hook(function(module, given, named)
      seen[1] = {module == net, #given, given[1] == x, named.by}
    end, {with_kwargs = true})
    net:register_forward_hook(function(module, given, named, output)
      seen[2] = {module == net, #given, named.by, output:tolist()}
    end, {with_kwargs = true})
    net(x, {by = 3})
    assert.same({{true, 1, true, 3}, {true, 1, 3, {3, 6}}}, seen)
    net(x)
    assert.same({{true, 1, true}, {true, 1, nil, {1, 2}}}, seen)
  end)

  it("with_kwargs may replace arguments and options", function()
    local net = Scale()
    local handle = net:register_forward_pre_hook(function(_, given, named)
      return {given[1] + 1}, {by = (named.by or 1) * 2}
    end, {with_kwargs = true})
    assert.same({12, 18}, net(x, {by = 3}):tolist())
    assert.same({4, 6}, net(x):tolist())
    handle.remove()
    net:register_forward_pre_hook(function(_, given) return given, {} end, {with_kwargs = true})
    assert.same({1, 2}, net(x, {by = 3}):tolist())
  end)

  it("with_kwargs has to return both or nothing", function()
    local net = Scale()
    net:register_forward_pre_hook(function(_, given) return given end, {with_kwargs = true})
    check.raises("Scale: a forward pre-hook with_kwargs returns nothing or two tables, arguments and options; got "
      .. "a table and nil", function() net(x) end)
  end)

  local function failing()
    local Broken = nn.Module:extend "Broken"
    function Broken:forward(y) return y:view(3) end -- luacheck: ignore self
    return Broken()
  end

  it("with always_call runs also when forward fails, and the error is propagated", function()
    local net, seen = failing(), {}
    net:register_forward_hook(function() seen[#seen + 1] = "not this one" end)
    net:register_forward_hook(function(_, given, named, output)
      seen[#seen + 1] = {given[1] == x, named.mode, output == nil}
    end, {always_call = true, with_kwargs = true})
    check.raises("view: ", function() net(x) end)
    assert.same({{true, nil, true}}, seen)
  end)

  it("with always_call runs once, also when a hook behind it fails", function()
    local net, count = nn.Identity(), 0
    net:register_forward_hook(function() count = count + 1 end, {always_call = true})
    net:register_forward_hook(function() error "the second fails" end)
    check.raises("the second fails", function() net(x) end)
    assert.equal(1, count)
  end)

  it("with always_call gets the output when only a hook before it failed", function()
    local net, got = nn.Identity(), nil
    net:register_forward_hook(function() error "the first fails" end)
    net:register_forward_hook(function(_, _, output) got = output end, {always_call = true})
    check.raises("the first fails", function() net(x) end)
    assert.same({1, 2}, got:tolist())
  end)

  it("with always_call does not hide the error by its own", function()
    local net = failing()
    net:register_forward_hook(function() error "hidden" end, {always_call = true})
    check.raises("view: ", function() net(x) end)
  end)
end)

describe("A backward pre-hook", function()
  it("sees the result's gradient first and may replace it", function()
    local net, order = nn.Linear(2, 1, {bias = false}), {}
    accelhost.no_grad(function() net.weight:fill_(3) end)
    net:register_full_backward_hook(function(_, _, grad_output) order[#order + 1] = grad_output[1]:item() end)
    net:register_full_backward_pre_hook(function(_, grad_output)
      order[#order + 1] = "first"
      return grad_output[1] * 2
    end)
    local x = accelhost.ones({1, 2}, {requires_grad = true})
    net(x):sum():backward()
    assert.same({"first", 2}, order)
    assert.same({{6, 6}}, x.grad:tolist())
    assert.same({{2, 2}}, net.weight.grad:tolist())
  end)

  it("is called before others on demand", function()
    local net, order = nn.Identity(), {}
    net:register_forward_hook(function() order[#order + 1] = "second" end)
    net:register_forward_hook(function() order[#order + 1] = "first" end, {prepend = true})
    net(accelhost.ones(1))
    assert.same({"first", "second"}, order)
  end)
end)
