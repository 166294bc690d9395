local C = require "accelhost._C"
local io_functions = require "accelhost.io"
local optim = require "accelhost.optim"
local optimizers = require "spec.cases.optimizers"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "optim"

local flat = check.flat

local function tensors(values, dtype)
  local list = {}
  for i, row in ipairs(values) do
    list[i] = C.tensor(row, {dtype = dtype}):reshape(fixtures.shapes[i]):clone()
  end
  return list
end

local function parameters(dtype)
  local list = tensors(fixtures.initial, dtype or "float64")
  for _, p in ipairs(list) do p.requires_grad = true end
  return list
end

local function set_gradients(params, step)
  for i, grad in ipairs(tensors(fixtures.gradients[step], params[1].dtype)) do params[i].grad = grad end
end

local function copy(options)
  local result = {}
  for key, value in pairs(options) do result[key] = value end
  return result
end

-- Compare a saved state of PyTorch with ours.
local function check_state(expected, state, title)
  local seen = 0
  for name, value in pairs(expected) do
    assert(state[name], title .. " has no state " .. name)
    check.near(value, state[name], name == "step" and 0 or 1e-6, title .. " state " .. name)
    seen = seen + 1
  end
  for name in pairs(state) do assert(expected[name], title .. " has a state " .. name) end
end

describe("An optimizer", function()
  for number, case in ipairs(fixtures.optimizers) do
    local words = {}
    for key, value in pairs(case.options) do
      words[#words + 1] = key .. " " .. (type(value) == "table" and table.concat(value, " ") or tostring(value))
    end
    table.sort(words)
    local title = ("%s (%s)"):format(case.name, table.concat(words, ", "))

    it("steps as PyTorch does: " .. title, function()
      local params = parameters()
      local optimizer = optim[case.name](params, copy(case.options))
      for step = 1, #fixtures.gradients do
        set_gradients(params, step)
        optimizer:step()
      end
      for i, expected in ipairs(case.expected) do
        check.near(expected, params[i], 1e-12, title .. " parameter " .. i)
      end
      check_state(case.state, optimizer:state_dict().state[1] or {}, title)
    end)

    local exact = optimizers[case.name].exact
    local nearly = exact and "to PyTorch's bits" or "as PyTorch does but for the last bits"
    it("steps float32 " .. nearly .. ": case " .. number .. ", " .. title, function()
      local param = C.tensor(fixtures.wide_initial)
      param.requires_grad = true
      local optimizer = optim[case.name]({param}, copy(case.options))
      for step = 1, #fixtures.wide_gradients do
        param.grad = C.tensor(fixtures.wide_gradients[step])
        optimizer:step()
      end
      check.near(C.tensor(case.wide):tolist(), param, exact and 0 or 2.4e-7, title)
    end)
  end

  for _, case in ipairs(fixtures.groups) do
    it("steps two groups with their own options as PyTorch does: " .. case.name, function()
      local params = parameters()
      local second = copy(case.options)
      second.params = params[2]
      local optimizer = optim[case.name]({{params = {params[1]}}, second}, {lr = 0.02})
      for step = 1, #fixtures.gradients do
        set_gradients(params, step)
        optimizer:step()
      end
      for i, expected in ipairs(case.expected) do
        check.near(expected, params[i], 1e-12, case.name .. " parameter " .. i)
      end
    end)
  end

  it("steps strided parameters and gradients in place", function()
    local plain, strided = parameters()[2], parameters()[2]
    local base = C.zeros({2, 2}, {dtype = "float64"})
    base:transpose(0, 1):copy_(strided:detach())
    strided = base:transpose(0, 1)
    strided.requires_grad = true
    assert.is_false(strided:is_contiguous())
    local one, two = optim.AdamW {plain}, optim.AdamW {strided}
    for step = 1, 3 do
      local grad = tensors(fixtures.gradients[step], "float64")[2]
      plain.grad = grad
      strided.grad = grad:transpose(0, 1):contiguous():transpose(0, 1)
      one:step()
      local version = strided.grad._version
      two:step()
      assert.equal(version, strided.grad._version, "a gradient is only read")
    end
    assert.same(flat(plain), flat(strided))
  end)

  it("steps large tensors the same as small ones", function()
    local n = 100003
    local values = {}
    for i = 1, n do values[i] = ((i * 7919) % 1000) / 500 - 1 end
    local large = C.tensor(values)
    large.requires_grad = true
    local small = large:detach():narrow(0, 70000, 100):clone()
    small.requires_grad = true
    local a, b = optim.AdamW({large}), optim.AdamW({small})
    for _ = 1, 3 do
      large.grad = large:detach() * 0.5
      small.grad = small:detach() * 0.5
      a:step()
      b:step()
    end
    assert.same(flat(small), flat(large:detach():narrow(0, 70000, 100)))
  end)

  it("computes halves in float32", function()
    for _, dtype in ipairs {"float16", "bfloat16"} do
      local param = C.tensor({1, -2, 3}, {dtype = dtype})
      param.requires_grad = true
      local optimizer = optim.SGD({param}, {lr = 0.5})
      param.grad = C.tensor({1, 1, -1}, {dtype = dtype})
      optimizer:step()
      assert.same({0.5, -2.5, 3.5}, flat(param))
      assert.equal(dtype, param.dtype)
    end
  end)

  it("accepts its arguments by name", function()
    local params = parameters()
    local optimizer = optim.SGD {params = params, lr = 0.5, foreach = true, fused = false}
    assert.equal(0.5, optimizer.param_groups[1].lr)
    assert.same({0, 0, 0.5, 0, false, false}, {optimizer.defaults.momentum, optimizer.defaults.weight_decay,
      optimizer.defaults.lr, optimizer.defaults.dampening, optimizer.defaults.nesterov, optimizer.defaults.maximize})
    assert.is_nil(optimizer.defaults.foreach)
  end)

  it("steps groups with different options and dtypes", function()
    local a, b = C.tensor {1}, C.tensor({1}, {dtype = "float64"})
    a.requires_grad, b.requires_grad = true, true
    local optimizer = optim.SGD({{params = {a}}, {params = b, lr = 0.5}}, {lr = 0.25})
    a.grad, b.grad = C.tensor {1}, C.tensor({1}, {dtype = "float64"})
    optimizer:step()
    assert.equal(0.75, a:item())
    assert.equal(0.5, b:item())
  end)

  it("steps parameters of two dtypes in one group", function()
    local a, b = C.tensor {1}, C.tensor({1}, {dtype = "float64"})
    a.requires_grad, b.requires_grad = true, true
    local optimizer = optim.SGD({a, b}, {lr = 0.25})
    a.grad, b.grad = C.tensor {1}, C.tensor({2}, {dtype = "float64"})
    optimizer:step()
    assert.equal(0.75, a:item())
    assert.equal(0.5, b:item())
  end)

  it("passes over parameters without gradient and keeps no state for them", function()
    local params = parameters()
    local optimizer = optim.AdamW(params)
    params[1].grad = C.ones({3}, {dtype = "float64"})
    optimizer:step()
    assert.same(fixtures.initial[2], flat(params[2]))
    assert.is_nil(optimizer.state[params[2]])
    assert.equal(1, optimizer.state[params[1]].step:item())
    params[2].grad = C.ones({2, 2}, {dtype = "float64"})
    optimizer:step()
    assert.equal(2, optimizer.state[params[1]].step:item())
    assert.equal(1, optimizer.state[params[2]].step:item())
  end)

  it("moves a parameter with a zero gradient by its decay", function()
    local param = C.tensor({2}, {dtype = "float64"})
    param.requires_grad = true
    local optimizer = optim.AdamW({param}, {lr = 0.1, weight_decay = 0.5})
    param.grad = C.zeros({1}, {dtype = "float64"})
    optimizer:step()
    assert.equal(2 * (1 - 0.1 * 0.5), param:item())
  end)

  it("reads the learning rate at every step", function()
    local param = C.tensor {1}
    param.requires_grad = true
    local optimizer = optim.SGD({param}, 0.5)
    param.grad = C.tensor {1}
    optimizer:step()
    optimizer.param_groups[1].lr = 0.25
    optimizer:step()
    assert.equal(0.25, param:item())
  end)

  it("bumps the version of changed tensors", function()
    local param = C.tensor {1}
    param.requires_grad = true
    local before = param._version
    local optimizer = optim.SGD({param}, 0.5)
    optimizer:step()
    assert.equal(before, param._version)
    param.grad = C.tensor {1}
    optimizer:step()
    assert.is_true(param._version > before)
  end)

  it("starts a momentum that is switched on later", function()
    local param = C.tensor {1}
    param.requires_grad = true
    local optimizer = optim.SGD({param}, {lr = 0.5})
    param.grad = C.tensor {1}
    optimizer:step()
    optimizer.param_groups[1].momentum = 0.5
    optimizer:step()
    assert.equal(1, optimizer.state[param].momentum_buffer:item())
    optimizer:step()
    assert.equal(1.5, optimizer.state[param].momentum_buffer:item())
  end)

  it("runs a closure with gradients on and returns its loss", function()
    local param = C.tensor {3}
    param.requires_grad = true
    local optimizer = optim.SGD({param}, {lr = 0.5})
    local loss = C.autograd.no_grad(function()
      return optimizer:step(function()
        optimizer:zero_grad()
        local l = (param * param):sum()
        l:backward()
        return l
      end)
    end)
    assert.equal(9, loss:item())
    assert.equal(0, param:item())
  end)

  it("clears gradients, or fills them with zeros", function()
    local params = parameters()
    local optimizer = optim.SGD(params)
    set_gradients(params, 1)
    optimizer:zero_grad {set_to_none = false}
    assert.same({0, 0, 0}, flat(params[1].grad))
    optimizer:zero_grad()
    assert.is_nil(params[1].grad)
  end)

  it("prints its groups", function()
    local text = tostring(optim.AdamW(parameters(), {lr = 0.25}))
    assert.matches("^AdamW %(\nParameter Group 0\n", text)
    assert.is_truthy(text:find("\n    lr: 0.25\n", 1, true))
  end)

  it("can be written in a script", function()
    local Sign = optim.Optimizer:extend "Sign"
    function Sign:init(params, options) self:setup(params, {lr = options.lr}) end
    function Sign:step()
      for _, group in ipairs(self.param_groups) do
        for _, p in ipairs(group.params) do
          if p.grad then C.autograd.no_grad(p.sub_, p, p.grad:sign() * group.lr) end
        end
      end
    end
    local param = C.tensor {3}
    param.requires_grad = true
    local optimizer = Sign({param}, {lr = 1})
    param.grad = C.tensor {-7}
    optimizer:step()
    assert.equal(4, param:item())
    assert.is_true(optim.is_optimizer(optimizer))
    assert.is_false(optim.is_optimizer {})
  end)
end)

describe("The state of an optimizer", function()
  local function train(optimizer, params, from, to)
    for step = from, to do
      set_gradients(params, step)
      optimizer:step()
    end
  end

  it("has PyTorch's layout, with ids from 0", function()
    local params = parameters()
    local optimizer = optim.AdamW(params, {lr = 0.5})
    train(optimizer, params, 1, 2)
    local state = optimizer:state_dict()
    assert.same({0, 1}, state.param_groups[1].params)
    assert.equal(0.5, state.param_groups[1].lr)
    assert.equal(2, state.state[0].step:item())
    assert.same({2, 2}, {state.state[1].exp_avg:size(0), state.state[1].exp_avg:size(1)})
    assert.is_nil(state.state[2])
  end)

  for number, case in ipairs(fixtures.optimizers) do
    it("continues to the same bits after loading: " .. case.name .. " case " .. number, function()
      local params = parameters()
      local optimizer = optim[case.name](params, copy(case.options))
      train(optimizer, params, 1, 2)
      local resumed = parameters()
      for i, p in ipairs(resumed) do C.autograd.no_grad(p.copy_, p, params[i]) end
      local second = optim[case.name](resumed)
      second:load_state_dict(optimizer:state_dict())
      train(optimizer, params, 3, 9)
      train(second, resumed, 3, 9)
      for i in ipairs(params) do assert.same(flat(params[i]), flat(resumed[i])) end
    end)
  end

  it("survives a file, whatever it holds", function()
    local path = os.tmpname()
    for _, case in ipairs(fixtures.groups) do
      local name = case.name
      local params, resumed = parameters(), parameters()
      local optimizer, second = optim[name](params), optim[name](resumed)
      train(optimizer, params, 1, 3)
      io_functions.save(optimizer:state_dict(), path)
      for i, p in ipairs(resumed) do C.autograd.no_grad(p.copy_, p, params[i]) end
      second:load_state_dict(io_functions.load(path))
      train(optimizer, params, 4, 5)
      train(second, resumed, 4, 5)
      for i in ipairs(params) do assert.same(flat(params[i]), flat(resumed[i]), name) end
    end
    os.remove(path)
  end)

  it("is copied when loaded", function()
    local params = parameters()
    local optimizer = optim.AdamW(params)
    train(optimizer, params, 1, 1)
    local second = optim.AdamW(params)
    second:load_state_dict(optimizer:state_dict())
    assert.is_not.equal(optimizer.state[params[1]].exp_avg, second.state[params[1]].exp_avg)
    train(second, params, 2, 2)
    assert.equal(1, optimizer.state[params[1]].step:item())
  end)

  it("has the dtype of the parameter it is loaded for", function()
    local params = parameters()
    local optimizer = optim.AdamW(params)
    train(optimizer, params, 1, 1)
    local single = parameters "float32"
    local second = optim.AdamW(single)
    second:load_state_dict(optimizer:state_dict())
    assert.equal("float32", second.state[single[1]].exp_avg.dtype)
    assert.equal("float32", second.state[single[1]].step.dtype)
  end)

  it("is refused when the groups differ", function()
    local params = parameters()
    local optimizer = optim.SGD(params)
    local one = optim.SGD({params[1]})
    check.raises("SGD: load_state_dict: group 1 has 1 parameters, the saved one 2", function()
      one:load_state_dict(optimizer:state_dict())
    end)
    local two = optim.SGD {{params = {params[1]}}, {params = {params[2]}}}
    check.raises("expected 2 parameter groups, got 1", function() two:load_state_dict(optimizer:state_dict()) end)
    check.raises("expected {state = ..., param_groups = ...}, got number 3", function() one:load_state_dict(3) end)
  end)
end)

describe("An optimizer refuses", function()
  it("unknown options, and names the known ones", function()
    check.raises("AdamW: unknown option 'lrr' (known: params, lr, betas, eps, weight_decay, amsgrad, ", function()
      optim.AdamW(parameters(), {lrr = 1})
    end)
    check.raises("SGD: unknown option 'betas' in a parameter group (known: dampening, lr,", function()
      optim.SGD {{params = parameters(), betas = {0, 0}}}
    end)
  end)

  it("an option given twice", function()
    check.raises("SGD: 'lr' is given twice", function() optim.SGD(parameters(), 0.1, {lr = 0.1}) end)
  end)

  it("options out of range", function()
    check.raises("AdamW: lr: expected a number of at least 0 or a tensor, got number -1", function()
      optim.AdamW(parameters(), {lr = -1})
    end)
    check.raises("Adam: beta1: expected a number in [0, 1), got number 1", function()
      optim.Adam(parameters(), {betas = {1, 0.9}})
    end)
    check.raises("Adam: betas: expected {beta1, beta2}, got number 0.9", function()
      optim.Adam(parameters(), {betas = 0.9})
    end)
    check.raises("SGD: nesterov needs a momentum", function() optim.SGD(parameters(), {nesterov = true}) end)
  end)

  it("other values than lists of parameters", function()
    check.raises("SGD: got an empty list of parameters", function() optim.SGD {} end)
    check.raises("SGD: expected a table of parameters or of groups, got a tensor", function()
      optim.SGD(parameters()[1])
    end)
    check.raises("SGD: 'params' is missing", function()
      optim.SGD(nil, {lr = 1})
    end)
    check.raises("SGD: parameter 2: expected a tensor, got number 4", function() optim.SGD {parameters()[1], 4} end)
  end)

  it("the same parameter twice", function()
    local params = parameters()
    check.raises("SGD: parameter 2 is given twice", function() optim.SGD {params[1], params[1]} end)
    local optimizer = optim.SGD {params[1]}
    check.raises("SGD: parameter 1 is given twice (or is in another group)", function()
      optimizer:add_param_group {params = {params[1]}}
    end)
  end)

  it("results of operations and integers", function()
    local params = parameters()
    check.raises("SGD: parameter 1 is the result of an operation", function() optim.SGD {params[1] * 2} end)
    check.raises("SGD: parameter 1 is int64; only floating", function()
      optim.SGD {C.tensor({1}, {dtype = "int64"})}
    end)
  end)

  it("a learning rate that is no number", function()
    local params = parameters()
    local optimizer = optim.SGD(params)
    optimizer.param_groups[1].lr = "high"
    check.raises("SGD: lr: expected a number, got string", function() optimizer:step() end)
  end)

  it("to be made from the base class", function()
    check.raises("optim.Optimizer is the base", function() optim.Optimizer({}) end)
  end)
end)
