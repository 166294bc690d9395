-- accelhost.autograd.functional against PyTorch's numbers, and its errors.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require "spec.support.fixtures"
local F, autograd = accelhost.nn.functional, accelhost.autograd
local functional = autograd.functional

local functions = {
  sines = function(x) return x:sin() * x:roll(1) end,
  identity = function(x) return x end,
  layer = function(w, x) return (w:matmul(x)):tanh() end,
  ["two results"] = function(x, w) return w:matmul(x), (x * x):sum() end,
  ["part unused"] = function(x, w) return x * 3, w:exp() end,
  constant = function() return accelhost.ones(2, {dtype = "float64"}) end,
  scalar = function(s) return s ^ 3 end,
  product = function(x) return x:prod() end,
  energy = function(x, w) return (w:matmul(x) ^ 2):sum() + (x ^ 4):sum() end,
  loss = function(m) return F.cross_entropy(m, accelhost.tensor({2, 0, 1}, {dtype = "int64"})) end,
  linear = function(x) return (2 * x):sum() end,
  ["one of two"] = function(x) return (x ^ 3):sum() end,
}

local function tensor(value, options)
  return accelhost.tensor(value, {dtype = "float64", requires_grad = options and options.requires_grad})
end

-- The inputs of these functions are a vector and a matrix, in either order.
local two = {layer = true, ["two results"] = true, ["part unused"] = true, energy = true, ["one of two"] = true}

local function tensors(value, several)
  if not several then return tensor(value) end
  local list = {}
  for i, item in ipairs(value) do list[i] = tensor(item) end
  return list
end

-- Compare a tensor or nested lists of tensors with nested lists of numbers.
local function compare(expected, got, what)
  if type(got) == "table" then
    assert.equal(#expected, #got, what)
    for i, item in ipairs(got) do compare(expected[i], item, ("%s[%d]"):format(what, i)) end
  else
    assert.same(tensor(expected):shape(), got:shape(), what)
    check.near(check.flat(tensor(expected)), got, 1e-9, what)
    assert.is_false(got.requires_grad, what)
  end
end

describe("autograd.functional has PyTorch's", function()
  for _, case in ipairs(fixtures.load "autograd_functional".cases) do
    local several, name = two[case["function"]], case["function"]
    it(("%s of '%s'%s"):format(case.call, name, not case.v and case.call == "vjp" and " without v" or ""), function()
      local v
      if case.v then
        local results = case.call == "vjp" and (name == "two results" or name == "part unused")
        v = tensors(case.v, case.call == "vjp" and results or case.call ~= "vjp" and several)
      end
      local inputs = tensors(case.inputs, several)
      local results = {functional[case.call](functions[name], inputs, v)}
      if case.call == "jacobian" or case.call == "hessian" then
        compare(case.result, results[1], case.call)
      else
        compare(case.result, results, case.call)
      end
    end)
  end
end)

describe("autograd.functional with create_graph", function()
  local function third(t) return (t ^ 3 * t:roll(1)):sum() end

  it("returns results whose gradients are those of finite differences", function()
    local x, v = tensor({0.5, -1.25, 2}, {requires_grad = true}), tensor({1, 2, -1}, {requires_grad = true})
    local options = {create_graph = true}
    local function second(call, ...) return select(2, functional[call](...)) end
    assert.is_true(autograd.gradcheck(function(t)
      return functional.jacobian(function(u) return u ^ 3 * u:roll(1) end, t, options)
    end, {x}))
    assert.is_true(autograd.gradcheck(function(t) return functional.hessian(third, t, options) end, {x}))
    for _, call in ipairs {"vhp", "hvp"} do
      assert.is_true(autograd.gradcheck(function(t, u) return second(call, third, t, u, options) end, {x, v}), call)
    end
    for _, call in ipairs {"vjp", "jvp"} do
      assert.is_true(autograd.gradcheck(function(t, u)
        return second(call, function(w) return w ^ 3 * w:roll(1) end, t, u, options)
      end, {x, v}), call)
    end
  end)

  it("reaches parameters of the function, and leaves their grad alone without it", function()
    local layer = accelhost.nn.Linear(3, 2)
    local x = accelhost.randn(3)
    check.near(check.flat(layer.weight), functional.jacobian(layer, x), 1e-6)
    assert.is_nil(layer.weight.grad)
    functional.jacobian(layer, x, {create_graph = true}):sum():backward()
    check.near({1, 1, 1, 1, 1, 1}, layer.weight.grad, 1e-6)
  end)
end)

describe("autograd.functional", function()
  local x = tensor {1, 2}

  it("works where gradients are off, and turns them off again", function()
    accelhost.no_grad(function()
      check.near({2, 0, 0, 4}, functional.jacobian(function(t) return t ^ 2 end, x), 1e-12)
      assert.is_false(accelhost.is_grad_enabled())
    end)
    assert.is_false(x.requires_grad)
  end)

  it("accepts a list with one input for a tuple, and a list of results for several", function()
    local function square(t) return {t ^ 2, t:sum()} end
    local rows = functional.jacobian(square, {x})
    assert.same({2, 2}, rows[1][1]:shape())
    assert.same({2}, rows[2][1]:shape())
    assert.same({2, 2}, functional.hessian(function(t) return t:prod() end, {x})[1][1]:shape())
  end)

  it("has an empty Jacobian of an empty result", function()
    assert.same({0, 2}, functional.jacobian(function(t) return t:narrow(0, 0, 0) end, x):shape())
  end)

  local function refuses(title, text, fn)
    it("refuses " .. title, function() check.raises(text, fn) end)
  end
  local function same(t) return t end
  refuses("a missing v of several elements",
    "vjp: 'v' is missing: it can be left out only where the result of func is one tensor with one element",
    function() functional.vjp(same, x) end)
  refuses("a v of another shape", "jvp: v: expected shape (2,) for tensor 1, got (3,)",
    function() functional.jvp(same, x, tensor {1, 2, 3}) end)
  refuses("another number of vectors", "vjp: v: expected 1 tensor, as the result of func has, got 2",
    function() functional.vjp(same, x, {x, x}) end)
  refuses("a result that is no tensor", "jacobian: func: result 1: expected a tensor, got number 3",
    function() functional.jacobian(function() return 3 end, x) end)
  refuses("a func without results", "jacobian: func: expected tensors as results, got none",
    function() functional.jacobian(function() end, x) end)
  refuses("no inputs", "jacobian: inputs: expected a tensor or a list of tensors, got an empty table",
    function() functional.jacobian(same, {}) end)
  refuses("a Hessian of several elements", "hessian: func: expected one tensor with one element, got shape (2,)",
    function() functional.hessian(same, x) end)
  refuses("a product with the Hessian of two results", "vhp: func: expected one tensor with one element, got 2 tensors",
    function() functional.vhp(function(t) return t:sum(), t:sum() end, x, x) end)
  refuses("forward mode", "jacobian: strategy: expected 'reverse-mode', got 'forward-mode'",
    function() functional.jacobian(same, x, {strategy = "forward-mode"}) end)
  refuses("a constant result when strict", "jacobian: result 1 of func does not depend on the inputs (strict)",
    function() functional.jacobian(function() return tensor {1} end, x, {strict = true}) end)
  refuses("an unused input when strict", "jacobian: the product does not depend on input 2 (strict)",
    function() functional.jacobian(same, {x, x}, {strict = true}) end)
  refuses("a constant Jacobian when strict with a graph", "has no graph, since it is constant (strict, create_graph)",
    function() functional.jacobian(function(t) return t * 2 end, x, {strict = true, create_graph = true}) end)
end)
