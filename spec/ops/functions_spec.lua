-- Functions made of ops: tests beyond the table of cases (spec/fixtures/ops).
local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local tensors = require "spec.support.tensors"

local leaf = tensors.leaf

describe("einsum", function()
  it("has derivatives of both orders", function()
    accelhost.manual_seed(1)
    local a, b = leaf(2, 3), leaf(2, 3, 2)
    for _, equation in ipairs {"ij,ijk->k", "ij,ajk->ak", "ij,kji->k"} do
      local other = equation:find "ajk" and leaf(2, 3, 2) or equation:find "kji" and leaf(2, 3, 2) or b
      local function f(x, y) return accelhost.einsum(equation, x, y) end
      gradcheck.gradcheck(f, {a, other})
      gradcheck.gradgradcheck(f, {a, other})
    end
  end)

  it("accepts its operands in a table", function()
    check.near({5}, accelhost.einsum("i,i->", {accelhost.tensor {1, 2}, accelhost.tensor {1, 2}}), 0)
  end)

  it("counts whole numbers", function()
    local x = accelhost.tensor({{1, 2}, {3, 4}}, {dtype = "int64"})
    assert.same({{7, 10}, {15, 22}}, accelhost.einsum("ij,jk->ik", x, x):tolist())
  end)

  it("names mismatched arguments", function()
    local a, b = accelhost.ones(2, 3), accelhost.ones(4, 5)
    local function raises(text, ...)
      local given = {...}
      check.raises(text, function() accelhost.einsum(unpack(given)) end)
    end
    raises("einsum: operand 1 (4, 5): 'j' has size 4 there and 3 before", "ij,jk->ik", a, b)
    raises("einsum: the equation 'ij' has 1 term, but 2 operands are passed", "ij", a, b)
    raises("einsum: operand 0 has 2 dims, 'ijk' names 3", "ijk->i", a)
    raises("einsum: 'z' of the output 'z' is in no operand", "ij->z", a)
    raises("einsum: 'i' is repeated in the output 'ii'", "ij->ii", a)
    raises("einsum: operand 0: 'i' names dims of sizes 2 and 3", "ii->i", a)
    raises("einsum: '1' in the equation 'i1->i' is neither a letter nor '...'", "i1->i", a)
    raises("einsum: expected at least one operand", "ij")
    raises("einsum: equation: expected a string, got a tensor of shape (2, 3)", a)
  end)
end)

describe("functions of several tensors", function()
  local a, b = accelhost.arange(2), accelhost.arange(3)

  it("return single values for single arguments, and a table for a table", function()
    local x, y = accelhost.meshgrid(a, b)
    local both = accelhost.meshgrid {a, b}
    assert.is_true(accelhost.equal(x, both[1]) and accelhost.equal(y, both[2]))
    assert.equal(2, select("#", accelhost.atleast_2d(a, b)))
    assert.equal("table", type(accelhost.broadcast_tensors {a:unsqueeze(1), b}))
    assert.same({2, 3}, accelhost.broadcast_shapes({2, 1}, {3}))
  end)

  it("refuse mismatched arguments", function()
    check.raises("hstack: tensors: expected a table of tensors", function() accelhost.hstack(a) end)
    check.raises("vstack: tensors: expected at least one", function() accelhost.vstack {} end)
    check.raises("meshgrid: dtypes differ: int64 and float32", function() accelhost.meshgrid(a, b:float()) end)
    check.raises("meshgrid: unknown indexing 'yx' (known: ij, xy)", function()
      accelhost.meshgrid(a, b, {indexing = "yx"})
    end)
    check.raises("broadcast_tensors: sizes 2 and 3 of dim 0 do not broadcast", function()
      accelhost.broadcast_tensors(a, b)
    end)
    check.raises("hsplit: dim 0 of size 3 cannot be split into 2 equal sections", function() b:hsplit(2) end)
    check.raises("combinations: too many choices of 20 out of 40 elements", function()
      accelhost.combinations(accelhost.arange(40), 20)
    end)
    check.raises("tensordot: dim 0 of a (2,) and dim 0 of b (3,) differ in size", function()
      accelhost.tensordot(a, b, 1)
    end)
    check.raises("cross: no dim of (2,) has size 3", function() a:cross(a) end)
    check.raises("cdist: x1: expected at least 2 dims, got shape (2,)", function()
      accelhost.cdist(a:float(), b:float())
    end)
  end)
end)

describe("in-place forms of views", function()
  it("change the shape of the tensor itself", function()
    local x = accelhost.arange(6):view(2, 3)
    local same = x
    assert.equal(x, x:t_())
    assert.same({3, 2}, same:shape())
    assert.same({{0, 3}, {1, 4}, {2, 5}}, x:tolist())
    assert.same({3, 1, 2}, x:unsqueeze_(1):shape())
    assert.same({3, 2}, x:squeeze_():shape())
    assert.same({2, 3}, x:transpose_(0, 1):shape())
    assert.same({3, 2}, x:swapdims_(0, -1):shape())
  end)

  it("refuse a tensor with a gradient, and report the remedy", function()
    local x = accelhost.ones(2, 3, {requires_grad = true})
    check.raises("t_: input requires grad, and a tensor with a gradient keeps its shape; use x = x:t(...)", function()
      x:t_()
    end)
  end)
end)

describe("further forms", function()
  it("write in place as functions too", function()
    local x = accelhost.tensor {-1, 2}
    assert.equal(x, accelhost.relu_(x))
    assert.same({0, 2}, x:tolist())
    check.raises("accelhost has no 'matmul_'", function() return accelhost.matmul_ end)
  end)

  it("choose by a method", function()
    local x = accelhost.tensor {-1, 2}
    assert.same({0, 2}, x:where(x:gt(0), 0):tolist())
  end)

  it("add products in place with gradients", function()
    local x, a, b = leaf(2, 2), leaf(2, 3), leaf(3, 2)
    gradcheck.gradcheck(function(s, p, q) return s:clone():addmm_(p, q, {beta = 0.5}) end, {x, a, b})
    gradcheck.gradcheck(function(s) return s:renorm(2, 0, 0.5) end, {x})
  end)

  it("of real numbers do nothing", function()
    local x = accelhost.ones(2)
    assert.is_true(rawequal(x, x:conj()) and rawequal(x, accelhost.real(x)))
    assert.equal(1, x:ndimension())
  end)
end)

describe("strides", function()
  it("of one's own see elements several times, and add up their gradients", function()
    local x = accelhost.arange(4):double():requires_grad_()
    local view = x:as_strided({2, 2}, {1, 1}, 1)
    assert.same({{1, 2}, {2, 3}}, view:tolist())
    view:sum():backward()
    check.near({0, 1, 2, 1}, x.grad, 0)
    check.raises("as_strided: sizes (3, 2) with strides (1, 2) from 0 leave the storage", function()
      x:as_strided({3, 2}, {1, 2})
    end)
  end)
end)

describe("windows", function()
  it("share memory, and gradients of overlapping ones add up", function()
    local x = accelhost.arange(5):double():requires_grad_()
    local windows = x:unfold(0, 3, 1)
    windows:sum():backward()
    check.near({1, 2, 3, 2, 1}, x.grad, 0)
    assert.equal(x:data_ptr(), windows:data_ptr())
    assert.same({{1}, {1}}, accelhost.tensor({{0, 1}, {2, 1}}):t():contiguous():t()[{{}, {1}}]:unfold(0, 1, 1)
      :reshape(2, 1):tolist())
    check.raises("unfold: size 6 is larger than dim 0 of (5,)", function() x:unfold(0, 6, 1) end)
  end)
end)

describe("dtypes", function()
  it("promote and cast as PyTorch's", function()
    assert.equal("float32", accelhost.promote_types("float16", "bfloat16"))
    assert.equal("int32", accelhost.promote_types("uint8", accelhost.int32))
    assert.equal("float32", accelhost.result_type(accelhost.tensor({1}, {dtype = "int64"}), 1.5))
    assert.equal("uint8", accelhost.result_type(accelhost.tensor({1}, {dtype = "uint8"}), 300))
    assert.is_true(accelhost.can_cast("int64", "float16"))
    assert.is_false(accelhost.can_cast("float32", "int64"))
    assert.is_false(accelhost.can_cast("int64", "bool"))
  end)

  it("have limits", function()
    assert.equal(2 ^ -23, accelhost.finfo("float32").eps)
    assert.equal(65504, accelhost.finfo(accelhost.float16).max)
    assert.equal(16, accelhost.finfo("bfloat16").bits)
    assert.equal(255, accelhost.iinfo("uint8").max)
    assert.equal(-2 ^ 31, accelhost.iinfo("int32").min)
    local wide = accelhost.iinfo "int64"
    assert.same({-2 ^ 63, 2 ^ 63}, {wide.min, wide.max})
    assert.equal("tensor([-9223372036854775808,  9223372036854774784])",
      tostring(accelhost.tensor({wide.min, wide.max - 1024}, {dtype = "int64", device = "cpu"})))
    check.raises("iinfo: type: expected an integer dtype, got float32", function() accelhost.iinfo("float32") end)
    check.raises("finfo: type: expected a floating dtype, got int64", function() accelhost.finfo("int64") end)
  end)
end)

describe("a fold into a tensor without a gradient", function()
  it("has the gradient of the source, also in place", function()
    local index = accelhost.tensor({0, 0, 1}, {dtype = "int64"})
    for _, how in ipairs {"amax", "amin", "prod", "mean"} do
      for _, name in ipairs {"scatter_reduce", "index_reduce"} do
        local function gradient(method)
          local source = accelhost.tensor({1, -2, 3}, {dtype = "float64", requires_grad = true})
          local target = accelhost.tensor({0.5, 4}, {dtype = "float64"})
          target[method](target, 0, index, source, how):sum():backward()
          return source.grad:tolist()
        end
        assert.same(gradient(name), gradient(name .. "_"))
      end
    end
  end)
end)

describe("scatter_reduce", function()
  it("accepts a number for a tensor of one element", function()
    local index = accelhost.tensor({1}, {dtype = "int64"})
    local folded = accelhost.zeros(2):scatter_reduce(0, index[0], accelhost.full({}, 3), "sum")
    assert.same({0, 3}, folded:tolist())
  end)
end)

describe("tensors that broadcast", function()
  it("are themselves where they have the shape already", function()
    local a, b = accelhost.ones(2, 3), accelhost.ones(3)
    local x, y = accelhost.broadcast_tensors(a, b)
    assert.equal(a, x)
    assert.same({2, 3}, y:shape())
  end)
end)

describe("softshrink", function()
  it("is flat up to lambd itself, whatever the incoming gradient", function()
    local x = accelhost.tensor({-0.5, 0, 0.5, 2}, {requires_grad = true})
    accelhost.nn.functional.softshrink(x):backward(accelhost.tensor {1, math.huge, 1, 3})
    assert.same({0, 0, 0, 3}, x.grad:tolist())
  end)
end)

describe("celu at 0", function()
  it("has the derivative 1, as elu has", function()
    local x = accelhost.zeros({1}, {requires_grad = true})
    accelhost.nn.functional.celu(x, 0.5):backward()
    assert.equal(1, x.grad:item())
  end)
end)

describe("xlogy", function()
  it("has no gradient where none arrives, whatever the logarithm", function()
    local x = accelhost.tensor({1, 2}, {requires_grad = true})
    local gradient = accelhost.tensor {0, 1}
    accelhost.xlogy(x, -3):backward(gradient)
    assert.equal(0, x.grad[0]:item())
    assert.is_true(x.grad[1]:isnan():item())
  end)
end)

describe("round", function()
  it("refuses decimals for whole numbers", function()
    check.raises("round: decimals: expected 0 for int64, got 1", function()
      accelhost.arange(2):round {decimals = 1}
    end)
  end)
end)
