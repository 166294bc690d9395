--- Sampling by a grid of coordinates: and the grids of affine maps. Coordinates go from -1 to 1 over an image.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"

local fail, shape_text, signature = arguments.fail, arguments.shape_text, arguments.signature
local F = {}

local read_sample = signature("grid_sample", {
  "input: tensor", "grid: tensor", {"mode: 'bilinear'|'nearest'|'bicubic'", "bilinear"},
  {"padding_mode: 'zeros'|'border'|'reflection'", "zeros"}, {"align_corners: flag", false},
})
--- The values of input (N, C, H, W) at grid (N, H_out, W_out, 2), or of (N, C, D, H, W) at (N, D_out, H_out, W_out, 3):
--- the grid's last dim is x, y (, z) from -1 to 1, the centres of the outermost pixels with align_corners = true, else
--- their outer edges. Outside are zeros, the border, or the input mirrored. Mode "bicubic" is for 4 dims. Both have
--- gradients, of first order; in mode "nearest" the grid's is 0.
--     local grid = F.affine_grid(accelhost.eye(2, 3):unsqueeze(0):expand(2, 2, 3), {2, 1, 28, 28})
--     y = F.grid_sample(images, grid, {padding_mode = "border"})  --> [2, 1, 28, 28]
---@return userdata (N, C, H_out, W_out)
function F.grid_sample(...)
  return C.grid_sample(read_sample(...))
end

-- n coordinates from -1 to 1: of the outermost centres, or of centres between the outer edges.
local function coordinates(n, align_corners, like)
  local reach = align_corners and n > 1 and 1 or n == 1 and 0 or (n - 1) / n
  return C.linspace(-reach, reach, n, {dtype = "float64", device = like.device}):to(like.dtype)
end

local read_affine = signature("affine_grid", {"theta: tensor", "size: counts", {"align_corners: flag", false}})
--- The grid for grid_sample that maps each output position of `size` (N, C, H, W) by the matrices theta (N, 2, 3), or
--- of (N, C, D, H, W) by (N, 3, 4).
--     grid = F.affine_grid(accelhost.eye(2, 3):unsqueeze(0), {1, 3, 8, 8})  --> [1, 8, 8, 2]
---@return userdata (N, H, W, 2) or (N, D, H, W, 3)
function F.affine_grid(...)
  local theta, size, align_corners = read_affine(...)
  local space = type(size) == "table" and #size - 2 or 0
  if not theta:is_floating_point() then
    fail("affine_grid: theta: expected a floating dtype, got %s", theta.dtype)
  end
  if space < 2 or space > 3 then
    fail "affine_grid: size: expected {N, C, H, W} or {N, C, D, H, W}"
  end
  if theta:dim() ~= 3 or theta:size(0) ~= size[1] or theta:size(1) ~= space or theta:size(2) ~= space + 1 then
    fail("affine_grid: theta: expected (%d, %d, %d) for this size, got %s", size[1], space, space + 1,
      shape_text(theta))
  end
  local out, parts = {unpack(size, 3)}, {}
  for d = 1, space do
    local sizes = {}
    for k = 1, space do sizes[k] = k == d and out[k] or 1 end
    local along = coordinates(out[d], align_corners, theta):reshape(sizes)
    parts[space + 1 - d] = along:expand(out):reshape(-1)
  end
  parts[space + 1] = C.ones_like(parts[1])
  local base = C.stack(parts, 1)
  local grid = C.matmul(base, theta:transpose(1, 2))
  out[space + 1] = space
  return grid:reshape(size[1], unpack(out))
end

autocast(F, "float32", "grid_sample", "widest")

return F
