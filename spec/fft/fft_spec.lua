-- accelhost.fft against PyTorch (scripts/fixtures/fft.py), and long transforms against the sums that define them.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require("spec.support.fixtures").load "fft"
local fft = accelhost.fft

local float64 = {dtype = "float64"}

local function ramp(shape, start)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  return (accelhost.arange(count, float64) * 1.3 + start):sin():view(shape):requires_grad_()
end

local function is_real(name) return name:find "^r" ~= nil or name == "ihfft" end

local function title(case)
  local words = {}
  for key, value in pairs(case.options) do
    words[#words + 1] = key .. " " .. (type(value) == "table" and table.concat(value, ",") or value)
  end
  table.sort(words)
  return ("%s of %s (%s)"):format(case.name, case.input, table.concat(words, ", "))
end

describe("The results and gradients of", function()
  for _, case in ipairs(fixtures.cases) do
    it(title(case) .. " are PyTorch's", function()
      local shape = fixtures.shapes[case.input]
      local re, im = ramp(shape, 0), ramp(shape, 2)
      local options = {real = re, imag = not is_real(case.name) and im or nil}
      for key, value in pairs(case.options) do options[key] = value end
      local results, total = {fft[case.name](options)}, 0
      assert.equal(#case.parts, #results)
      for i, part in ipairs(results) do
        assert.same(case.shape, part:shape())
        check.near(case.parts[i], part:detach():reshape(-1), 1e-13, "part " .. i)
        total = total + (part:reshape(-1) * (accelhost.arange(part:numel(), float64) + (i - 1)):cos()):sum()
      end
      total:backward()
      check.near(case.grad_real, re.grad:reshape(-1), 1e-13, "gradient of real")
      -- The imaginary part of frequency 0 does not reach a real result, so it may have no gradient.
      if case.grad_imag then
        check.near(case.grad_imag, (im.grad or accelhost.zeros_like(im)):reshape(-1), 1e-13, "gradient of imag")
      end
    end)
  end

  for _, case in ipairs(fixtures.frequencies) do
    it(("%s(%d, %g) are PyTorch's"):format(case.name, case.n, case.d), function()
      check.near(case.values, fft[case.name](case.n, case.d, float64), 1e-15)
    end)
  end

  for _, case in ipairs(fixtures.shifts) do
    local over = case.dim and table.concat(case.dim, ",") or "all"
    it(("%s over dims %s are PyTorch's"):format(case.name, over), function()
      local x = accelhost.arange(15, float64):view(3, 5)
      check.near(case.values, fft[case.name](x, case.dim):reshape(-1), 0)
    end)
  end
end)

-- The sums of the definition, by a matrix.
local function sums(re, im, sign)
  local n = re:size(0)
  local k = accelhost.arange(n, float64)
  local angle = (k:view(n, 1) * k):remainder(n) * (sign * 2 * math.pi / n)
  local c, s = angle:cos(), angle:sin()
  return c:mv(re) - s:mv(im), s:mv(re) + c:mv(im)
end

describe("A transform of length", function()
  -- Products of small factors, primes with and without a matrix, twice a large prime, powers of two.
  for _, n in ipairs {1, 2, 13, 63, 64, 65, 97, 100, 128, 194, 251, 257, 360, 521, 1000, 1042, 2048} do
    it(n .. " is the sum of the definition, and its inverse the input", function()
      local re, im = accelhost.randn(n, float64), accelhost.randn(n, float64)
      local wanted_re, wanted_im = sums(re, im, -1)
      local out_re, out_im = fft.fft(re, im)
      local tolerance = 1e-13 * math.sqrt(n) * 4
      check.near(wanted_re:tolist(), out_re, tolerance)
      check.near(wanted_im:tolist(), out_im, tolerance)
      local back_re, back_im = fft.ifft(out_re, out_im)
      check.near(re:tolist(), back_re, 1e-13)
      check.near(im:tolist(), back_im, 1e-13)
      check.near(re:tolist(), fft.irfft({real = (fft.rfft(re)), imag = select(2, fft.rfft(re)), n = n}), 1e-13)
      local half_re = fft.rfft(re:float())
      assert.equal("float32", half_re.dtype)
      check.near((fft.rfft(re)):tolist(), half_re, 2e-6 * n)
    end)
  end
end)

describe("accelhost.fft", function()
  it("has second derivatives", function()
    local x = accelhost.randn(2, 6, float64):requires_grad_()
    assert.is_true(accelhost.autograd.gradgradcheck(function(t)
      local re, im = fft.rfft(t)
      return (re * re + im * im):log()
    end, {x}))
  end)

  it("accepts integers, and a real part alone", function()
    local re, im = fft.fft(accelhost.tensor({1, 2}, {dtype = "int64"}))
    assert.same({3, -1}, re:tolist())
    assert.is_true(im:eq(0):all():item())
  end)

  it("computes in float32 under autocast", function()
    local x = accelhost.randn(64)
    local plain = fft.rfft(x)
    accelhost.autocast({device_type = "cpu", dtype = "bfloat16"}, function()
      local re = fft.rfft(x)
      assert.equal("float32", re.dtype)
      assert.is_true(re:equal(plain))
    end)
  end)

  it("leaves its input as it is and its constants without gradients", function()
    local x = accelhost.randn(100):requires_grad_()
    local before = x:detach():clone()
    fft.fft(x)
    local re = fft.fft(x)
    re:sum():backward()
    assert.is_true(before:equal(x:detach()))
    local first = accelhost.zeros(100)
    first[0] = 100
    check.near(first:tolist(), x.grad, 1e-3)
  end)

  it("names inputs, lengths and dims that do not fit", function()
    local x = accelhost.ones(2, 3)
    for _, case in ipairs {
      {"fft: real and imag: expected one shape, got (2, 3) and (3,)", function() fft.fft(x, accelhost.ones(3)) end},
      {"fft: real and imag: expected one dtype, got float32 and float64", function() fft.fft(x, x:double()) end},
      {"rfft: real: expected float32 or float64, got float16; x:float() converts it", function()
        fft.rfft(x:half())
      end},
      {"fft: expected at least 1 dim, got shape ()", function() fft.fft(accelhost.tensor(1)) end},
      {"ifft: dim 1: expected at least 1 element, got shape (2, 0)", function() fft.ifft(accelhost.ones(2, 0)) end},
      {"irfft: a half spectrum of 1 frequency: pass the length n of the result", function()
        fft.irfft(accelhost.ones(1))
      end},
      {"fftn: s: expected 2 lengths, one for each dim, got 1", function() fft.fftn(x, nil, {3}, {0, 1}) end},
      {"fft2: s: expected lengths of at least 1, or -1 for the input's, got 0", function()
        fft.fft2(x, nil, {0, 2})
      end},
      {"fft2: dim -2 is out of range", function() fft.fft2(accelhost.ones(3)) end},
      {"rfft: unknown norm 'orthogonal' (known: backward, ortho, forward)", function()
        fft.rfft(x, {norm = "orthogonal"})
      end},
    } do
      check.raises(case[1], case[2])
    end
  end)
end)
