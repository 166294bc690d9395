--- accelhost.linalg: decompositions, equations, norms. Matrices are the last two dims, every leading index one of its
--- own; float32 and float64. Results that are tuples in PyTorch are several results.
--
--     local x = accelhost.linalg.solve(A, b)
local namespace = require "accelhost.util.namespace"

local lazy = {}
namespace.add(lazy, "accelhost.linalg.solve", {
  "solve", "solve_ex", "solve_triangular", "inv", "inv_ex", "tensorinv", "tensorsolve",
})
namespace.add(lazy, "accelhost.linalg.factor", {
  "cholesky", "cholesky_ex", "qr", "svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals", "lu", "lu_factor",
  "lu_factor_ex", "lu_solve", "ldl_factor", "ldl_factor_ex", "ldl_solve", "householder_product",
})
namespace.add(lazy, "accelhost.linalg.norm", {
  "norm", "vector_norm", "matrix_norm", "det", "slogdet", "matrix_rank", "pinv", "matrix_sqrth", "cond", "lstsq",
})
namespace.add(lazy, "accelhost.linalg.product", {
  "matmul", "multi_dot", "matrix_power", "matrix_exp", "cross", "vecdot", "diagonal", "vander",
})

return namespace.new("linalg", {}, lazy)
