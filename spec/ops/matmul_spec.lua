local accelhost = require "accelhost"
local C = require "accelhost._C"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local precision = require "spec.support.precision"
local tensors = require "spec.support.tensors"

local nn, F = accelhost.nn, accelhost.nn.functional

local leaf = tensors.leaf

local function ramp(...)
  local count = 1
  for _, n in ipairs {...} do count = count * n end
  return accelhost.arange(count):to("float32"):reshape(...)
end

describe("matmul", function()
  it("reads transposed views as they are", function()
    local a, b = ramp(2, 3), ramp(4, 3)
    assert.same({{5, 14, 23, 32}, {14, 50, 86, 122}}, accelhost.matmul(a, b:t()):tolist())
    assert.same({{5, 14}, {14, 50}}, accelhost.matmul(a:t():t(), ramp(2, 3):t()):tolist())
    assert.same(accelhost.matmul(a, b:t()):tolist(), accelhost.matmul(a:t():contiguous():t(), b:t()):tolist())
  end)

  it("accepts any strides", function()
    local wide = ramp(4, 6)
    local every_other = wide[{{}, {0, 6, 2}}]
    assert.same({{20, 56, 92, 128}}, accelhost.matmul(every_other, accelhost.tensor {0, 2, 4}):reshape(1, 4):tolist())
    local row = accelhost.tensor {1, 2, 3}:expand(2, 3)
    assert.same({{14, 14}, {14, 14}}, accelhost.matmul(row, row:t()):tolist())
  end)

  it("folds a batch that shares one matrix, also through views", function()
    local a, b = accelhost.randn {2, 3, 4}, accelhost.randn {4, 5}
    local wanted = accelhost.stack {accelhost.mm(a[0], b), accelhost.mm(a[1], b)}
    check.near(check.flat(wanted), accelhost.matmul(a, b), 1e-6)
    local turned = a:transpose(0, 1)
    check.near(check.flat(wanted:transpose(0, 1)), accelhost.matmul(turned, b), 1e-6)
  end)

  it("broadcasts batches", function()
    local a, b = accelhost.randn {2, 1, 3, 4}, accelhost.randn {5, 4, 2}
    local product = accelhost.matmul(a, b)
    assert.same({2, 5, 3, 2}, product:shape())
    check.near(check.flat(accelhost.mm(a[{1, 0}], b[3])), product[{1, 3}], 1e-6)
  end)

  it("returns zeros for sums over nothing", function()
    assert.same({{0, 0}, {0, 0}}, accelhost.matmul(accelhost.zeros(2, 0), accelhost.zeros(0, 2)):tolist())
    assert.same({0, 3}, accelhost.matmul(accelhost.zeros(0, 2), accelhost.zeros(2, 3)):shape())
    assert.same({{1, 2}, {1, 2}},
      F.linear(accelhost.zeros(2, 0), accelhost.zeros(2, 0), accelhost.tensor {1, 2}):tolist())
  end)

  it("multiplies integers of any shape as float64 does", function()
    accelhost.manual_seed(3)
    for _, size in ipairs {{1, 1, 1}, {1, 70, 1}, {3, 5, 1}, {4, 9, 32}, {5, 7, 33}, {9, 40, 70}, {1, 3, 64}} do
      local a, b = accelhost.randint(-9, 9, {2, size[1], size[2]}), accelhost.randint(-9, 9, {size[2], size[3]})
      local wanted = a:double():matmul(b:double())
      for _, dtype in ipairs {"int64", "int32"} do
        check.near(check.flat(wanted), a:to(dtype):matmul(b:to(dtype)), 0)
        check.near(check.flat(wanted), a:to(dtype):matmul(b:t():contiguous():t():to(dtype)), 0)
      end
      local bytes = a:abs():to("uint8"):matmul(b:abs():to "uint8")
      check.near(check.flat(a:abs():matmul(b:abs()):remainder(256)), bytes, 0)
    end
  end)

  it("multiplies bfloat16 with vectors as float32 does, rounded", function()
    accelhost.manual_seed(4)
    for _, k in ipairs {1, 15, 16, 63, 64, 100, 4096, 9000} do
      local a, b = accelhost.randn(3, k):to "bfloat16", accelhost.randn(k):to "bfloat16"
      local wanted, scale = a:double():mv(b:double()), a:double():abs():mv(b:double():abs())
      for _, got in ipairs {a:mv(b), a:t():contiguous():t():mv(b), a:mv(accelhost.stack({b, b}, 1):select(1, 0)),
        a:matmul(b:view(k, 1)):view(3), accelhost.stack {a[0]:dot(b), a[1]:dot(b), a[2]:dot(b)}} do
        local off = (got:double() - wanted):abs() - wanted:abs() * 2 ^ -8 - scale * 1e-6
        assert.is_true(off:max():item() <= 0)
      end
    end
  end)

  it("multiplies few rows by the rows of a matrix", function()
    accelhost.manual_seed(1)
    for _, sizes in ipairs {{1, 8, 32}, {1, 9, 64}, {1, 33, 77}, {1, 576, 576}, {2, 600, 600}, {3, 512, 513},
      {4, 600, 601}, {5, 600, 600}} do
      local m, n, k = unpack(sizes)
      local x, w, bias = accelhost.randn {m, k}, accelhost.randn {n, k}, accelhost.randn {n}
      for dtype, near in pairs {float32 = 1e-5, bfloat16 = 1e-2} do
        local a, b, c = x:to(dtype), w:to(dtype), bias:to(dtype)
        local wanted = (a:double():matmul(b:double():t()))
        local scale = math.sqrt(k)
        check.near(check.flat(wanted / scale), F.linear(a, b):double() / scale, near)
        check.near(check.flat((wanted + c:double()) / scale), F.linear(a, b, c):double() / scale, near)
        check.near(check.flat(wanted / scale), a:matmul(b:t()):double() / scale, near)
        local wide = accelhost.cat({b, b}, 1):narrow(1, 0, k)
        check.near(check.flat(F.linear(a, b):double()), F.linear(a, wide):double(), 1e-3)
      end
    end
  end)

  it("returns the same products of a row in any number of threads", function()
    local x, w = accelhost.randn {1, 576}, accelhost.randn {1537, 576}
    local before = accelhost.get_num_threads()
    for _, dtype in ipairs {"float32", "bfloat16"} do
      local found = {}
      for i, threads in ipairs {1, 2, 3} do
        accelhost.set_num_threads(threads)
        found[i] = F.linear(x:to(dtype), w:to(dtype)):tolist()
      end
      assert.same(found[1], found[2])
      assert.same(found[1], found[3])
    end
    accelhost.set_num_threads(before)
  end)

  it("multiplies many rows by the rows of a matrix, on any number of threads", function()
    accelhost.manual_seed(2)
    local before = accelhost.get_num_threads()
    for _, sizes in ipairs {{1025, 65, 128}, {2048, 128, 513}, {300, 1024, 96}, {300, 1025, 96}} do
      local m, n, k = unpack(sizes)
      local x, w = accelhost.randn {2, m, k}, accelhost.randn {n, k}
      local wanted = check.flat(x:double():matmul(w:double():t()) / math.sqrt(k))
      for threads = 1, 3 do
        accelhost.set_num_threads(threads)
        local product = x:matmul(w:t())
        check.near(wanted, product:double() / math.sqrt(k), 1e-5)
        assert.is_true(accelhost.equal(product, F.linear(x, w)))
      end
    end
    accelhost.set_num_threads(before)
  end)

  it("multiplies matrices whose rows or columns leave one over when threads divide them", function()
    accelhost.manual_seed(3)
    local before = accelhost.get_num_threads()
    accelhost.set_num_threads(4)
    for _, size in ipairs {{49, 49}, {49, 400}, {400, 49}, {9, 401}, {401, 17}, {1, 401}, {401, 1}} do
      local a = accelhost.randint(-2, 3, {3000, size[1] + 3}):to("float64")
      local b = accelhost.randint(-2, 3, {3000, size[2]}):to("float64")
      local wanted = accelhost.matmul(a:narrow(1, 0, size[1]):t(), b)
      for _, dtype in ipairs {"float32", "bfloat16"} do
        local product = accelhost.matmul(a:to(dtype):narrow(1, 0, size[1]):t(), b:to(dtype))
        assert.is_true(accelhost.equal(wanted:to(dtype), product), dtype .. " " .. table.concat(size, " x "))
      end
    end
    accelhost.set_num_threads(before)
  end)

  it("multiplies integers exactly", function()
    local a = accelhost.tensor({{2 ^ 40, 1}}, {dtype = "int64"})
    assert.same({{2 ^ 42 + 3}}, accelhost.matmul(a, accelhost.tensor({{4}, {3}}, {dtype = "int64"})):tolist())
  end)

  it("computes halves in float32", function()
    local a, b = accelhost.randn {8, 16}, accelhost.randn {16, 4}
    for _, dtype in ipairs {"float16", "bfloat16"} do
      local product = accelhost.matmul(a:to(dtype), b:to(dtype))
      assert.equal(dtype, product.dtype)
      local wanted = accelhost.matmul(a:to(dtype):to("float32"), b:to(dtype):to("float32")):to(dtype)
      check.near(check.flat(wanted:to("float32")), product:to("float32"), 1e-2)
    end
  end)

  it("multiplies bfloat16 in any layout", function()
    accelhost.manual_seed(6)
    local a, b = accelhost.randn({2, 40, 30}):to("bfloat16"), accelhost.randn({2, 50, 30}):to("bfloat16")
    local wide_a, wide_b = a:to("float32"), b:to("float32")
    check.near(check.flat(accelhost.matmul(wide_a, wide_b:transpose(1, 2))),
      accelhost.matmul(a, b:transpose(1, 2)):to("float32"), 0.02)
    local turned = a:transpose(0, 1)
    local bias = accelhost.randn({50}):to("bfloat16")
    check.near(check.flat(F.linear(wide_a:transpose(0, 1), wide_b[1], bias:to("float32"))),
      F.linear(turned, b[1], bias):to("float32"), 0.02)
    check.near(check.flat(F.linear(wide_a, wide_b[0])), F.linear(a, b[0]):to("float32"), 0.02)
  end)

  it("has second derivatives for every pair of shapes", function()
    local shapes = {
      {{3}, {3}}, {{2, 3}, {3}}, {{3}, {3, 2}}, {{2, 3}, {3, 2}}, {{2, 2, 3}, {3, 2}}, {{2, 3}, {2, 3, 2}},
      {{2, 2, 3}, {3}}, {{3}, {2, 3, 2}}, {{2, 1, 2, 3}, {2, 3, 1}},
    }
    for _, pair in ipairs(shapes) do
      local a, b = leaf(unpack(pair[1])), leaf(unpack(pair[2]))
      gradcheck.gradcheck(accelhost.matmul, {a, b})
      gradcheck.gradgradcheck(accelhost.matmul, {a, b})
    end
  end)

  it("agrees between float32 and float64 at sizes that choose other libraries", function()
    precision.agree(accelhost.matmul, {{64, 600}, {600, 32}})
    precision.agree(accelhost.matmul, {{3, 64, 48}, {3, 48, 80}})
    precision.agree(function(a, b) return accelhost.matmul(a, b:t()) end, {{16, 5000}, {24, 5000}})
    precision.agree(function(a, b) return accelhost.matmul(a:t(), b) end, {{5000, 16}, {5000, 24}})
  end)

  it("reports which shapes do not fit", function()
    check.raises("matmul: inner sizes differ: (32, 784) x (512, 10)", function()
      accelhost.matmul(accelhost.zeros(32, 784), accelhost.zeros(512, 10))
    end)
    check.raises("matmul: batch dimensions do not broadcast: (2, 3, 4) x (5, 4, 3)", function()
      accelhost.matmul(accelhost.zeros(2, 3, 4), accelhost.zeros(5, 4, 3))
    end)
    check.raises("matmul: dtypes differ: float32 and float64", function()
      accelhost.matmul(accelhost.zeros(2, 2), accelhost.zeros({2, 2}, {dtype = "float64"}))
    end)
    check.raises("mm: expected input with 2 dimensions, got (2, 2, 2)", function()
      accelhost.mm(accelhost.zeros(2, 2, 2), accelhost.zeros(2, 2))
    end)
    check.raises("bmm: batch sizes differ: (2, 1, 1) x (3, 1, 1)", function()
      accelhost.bmm(accelhost.zeros(2, 1, 1), accelhost.zeros(3, 1, 1))
    end)
    check.raises("at least one dimension", function() accelhost.matmul(accelhost.tensor(1), accelhost.zeros(2)) end)
  end)
end)

describe("the dot product of long vectors", function()
  it("has the same bits on any number of threads, whatever the strides", function()
    local threads = accelhost.get_num_threads()
    for _, dtype in ipairs {"float32", "float64"} do
      local tolerance = dtype == "float32" and 1e-4 or 1e-11
      for _, count in ipairs {1, 63, 4096, 40000, 1100003} do
        local a, b = accelhost.randn({count}, {dtype = dtype}), accelhost.randn({count}, {dtype = dtype})
        local wide = accelhost.stack({a, b}, 1)
        local expected = (a:double() * b:double()):sum():item()
        local size = (a:double() * b:double()):abs():sum():item()
        local first
        for _, t in ipairs {1, 2, 3} do
          accelhost.set_num_threads(t)
          first = first or a:dot(b)
          assert.is_true(first:equal(a:dot(b)))
          assert.is_true(math.abs(wide:select(1, 0):dot(b):item() - expected) <= tolerance * size)
        end
        assert.is_true(math.abs(first:item() - expected) <= tolerance * size)
      end
    end
    accelhost.set_num_threads(threads)
  end)
end)

describe("addmm", function()
  it("drops the input for beta 0, whatever it holds", function()
    local nan = accelhost.full({2, 2}, 0 / 0)
    assert.same({{2, 2}, {2, 2}}, accelhost.addmm(nan, accelhost.ones(2, 1), accelhost.ones(1, 2), 0, 2):tolist())
  end)

  it("refuses an input that is larger than the product", function()
    check.raises("addmm: input (3, 2, 2) does not broadcast to (2, 2)", function()
      accelhost.addmm(accelhost.zeros(3, 2, 2), accelhost.ones(2, 1), accelhost.ones(1, 2))
    end)
  end)
end)

describe("linear", function()
  it("has second derivatives with leading dims and without", function()
    for _, shape in ipairs {{3}, {2, 3}, {2, 2, 3}} do
      local inputs = {leaf(unpack(shape)), leaf(4, 3), leaf(4)}
      gradcheck.gradcheck(F.linear, inputs)
      gradcheck.gradgradcheck(F.linear, inputs)
    end
  end)

  it("accepts an input whose rows are not adjacent", function()
    local x, w = accelhost.randn {3, 2, 4}, accelhost.randn {5, 4}
    check.near(check.flat(F.linear(x:transpose(0, 1):contiguous(), w)), F.linear(x:transpose(0, 1), w), 1e-6)
  end)

  it("agrees between float32 and float64", function()
    precision.agree(F.linear, {{64, 1024}, {128, 1024}, {128}})
    precision.agree(F.linear, {{5, 7, 33}, {17, 33}, {17}})
  end)

  it("reports which shapes do not fit", function()
    check.raises("linear: input (64, 100) does not fit weight (10, 784)", function()
      F.linear(accelhost.zeros(64, 100), accelhost.zeros(10, 784))
    end)
    check.raises("linear: bias (3,) does not fit weight (4, 2)", function()
      F.linear(accelhost.zeros(1, 2), accelhost.zeros(4, 2), accelhost.zeros(3))
    end)
  end)

  it("computes the gradient of a transposed weight of halves in the memory order of the original", function()
    for _, dtype in ipairs {"bfloat16", "float16"} do
      for _, with_bias in ipairs {true, false} do
        local input = accelhost.randn(3, 5, 6):to(dtype)
        local stored = accelhost.randn(6, 4):to(dtype):requires_grad_()
        local plain = stored:detach():t():contiguous():requires_grad_()
        local bias = accelhost.randn(4):to(dtype):requires_grad_()
        local other = bias:detach():clone():requires_grad_()
        local turned = stored:t()
        turned:retain_grad()
        input:requires_grad_() -- so that the weight is saved
        F.linear(input, turned, with_bias and bias or nil):float():sin():sum():backward()
        F.linear(input, plain, with_bias and other or nil):float():sin():sum():backward()
        assert.same({1, 4}, turned.grad:stride())
        check.near(check.flat(plain.grad:float()), turned.grad:float(), 0.02)
        check.near(check.flat(plain.grad:t():float()), stored.grad:float(), 0.02)
        if with_bias then assert.same(other.grad:float():tolist(), bias.grad:float():tolist()) end
      end
    end
  end)
end)

describe("column_sum", function()
  it("of halves is that of float32, rounded once, as is the sum of channels in both memory orders", function()
    accelhost.manual_seed(1)
    local last = {memory_format = "channels_last"}
    for _, dtype in ipairs {"bfloat16", "float16"} do
      for _, shape in ipairs {{1, 1}, {7, 64}, {300, 33}, {257, 70}, {2, 150, 65}} do
        local x = accelhost.randn(shape):to(dtype)
        for _, given in ipairs {x, x:transpose(-2, -1):contiguous():transpose(-2, -1)} do
          check.near(check.flat(C.column_sum(x:float()):to(dtype)), C.column_sum(given), 0)
        end
      end
      for _, channels in ipairs {1, 3, 17, 33, 64} do
        local x = accelhost.randn(5, channels, 13, 11):to(dtype)
        local ordered = x:contiguous(last)
        check.near(check.flat(C.channel_sum(ordered:float()):to(dtype)), C.channel_sum(ordered), 0)
        check.near(check.flat(C.channel_sum(x:float()):to(dtype)), C.channel_sum(x), 0)
        check.near(check.flat(x:double():sum({0, 2, 3})), C.channel_sum(ordered), 0.3)
      end
    end
  end)

  it("does not depend on the number of threads", function()
    local x, threads = accelhost.randn {3000, 37}, accelhost.get_num_threads()
    accelhost.set_num_threads(1)
    local one = C.column_sum(x):tolist()
    accelhost.set_num_threads(3)
    local three = C.column_sum(x):tolist()
    accelhost.set_num_threads(threads)
    assert.same(one, three)
    check.near(check.flat(x:to("float64"):sum(0)), one, 1e-4)
  end)
end)

describe("addmm and baddbmm of integers", function()
  it("stay integers when the factors are integral", function()
    local one = accelhost.ones({1, 1}, {dtype = "int64"})
    local sum = one:addmm(one, one, {beta = 2, alpha = 3})
    assert.equal("int64", sum.dtype)
    assert.same({{5}}, sum:tolist())
    local batch = one:unsqueeze(0)
    assert.equal("int64", batch:baddbmm(batch, batch, {beta = 2}).dtype)
  end)
end)

describe("addmm and baddbmm with beta = 0", function()
  it("want an input that fits, though they do not read it", function()
    local one = accelhost.ones(2, 2)
    check.raises("addmm: input (5, 5) does not broadcast to (2, 2)", function()
      accelhost.zeros(5, 5):addmm(one, one, {beta = 0})
    end)
    check.raises("baddbmm: input (2, 1, 2, 2) does not broadcast to (1, 2, 2)", function()
      accelhost.zeros(2, 1, 2, 2):baddbmm(one:unsqueeze(0), one:unsqueeze(0), {beta = 0})
    end)
    local unread = accelhost.full({1, 2}, 0 / 0)
    assert.same({{2, 2}, {2, 2}}, unread:addmm(one, one, {beta = 0}):tolist())
  end)
end)

-- Numbers of 8 bits: sums of at most 300 products of two are exact in float32, in whatever order.
local function exact(...) return accelhost.randint(-8, 9, {...}):float() / 8 end

describe("addmm and baddbmm of halves", function()
  it("are computed in float32 and rounded once", function()
    accelhost.manual_seed(3)
    for _, dtype in ipairs {"bfloat16", "float16"} do
      local x, a, b = accelhost.randn(3, 4):to(dtype), accelhost.randn(3, 5):to(dtype), accelhost.randn(5, 4):to(dtype)
      local wide = x:float():addmm(a:float(), b:float(), {beta = -4.775, alpha = 2.0315})
      assert.same(wide:to(dtype):tolist(), x:addmm(a, b, {beta = -4.775, alpha = 2.0315}):tolist())
      local batch = x:unsqueeze(0):baddbmm(a:unsqueeze(0), b:unsqueeze(0), {beta = -4.775, alpha = 2.0315})
      assert.same(wide:to(dtype):tolist(), batch[0]:tolist())
    end
  end)

  it("are exact for odd sizes, transposes, batches and any number of threads", function()
    accelhost.manual_seed(4)
    local threads = accelhost.get_num_threads()
    for _, size in ipairs {{1, 1, 1}, {1, 33, 65}, {67, 1, 129}, {130, 257, 1}, {129, 131, 300}} do
      local m, n, k = unpack(size)
      for _, dtype in ipairs {"bfloat16", "float16"} do
        local x, a, b = exact(2, m, n), exact(2, m, k), exact(2, k, n)
        local sum = (x + a:matmul(b)):to(dtype)
        x, a, b = x:to(dtype), a:to(dtype), b:to(dtype)
        local turned_a, turned_b = a[0]:t():contiguous():t(), b[0]:t():contiguous():t()
        for count = 1, 2 do
          accelhost.set_num_threads(count)
          assert.is_true(accelhost.equal(sum, x:baddbmm(a, b)))
          assert.is_true(accelhost.equal(sum[0], x[0]:addmm(a[0], b[0])))
          assert.is_true(accelhost.equal(sum[0], x[0]:addmm(turned_a, turned_b)))
        end
        accelhost.set_num_threads(threads)
      end
    end
  end)

  it("have the gradients of the same sum in float32, rounded once", function()
    accelhost.manual_seed(5)
    local function gradients(x, a, b, wide)
      local given = {x:clone():requires_grad_(), a:clone():requires_grad_(), b:clone():requires_grad_()}
      local parts = {}
      for i = 1, 3 do parts[i] = wide and given[i]:float() or given[i] end
      parts[1]:addmm(parts[2], parts[3], {alpha = 0.5, beta = 3}):float():square():sum():backward()
      return {given[1].grad, given[2].grad, given[3].grad}
    end
    for _, dtype in ipairs {"bfloat16", "float16"} do
      local x, a, b = exact(9, 17):to(dtype), exact(9, 33):to(dtype), exact(33, 17):to(dtype)
      local halves, wide = gradients(x, a, b, false), gradients(x, a, b, true)
      for i = 1, 3 do
        assert.equal(dtype, halves[i].dtype)
        check.near(check.flat(wide[i]), halves[i]:float(), 0.01 * wide[i]:float():abs():max():item())
      end
    end
  end)
end)

describe("bfloat16 products of few rows and of vectors", function()
  it("are exact for any length, strides, a bias and any number of threads", function()
    accelhost.manual_seed(6)
    local threads = accelhost.get_num_threads()
    for _, k in ipairs {1, 2, 31, 32, 33, 63, 64, 65, 127, 129, 200, 300} do
      for _, n in ipairs {1, 7, 8, 65, 1000} do
        local w, x, bias = exact(n, k + 1):narrow(1, 1, k), exact(4, k), exact(n)
        local expected, short = F.linear(x, w, bias):bfloat16(), w:matmul(x[0]):bfloat16()
        w, x, bias = w:bfloat16(), x:bfloat16(), bias:bfloat16()
        local odd = accelhost.zeros(n, k + 1):bfloat16():narrow(1, 1, k):copy_(w) -- rows at odd addresses
        for count = 1, 2 do
          accelhost.set_num_threads(count)
          for rows = 1, 4 do
            assert.is_true(accelhost.equal(expected:narrow(0, 0, rows), F.linear(x:narrow(0, 0, rows), odd, bias)))
          end
          assert.is_true(accelhost.equal(short, w:mv(x[0])))
          assert.is_true(accelhost.equal(short, odd:mv(x[0])))
          assert.is_true(accelhost.equal(short[0], w[0]:dot(x[0])))
        end
        accelhost.set_num_threads(threads)
      end
    end
  end)
end)

describe("two linear maps with a GELU between them", function()
  local gelu_between = require("accelhost.nn.fused").gelu_between

  local function by_ops(x, w1, b1, w2, b2)
    local y = F.gelu(F.linear(x, w1, b1), "tanh")
    return w2 and F.linear(y, w2, b2) or y
  end

  -- Result and gradients of `how` on tensors of these shapes, of which those in `frozen` get none.
  local function trial(how, shapes, dtype, frozen)
    accelhost.manual_seed(5)
    local given = {}
    for i = 1, 5 do
      local t = shapes[i] and accelhost.randn(shapes[i]):to(dtype)
      given[i] = t and (frozen and frozen[i] and t or t:requires_grad_()) or nil
    end
    local y = how(unpack(given, 1, 5))
    local found = {y}
    if y.requires_grad then (y * accelhost.randn(y:shape()):to(dtype)):sum():backward() end
    for i = 1, 5 do found[1 + i] = given[i] and given[i].grad or false end
    return found
  end
  local function agree(shapes, dtype, near, frozen)
    local wanted, found = trial(by_ops, shapes, dtype, frozen), trial(gelu_between, shapes, dtype, frozen)
    for i, t in ipairs(found) do
      assert.equal(not wanted[i], not t)
      if t then
        assert.same(wanted[i]:shape(), t:shape())
        check.near(check.flat(wanted[i]:double()), t:double(), near)
      end
    end
  end

  it("equals the ops, in every dtype, of matrices, stacks and vectors", function()
    local near = {float64 = 1e-11, float32 = 2e-4, float16 = 0.3, bfloat16 = 2}
    for dtype, tolerance in pairs(near) do
      agree({{5, 12}, {16, 12}, {16}, {8, 16}, {8}}, dtype, tolerance)
      agree({{2, 3, 12}, {16, 12}, {16}, {10, 16}, {10}}, dtype, tolerance)
      agree({{12}, {16, 12}, {16}, {8, 16}, {8}}, dtype, tolerance)
    end
  end)

  it("accepts sizes that are multiples of nothing, no bias, and nothing at all", function()
    agree({{5, 7}, {11, 7}, {11}, {3, 11}, {3}}, "float32", 1e-4)
    agree({{5, 7}, {11, 7}, nil, {3, 11}}, "float32", 1e-4)
    agree({{5, 16}, {24, 16}, nil, {8, 24}}, "float32", 1e-4)
    agree({{5, 16}, {24, 16}, {24}}, "float32", 1e-4)
    agree({{0, 16}, {24, 16}, {24}, {8, 24}, {8}}, "float32", 1e-4)
  end)

  it("computes only the gradients that are required", function()
    local shapes = {{5, 16}, {24, 16}, {24}, {8, 24}, {8}}
    agree(shapes, "float32", 1e-4, {true})
    agree(shapes, "float32", 1e-4, {true, true, true})
    agree(shapes, "float32", 1e-4, {false, true, true, true, true})
    agree(shapes, "float32", 1e-4, {true, true, true, true, true})
    agree(shapes, "float32", 1e-4, {true, false, true, false, true})
  end)

  it("has first and second derivatives", function()
    local inputs = {leaf(3, 4), leaf(8, 4), leaf(8), leaf(2, 8), leaf(2)}
    gradcheck.gradcheck(gelu_between, inputs)
    gradcheck.gradgradcheck(gelu_between, inputs)
    gradcheck.gradgradcheck(function(x, w, b) return gelu_between(x, w, b) end, {inputs[1], inputs[2], inputs[3]})
  end)

  it("equals the ops where gelu's result has several blocks of rows, the last one smaller", function()
    agree({{1100, 4}, {1000, 4}, {1000}, {3, 1000}, {3}}, "float64", 1e-10)
    agree({{3, 700, 4}, {1000, 4}, {1000}, {3, 1000}}, "float32", 2e-3)
    agree({{1100, 4}, {1000, 4}, {1000}, {3, 1000}, {3}}, "float64", 1e-10, {true, true, true})
    agree({{1100, 4}, {1000, 4}, {1000}, {3, 1000}, {3}}, "float64", 1e-10, {false, false, false, true, true})
  end)

  it("equals the ops by the error function, with second derivatives and a graph that is kept", function()
    local function erf_between(x, w1, b1, w2, b2) return gelu_between(x, w1, b1, w2, b2, "none") end
    local function erf_by_ops(x, w1, b1, w2, b2) return F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2) end
    for _, shapes in ipairs {{{5, 12}, {16, 12}, {16}, {8, 16}, {8}}, {{1100, 4}, {1000, 4}, {1000}, {3, 1000}}} do
      local wanted, found = trial(erf_by_ops, shapes, "float64"), trial(erf_between, shapes, "float64")
      for i, t in ipairs(found) do
        if t then check.near(check.flat(wanted[i]), t, 1e-10) end
      end
    end
    local inputs = {leaf(3, 4), leaf(8, 4), leaf(8), leaf(2, 8), leaf(2)}
    gradcheck.gradgradcheck(erf_between, inputs)
    for _, t in ipairs(inputs) do t.grad = nil end
    local sum = erf_between(unpack(inputs)):sum()
    sum:backward {retain_graph = true}
    local once = inputs[2].grad:clone()
    sum:backward()
    check.near(check.flat(once * 2), inputs[2].grad, 1e-12)
  end)

  it("has the same bits in every run with a number of threads", function()
    local threads = accelhost.get_num_threads()
    for n = 1, 2 do
      local runs = {}
      accelhost.set_num_threads(n)
      for i = 1, 3 do runs[i] = trial(gelu_between, {{1500, 64}, {1000, 64}, {1000}, {40, 1000}, {40}}, "float32") end
      accelhost.set_num_threads(threads)
      for i, t in ipairs(runs[1]) do assert.is_true(t:equal(runs[2][i]) and t:equal(runs[3][i])) end
    end
  end)

  it("writes over the input of gelu only where nothing reads it again", function()
    accelhost.manual_seed(3)
    local before = accelhost.randn(1100, 1000):requires_grad_()
    local input = before * 1
    local kept, w = input:detach():clone(), accelhost.randn(3, 1000):requires_grad_()
    local function loss() return C.gelu_linear(input, w, nil, "tanh"):sum() end
    local one = loss()
    one:backward {retain_graph = true}
    local first = before.grad:clone()
    one:backward()
    assert.is_true(input:equal(kept))
    check.near(check.flat(first * 2), before.grad, 1e-5)
    local turned = accelhost.randn(1000, 1100):t()
    check.near(check.flat(F.linear(F.gelu(turned), w)), C.gelu_linear(turned, w), 1e-4)
  end)

  it("reads weights that are stored as their transposes", function()
    local x, w1, w2 = accelhost.randn(5, 16), accelhost.randn(16, 24), accelhost.randn(24, 8)
    check.near(check.flat(by_ops(x, w1:t(), nil, w2:t())), gelu_between(x, w1:t(), nil, w2:t()), 1e-4)
  end)

  it("reports mismatched arguments", function()
    check.raises("linear: input (5, 4) does not fit weight (8, 3)", function()
      gelu_between(accelhost.zeros(5, 4), accelhost.zeros(8, 3))
    end)
    check.raises("linear: bias (3,) does not fit weight (8, 4)", function()
      gelu_between(accelhost.zeros(5, 4), accelhost.zeros(8, 4), accelhost.zeros(3))
    end)
  end)

  it("is run by a Sequential, unless a hook is registered", function()
    accelhost.manual_seed(1)
    local net = nn.Sequential(nn.Linear(6, 16), nn.GELU {approximate = "tanh"}, nn.Linear(16, 8), nn.ReLU(),
      nn.Linear(8, 8), nn.GELU {approximate = "tanh"})
    local x, seen = accelhost.randn(5, 6), 0
    local found = net(x)
    local handle = net[2]:register_forward_hook(function() seen = seen + 1 end)
    check.near(check.flat(net(x)), found, 1e-5)
    handle.remove()
    assert.equal(1, seen)
    local wanted = x
    for i = 1, #net do wanted = net[i](wanted) end
    check.near(check.flat(wanted), found, 1e-5)
  end)
end)
