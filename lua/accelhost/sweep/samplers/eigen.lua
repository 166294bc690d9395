--- Eigenvalues and eigenvectors of a small symmetric matrix by Jacobi's rotations: the same to the last bit on every
--- machine, which a replayed study needs, and without a tensor in a process that only watches others.
local eigen = {}

local abs, sqrt = math.abs, math.sqrt

-- Turn rows and columns p and q so that a[p][q] becomes 0.
local function rotate(a, vectors, n, p, q)
  local theta = (a[q][q] - a[p][p]) / (2 * a[p][q])
  local t = (theta < 0 and -1 or 1) / (abs(theta) + sqrt(theta * theta + 1))
  local c = 1 / sqrt(t * t + 1)
  local s = t * c
  for k = 1, n do
    local x, y = a[k][p], a[k][q]
    a[k][p], a[k][q] = c * x - s * y, s * x + c * y
  end
  local row_p, row_q = a[p], a[q]
  for k = 1, n do
    local x, y = row_p[k], row_q[k]
    row_p[k], row_q[k] = c * x - s * y, s * x + c * y
    x, y = vectors[k][p], vectors[k][q]
    vectors[k][p], vectors[k][q] = c * x - s * y, s * x + c * y
  end
end

-- Is an element negligible compared with the diagonal?
local function is_nothing(a, p, q)
  return abs(a[p][q]) <= 1e-17 * sqrt(abs(a[p][p] * a[q][q])) or a[p][q] == 0
end

--- Decompose a matrix.
---@param matrix number[][] symmetric; not changed
---@return number[] values
---@return number[][] vectors column k belongs to value k
function eigen.decompose(matrix)
  local n, a, vectors = #matrix, {}, {}
  for i = 1, n do
    a[i], vectors[i] = {unpack(matrix[i])}, {}
    for k = 1, n do vectors[i][k] = i == k and 1 or 0 end
  end
  for _ = 1, 60 do
    local done = true
    for p = 1, n - 1 do
      for q = p + 1, n do
        if not is_nothing(a, p, q) then
          done = false
          rotate(a, vectors, n, p, q)
        end
      end
    end
    if done then break end
  end
  local values = {}
  for i = 1, n do values[i] = a[i][i] end
  return values, vectors
end

return eigen
