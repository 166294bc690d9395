-- Sorting, selecting, counting and masks at the sizes where a device changes its way: lines that fit a block's memory,
-- lines and elements around powers of two, many equal keys. The expected values are computed here, entry by entry.
local accelhost = require "accelhost"
local neg0 = 0 / -1 -- the literal is 0 on aarch64, where LuaJIT computes with integers

local nan, inf = 0 / 0, 1 / 0

local function tensor(values, dtype) return accelhost.tensor(values, {dtype = dtype or "float32"}) end

-- Numbers of which many are equal, from this generator: the same on every device.
local function draw(n, kinds)
  local state, values = 12345 + n, {}
  for i = 1, n do
    state = (state * 1103515245 + 12345) % 2147483648
    values[i] = math.floor(state / 65536) % kinds - math.floor(kinds / 2)
  end
  return values
end

-- The order of a stable sort, from 0; nan is the largest.
local function order_of(values, descending)
  local order = {}
  for i = 1, #values do order[i] = i end
  local function key(i) return values[i] ~= values[i] and inf or values[i] end
  local function before(a, b)
    local x, y = key(a), key(b)
    local more = values[a] ~= values[a] and values[b] == values[b]
    local less = values[b] ~= values[b] and values[a] == values[a]
    if x ~= y or more or less then
      local first = x < y or less
      if x == y then first = less end
      if descending then return not first end
      return first
    end
    return a < b
  end
  table.sort(order, before)
  for i, place in ipairs(order) do order[i] = place - 1 end
  return order
end

local function first(list, k)
  local kept = {}
  for i = 1, k do kept[i] = list[i] end
  return kept
end

describe("sorting", function()
  it("is stable in both directions at lines around powers of two, of every dtype", function()
    local dtypes = {"float32", "int64", "float64", "float16", "int32", "bfloat16"}
    for i, n in ipairs {1, 2, 31, 32, 33, 1000, 2047, 2048, 2049, 4096} do
      local dtype = dtypes[(i - 1) % #dtypes + 1]
      local values = draw(n, 9)
      for _, descending in ipairs {false, true} do
        local sorted, places = tensor(values, dtype):sort(0, descending, true)
        local expected = order_of(values, descending)
        assert.same(expected, places:tolist(), dtype .. " " .. n)
        assert.equal(values[expected[n] + 1], sorted[n - 1]:item())
      end
    end
  end)

  it("sorts nan last, or first in descending order, and treats -0 as 0", function()
    local values = {0, nan, -inf, neg0, 3, inf, nan, -2}
    for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
      assert.same({2, 7, 0, 3, 4, 5, 1, 6}, tensor(values, dtype):argsort(0, false, true):tolist())
      assert.same({1, 6, 5, 4, 0, 3, 7, 2}, tensor(values, dtype):argsort(0, true, true):tolist())
    end
  end)

  it("knows lines longer than a block's memory apart, along every dim", function()
    local n = 2050
    local a, b = draw(n, 300), draw(n + 1, 7)
    b[n + 1] = nil
    for _, dtype in ipairs {"float32", "int64"} do
      local rows = tensor({a, b}, dtype)
      local expected = {order_of(a), order_of(b)}
      assert.same(expected, rows:argsort(1, false, true):tolist())
      assert.same(expected, rows:t():argsort(0, false, true):t():tolist())
    end
  end)

  it("selects the first few of short and long lines, of equals the first ones", function()
    for _, n in ipairs {7, 2048, 2049, 5000} do
      local values, level = draw(n, 40), {}
      for i = 1, n do level[i] = 1 end
      for _, k in ipairs {1, 6, n < 600 and n or 600} do
        local sorted, places = tensor({values, level}):topk(k, 1)
        assert.same({first(order_of(values, true), k), first(order_of(level), k)}, places:tolist(), n .. " " .. k)
        assert.equal(1, sorted[1]:sum():item() / k)
        assert.same(first(order_of(values), k), select(2, tensor(values, "int64"):topk(k, 0, false)):tolist())
      end
    end
  end)
end)

describe("an entry of a rank", function()
  it("is that of a sort, of equals the first one", function()
    for _, n in ipairs {1, 2, 3, 16, 141, 512, 513, 1300} do
      for _, values in ipairs {draw(n, 5), draw(n, 10 * n), order_of(draw(n, n))} do
        local x = tensor(values)
        local sorted, order = x:sort(0, false, true)
        for _, k in ipairs {1, 2, math.ceil(n / 2), n - 1, n} do
          if k >= 1 and k <= n then
            local value, place = x:kthvalue(k, 0)
            assert.equal(sorted[k - 1]:item(), value:item())
            assert.equal(order[k - 1]:item(), place:item(), n .. " " .. k)
          end
        end
      end
    end
  end)

  it("is that of a sort in lines of every dtype, with nans, equals and zeros of both signs", function()
    for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"} do
      for _, n in ipairs {1, 2, 15, 17, 100, 513, 1023, 1025, 3001} do
        for _, kinds in ipairs {2, 200} do
          local line = draw(2 * n, kinds)
          local floats = dtype:find "float"
          for i = 1, floats and 2 * n or 0 do line[i] = i % 7 == 0 and nan or i % 5 == 0 and -0.0 or line[i] end
          for i = 1, dtype == "uint8" and 2 * n or 0 do line[i] = line[i] % 256 end
          local x = tensor(line, dtype):reshape(2, n)
          local order = x:argsort(1, {stable = true})
          for _, k in ipairs {1, math.ceil(n / 3), n} do
            local _, index = x:kthvalue(k, 1)
            assert.same(order:select(1, k - 1):tolist(), index:tolist())
            _, index = x:t():contiguous():kthvalue(k, 0)
            assert.same(order:select(1, k - 1):tolist(), index:tolist())
          end
        end
      end
    end
  end)

  it("in the middle of all is nan where there is one, unless nans do not count", function()
    for _, n in ipairs {1, 2, 16, 1025, 3000} do
      local x = tensor(draw(n, 50))
      local sorted = x:sort():tolist()
      assert.equal(sorted[math.floor((n - 1) / 2) + 1], x:median():item())
      assert.equal(x:median():item(), x:nanmedian():item())
      local mixed = accelhost.cat {x, tensor {nan, nan}}
      assert.equal("nan", tostring(mixed:median():item()):match "nan")
      assert.equal(x:median():item(), mixed:nanmedian():item())
    end
    assert.equal("nan", tostring(tensor({nan, nan}):nanmedian():item()):match "nan")
  end)
end)

describe("counting", function()
  it("finds distinct values, where each went and how many there are", function()
    local values = draw(3000, 17)
    local distinct, inverse, counts = tensor(values, "int32"):unique(true, true, true)
    local seen, groups = {}, {}
    for _, value in ipairs(values) do seen[value] = (seen[value] or 0) + 1 end
    for value in pairs(seen) do groups[#groups + 1] = value end
    table.sort(groups)
    assert.same(groups, distinct:tolist())
    for i, value in ipairs(groups) do assert.equal(seen[value], counts[i - 1]:item()) end
    assert.same(values, distinct:index_select(0, inverse):tolist())
  end)

  it("counts every nan as a separate value", function()
    local distinct, counts = tensor({nan, 1, nan, 1}):unique(true, false, true)
    assert.same({2, 1, 1}, counts:tolist())
    assert.equal(1, distinct[0]:item())
  end)

  it("counts few and many bins", function()
    for _, bins in ipairs {3, 4096, 5000} do
      local values, expected = draw(4000, bins), {}
      for i = 1, bins do expected[i] = 0 end
      for i, value in ipairs(values) do
        values[i] = value + math.floor(bins / 2)
        expected[values[i] + 1] = expected[values[i] + 1] + 1
      end
      assert.same(expected, tensor(values, "int64"):bincount(nil, bins):tolist())
    end
  end)
end)

describe("adding by index", function()
  it("adds few and many sources to their destinations", function()
    for _, n in ipairs {1, 64, 65, 200, 1000} do
      local at, values, expected = draw(n, 5), {}, {}
      for k = 1, 6 do expected[k] = {k, -k} end
      for i = 1, n do
        at[i] = at[i] == 2 and 5 or 0
        values[i] = {i % 11, -i}
        local sums = expected[at[i] + 1]
        sums[1], sums[2] = sums[1] + values[i][1], sums[2] + values[i][2]
      end
      for _, dtype in ipairs {"float32", "int64", "float64"} do
        local start = tensor({{1, -1}, {2, -2}, {3, -3}, {4, -4}, {5, -5}, {6, -6}}, dtype)
        assert.same(expected, start:index_add(0, tensor(at, "int64"), tensor(values, dtype)):tolist(), n .. dtype)
      end
    end
  end)
end)

describe("masks", function()
  it("select, place and return indices in order, also across the tiles of a device", function()
    for _, n in ipairs {1, 2047, 2048, 2049, 6000} do
      local values, kept, places, scattered = draw(n, 3), {}, {}, {}
      for i, value in ipairs(values) do
        if value > 0 then
          kept[#kept + 1] = i
          places[#places + 1] = {i - 1}
        end
        scattered[i] = value > 0 and #kept or value
      end
      local numbers, mask = {}, tensor(values):gt(0)
      for i = 1, n do numbers[i] = i end
      assert.same(kept, tensor(numbers):masked_select(mask):tolist())
      assert.same(places, mask:nonzero():tolist())
      assert.same(scattered, tensor(values):masked_scatter(mask, tensor(numbers)):tolist())
      assert.same(kept, tensor(numbers)[mask]:tolist())
    end
  end)
end)

describe("running folds", function()
  it("continue over parts of long lines, forwards and side by side", function()
    for _, shape in ipairs {{20000}, {3, 9000}, {5000, 3}, {600, 40}} do
      local n = shape[1] * (shape[2] or 1)
      local values = draw(n, 5)
      local x = tensor(values, "int64"):view(shape)
      local dim = shape[2] and shape[1] < shape[2] and 1 or 0
      local length = shape[dim + 1]
      local step = dim == 0 and (shape[2] or 1) or 1
      local sums, most, at = {}, {}, {}
      for i = 1, n do
        local k = math.floor((i - 1) / step) % length
        local before = k > 0 and i - step
        sums[i] = values[i] + (before and sums[before] or 0)
        local new = not before or values[i] >= most[before]
        most[i] = new and values[i] or most[before]
        at[i] = new and k or at[before]
      end
      local largest, places = x:cummax(dim)
      assert.same(sums, x:cumsum(dim):flatten():tolist())
      assert.same(sums, x:to "float32":cumsum(dim):flatten():tolist())
      assert.same(most, largest:flatten():tolist())
      assert.same(at, places:flatten():tolist())
    end
  end)
end)

describe("searches of many values", function()
  it("count the edges before each of them", function()
    for _, dtype in ipairs {"float32", "float64", "int64", "bfloat16"} do
      for _, n in ipairs {1, 2, 7, 100, 129} do
        local edges = accelhost.sort(tensor(draw(n, 40), dtype))
        for _, count in ipairs {1, 15, 16, 17, 1000} do
          local values = tensor(draw(count, 44), dtype)
          local compared = edges:unsqueeze(0)
          assert.is_true(compared:lt(values:unsqueeze(1)):sum(1):equal(accelhost.searchsorted(edges, values)))
          assert.is_true(compared:le(values:unsqueeze(1)):sum(1)
            :equal(accelhost.searchsorted(edges, values, {right = true})))
          assert.is_true(values:unsqueeze(1):eq(compared):any(1):equal(accelhost.isin(values, edges)))
        end
      end
    end
    assert.same({2, 0, 2}, accelhost.searchsorted(tensor {1, 2}, tensor {nan, -inf, inf}):tolist())
    assert.same({false, true}, accelhost.isin(tensor {nan, 2}, tensor {2, nan, 2}):tolist())
  end)
end)

describe("the largest of long lines", function()
  it("are those of a sort, whatever the order of the line", function()
    local n, k = 60000, 100
    local x = accelhost.arange(n):float()
    local mixed = (accelhost.arange(n) * 7919):remainder(10007):float()
    local odd = accelhost.where(mixed:remainder(500):eq(3), nan, mixed - 5000)
    odd = accelhost.where(mixed:remainder(500):eq(7), neg0, odd)
    local function same(line)
      for _, largest in ipairs {true, false} do
        local values, places = accelhost.topk(line, k, {largest = largest})
        local sorted, order = accelhost.sort(line, 0, largest, true)
        assert.is_true(values:allclose(sorted:narrow(0, 0, k), {rtol = 0, atol = 0, equal_nan = true}))
        assert.is_true(places:equal(order:narrow(0, 0, k)))
      end
    end
    for _, line in ipairs {x, x:flip(0), mixed, accelhost.cat {x, mixed}, accelhost.zeros(n), odd} do same(line) end
    for _, dtype in ipairs {"float64", "bfloat16", "float16"} do same(odd:to(dtype)) end
    for _, dtype in ipairs {"int64", "int32", "uint8"} do same(mixed:to(dtype)) end
    same(odd:view(200, 300):t():select(1, 3):repeat_interleave(20)) -- strided before
    same(accelhost.stack({odd, x}, 1):select(1, 0))
  end)
end)

describe("counts of few and of many bins", function()
  it("add up", function()
    for _, bins in ipairs {1, 3, 1024, 1025} do
      local list = draw(5001, 2 * bins)
      local counts = {}
      for i = 1, bins do counts[i] = 0 end
      for i, value in ipairs(list) do
        list[i] = value % bins
        counts[list[i] + 1] = counts[list[i] + 1] + 1
      end
      assert.same(counts, accelhost.bincount(tensor(list, "int64"), {minlength = bins}):tolist())
    end
  end)
end)
