--- Images and volumes of another size.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local pool = require "accelhost.nn.functional.pool"

local fail, shape_text, signature = arguments.fail, arguments.shape_text, arguments.signature
local checked = arguments.checked
local F = {}

-- mode -> the number of spatial dims that it accepts, nil for any
local modes = {
  linear = 1, bilinear = 2, bicubic = 2, trilinear = 3, lanczos = 2, nearest = false, ["nearest-exact"] = false,
  area = false,
}
local names = "'nearest'|'linear'|'bilinear'|'bicubic'|'trilinear'|'lanczos'|'area'|'nearest-exact'"

-- One number per dim of space.
local function per_dim(name, value, count)
  if type(value) ~= "table" then
    local list = {}
    for d = 1, count do list[d] = value end
    return list
  end
  if #value ~= count then
    fail("interpolate: %s: expected %d numbers for an input of %d dims, got %d", name, count, count + 2, #value)
  end
  return value
end

-- The output size, and the scales that positions are computed with (0: the quotient of the sizes).
local function sizes_of(input, size, scale_factor, recompute)
  local count = input:dim() - 2
  if (size == nil) == (scale_factor == nil) then
    fail("interpolate: expected either size or scale_factor, got %s", size and "both" or "neither")
  end
  if size then
    if recompute then fail "interpolate: recompute_scale_factor requires scale_factor, got size" end
    return per_dim("size", size, count), {0, 0, 0}
  end
  local scales, out = per_dim("scale_factor", scale_factor, count), {}
  for d = 1, count do
    out[d] = math.floor(input:size(d + 1) * scales[d])
    if not (scales[d] > 0) or out[d] < 1 then
      fail("interpolate: scale_factor %s leaves nothing of dim %d of %s", tostring(scales[d]), d + 1, shape_text(input))
    end
  end
  return out, recompute and {0, 0, 0} or {scales[1] or 0, scales[2] or 0, scales[3] or 0}
end

-- The mean of the input positions that an output position covers.
local function area(input, size)
  if #size == 1 then return C.adaptive_avg_pool1d(input, size[1]) end
  if #size == 2 then return C.adaptive_avg_pool2d(input, size) end
  return pool.adaptive_avg_pool3d(input, size)
end

local function check_mode(input, mode, align_corners, antialias)
  local count = input:dim() - 2
  if count < 1 or count > 3 then
    fail("interpolate: expected an input of 3, 4 or 5 dims, (N, C) and the dims of space, got %s", shape_text(input))
  end
  if modes[mode] and modes[mode] ~= count then
    fail("interpolate: mode '%s' expects an input of %d dims, got %s", mode, modes[mode] + 2, shape_text(input))
  end
  if not modes[mode] and align_corners ~= nil then
    fail("interpolate: align_corners requires the mode linear, bilinear, bicubic or trilinear, got '%s'", mode)
  end
  if antialias and mode ~= "bilinear" and mode ~= "bicubic" and mode ~= "lanczos" then
    fail("interpolate: antialias requires the mode bilinear, bicubic or lanczos, got '%s'", mode)
  end
  if mode == "lanczos" and (align_corners or not antialias) then
    fail "interpolate: mode 'lanczos' requires antialias = true and no align_corners"
  end
end

-- Bytes are resampled as floats, rounded and kept in their range.
local function resample_bytes(input, ...)
  return C.resample(input:float(), ...):round():clamp(0, 255):to("uint8")
end

--- Resize the space of (N, C, L), (N, C, H, W) or (N, C, D, H, W) to `size`, or by `scale_factor` (a number, or one per
--- dim; sizes are rounded down). Modes: nearest (as always, rounding down) and nearest-exact for any dtype; linear,
--- bilinear, trilinear for 3, 4, 5 dims; bicubic and, with antialias, lanczos for 4; area: means. align_corners = true
--- aligns the centres of the corner pixels instead of the corners. Positions are computed with the given scale_factor
--- unless recompute_scale_factor is true. antialias = true widens the filter when shrinking. float16 and bfloat16 are
--- computed in float32; bytes are rounded. Second derivatives exist.
--     y = F.interpolate(images, {scale_factor = 2, mode = "bilinear"})  --> [2, 1, 56, 56]
F.interpolate = checked("interpolate", {
  "input: tensor", {"size: counts"}, {"scale_factor: number|numbers"}, {"mode: " .. names, "nearest"},
  {"align_corners: flag"}, {"recompute_scale_factor: flag"}, {"antialias: flag", false},
}, function(input, size, scale_factor, mode, align_corners, recompute, antialias)
  check_mode(input, mode, align_corners, antialias)
  local out, scales = sizes_of(input, size, scale_factor, recompute)
  if mode == "area" then return area(input, out) end
  local nearest = mode == "nearest" or mode == "nearest-exact"
  if not nearest and input.dtype ~= "uint8" and not input:is_floating_point() then
    fail("interpolate: mode '%s' expects a floating dtype or uint8, got %s", mode, input.dtype)
  end
  local resample = input.dtype == "uint8" and not nearest and resample_bytes or C.resample
  return resample(input, out, scales[1], scales[2], scales[3], mode, align_corners or false, antialias)
end)

local read_upsample = signature("upsample", {
  "input: tensor", {"size: counts"}, {"scale_factor: number|numbers"}, {"mode: " .. names, "nearest"},
  {"align_corners: flag"},
})
--- interpolate by its older name.
--     y = F.upsample(images, {scale_factor = 2})  --> [2, 1, 56, 56]
function F.upsample(...)
  return F.interpolate(read_upsample(...))
end

--- interpolate in mode "nearest", by an older name.
--     y = F.upsample_nearest(images, {scale_factor = 2})  --> [2, 1, 56, 56]
F.upsample_nearest = checked("upsample_nearest", {
  "input: tensor", {"size: counts"}, {"scale_factor: number|numbers"},
}, function(input, size, scale_factor)
  return F.interpolate(input, size, scale_factor)
end)

--- interpolate in mode "bilinear" with align_corners = true, by an older name.
--     y = F.upsample_bilinear(images, {scale_factor = 2})  --> [2, 1, 56, 56]
F.upsample_bilinear = checked("upsample_bilinear", {
  "input: tensor", {"size: counts"}, {"scale_factor: number|numbers"},
}, function(input, size, scale_factor)
  return F.interpolate(input, size, scale_factor, "bilinear", true)
end)

return F
