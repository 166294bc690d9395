--- Max unpooling: write values back to their original positions. And maxima of windows at random positions.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local autocast = require "accelhost.util.autocast"
local tuple = require("accelhost.nn.functional.sizes").tuple

local fail, shape_text, signature = arguments.fail, arguments.shape_text, arguments.signature
local F = {}

-- The spatial sizes of a result: given ones (the last of a whole shape), or those that the pooling had at least.
local function unpooled_sizes(what, input, kernel, stride, padding, given, dims)
  local sizes, spatial = {}, {}
  for d = 1, dims do
    sizes[d] = (input:size(d - dims - 1) - 1) * stride[d] - 2 * padding[d] + kernel[d]
  end
  if not given then return sizes end
  for d = 1, dims do spatial[d] = given[#given == dims + 2 and d + 2 or d] end
  if #given ~= dims and #given ~= dims + 2 then
    fail("%s: output_size: expected %d sizes, got %d", what, dims, #given)
  end
  for d = 1, dims do
    if spatial[d] <= sizes[d] - stride[d] or spatial[d] >= sizes[d] + stride[d] then
      fail("%s: output_size: dim %d: expected a size between %d and %d, got %d", what, d - 1,
        sizes[d] - stride[d] + 1, sizes[d] + stride[d] - 1, spatial[d])
    end
  end
  return spatial
end

local function unpool_class(dims)
  local what = "max_unpool" .. dims .. "d"
  local read = signature(what, {
    "input: tensor", "indices: tensor", "kernel_size: counts", {"stride: counts"}, {"padding: sizes", 0},
    {"output_size: counts"},
  })
  return function(...)
    local input, indices, kernel, stride, padding, output_size = read(...)
    local count = input:dim()
    if count ~= dims + 1 and count ~= dims + 2 then
      fail("%s: expected an input of %d or %d dims, got %s", what, dims + 1, dims + 2, shape_text(input))
    end
    if indices.dtype ~= "int64" or not C.same_shape(indices, input) then
      fail("%s: indices: expected int64 %s, got %s %s", what, shape_text(input), indices.dtype, shape_text(indices))
    end
    kernel = tuple(what, "kernel_size", kernel, dims)
    stride, padding = tuple(what, "stride", stride or kernel, dims), tuple(what, "padding", padding, dims)
    if type(output_size) == "number" then output_size = {output_size} end
    local spatial = unpooled_sizes(what, input, kernel, stride, padding, output_size, dims)
    local sizes, flat, elements = {}, {}, 1
    for d = 1, count - dims do sizes[d], flat[d] = input:size(d - 1), input:size(d - 1) end
    for d = 1, dims do sizes[#sizes + 1], elements = spatial[d], elements * spatial[d] end
    flat[#flat + 1] = -1
    if indices:numel() > 0 and (indices:min():item() < 0 or indices:max():item() >= elements) then
      fail("%s: indices: expected numbers within 0..%d, got %d..%d", what, elements - 1, indices:min():item(),
        indices:max():item())
    end
    if input:numel() == 0 then return input:new_zeros(sizes) end
    local values, places = input:reshape(flat), indices:reshape(flat)
    flat[#flat] = elements
    return input:new_zeros(flat):scatter(-1, places, values):reshape(sizes)
  end
end

--- Write the maxima of max_pool1d to their positions (`indices`) among zeros. output_size selects one of the sizes that
--- pool to the input's size.
--
--   local values, places = F.max_pool1d(a:view(1, 1, 3), 2, {return_indices = true})
--   F.max_unpool1d(values, places, 2)  --> tensor([[[0., 2.]]])
F.max_unpool1d = unpool_class(1)
--- Write the maxima of max_pool2d to their positions (`indices`) among zeros; output_size as in max_unpool1d.
--
--   local values, places = F.max_pool2d(images, 2, {return_indices = true})
--   F.max_unpool2d(values, places, 2):size(-1)  --> 28
F.max_unpool2d = unpool_class(2)
--- Write the maxima of max_pool3d to their positions (`indices`) among zeros; output_size as in max_unpool1d.
--
--   local values, places = F.max_pool3d(accelhost.ones(1, 1, 4, 4, 4), 2, {return_indices = true})
--   F.max_unpool3d(values, places, 2):sum()  --> tensor(8.)
F.max_unpool3d = unpool_class(3)

-- The first places [N, C, count] of windows of `kernel` elements that share out a dim at random: sample is [N, C].
local function random_places(sample, size, count, kernel)
  local last = sample:new_full({sample:size(0), sample:size(1), 1}, size - kernel)
  if count == 1 then return last end
  local step, steps = (size - kernel) / (count - 1), C.arange(count - 1, {dtype = sample.dtype, device = sample.device})
  sample = sample:unsqueeze(-1)
  local places = ((steps + sample) * step):trunc() - (sample * step):trunc()
  return C.cat({places, last}, -1)
end

local function output_sizes(what, input, kernel, size, ratio, dims)
  if (size == nil) == (ratio == nil) then fail("%s: expected either output_size or output_ratio", what) end
  if size then return tuple(what, "output_size", size, dims) end
  ratio = tuple(what, "output_ratio", ratio, dims)
  local sizes = {}
  for d = 1, dims do
    if ratio[d] <= 0 or ratio[d] >= 1 then
      fail("%s: output_ratio: expected numbers between 0 and 1, got %s", what, ratio[d])
    end
    sizes[d] = math.floor(input:size(d - dims - 1) * ratio[d])
  end
  return sizes
end

-- Every window's elements [N, C, outputs, elements of a window] and their positions in the input's planes.
local function windows(input, samples, kernel, size, dims)
  local n, c = input:size(0), input:size(1)
  local values, places, stride = input, nil, 1
  local grid, order, tail = {n, c}, {0, 1}, {}
  for d = dims, 1, -1 do
    -- Samples are drawn in PyTorch's order: width, height; of volumes depth, height, width.
    local sample = samples:select(2, dims == 2 and 2 - d or d - 1)
    local first = random_places(sample, input:size(d + 1), size[d], kernel[d])
    local steps = C.arange(kernel[d], {dtype = first.dtype, device = first.device})
    local at = (first:unsqueeze(-1) + steps):long():reshape(n, c, size[d] * kernel[d])
    local sizes, wide = {n, c}, values:shape()
    for e = 1, dims do sizes[e + 2] = e == d and at:size(2) or 1 end
    at = at:view(sizes)
    wide[d + 2] = at:size(d + 1)
    values = values:gather(d + 1, at:expand(wide))
    places = places and places + at * stride or at * stride
    stride = stride * input:size(d + 1)
  end
  for d = 1, dims do
    grid[#grid + 1], grid[#grid + 2] = size[d], kernel[d]
    order[d + 2] = 2 * d
    tail[d] = 2 * d + 1
  end
  for d = 1, dims do order[#order + 1] = tail[d] end
  local function each(t) return t:reshape(grid):permute(order):flatten(dims + 2) end
  return each(values), each(places:expand(values:shape()))
end

local function fractional_class(dims)
  local what = "fractional_max_pool" .. dims .. "d"
  local read = signature(what, {
    "input: tensor", "kernel_size: counts", {"output_size: counts"}, {"output_ratio: numbers"},
    {"return_indices: flag", false}, {"_random_samples: tensor"},
  })
  local function pool(...)
    local input, kernel, size, ratio, return_indices, samples = read(...)
    kernel = tuple(what, "kernel_size", kernel, dims)
    size = output_sizes(what, input, kernel, size, ratio, dims)
    local count = input:dim()
    if count ~= dims + 1 and count ~= dims + 2 then
      fail("%s: expected an input of %d or %d dims, got %s", what, dims + 1, dims + 2, shape_text(input))
    end
    for d = 1, dims do
      if size[d] < 1 or size[d] + kernel[d] - 1 > input:size(d - dims - 1) then
        fail("%s: windows of %d do not make %d in dim %d of input %s", what, kernel[d], size[d], count - dims + d - 1,
          shape_text(input))
      end
    end
    local batched = count == dims + 2
    if not batched then input = input:unsqueeze(0) end
    samples = samples or C.rand({input:size(0), input:size(1), dims}, {dtype = input.dtype, device = input.device})
    local elements, places = windows(input, samples, kernel, size, dims)
    local values, best = C.max_dim(elements, -1)
    local index = return_indices and places:gather(-1, best:unsqueeze(-1)):squeeze(-1)
    if not batched then values, index = values:squeeze(0), index and index:squeeze(0) end
    if return_indices then return values, index end
    return values
  end
  return pool
end

--- The largest values of output_size windows of kernel_size at random places that share out [N, C, H, W] or [C, H, W]
--- (Graham, 2014); output_ratio is the output size as a fraction of the input's. The random samples [N, C, 2] may be
--- passed.
--
--   F.fractional_max_pool2d(images, 2, 13):size(-1)  --> 13
F.fractional_max_pool2d = fractional_class(2)
--- The largest values of windows at random places of [N, C, D, H, W] or [C, D, H, W]; as fractional_max_pool2d, with
--- random samples [N, C, 3].
--
--   F.fractional_max_pool3d(accelhost.ones(1, 1, 4, 4, 4), 2, 2):size(-1)  --> 2
F.fractional_max_pool3d = fractional_class(3)

autocast(F, "float32", "max_unpool1d max_unpool2d max_unpool3d fractional_max_pool2d fractional_max_pool3d",
  "own")

return F
