-- Images and volumes: resizing, sampling on grids, windows as columns, against PyTorch; and their refusals.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local op_fixture = require "spec.support.op_fixture"
local tensors = require "spec.support.tensors"

local nn, F = accelhost.nn, accelhost.nn.functional

describe("Functions on images:", function()
  op_fixture.define(require("spec.support.fixtures").load "spatial", it)
end)

local double = tensors.double
local image = accelhost.arange(24):float():reshape(1, 2, 3, 4)

local function expect_equal(expected, got)
  assert.equal(expected.dtype, got.dtype)
  assert.same(expected:shape(), got:shape())
  if not accelhost.equal(expected, got) then
    error("expected " .. tostring(expected) .. ", got " .. tostring(got), 2)
  end
end

describe("interpolate", function()
  it("computes halves in float32", function()
    accelhost.manual_seed(1)
    local x = accelhost.randn(2, 3, 5, 7)
    for _, dtype in ipairs {"float16", "bfloat16"} do
      local half = x:to(dtype)
      for _, mode in ipairs {"nearest", "bilinear", "bicubic", "area"} do
        local expected = F.interpolate(half:float(), {size = {8, 4}, mode = mode}):to(dtype)
        expect_equal(expected, F.interpolate(half, {size = {8, 4}, mode = mode}))
      end
    end
  end)

  it("accepts any dtype by the nearest, and rounds bytes", function()
    for _, dtype in ipairs {"bool", "uint8", "int32", "int64", "float64"} do
      local y = F.interpolate(image:to(dtype), {scale_factor = 2})
      expect_equal(image:to(dtype), y:view(1, 2, 3, 2, 4, 2):select(5, 1):select(3, 0))
    end
    local bytes = accelhost.tensor({{{{0, 255, 3}}}}, {dtype = "uint8"})
    assert.same({{{{0, 64, 191, 192, 66, 3}}}}, F.interpolate(bytes, {size = {1, 6}, mode = "bilinear"}):tolist())
    local step = accelhost.tensor({{{{0, 0, 255, 255}}}}, {dtype = "uint8"})
    local cubic = F.interpolate(step, {size = {1, 8}, mode = "bicubic"}):flatten():tolist()
    assert.same({0, 255}, {math.min(unpack(cubic)), math.max(unpack(cubic))})
  end)

  it("accepts strided, empty and single-pixel inputs", function()
    local turned = image:transpose(2, 3):contiguous():transpose(2, 3)
    local options = {size = 5, mode = "bicubic"}
    expect_equal(F.interpolate(image, options), F.interpolate(turned, options))
    assert.same({0, 2, 5, 5}, F.interpolate(image:narrow(0, 0, 0), {size = 5, mode = "bilinear"}):shape())
    for _, mode in ipairs {"nearest", "bilinear", "bicubic", "area"} do
      local one = F.interpolate(accelhost.full({1, 1, 1, 1}, 3), {size = {2, 3}, mode = mode})
      check.near({3, 3, 3, 3, 3, 3}, one, 1e-6)
    end
  end)

  it("returns the same for any number of threads", function()
    accelhost.manual_seed(2)
    local x, threads = accelhost.randn(4, 8, 40, 40, {requires_grad = true}), accelhost.get_num_threads()
    local results = {}
    for i, count in ipairs {1, 2} do
      accelhost.set_num_threads(count)
      local y = F.interpolate(x, {size = {70, 33}, mode = "bicubic"})
      results[i] = {y, accelhost.autograd.grad(y:square():sum(), x)[1]}
    end
    accelhost.set_num_threads(threads)
    for k = 1, 2 do expect_equal(results[1][k], results[2][k]) end
  end)

  local refused = {
    {"both sizes", "interpolate: expected either size or scale_factor, got both", {size = 2, scale_factor = 2}},
    {"neither size", "interpolate: expected either size or scale_factor, got neither", {mode = "area"}},
    {"another number of sizes", "interpolate: size: expected 2 numbers for an input of 4 dims, got 3",
      {size = {1, 2, 3}}},
    {"modes of other dims", "interpolate: mode 'trilinear' expects an input of 5 dims, got (1, 2, 3, 4)",
      {size = 2, mode = "trilinear"}},
    {"align_corners by the nearest", "interpolate: align_corners requires the mode linear, bilinear, bicubic or "
      .. "trilinear, got 'nearest'", {size = 2, align_corners = true}},
    {"antialias by the nearest", "interpolate: antialias requires the mode bilinear, bicubic or lanczos",
      {size = 2, antialias = true}},
    {"lanczos without antialias", "interpolate: mode 'lanczos' requires antialias = true",
      {size = 2, mode = "lanczos"}},
    {"scales that leave nothing", "interpolate: scale_factor 0.1 leaves nothing of dim 2 of (1, 2, 3, 4)",
      {scale_factor = 0.1}},
    {"a recomputed size", "interpolate: recompute_scale_factor requires scale_factor, got size",
      {size = 2, recompute_scale_factor = true}},
    {"integers between pixels", "interpolate: mode 'bilinear' expects a floating dtype or uint8, got int64",
      {size = 2, mode = "bilinear"}, image:to("int64")},
    {"two dims", "interpolate: expected an input of 3, 4 or 5 dims", {size = 2}, accelhost.ones(2, 2)},
  }
  for _, case in ipairs(refused) do
    it("refuses " .. case[1], function()
      check.raises(case[2], function() F.interpolate(case[4] or image, case[3]) end)
    end)
  end
end)

describe("grid_sample", function()
  it("reads zeros, the border or a mirrored pixel for coordinates that are not finite", function()
    local grid = accelhost.tensor {{{{0 / 0, 0}, {math.huge, 0}, {-math.huge, 0}, {1e30, 0}}}}
    for _, mode in ipairs {"bilinear", "nearest", "bicubic"} do
      assert.same({{0, 0, 0, 0}}, F.grid_sample(image, grid, {mode = mode})[0][0]:tolist())
      for _, padding in ipairs {"border", "reflection"} do
        local y = F.grid_sample(image, grid, {mode = mode, padding_mode = padding, align_corners = true})
        assert.is_true(y:isfinite():all():item())
      end
    end
  end)

  it("is the image itself on the identity's grid", function()
    for _, corners in ipairs {true, false} do
      local grid = F.affine_grid(double {{{1, 0, 0}, {0, 1, 0}}}, {1, 2, 3, 4}, corners)
      for _, mode in ipairs {"bilinear", "nearest", "bicubic"} do
        local y = F.grid_sample(image:double(), grid, {mode = mode, align_corners = corners, padding_mode = "border"})
        assert.is_true(accelhost.allclose(image:double(), y, {atol = 1e-12}))
      end
    end
  end)

  it("computes halves in float32 and accepts more locations than a block, and empty grids", function()
    accelhost.manual_seed(3)
    local x, grid = accelhost.randn(2, 3, 9, 9), accelhost.rand(2, 20, 17, 2) * 3 - 1.5
    local half = F.grid_sample(x:half(), grid:half())
    expect_equal(F.grid_sample(x:half():float(), grid:half():float()):half(), half)
    local all = F.grid_sample(x, grid)
    for row = 0, 19 do expect_equal(F.grid_sample(x, grid:narrow(1, row, 1)), all:narrow(2, row, 1)) end
    assert.same({2, 3, 0, 17}, F.grid_sample(x, grid:narrow(1, 0, 0)):shape())
  end)

  it("returns the same for many locations as for a part of them, on any number of threads", function()
    local threads = accelhost.get_num_threads()
    for _, case in ipairs {{{2, 3, 9, 11}, {2, 45, 301, 2}}, {{1, 2, 5, 6, 7}, {1, 3, 40, 61, 3}}} do
      local x, grid = accelhost.randn(case[1]), accelhost.randn(case[2])
      local d = grid:dim() - 3
      for _, mode in ipairs {"bilinear", "nearest", #case[1] == 4 and "bicubic" or nil} do
        local parts = {}
        for at = 0, grid:size(d) - 1, 7 do
          parts[#parts + 1] = F.grid_sample(x, grid:narrow(d, at, math.min(7, grid:size(d) - at)), mode)
        end
        local expected = accelhost.cat(parts, d + 1)
        for _, count in ipairs {1, 2, 3} do
          accelhost.set_num_threads(count)
          expect_equal(expected, F.grid_sample(x, grid, mode))
        end
      end
    end
    accelhost.set_num_threads(threads)
  end)

  it("reports that it has no second derivative", function()
    local x, grid = accelhost.randn(1, 1, 3, 3):requires_grad_(), accelhost.zeros(1, 2, 2, 2)
    check.raises("second derivative is not implemented", function()
      local g = accelhost.autograd.grad(F.grid_sample(x, grid):square():sum(), x, {create_graph = true})[1]
      g:sum():backward()
    end)
  end)

  it("refuses mismatched arguments", function()
    local grid = accelhost.zeros(1, 2, 2, 2)
    check.raises("grid_sample: expected input (N, C, H, W) with grid (N, H_out, W_out, 2)", function()
      F.grid_sample(image, accelhost.zeros(2, 2, 2, 2))
    end)
    check.raises("grid_sample: expected input and grid of one floating dtype, got float32 and float64", function()
      F.grid_sample(image, grid:double())
    end)
    check.raises("grid_sample: mode 'bicubic': expected 4-d input", function()
      F.grid_sample(accelhost.ones(1, 1, 2, 2, 2), accelhost.zeros(1, 1, 1, 1, 3), "bicubic")
    end)
    check.raises("affine_grid: theta: expected (1, 2, 3) for this size, got (1, 3, 3)", function()
      F.affine_grid(accelhost.ones(1, 3, 3), {1, 1, 2, 2})
    end)
    check.raises("affine_grid: size: expected {N, C, H, W}", function()
      F.affine_grid(accelhost.ones(1, 2, 3), {1, 1, 2})
    end)
  end)
end)

describe("Windows and pixels", function()
  it("are a convolution's", function()
    accelhost.manual_seed(4)
    local x, w = accelhost.randn(2, 3, 6, 5, {dtype = "float64"}), accelhost.randn(4, 3, 2, 3, {dtype = "float64"})
    local options = {stride = {2, 1}, padding = {1, 2}, dilation = {2, 1}}
    local columns = F.unfold(x, {2, 3}, options)
    local y = w:reshape(4, -1):matmul(columns)
    local expected = F.conv2d(x, w, nil, options.stride, options.padding, options.dilation)
    assert.is_true(accelhost.allclose(expected, y:reshape(expected:shape()), {atol = 1e-12}))
  end)

  it("are restored by the inverse functions, whatever the dtype", function()
    for _, dtype in ipairs {"int64", "float16", "bool", "float32"} do
      local x = image:to(dtype):expand(2, 2, 3, 4):reshape(1, 4, 3, 4)
      expect_equal(x, F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2))
      expect_equal(x, F.channel_shuffle(F.channel_shuffle(x, 2), 2))
      expect_equal(x:reshape(1, 4, 12), F.unfold(x, 1))
    end
    expect_equal(image, F.fold(F.unfold(image, {3, 2}, {stride = {3, 2}}), {3, 4}, {3, 2}, {stride = {3, 2}}))
  end)

  it("are refused where they do not fit", function()
    check.raises("unfold: no window of kernel_size (5, 5), dilation (1, 1) fits into (3, 4)", function()
      F.unfold(image, 5)
    end)
    check.raises("unfold: kernel_size: expected one or two integers, got 3", function() F.unfold(image, {1, 2, 3}) end)
    check.raises("unfold: input: expected (N, C, H, W) or (C, H, W)", function() F.unfold(accelhost.ones(2, 2), 1) end)
    check.raises("fold: expected (N, C * 4, 6) or without N for output_size (3, 4)", function()
      F.fold(accelhost.ones(1, 6, 6), {3, 4}, 2)
    end)
    check.raises("pixel_shuffle: the 2 channels of (1, 2, 3, 4) are not a multiple of 4", function()
      F.pixel_shuffle(image, 2)
    end)
    check.raises("pixel_unshuffle: height and width of (1, 2, 3, 4) are not multiples of 2", function()
      F.pixel_unshuffle(image, 2)
    end)
    check.raises("channel_shuffle: the 2 channels of (1, 2, 3, 4) do not make 3 groups", function()
      F.channel_shuffle(image, 3)
    end)
  end)
end)

describe("Layers of sizes and windows", function()
  local texts = {
    {nn.Upsample {scale_factor = 2, mode = "bilinear"}, "Upsample(scale_factor=2.0, mode='bilinear')"},
    {nn.Upsample {2, 3}, "Upsample(size=(2, 3), mode='nearest')"},
    {nn.UpsamplingNearest2d {scale_factor = 2}, "UpsamplingNearest2d(scale_factor=2.0, mode='nearest')"},
    {nn.UpsamplingBilinear2d(4), "UpsamplingBilinear2d(size=4, mode='bilinear')"},
    {nn.Fold({4, 5}, 2), "Fold(output_size=(4, 5), kernel_size=2, dilation=1, padding=0, stride=1)"},
    {nn.Unfold({2, 3}, 1, 0, {1, 2}), "Unfold(kernel_size=(2, 3), dilation=1, padding=0, stride=(1, 2))"},
    {nn.PixelShuffle(2), "PixelShuffle(upscale_factor=2)"},
    {nn.PixelUnshuffle(3), "PixelUnshuffle(downscale_factor=3)"},
    {nn.ChannelShuffle(2), "ChannelShuffle(groups=2)"},
  }
  for _, case in ipairs(texts) do
    it("print as PyTorch's: " .. case[2], function() assert.equal(case[2], tostring(case[1])) end)
  end

  it("equal the functions", function()
    expect_equal(F.interpolate(image, {size = 6, mode = "bilinear", align_corners = true}),
      nn.UpsamplingBilinear2d(6)(image))
    expect_equal(F.interpolate(image, {scale_factor = {2, 3}}), nn.UpsamplingNearest2d {scale_factor = {2, 3}}(image))
    expect_equal(image, nn.Fold({3, 4}, 1)(nn.Unfold(1)(image)))
    expect_equal(F.channel_shuffle(image, 2), nn.ChannelShuffle(2)(image))
  end)
end)
