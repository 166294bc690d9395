--- Gradients of slices of a tensor: joined where they cover it, added where they do not.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local gradcheck = require "spec.support.gradcheck"
local tensors = require "spec.support.tensors"

local F = accelhost.nn.functional

local leaf = tensors.leaf

-- The ops of a function, each with how often it ran.
local function ops_of(fn)
  local prof = accelhost.profiler.profile({}, fn)
  local counts = {}
  for _, row in ipairs(prof:key_averages()) do counts[row.key] = row.count end
  return counts
end

-- Check the slices' gradients, by products with tensors of the whole shape that are zero elsewhere.
local function expect_weighed(x, slices, weights)
  local loss = 0
  for i, slice in ipairs(slices) do loss = loss + (slice * weights[i]):sum() end
  loss:backward()
end

describe("The gradient of a tensor that is read by slices", function()
  it("is made of theirs, whatever their order and lengths", function()
    local x = leaf(3, 6)
    local a, b, c = leaf(3, 2):detach(), leaf(3, 1):detach(), leaf(3, 3):detach()
    expect_weighed(x, {x:narrow(1, 3, 3), x:narrow(1, 0, 2), x:narrow(1, 2, 1)}, {c, a, b})
    check.near(check.flat(accelhost.cat({a, b, c}, 1)), x.grad, 0)
  end)

  it("is joined by one copy where they are stored apart, and clears nothing", function()
    local x = leaf(4, 6)
    local loss = 0
    for i, part in ipairs(x:chunk(3, 1)) do loss = loss + (part * i):sum() end
    local ops = ops_of(function() loss:backward() end)
    assert.equal(1, ops.cat)
    assert.is_nil(ops.slice_backward)
    check.near({1, 1, 2, 2, 3, 3}, x.grad[0], 0)
  end)

  it("is zero where none has one", function()
    local x = leaf(5)
    expect_weighed(x, {x:narrow(0, 1, 2), x[4]}, {2, 3})
    check.near({0, 2, 2, 0, 3}, x.grad, 0)
  end)

  it("is their sum where they overlap, and where the whole is read as well", function()
    local x = leaf(4)
    expect_weighed(x, {x:narrow(0, 0, 3), x, x:narrow(0, 1, 3), x[3]}, {1, 10, 100, 1000})
    check.near({11, 111, 111, 1110}, x.grad, 0)
    local y = leaf(2, 2)
    expect_weighed(y, {y[0], y:narrow(1, 0, 1)}, {1, 10}) -- as many elements as y has, along two dims
    check.near({11, 1, 10, 0}, y.grad, 0)
  end)

  it("is theirs in steps of time, each of which is read once", function()
    local x, total = leaf(2, 5, 3), 0
    for t = 0, 4 do total = total + x:select(1, t):sum() * (t + 1) end
    total:backward()
    check.near({1, 2, 3, 4, 5}, x.grad:mean({0, 2}), 1e-12)
  end)

  it("is one slice's where that covers it, and no alias of the slice's .grad", function()
    local x = leaf(3)
    local whole = (x * 2):requires_grad_()
    whole:retain_grad()
    local slice = whole:narrow(0, 0, 3)
    slice:retain_grad();
    (slice * 5):sum():backward()
    slice.grad:fill_(0)
    check.near({10, 10, 10}, x.grad, 0)
  end)

  it("uses the gradient that a hook of a slice returns", function()
    local x = leaf(4)
    local y = x * 1
    local first, second = y:narrow(0, 0, 2), y:narrow(0, 2, 2)
    first:register_hook(function(grad) return grad * 10 end)
    local seen
    y:register_hook(function(grad) seen = grad:tolist() end)
    local loss = first:sum() + second:sum()
    loss:backward()
    assert.same({10, 10, 1, 1}, seen)
    assert.same({10, 10, 1, 1}, x.grad:tolist())
  end)

  it("has derivatives", function()
    local function squares(x)
      local parts = x:chunk(2, 0)
      return (parts[1] * parts[2]):sum() + x[0]:pow(3):sum()
    end
    gradcheck.gradcheck(squares, {leaf(4, 2)})
    gradcheck.gradgradcheck(squares, {leaf(4, 2)})
  end)

  it("accumulates over several backwards", function()
    local x = leaf(4)
    for _ = 1, 2 do expect_weighed(x, {x:narrow(0, 0, 2), x:narrow(0, 2, 2)}, {1, 2}) end
    check.near({2, 2, 4, 4}, x.grad, 0)
  end)
end)

-- Ways to have query, key and value in one tensor [2, 9, 3 * 2 * width]; each returns them as [2, 2, 9, width].
local packings = {
  ["chunk"] = function(x, width)
    local parts = x:chunk(3, -1)
    for i = 1, 3 do parts[i] = parts[i]:view(2, 9, 2, width):transpose(1, 2) end
    return unpack(parts)
  end,
  ["unbind"] = function(x, width) return unpack(x:view(2, 9, 3, 2, width):permute(2, 0, 3, 1, 4):unbind(0)) end,
  ["chunk of each head"] = function(x, width)
    return unpack(x:view(2, 9, 2, 3 * width):transpose(1, 2):chunk(3, -1))
  end,
}

describe("The gradient of query, key and value in one tensor", function()
  for name, unpacked in pairs(packings) do
    for _, dtype in ipairs {"float32", "bfloat16"} do
      for _, width in ipairs {16, 5} do
        it(("by %s, %s, heads of %d, is that of three tensors, and no copy"):format(name, dtype, width), function()
          local x = accelhost.randn({2, 9, 6 * width}):to(dtype):requires_grad_()
          local apart = {unpacked(x:detach(), width)}
          for i = 1, 3 do apart[i] = apart[i]:clone():requires_grad_() end
          F.scaled_dot_product_attention(unpack(apart)):to("float32"):sin():sum():backward()
          local packed = x * 1
          local loss = F.scaled_dot_product_attention(unpacked(packed, width)):to("float32"):sin():sum()
          local ops = ops_of(function() loss:backward() end)
          assert.is_nil(ops.cat)
          assert.is_nil(ops.slice_backward)
          assert.is_nil(ops.reshape_copy)
          for i, grad in ipairs {unpacked(x.grad, width)} do check.near(check.flat(apart[i].grad), grad, 0) end
        end)
      end
    end
  end

  it("is complete where the value is not differentiated, and where query is read twice", function()
    local x = accelhost.randn({2, 9, 96}):requires_grad_()
    local q, k, v = packings.chunk(x, 16)
    local loss = F.scaled_dot_product_attention(q, k, v:detach()):sum() + q:sum()
    loss:backward()
    check.near(check.flat(accelhost.zeros(2, 9, 32)), x.grad:narrow(2, 64, 32), 0)
    local y = x:detach():clone():requires_grad_()
    local q2, k2, v2 = packings.chunk(y, 16)
    local apart = F.scaled_dot_product_attention(q2:clone(), k2:clone(), v2:detach()):sum() + q2:sum()
    apart:backward()
    check.near(check.flat(y.grad), x.grad, 1e-6)
  end)
end)
