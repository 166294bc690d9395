-- accelhost.linalg against PyTorch, and its refusals.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixtures = require "spec.support.fixtures"
local gradcheck = require "spec.support.gradcheck"
local op_fixture = require "spec.support.op_fixture"
local tensors = require "spec.support.tensors"

local linalg = accelhost.linalg
local nan = 0 / 0

local double = tensors.double

local function expect_near(expected, got, tolerance)
  assert.equal(expected.dtype, got.dtype)
  if not accelhost.allclose(expected, got, {rtol = tolerance, atol = tolerance}) then
    error("expected " .. tostring(expected) .. ", got " .. tostring(got), 2)
  end
end

describe("accelhost.linalg:", function()
  for _, fixture in ipairs(fixtures.files "linalg") do op_fixture.define(fixture, it) end
end)

describe("A singular matrix", function()
  local batch = accelhost.stack {accelhost.eye(2), accelhost.tensor {{1, 2}, {2, 4}}}

  it("is named with its place in the batch", function()
    check.raises("linalg.inv: matrix 1 of the batch is singular: the pivot in row 2, counting from 1, is zero",
      function() linalg.inv(batch) end)
    check.raises("linalg.solve: matrix 1 of the batch is singular", function() linalg.solve(batch, batch) end)
    check.raises("linalg.inv: the matrix is singular", function() accelhost.zeros(3, 3):inverse() end)
    check.raises("linalg.matrix_power: matrix 1 of the batch is singular", function()
      linalg.matrix_power(batch, -1)
    end)
    check.raises("linalg.tensorinv: the matrix is singular", function() linalg.tensorinv(accelhost.zeros(2, 2), 1) end)
  end)

  it("returns nan and an info above 0 where asked not to raise", function()
    local inverse, info = linalg.inv_ex(batch)
    assert.same({0, 2}, info:tolist())
    assert.equal("int32", info.dtype)
    assert.same({{1, 0}, {0, 1}}, inverse[0]:tolist())
    assert.is_true(inverse[1]:isnan():all():item())
    check.raises("linalg.inv_ex: matrix 1", function() linalg.inv_ex(batch, true) end)
  end)

  it("has an LU, a determinant of 0 and the logarithm -inf", function()
    local P, L, U = linalg.lu(batch)
    expect_near(batch, P:matmul(L):matmul(U), 1e-6)
    assert.same({1, 0}, linalg.det(batch):tolist())
    local sign, size = linalg.slogdet(batch)
    assert.same({1, 0}, sign:abs():tolist())
    assert.same({0, -math.huge}, size:tolist())
    assert.same({2, 1}, linalg.matrix_rank(batch):tolist())
    assert.equal(math.huge, linalg.cond(batch, 1)[1]:item())
  end)

  it("has no LU for lu_solve, unless it is asked for with its info", function()
    check.raises("linalg.lu_factor: matrix 1", function() linalg.lu_factor(batch) end)
    assert.same({0, 2}, select(3, linalg.lu_factor_ex(batch)):tolist())
  end)

  it("has the gradient of its determinant, the matrix of cofactors", function()
    local A = double {{1, 2}, {2, 4}}:requires_grad_()
    linalg.det(A):backward()
    expect_near(double {{4, -2}, {-2, 1}}, A.grad, 1e-12)
    local zero = accelhost.zeros(2, 2, {dtype = "float64", requires_grad = true})
    linalg.det(zero):backward()
    expect_near(double {{0, 0}, {0, 0}}, zero.grad, 1e-12)
    local scaled = (double {{1, 2, 0}, {2, 4, 0}, {0, 0, 3}} * 1e6):requires_grad_()
    local grad = accelhost.autograd.grad(linalg.det(scaled), scaled, {create_graph = true})[1]
    expect_near(double {{12e12, -6e12, 0}, {-6e12, 3e12, 0}, {0, 0, 0}} / 1e12, grad:detach() / 1e12, 1e-6)
  end)
end)

describe("cholesky", function()
  it("names the matrix that is not positive-definite", function()
    local batch = accelhost.stack {accelhost.eye(3), -accelhost.eye(3)}
    check.raises("linalg.cholesky: matrix 1 of the batch is not positive-definite: its leading part of order 1 is not",
      function() linalg.cholesky(batch) end)
    local L, info = linalg.cholesky_ex(batch)
    assert.same({0, 1}, info:tolist())
    assert.is_true(L[1]:isnan():all():item())
    check.raises("linalg.cholesky_ex: matrix 1", function() linalg.cholesky_ex(batch, false, true) end)
  end)

  it("reads one triangle", function()
    local A = double {{4, 99}, {2, 5}}
    expect_near(double {{2, 0}, {1, 2}}, linalg.cholesky(A), 1e-12)
    expect_near(double {{2, 1}, {0, 2}}, linalg.cholesky(A:t(), true), 1e-12)
  end)
end)

describe("Orthogonal factors", function()
  accelhost.manual_seed(4)
  for _, dtype in ipairs {"float32", "float64"} do
    it("multiply to the factored matrix, in " .. dtype, function()
      for _, sizes in ipairs {{5, 5}, {2, 6, 3}, {3, 6}, {2, 2, 4, 4}, {1, 1}, {70, 40}} do
        local A = accelhost.randn(sizes, {dtype = dtype})
        local tolerance = dtype == "float32" and 2e-5 or 1e-12
        for _, full in ipairs {true, false} do
          local U, S, Vh = linalg.svd(A, full)
          local k = S:size(-1)
          expect_near(A, (U:narrow(-1, 0, k) * S:unsqueeze(-2)):matmul(Vh:narrow(-2, 0, k)), tolerance)
          expect_near(accelhost.eye(U:size(-1), {dtype = dtype}):expand_as(U:transpose(-1, -2):matmul(U)),
            U:transpose(-1, -2):matmul(U), tolerance)
          local Q, R = linalg.qr(A, full and "complete" or "reduced")
          expect_near(A, Q:matmul(R), tolerance)
          expect_near(R, R:triu(), 0)
        end
        local symmetric = A:matmul(A:transpose(-1, -2))
        local values, vectors = linalg.eigh(symmetric)
        expect_near(symmetric, (vectors * values:unsqueeze(-2)):matmul(vectors:transpose(-1, -2)), tolerance * 100)
        expect_near(values, linalg.eigvalsh(symmetric, "U"), tolerance * 100)
      end
    end)
  end

  it("of empty matrices are empty or identities", function()
    assert.same({0, 0}, linalg.cond(accelhost.zeros(2, 0, 0), 1):tolist())
    assert.equal(0, linalg.cond(accelhost.zeros(0, 2)):item())
    local U, S, Vh = linalg.svd(accelhost.zeros(2, 3, 0))
    assert.same({2, 3, 3}, U:shape())
    assert.same({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, U[1]:tolist())
    assert.same({{2, 0}, {2, 0, 0}}, {S:shape(), Vh:shape()})
    local Q, R = linalg.qr(accelhost.zeros(3, 0), "complete")
    assert.same({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, Q:tolist())
    assert.same({3, 0}, R:shape())
    assert.same({0, 2}, linalg.pinv(accelhost.zeros(2, 0)):shape())
    assert.same({2}, linalg.matrix_rank(accelhost.zeros(2, 0, 3)):shape())
  end)

  it("R alone is that of Q R, and has no gradient", function()
    local A = double {{1, 2}, {3, 4}, {5, 6}}
    local Q, R = linalg.qr(A, "r")
    assert.equal(0, Q:numel())
    expect_near(R, select(2, linalg.qr(A)), 1e-12)
    A:requires_grad_()
    check.raises("backward of linalg.qr: mode 'r' has no derivative", function()
      select(2, linalg.qr(A, "r")):sum():backward()
    end)
    check.raises("backward of linalg.qr: mode 'complete' has no derivative for more rows than columns", function()
      linalg.qr(A, "complete"):sum():backward()
    end)
  end)

  it("do not hang or crash on numbers that are not finite", function()
    local A = accelhost.eye(3)
    A[{1, 1}] = nan
    check.raises("linalg.svd: the matrix did not converge, or holds a number that is not finite", function()
      linalg.svd(A)
    end)
    check.raises("linalg.eigvalsh: the matrix did not converge", function() linalg.eigvalsh(A) end)
    check.raises("linalg.pinv: the matrix did not converge", function() linalg.pinv(A) end)
    check.raises("linalg.cond: the matrix did not converge", function() linalg.cond(A) end)
    check.raises("linalg.lstsq: the matrix did not converge", function() linalg.lstsq(A, A) end)
    assert.is_true(linalg.matrix_exp(A):isnan():any():item())
    assert.is_true(linalg.det(A):isnan():item())
  end)
end)

describe("Gradients", function()
  local function randn(...) return accelhost.randn({...}, {dtype = "float64"}):requires_grad_() end

  it("of the pseudoinverse are those of a matrix without full rank", function()
    accelhost.manual_seed(2)
    local x, y = randn(4, 2), randn(2, 3)
    gradcheck.gradcheck(function(a, b) return linalg.pinv(a:matmul(b), {rtol = 1e-9}) end, {x, y})
  end)

  it("of the pseudoinverse are finite for equal singular values", function()
    local A = accelhost.eye(3, {dtype = "float64"}):requires_grad_()
    linalg.pinv(A):sum():backward()
    assert.same({{-1, -1, -1}, {-1, -1, -1}, {-1, -1, -1}}, A.grad:tolist())
  end)

  it("of the square root are finite for equal eigenvalues", function()
    local A = (accelhost.eye(3, {dtype = "float64"}) * 4):requires_grad_()
    local X = linalg.matrix_sqrth(A)
    assert.same({{2, 0, 0}, {0, 2, 0}, {0, 0, 2}}, X:tolist())
    X:sum():backward()
    expect_near(accelhost.full({3, 3}, 0.25, {dtype = "float64"}), A.grad, 1e-12)
  end)

  it("of least squares are those of the solution", function()
    accelhost.manual_seed(3)
    gradcheck.gradcheck(function(A, B) return (linalg.lstsq(A, B, {driver = "gelsd"})) end, {randn(2, 5, 3),
      randn(2, 5, 2)})
    gradcheck.gradgradcheck(function(A, b) return (linalg.lstsq(A, b)) end, {randn(2, 3), randn(2)})
  end)

  it("without columns least squares leave the whole over, but for gels", function() -- PyTorch 2.15
    local A, B = accelhost.zeros({2, 3, 0}, {dtype = "float64"}), randn(2, 3, 2)
    for _, driver in ipairs {"gelsd", "gelss"} do
      expect_near(B:square():sum(-2), (select(2, linalg.lstsq(A, B, {driver = driver}))), 1e-15)
    end
    assert.equal(0, (select(2, linalg.lstsq(A, B, {driver = "gels"}))):abs():sum():item())
  end)

  it("of the residuals of least squares are those of the sum of squares", function()
    accelhost.manual_seed(3)
    for _, driver in ipairs {"gels", "gelsd", "gelss"} do
      local function left_over(A, B) return (select(2, linalg.lstsq(A, B, {driver = driver}))) end
      gradcheck.gradcheck(left_over, {randn(2, 5, 3), randn(2, 5, 2)})
      local A, B = randn(2, 5, 3), randn(2, 5, 2)
      local X, residuals = linalg.lstsq(A, B, {driver = driver})
      expect_near((accelhost.matmul(A, X) - B):square():sum(-2), residuals, 1e-12)
    end
  end)

  it("of a large batch are those of its matrices", function()
    accelhost.manual_seed(5)
    local A, B = randn(50, 8, 8), randn(50, 8, 3)
    linalg.solve(A, B):square():sum():backward()
    local a, b = A[17]:detach():requires_grad_(), B[17]:detach():requires_grad_()
    linalg.solve(a, b):square():sum():backward()
    expect_near(a.grad, A.grad[17], 1e-9)
    expect_near(b.grad, B.grad[17], 1e-9)
  end)
end)

describe("accelhost.linalg refuses", function()
  local cases = {
    {"halves", "linalg.inv: A: expected float32 or float64, got float16", function()
      linalg.inv(accelhost.eye(2):half())
    end},
    {"integers", "linalg.solve: A: expected float32 or float64, got int64", function()
      linalg.solve(accelhost.ones(2, 2, {dtype = "int64"}), accelhost.ones(2))
    end},
    {"integers in norms", "linalg.vector_norm: x: expected a floating dtype, got int64", function()
      linalg.vector_norm(accelhost.arange(3))
    end},
    {"matrices that are not square", "linalg.det: A: expected square matrices (..., n, n), got (2, 3)", function()
      linalg.det(accelhost.ones(2, 3))
    end},
    {"vectors as matrices", "linalg.svd: A: expected at least 2 dims, got (3,)", function()
      linalg.svd(accelhost.ones(3))
    end},
    {"sizes that do not fit", "linalg.solve: A (2, 2) and B (3, 1) do not fit", function()
      linalg.solve(accelhost.eye(2), accelhost.ones(3, 1))
    end},
    {"batches that do not fit", "linalg.solve_triangular: batches of (2, 2, 2) and (3, 2, 2) do not broadcast",
      function() linalg.solve_triangular(accelhost.ones(2, 2, 2), accelhost.ones(3, 2, 2), true) end},
    {"different dtypes", "linalg.solve: dtypes differ: float32 and float64", function()
      linalg.solve(accelhost.eye(2), accelhost.ones(2, {dtype = "float64"}))
    end},
    {"complex eigenvalues", "linalg.eig: not here: eigenvalues of a general matrix are complex", function()
      linalg.eig(accelhost.eye(2))
    end},
    {"LDL factors", "linalg.ldl_factor: not here: LDL factors", function() linalg.ldl_factor(accelhost.eye(2)) end},
    {"an LU without pivots", "linalg.lu: pivot: false is not known on the CPU", function()
      linalg.lu(accelhost.eye(2), false)
    end},
    {"pivots out of range", "pivots: expected row numbers from 1 to 2", function()
      local LU = accelhost.eye(2)
      linalg.lu_solve(LU, accelhost.tensor({1, 3}, {dtype = "int32"}), LU)
    end},
    {"an unknown norm", "linalg.matrix_norm: ord: unknown norm of matrices 3", function()
      linalg.matrix_norm(accelhost.eye(2), 3)
    end},
    {"a driver of another device", "linalg.svd: driver: only nil is known on " .. accelhost.eye(2).device
      .. ", got 'gesvd'", function()
      linalg.svd(accelhost.eye(2), {driver = "gesvd"})
    end},
    {"least squares of less than full rank by gels", "driver 'gelsy' accepts it", function()
      linalg.lstsq(accelhost.tensor {{1, 0}, {0, 0}, {0, 0}}, accelhost.ones(3), {driver = "gels"})
    end},
    {"products that do not fit", "linalg.multi_dot: tensors (2, 2) and (3, 3) do not fit", function()
      linalg.multi_dot {accelhost.eye(2), accelhost.eye(3)}
    end},
    {"cross products of other sizes", "linalg.cross: expected size 3 in dim -1, got (2,) and (2,)", function()
      linalg.cross(accelhost.ones(2), accelhost.ones(2))
    end},
  }
  for _, case in ipairs(cases) do
    it(case[1], function() check.raises(case[2], case[3]) end)
  end
end)

describe("The older names", function()
  local A = double {{4, 1}, {2, 3}}

  it("are those of accelhost.linalg", function()
    expect_near(linalg.inv(A), accelhost.inverse(A), 0)
    expect_near(linalg.det(A), A:det(), 0)
    expect_near(linalg.matrix_exp(A), A:matrix_exp(), 0)
    expect_near(linalg.matrix_power(A, 3), accelhost.matrix_power(A, 3), 0)
    expect_near(linalg.pinv(A), A:pinverse(), 1e-12)
    local LU, pivots = linalg.lu_factor(A)
    expect_near(linalg.solve(A, A), accelhost.lu_solve(A, LU, pivots), 1e-12)
    expect_near(A:matmul(A), accelhost.chain_matmul(A, A), 0)
  end)

  it("svd returns V, and zeros where vectors are not wanted", function()
    local U, S, V = accelhost.svd(A:narrow(1, 0, 1))
    expect_near(A:narrow(1, 0, 1), (U * S):matmul(V:t()), 1e-12)
    local none, values, neither = A:narrow(1, 0, 1):svd(true, false)
    expect_near(S, values, 1e-12)
    assert.same({{0, 0}, {0, 0}}, none:tolist())
    assert.same({{0}}, neither:tolist())
  end)
end)
