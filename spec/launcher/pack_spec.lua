-- Values with all that they refer to, as plain data and back.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local pack = require "accelhost.launcher.pack"
local unpack_values = require "accelhost.launcher.unpack"
local framing = require "accelhost.launcher.framing"
local nn, optim, data = accelhost.nn, accelhost.optim, accelhost.data

-- There and back, through the bytes that another process would get.
local function sent(...)
  local count, titles = select("#", ...), {}
  for i = 1, count do titles[i] = "value " .. i end
  local packed = pack.values("test", {...}, count, titles)
  local values, amount = unpack_values(C.codec.unpack(assert(C.codec.pack(packed))))
  assert.equal(count, amount)
  return unpack(values, 1, amount)
end

local function refused(value, text)
  local ok, message = pcall(sent, value)
  assert.is_false(ok)
  assert.matches(text, message)
end

describe("a serialized value", function()
  it("is the same number, text, boolean or nil", function()
    local values = {sent(1.5, "a\0b", true, false, nil, 0 / 0, math.huge)}
    assert.same({1.5, "a\0b", true, false, nil}, {unpack(values, 1, 5)})
    assert.is_true(values[6] ~= values[6])
    assert.equal(math.huge, values[7])
  end)

  it("keeps parts that tables share, cycles, metatables and keys of any kind", function()
    local part = {1, 2}
    local whole = setmetatable({a = part, b = part, [part] = "key", [2.5] = true}, {__index = {far = 7}})
    whole.self = whole
    local copy = sent(whole)
    assert.not_equal(whole, copy)
    assert.equal(copy.a, copy.b)
    assert.equal("key", copy[copy.a])
    assert.equal(copy, copy.self)
    assert.equal(7, copy.far)
    assert.is_true(copy[2.5])
    copy.a[1] = 9
    assert.equal(1, part[1])
  end)

  it("may be a list of a hundred thousand links", function()
    local list
    for i = 1, 100000 do list = {i, list} end
    local copy, count = sent(list), 0
    while copy do count, copy = count + 1, copy[2] end
    assert.equal(100000, count)
  end)

  it("may be functions that share variables, call each other and themselves", function()
    local count = 10
    local function bump() count = count + 1 return count end
    local function read() return count end
    local even, odd
    function even(n) if n == 0 then return true end return odd(n - 1) end
    function odd(n) if n == 0 then return false end return even(n - 1) end
    local copy = sent {bump = bump, read = read, even = even}
    assert.equal(11, copy.bump())
    assert.equal(12, copy.bump())
    assert.equal(12, copy.read())
    assert.equal(10, count)
    assert.is_true(copy.even(10))
    assert.is_false(copy.even(7))
  end)

  it("copies the globals that a function names, those of functions in it too", function()
    rawset(_G, "pack_spec_scale", 3)
    rawset(_G, "pack_spec_twice", function(x) return 2 * x * pack_spec_scale end) -- luacheck: ignore
    local function outer() return function(x) return pack_spec_twice(x) end end -- luacheck: ignore
    local packed = pack.values("test", {outer}, 1, {"outer"})
    rawset(_G, "pack_spec_scale", nil)
    rawset(_G, "pack_spec_twice", nil)
    local copy = unpack_values(packed)[1]
    assert.equal(30, copy()(5))
    rawset(_G, "pack_spec_scale", nil)
    rawset(_G, "pack_spec_twice", nil)
  end)

  it("copies the environment that a function was given", function()
    local fn = setfenv(function() return here end, {here = "yes"}) -- luacheck: ignore
    assert.equal("yes", sent(fn)())
  end)

  it("refers by name to objects of every process: functions, classes, namespaces", function()
    local values = {sent(print, string.rep, nn.Linear, nn, nn.functional.relu, optim.AdamW, accelhost, pairs, math)}
    assert.same({print, string.rep, nn.Linear, nn, nn.functional.relu, optim.AdamW, accelhost, pairs, math},
      {unpack(values, 1, 9)})
  end)

  it("may be a class and its objects", function()
    local Shape = nn.Module:extend "Shape"
    function Shape:init(size) self.size = size self.layer = nn.Linear(size, size) end
    function Shape:forward(x) return self.layer(x) end
    local Round = Shape:extend "Round"
    Round.sides = 0
    function Round:forward(x) return Shape.forward(self, x) * 2 end
    local copy = sent(Round(3))
    assert.equal("Round", copy._name)
    assert.equal(0, copy.sides)
    assert.equal(3, copy.size)
    assert.is_true(nn.is_module(copy))
    assert.not_equal(Round, copy._class)
    assert.same({2, 3}, {unpack(copy(accelhost.ones(2, 3)):shape())})
    assert.equal("Round", tostring(copy):match "^%a+")
    local made = copy._class(2)
    assert.equal(2, made.size)
  end)

  it("may be a tensor of any dtype and layout", function()
    for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"} do
      local tensor = accelhost.arange(6):to(dtype):reshape(2, 3)
      local copy = sent(tensor)
      assert.equal(dtype, copy.dtype)
      assert.is_true(copy:equal(tensor))
      assert.is_true(sent(tensor:t()):equal(tensor:t()))
    end
    assert.equal(0, sent(accelhost.zeros(0, 3)):numel())
    assert.equal(5, sent(accelhost.tensor(5)):item())
    assert.is_true(sent(accelhost.ones(1):expand(4)):equal(accelhost.ones(4)))
    assert.same({2, 3}, {unpack(sent(accelhost.empty(2, 3, {device = "meta"})):shape())})
  end)

  it("keeps memory that tensors share, requires_grad and gradients", function()
    local base = accelhost.arange(6):float()
    local leaf = accelhost.ones(2, {requires_grad = true})
    leaf.grad = accelhost.full({2}, 3)
    local copy = sent {base = base, part = base[{{2, 4}}], turned = base:reshape(2, 3):t(), leaf = leaf, same = base}
    copy.part:fill_(9)
    assert.same({0, 1, 9, 9, 4, 5}, copy.base:tolist())
    assert.equal(9, copy.turned[0][1]:item())
    assert.equal(copy.base, copy.same)
    assert.is_true(copy.leaf.requires_grad)
    assert.same({3, 3}, copy.leaf.grad:tolist())
    assert.same({0, 1, 2, 3, 4, 5}, base:tolist())
  end)

  it("may be a module with buffers, mode, tied weights and gradients", function()
    local model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    model[3].weight = model[1].weight
    model:eval()
    model(accelhost.ones(3, 2)):sum():backward()
    local copy = sent(model)
    assert.is_false(copy.training)
    assert.is_false(copy[2].training)
    assert.equal(copy[1].weight, copy[3].weight)
    assert.equal(#model:parameters(), #copy:parameters())
    assert.is_true(nn.is_parameter(copy[1].weight))
    for name, value in pairs(model:state_dict()) do assert.is_true(copy:state_dict()[name]:equal(value), name) end
    assert.is_true(copy[1].weight.grad:equal(model[1].weight.grad))
  end)

  it("may be an optimizer that continues with its state on the same parameters, and a scheduler", function()
    local model = nn.Linear(2, 1)
    local optimizer = optim.AdamW(model:parameters(), {lr = 0.1})
    local scheduler = optim.lr_scheduler.LambdaLR(optimizer, function(epoch) return 0.5 ^ epoch end)
    local function train(m, o, s)
      m(accelhost.ones(1, 2)):sum():backward()
      o:step()
      s:step()
      o:zero_grad()
    end
    train(model, optimizer, scheduler)
    local copy = sent {model, optimizer, scheduler}
    train(model, optimizer, scheduler)
    train(copy[1], copy[2], copy[3])
    assert.is_true(copy[1].weight:equal(model.weight))
    assert.equal(optimizer.param_groups[1].lr, copy[2].param_groups[1].lr)
    assert.equal(copy[1].weight, copy[2].param_groups[1].params[1])
  end)

  it("may be a data set, a loader, a transform", function()
    local Count = data.Dataset:extend "Count"
    function Count:init(n) self.n = n end
    function Count:len() return self.n end
    function Count:get(i) return accelhost.tensor(i) end
    local set, loader = unpack(sent {Count(5), data.DataLoader(Count(5), {batch_size = 2})})
    assert.equal(5, #set)
    local total = 0
    for batch in loader do total = total + batch:sum():item() end
    assert.equal(10, total)
    assert.equal(3, #loader)
    local listed = sent(data.DataLoader(Count(5), {sampler = {3, 1}}))
    assert.equal(3, (listed()):item())
    local compose = sent(data.transforms.Compose {data.transforms.ToTensor()})
    assert.matches("ToTensor", tostring(compose))
  end)

  it("may be a generator that resumes at its position, and the default one is the default one", function()
    local generator = accelhost.Generator(3)
    accelhost.rand(2, {generator = generator})
    local copy = sent(generator)
    assert.is_true(accelhost.rand(3, {generator = generator}):equal(accelhost.rand(3, {generator = copy})))
    assert.equal("Generator(default)", tostring(sent(C.random.default())))
  end)

  it("copies no entries of tables with weak keys", function()
    local notes = setmetatable({[{}] = 1}, {__mode = "k"})
    local copy = sent(notes)
    assert.is_nil(next(copy))
    assert.equal("k", getmetatable(copy).__mode)
  end)
end)

describe("data on the wire", function()
  it("arrives whole, in one message or in several", function()
    local messages, sent_one = {}, {text = ("ab"):rep(1000), t = accelhost.arange(5)}
    framing.send(function(message) messages[#messages + 1] = message end, sent_one)
    assert.equal("1", messages[1])
    local bytes = messages[2]
    for _, list in ipairs {messages, {"3", bytes:sub(1, 7), bytes:sub(8, 900), bytes:sub(901)}} do
      local take, whole, value = framing.receiver(), false, nil
      for _, message in ipairs(list) do
        assert.is_false(whole)
        whole, value = take(message)
      end
      assert.is_true(whole)
      assert.equal(sent_one.text, value.text)
      assert.is_true(value.t:equal(sent_one.t))
    end
  end)
end)

describe("a value that cannot be serialized is named", function()
  it("when it is a file, a coroutine, a function in C or of the library's making", function()
    local file = io.stdout
    refused(function() return file end, "test: upvalue 'file' of value 1: a file cannot be serialized")
    refused({a = {["b c"] = coroutine.create(print)}}, 'value 1.a%["b c"%]: a coroutine cannot be serialized')
    refused({[3] = ("x"):gmatch "."}, "value 1%[3%]: a function written in C cannot be serialized")
    local hooked = optim.SGD({accelhost.ones(1, {requires_grad = true})}, {lr = 1})
    hooked:register_step_post_hook(function() end)
    refused(hooked, "value 1.*: a function that the library made while it ran")
  end)

  it("when it is a tensor with a history or an Accelerator", function()
    local loss = accelhost.ones(2, {requires_grad = true}) * 2
    refused({loss = loss}, "value 1.loss: a tensor that was computed from others with a gradient .detach%(%)")
    refused(accelhost.Accelerator(), "value 1: an Accelerator .make it inside of the function.")
  end)

  it("when it is a prepared optimizer, or a class that was made for one object", function()
    local optimizer = accelhost.Accelerator():prepare(optim.SGD(nn.Linear(1, 1):parameters(), {lr = 1}))
    refused({optimizer}, "value 1%[1%]: a prepared SGD .prepare it inside of the function. cannot be serialized")
    refused(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
      "the metatable of value 1: the class ParametrizedLinear, which the library made while it ran, cannot be "
        .. "serialized")
  end)

  it("by the whole way, through functions, tables, keys and metatables", function()
    local log = {file = io.stdout}
    local function inner() return log end
    local options = {step = function() return inner end}
    refused(function() return options end,
      "upvalue 'log'.file of upvalue 'inner' of upvalue 'options'.step of value 1: a file")
    refused({[io.stdout] = 1}, "a key of value 1: a file")
    refused(setmetatable({}, {io.stdout}), "the metatable%[1%] of value 1: a file")
    refused(setfenv(function() return out end, {out = io.stdout}), -- luacheck: ignore
      "global 'out' of value 1: a file")
    rawset(_G, "pack_spec_file", io.stdout)
    local ok, message = pcall(sent, function() return pack_spec_file end) -- luacheck: ignore
    rawset(_G, "pack_spec_file", nil)
    assert.is_false(ok)
    assert.matches("global 'pack_spec_file' of value 1: a file", message)
  end)
end)
