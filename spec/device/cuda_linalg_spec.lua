--- Linear algebra on CUDA devices by cuSOLVER: the CPU's results; on the simulated GPU the routines that run, failures,
--- and the CPU where the library is missing. spec/linalg/linalg_spec.lua runs on the device too.
local sim = require "spec.support.sim"

local HEAD = [[
  local accelhost = require "accelhost"
  local linalg = accelhost.linalg
  accelhost.manual_seed(5)
  local function near(a, b)
    return accelhost.allclose(a:cpu(), b:cpu(), {rtol = 1e-9, atol = 1e-9})
  end
  local function on_card(x) return x:to "cuda" end
]]

local COUNT_ROUTINES = [[
  local ffi = require "ffi"
  ffi.cdef "const char *simulated_calls(void);"
  -- The calls of cuSOLVER and cuBLAS that a function makes, as text.
  local function calls_of(fn)
    local function counts()
      local found = {}
      for name, times in ffi.string(ffi.load("SIMULATOR").simulated_calls()):gmatch "(%S+) (%d+)\n" do
        if name:find "^cusolver" or name:find "^cublas[SD]" then found[name] = tonumber(times) end
      end
      return found
    end
    fn()
    local before, list = counts(), {}
    fn()
    for name, times in pairs(counts()) do
      if times > (before[name] or 0) then list[#list + 1] = name .. " " .. times - (before[name] or 0) end
    end
    table.sort(list)
    return table.concat(list, ", ")
  end
]]

local function run(code, env) return sim.host(HEAD .. code, env) end

local function case(sentence, expected, code, env)
  sim.case(sentence, function()
    local result = run(code, env)
    assert.equal(expected, result.stdout, result.stderr)
  end)
end

describe("Linear algebra on CUDA", function()
  case("runs one routine for a matrix, and that of batches where there is one", [[
cusolverDnXpotrf 1
cusolverDnDpotrfBatched 1
cusolverDnXgetrf 1
cublasDgetrfBatched 1, cublasDtrsmBatched 2
cublasDtrsm_v2 2, cusolverDnXgetrf 1
cusolverDnDorgqr 3, cusolverDnXgeqrf 3
cusolverDnXsyevd 3
cusolverDnXgesvd 3
]], COUNT_ROUTINES:gsub("SIMULATOR", sim.library) .. [[
    local options = {dtype = "float64", device = "cuda"}
    local A = accelhost.randn({3, 4, 4}, options)
    local P = A:matmul(A:transpose(1, 2)) + accelhost.eye(4, options)
    local b = accelhost.randn({3, 4, 2}, options)
    print(calls_of(function() linalg.cholesky(P[0]) end))
    print(calls_of(function() linalg.cholesky(P) end))
    print(calls_of(function() linalg.det(A[0]) end))
    print(calls_of(function() linalg.solve(A, b) end))
    print(calls_of(function() linalg.inv(A[0]) end))
    print(calls_of(function() linalg.qr(A) end))
    print(calls_of(function() linalg.eigh(P) end))
    print(calls_of(function() linalg.lstsq(A, b) end))]])

  case("is the CPU's, of views, tall and wide matrices, by each driver", ("true\n"):rep(14), [[
    local A = accelhost.randn({2, 5, 3}, {dtype = "float64"}):transpose(0, 1):contiguous():transpose(0, 1)
    local b, c = accelhost.randn({2, 5, 2}, {dtype = "float64"}), accelhost.randn({2, 3, 2}, {dtype = "float64"})
    local a = on_card(A)
    local wide = a:transpose(1, 2)
    for _, x in ipairs {a, wide} do
      for _, full in ipairs {true, false} do
        local U, S, Vh = linalg.svd(x, full)
        local k = S:size(-1)
        print(near(linalg.svdvals(x:cpu()), S)
          and near(U:narrow(-1, 0, k):matmul(S:unsqueeze(-1) * Vh:narrow(-2, 0, k)), x)
          and near(U:transpose(1, 2):matmul(U), accelhost.eye(U:size(-1), {dtype = "float64"}):expand(2, -1, -1)))
      end
    end
    for _, driver in ipairs {"gels", "gelsy", "gelsd", "gelss"} do
      for _, pair in ipairs {{a, on_card(b)}, {wide, on_card(c)}} do
        local X, left = linalg.lstsq(pair[1], pair[2], {driver = driver})
        local Y, rest = linalg.lstsq(pair[1]:cpu(), pair[2]:cpu(), {driver = driver})
        print(near(X, Y) and left:numel() == rest:numel() and near(left, rest))
      end
    end
    local low = on_card(accelhost.tensor({{1, 2}, {2, 4}, {3, 6}}, {dtype = "float64"}))
    local X, _, rank = linalg.lstsq(low, low, {driver = "gelsd"})
    print(near(linalg.lstsq(low:cpu(), low:cpu(), {driver = "gelsd"}), X) and rank:item() == 1)
    local LU, pivots = linalg.lu_factor(a:narrow(1, 0, 3))
    print(near(LU, (linalg.lu_factor(A:narrow(1, 0, 3)))))]])

  case("reports the matrix that fails, as the CPU does", [[
linalg.inv: matrix 1 of the batch is singular: the pivot in row 2, counting from 1, is zero
linalg.cholesky: matrix 1 of the batch is not positive-definite: its leading part of order 1 is not
linalg.svd: matrix 0 of the batch did not converge, or holds a number that is not finite
linalg.eigh: the matrix did not converge, or holds a number that is not finite
linalg.lstsq: the matrix is not of full rank, or holds a number that is not finite: driver 'gelsy' accepts it
true true 0 2
0 0
]], [[
    local function raises(fn, ...) print(tostring(select(2, pcall(fn, ...))):match "(linalg%.[^\n]*)") end
    local batch = on_card(accelhost.stack {accelhost.eye(2), accelhost.tensor {{1, 2}, {2, 4}}})
    raises(linalg.inv, batch)
    raises(linalg.cholesky, accelhost.stack {on_card(accelhost.eye(2)), -on_card(accelhost.eye(2))})
    local nan = batch:clone()
    nan[0]:fill_(0 / 0)
    raises(linalg.svd, nan)
    raises(linalg.eigh, nan[0])
    raises(linalg.lstsq, on_card(accelhost.tensor {{1, 0}, {0, 0}, {0, 0}}), on_card(accelhost.ones(3)),
      {driver = "gels"})
    local inverse, info = linalg.inv_ex(batch)
    print(("%s %s %d %d"):format(inverse[1]:isnan():all():item(), not inverse[0]:isnan():any():item(),
      info[0]:item(), info[1]:item()))
    local L = linalg.cholesky_ex(accelhost.stack {on_card(accelhost.eye(2)), on_card(accelhost.eye(2)) * 4})
    print(("%d %d"):format(L[1][0][1]:item(), L[0][0][1]:item()))]])

  case("is timed by routine", "1\ttrue\n2\t0\n", [[
    local C = require("accelhost._C").device
    local A = accelhost.randn({4, 4}, {device = "cuda"})
    C.start_times "cuda"
    linalg.det(A) linalg.svd(A) linalg.svd(A)
    for _, row in ipairs(C.stop_times "cuda") do
      if row.kernel == "getrf" then print(row.count, row.operations > 2 / 3 * 64 - 2) end
      if row.kernel == "gesvd" then print(row.count, row.operations) end
    end]])

  case("is the CPU's where cuSOLVER cannot be opened, and of empty operands", "true\ttrue\t0\n", [[
    local A = accelhost.randn({3, 3}, {dtype = "float64", device = "cuda"})
    print(linalg.inv(A):cpu():equal(linalg.inv(A:cpu())), linalg.inv(A).device == A.device,
      linalg.inv(accelhost.zeros({2, 0, 0}, {device = "cuda"})):numel())]], {ACCELHOST_SIM_FAIL = "solver:1+"})

  sim.case("names the library and the routine that fail", function()
    local result = run("linalg.qr(accelhost.randn({3, 3}, {device = 'cuda'}))", {ACCELHOST_SIM_FAIL = "solver:2"})
    assert.matches("matrix_qr: cuSOLVER: geqrf: status 7", result.stderr, 1, true)
    result = run([[
      accelhost.set_default_device "cuda"
      linalg.solve_triangular(accelhost.eye(3), accelhost.ones({3, 1}), {upper = true})]],
      {ACCELHOST_SIM_FAIL = "solver:2"})
    assert.matches("matrix_triangular_solve: cuBLAS: trsm: status 7", result.stderr, 1, true)
  end)

  case("has no memory left in use once its tensors are dropped", "true\n", [[
    local function used()
      collectgarbage() collectgarbage()
      return accelhost.cuda.memory_allocated()
    end
    local A = accelhost.randn({3, 5, 4}, {device = "cuda"})
    local function all()
      linalg.svd(A) linalg.qr(A) linalg.lstsq(A, A) linalg.det(A:narrow(1, 0, 4)) linalg.inv(A:narrow(1, 0, 4))
      pcall(linalg.cholesky, A:narrow(1, 0, 4))
    end
    all()
    local before = used()
    all()
    print(used() == before)]])
end)
