--- Folds of many inputs, which devices cut into parts: sizes around the cuts, rows that are not aligned, and rows of
--- one place that are very many.
local accelhost = require "accelhost"
local check = require "spec.support.check"

local sizes = {8191, 8192, 8193, 20011}

-- A vector of n numbers that are all different, from an odd place of its memory.
local function numbers(n, dtype)
  local whole = accelhost.arange(n + 1, {dtype = "int64"}) * 7919
  return whole:remainder(100003):to(dtype):narrow(0, 1, n)
end

describe("folding many inputs", function()
  for _, n in ipairs(sizes) do
    it(("finds the places and sizes of extremes among %d"):format(n), function()
      for _, dtype in ipairs {"float32", "int64", "int32"} do
        local x = numbers(n, dtype)
        local list, most, least = check.flat(x:to("float64")), 1, 1
        for i = 1, n do
          if list[i] > list[most] then most = i end
          if list[i] < list[least] then least = i end
        end
        assert.equal(most - 1, x:argmax():item())
        assert.equal(least - 1, x:argmin():item())
        assert.equal(list[most], x:max():item())
      end
      local x = numbers(n, "float32")
      x[n - 2] = 0 / 0
      assert.equal(n - 2, x:argmax():item())
    end)

    it(("computes moments and the logarithm of a sum of exponentials of %d"):format(n), function()
      local x = numbers(n, "float32") / 1000
      local list, sum, squares, largest, total = check.flat(x:to("float64")), 0, 0, -math.huge, 0
      for i = 1, n do
        sum = sum + list[i]
        largest = math.max(largest, list[i])
      end
      for i = 1, n do
        squares = squares + (list[i] - sum / n) ^ 2
        total = total + math.exp(list[i] - largest)
      end
      check.near({sum / n}, x:mean(), 1e-4)
      check.near({squares / (n - 1)}, x:var(), 1e-3)
      check.near({math.sqrt(squares / (n - 1))}, x:std(), 1e-4)
      check.near({largest + math.log(total)}, x:logsumexp(0), 1e-4)
    end)

    it(("folds rows of %d in halves as in float32"):format(n), function()
      local x = (numbers(2 * n, "float32"):remainder(17) - 8):reshape(2, n)
      for _, dtype in ipairs {"bfloat16", "float16"} do
        check.near(check.flat(x:sum(1)), x:to(dtype):sum(1, {dtype = "float32"}), 1e-6)
        check.near(check.flat(x:amax(1)), x:to(dtype):amax(1), 0)
      end
    end)
  end

  it("adds rows that have the same place, however many there are", function()
    for _, n in ipairs {127, 128, 129, 256, 1000} do
      local rows = (numbers(n * 3, "float64"):reshape(n, 3) - 50000) / 1000
      local place = accelhost.arange(n, {dtype = "int64"}):remainder(10):le(7):to("int64") * 2
      place[0] = 1
      local wanted = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
      for i = 0, n - 1 do
        for k = 0, 2 do
          local at = place[i]:item() * 3 + k + 1
          wanted[at] = wanted[at] + rows[i][k]:item()
        end
      end
      check.near(wanted, accelhost.ones({4, 3}, {dtype = "float64"}):index_add(0, place, rows), 1e-9)
      local table = accelhost.zeros({4, 3}, {dtype = "float64"}):requires_grad_()
      accelhost.nn.functional.embedding(place, table):backward(rows)
      for i = 1, 12 do wanted[i] = wanted[i] - 1 end
      check.near(wanted, table.grad, 1e-9)
    end
  end)
end)
