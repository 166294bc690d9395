--- One op at a time, here and in PyTorch, on as many threads each: time of each row of a table, the slowest against
--- the peer first. On one thread it is processor time, on several elapsed time.
--
-- usage: accelhost scripts/bench/ops.lua [--size 1000000] [--rows PATTERN] [--only_over 1.3] [--no_peer]
--                                        [--threads 1] [--repeat 1] [--dtype float64]
--
-- A row is an expression that means the same on both sides once options are written as keywords: names are functions
-- of accelhost or nn.functional, and the inputs that `inputs` makes. The result of each side is the minimum of several
-- rounds; with --repeat the sides are measured in turn so often. Inputs other than indices and masks have the dtype.
local accelhost = require "accelhost"
local F = accelhost.nn.functional
local system = require("accelhost._C").system
local is_tensor = accelhost.is_tensor

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local options = accelhost.parse_args {
  description = "Measures single ops here and in PyTorch.",
  {"size", 1000000, "elements of an input", integer = true, minimum = 16},
  {"rows", "", "a Lua pattern: which rows"},
  {"only_over", 0, "show rows whose ratio to the peer is above this"},
  {"no_peer", false, "our side only"},
  {"threads", 1, "threads of each side", integer = true, minimum = 1},
  {"repeat", 1, "times that both sides are measured, in turn", integer = true, minimum = 1},
  {"dtype", "float32", "dtype of inputs", choices = {"float32", "float64", "float16", "bfloat16", "int64", "int32"}},
}

-- Return the inputs that rows may name, for n elements: vectors, a square matrix, images, a batch of sets of points.
local function inputs(n)
  local side = math.floor(n ^ 0.5)
  local plane = math.max(4, math.floor((n / 16) ^ 0.5))
  local dtype, scale = accelhost[options.dtype], options.dtype:find "^int" and 10 or 1
  local function randn(...) return (accelhost.randn(...) * scale):to(dtype) end
  local function rand(count, factor, offset) return ((accelhost.rand(count) * factor + offset) * scale):to(dtype) end
  local x, half = randn(n), math.floor(plane / 2)
  local function leaf(...) return randn(...):requires_grad_() end
  return {
    g_x = leaf(n), g_m = leaf(side, side), g_row = leaf(side), g_img = leaf(1, 16, plane, plane),
    g_seq = leaf(1, 16, plane * plane), g_vol = leaf(1, 16, 4, half, half), g_channels = leaf(16),
    x = x, y = randn(n), u = rand(n, 1.98, -0.99), p = rand(n, 5, 0.1), q = rand(n, 0.98, 0.01),
    i = accelhost.randint(0, n, {n}), j = accelhost.randint(1, 100, {n}),
    c = x:gt(0), d = x:lt(0.5), m = randn(side, side), m2 = randn(side, side),
    row = randn(side), columns = accelhost.randint(0, side, {side, side}),
    img = randn(1, 16, plane, plane), grid = (accelhost.rand(1, plane, plane, 2) * 2 - 1):to(dtype),
    seq = randn(1, 16, plane * plane), vol = randn(1, 16, 4, half, half),
    points = randn(side, 16), points2 = randn(side, 16),
    classes = accelhost.randint(0, side, {side}),
    sorted = accelhost.sort(randn(n)), tokens = accelhost.randint(0, side, {side}),
    channels = rand(16, 1, 0.5), n = n, side = side,
  }
end

local rows = {}
local function add(text)
  for row in text:gmatch "[^;\n]+" do
    row = row:match "^%s*(.-)%s*$"
    if row ~= "" and row:find(options.rows) then rows[#rows + 1] = row end
  end
end

-- Functions of one input.
local function add_each(names, text)
  for name in names:gmatch "%S+" do add(text:format(name)) end
end
add_each([[abs neg sign ceil floor round trunc frac exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh erf
  erfc sigmoid relu gelu silu softplus selu celu elu mish hardswish hardsigmoid relu6 logsigmoid
  softsign tanhshrink hardshrink softshrink leaky_relu square isnan isinf isfinite sinc i0 nan_to_num
  sum mean var std amax amin max min prod norm argmax argmin any all count_nonzero median signbit
  deg2rad clone unique sort argsort msort aminmax nanmean nansum zeros_like ones_like rand_like
  randn_like isreal positive]], "%s(x)")
add_each([[log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma]], "%s(p)")
add_each([[asin acos atanh erfinv]], "%s(u)")
add_each([[add sub mul div maximum minimum fmax fmin atan2 hypot copysign eq lt ge fmod remainder logaddexp
  logaddexp2 xlogy nextafter heaviside]], "%s(x, y)")
add [[
  acosh(p + 1); logsumexp(x, 0); cumsum(x, 0); cumprod(x, 0); cummax(x, 0); quantile(x, 0.3); kthvalue(x, 1000, 0)
  logit(q); pow(p, y); pow(x, 2); pow(p, 0.5); float_power(p, 2); where(c, x, y); masked_fill(x, c, 0)
  clamp(x, -1, 1); lerp(x, y, 0.3); addcmul(x, y, y); addcdiv(x, y, p); logical_and(c, d); bitwise_xor(j, j)
  floor_divide(j, 7); polygamma(1, p); mvlgamma(p + 2, 2); special.entr(p); special.ndtr(x); special.xlog1py(x, p)
  cummax(m, 1); cummin(m, 1); cumprod(m, 1); cumsum(m, 1); logcumsumexp(m, 1); cummax(m, 0); cumprod(m, 0)
  cumsum(m, 0); logcumsumexp(m, 0); median(m, 1); kthvalue(m, 5, 1); mode(m, 1); quantile(m, 0.3)
  quantile(m, 0.3, 1); nanmedian(m); nanquantile(m, 0.3, 1); topk(m, 5, 1); topk(x, 100); sort(m, 1); sort(m, 0)
  argsort(m, 1); sum(m, 0); sum(m, 1); mean(m, 1); var(m, 1); std(m, 0); amax(m, 0); amax(m, 1); argmax(m, 1)
  argmax(m, 0); max(m, 1); max(m, 0); norm(m, 2, 1); logsumexp(m, 1); logsumexp(m, 0); softmax(m, 1); softmax(m, 0)
  log_softmax(m, 1); all(c); any(c); cdist(points, points2); pdist(points); pairwise_distance(points, points2)
  cosine_similarity(m, m2); normalize(m); mm(m, m2); mv(m, row); outer(row, row); dot(x, y)
  einsum("ij,kj->ik", m, m2); trace(m); tril(m); triu(m); diag(row); transpose(m, 0, 1):contiguous()
  m:t():contiguous(); flip(m, {1}); roll(m, 3, 1); rot90(m); cat_pair(m, m2); stack_pair(m, m2)
  index_select(x, 0, i); gather(m, 1, columns); take(x, i); x:scatter_add(0, i, y); x:scatter(0, i, y)
  index_add(x, 0, i, y); masked_select(x, c); nonzero(c); bincount(j); histc(x, 100); searchsorted(sorted, x)
  bucketize(x, sorted); unique(j); isin(j, j); x[c]; take_along_dim(m, columns, 1); repeat_interleave(x, 2)
  m:expand(2, side, side):contiguous(); grid_sample(img, grid); grid_sample(img, grid, {mode = "nearest"})
  grid_sample(img, grid, {mode = "bicubic"}); interpolate(img, {scale_factor = 2, mode = "bilinear"})
  interpolate(img, {scale_factor = 2, mode = "nearest"}); interpolate(img, {scale_factor = 2, mode = "bicubic"})
  interpolate(img, {scale_factor = 0.5, mode = "area"}); interpolate(seq, {scale_factor = 2, mode = "linear"})
  interpolate(img, {scale_factor = 0.5, mode = "bilinear"}); adaptive_avg_pool2d(img, 7)
  adaptive_max_pool2d(img, 7); adaptive_avg_pool2d(img, 1); avg_pool2d(img, 2); max_pool2d(img, 2)
  max_pool2d(img, 3, {stride = 1}); avg_pool2d(img, 3, {stride = 1}); lp_pool2d(img, 2, 2); max_pool1d(seq, 2)
  avg_pool1d(seq, 2); max_pool3d(vol, 2); avg_pool3d(vol, 2); unfold(img, 3); pixel_shuffle(img, 2)
  pixel_unshuffle(img, 2); layer_norm(m, row:shape()); group_norm(img, 4)
  batch_norm(img, channels, channels, {training = true}); rms_norm(m, row:shape()); instance_norm(img)
  local_response_norm(img, 2); dropout(x, 0.5); mse_loss(x, y); l1_loss(x, y); smooth_l1_loss(x, y)
  huber_loss(x, y); cross_entropy(m, classes); nll_loss(m, classes); kl_div(x, q); binary_cross_entropy(q, q)
  binary_cross_entropy_with_logits(x, q); gaussian_nll_loss(x, y, p); poisson_nll_loss(x, p); embedding(tokens, m)
  glu(m); prelu(img, channels); rrelu(x); gumbel_softmax(m); threshold(x, 0, 1); hardtanh(x)
  embedding_bag(columns, m); soft_margin_loss(x, y); multilabel_soft_margin_loss(m, q:reshape(side, side))
  triplet_margin_loss(m, m2, m); pad(img, {1, 1, 1, 1}); pad(img, {1, 1, 1, 1}, {mode = "reflect"}); x:to(i.dtype)
  x:half(); x:double(); x:bfloat16(); x:fill_(1); kron(row, row)
  cross(points:narrow(1, 0, 3), points2:narrow(1, 0, 3)); bernoulli(q); multinomial(q, 100, {replacement = true})
  randperm(n); inverse(points:t():matmul(points)); diff(x); trapezoid(x); cov(points); renorm(m, 2, 0, 1)
  addmm(m, m, m2); baddbmm_one(m, m2)
  backward(embedding(tokens, g_m)); backward(embedding_bag(columns, g_m)); backward(gather(g_m, 1, columns))
  backward(index_select(g_x, 0, i)); backward(take(g_x, i)); backward(max_pool1d(g_seq, 2))
  backward(max_pool2d(g_img, 2)); backward(max_pool2d(g_img, 3, {stride = 1})); backward(max_pool3d(g_vol, 2))
  backward(avg_pool2d(g_img, 2)); backward(avg_pool2d(g_img, 3, {stride = 1})); backward(avg_pool3d(g_vol, 2))
  backward(adaptive_avg_pool2d(g_img, 7)); backward(adaptive_max_pool2d(g_img, 7)); backward(avg_pool1d(g_seq, 2))
  backward(layer_norm(g_m, row:shape(), g_row, g_row)); backward(rms_norm(g_m, row:shape(), g_row))
  backward(group_norm(g_img, 4, g_channels, g_channels)); backward(instance_norm(g_img))
  backward(batch_norm(g_img, channels, channels, g_channels, g_channels, true)); backward(norm(g_m, 2, 1))
  backward(normalize(g_m)); backward(softmax(g_m, 1)); backward(log_softmax(g_m, 1))
  backward(cross_entropy(g_m, classes)); backward(gelu(g_x)); backward(silu(g_x)); backward(relu(g_x))
  backward(sigmoid(g_x)); backward(tanh(g_x)); backward(pow(g_x, 2)); backward(mul(g_x, y)); backward(div(g_x, p))
  backward(dropout(g_x, 0.5)); backward(pad(g_img, {1, 1, 1, 1})); backward(cumsum(g_x, 0)); backward(amax(g_m, 1))
  backward(interpolate(g_img, {scale_factor = 2, mode = "bilinear"})); backward(grid_sample(g_img, grid))
  backward(mse_loss(g_x, y)); backward(sum(g_m, 0)); backward(mean(g_m, 1)); backward(var(g_m, 1))
]]

-- The same expression for Python.
local function python_of(row)
  local text = row:gsub("{([%a_][^{}]*=[^{}]*)}", "%1"):gsub("{", "["):gsub("}", "]")
  text = text:gsub("([%w_%]%)]):([%a_]+)%(", "%1.%2(")
  return (text:gsub("%f[%w]true%f[%W]", "True"):gsub("%f[%w]false%f[%W]", "False"))
end

local extras = {
  cat_pair = function(a, b) return accelhost.cat({a, b}, 0) end,
  stack_pair = function(a, b) return accelhost.stack({a, b}, 0) end,
  baddbmm_one = function(a, b) return accelhost.bmm(a:unsqueeze(0), b:unsqueeze(0)) end,
}

-- Compute gradients from ones, and drop them: their memory is free for the next ones, as in PyTorch.
local function backward(y, leaves)
  local ones = accelhost.ones_like(y)
  y:backward(ones)
  for _, leaf in ipairs(leaves) do
    local grad = leaf.grad
    leaf.grad = nil
    if grad then grad:free() end
  end
  ones:free()
  return y
end

local function field(from, name)
  local fine, value = pcall(function() return from[name] end)
  return fine and value or nil
end

local clock = options.threads > 1 and system.now or os.clock

-- Microseconds of an evaluation. `owned` has the inputs as keys.
local function time_of(row, environment, owned)
  local evaluate = setfenv(assert(loadstring("return " .. row)), environment)
  local fine, problem = pcall(evaluate)
  if not fine then return nil, problem end
  -- The memory of a result is free for the next op, as in PyTorch, instead of waiting for the garbage collector.
  local function release(...)
    for i = 1, select("#", ...) do
      local result = select(i, ...)
      if is_tensor(result) and not owned[result] then result:free() end
    end
  end
  local function run() release(evaluate()) end
  -- Compiled for all rows together, these would cost each call up to 0.6 us more than interpreted.
  for _, fn in ipairs {release, run, evaluate} do jit.off(fn) end
  run()
  local begin = clock()
  run()
  local rounds = math.max(1, math.min(200, math.floor(0.005 / (clock() - begin + 1e-7))))
  local best = math.huge
  for _ = 1, 3 do
    begin = clock()
    for _ = 1, rounds do run() end
    best = math.min(best, (clock() - begin) / rounds)
  end
  return best * 1e6
end

jit.off(time_of)

local function measure_ours()
  accelhost.set_num_threads(options.threads)
  accelhost.manual_seed(0)
  local given, owned = inputs(options.size), {}
  for _, value in pairs(given) do owned[value] = true end
  given.special = accelhost.special
  local leaves = {}
  for name, value in pairs(given) do
    if name:find "^g_" then leaves[#leaves + 1] = value end
  end
  function given.backward(y) return backward(y, leaves) end
  setmetatable(given, {__index = function(_, name)
    given[name] = extras[name] or field(F, name) or field(accelhost, name)
    return rawget(given, name)
  end})
  local times = {}
  accelhost.no_grad(function()
    for _, row in ipairs(rows) do
      local within = row:find "^backward" and accelhost.enable_grad or accelhost.no_grad
      local microseconds, problem = within(function() return time_of(row, given, owned) end)
      times[row] = microseconds
      if problem then io.stderr:write(row, ": ", tostring(problem):match "[^\n]*", "\n") end
    end
  end)
  return times
end

local function measure_peer()
  local name = os.tmpname()
  local file = assert(io.open(name, "w"))
  for _, row in ipairs(rows) do file:write(python_of(row), "\n") end
  file:close()
  local pipe = io.popen(("OMP_NUM_THREADS=%d python3 %s/peers/ops.py %d %s %d %s"):format(
    options.threads, here, options.size, name, options.threads, options.dtype))
  local times, at = {}, 0
  for line in pipe:lines() do
    at = at + 1
    times[rows[at]] = tonumber(line)
    if not times[rows[at]] then io.stderr:write("peer: ", rows[at], ": ", line, "\n") end
  end
  pipe:close()
  os.remove(name)
  return times
end

local ours, peer, all = {}, {}, rows
local function ratio(row) return ours[row] and peer[row] and ours[row] / peer[row] or 0 end
local function keep_minima(minima, times)
  for row, time in pairs(times) do minima[row] = math.min(time, minima[row] or math.huge) end
end
for turn = 1, options["repeat"] do
  if turn > 1 then -- rows that are far from the limit are measured once
    rows = {}
    for _, row in ipairs(all) do
      if ratio(row) >= 0.8 * options.only_over then rows[#rows + 1] = row end
    end
  end
  keep_minima(ours, measure_ours())
  if not options.no_peer then keep_minima(peer, measure_peer()) end
end
table.sort(all, function(a, b) return ratio(a) > ratio(b) end)
local title = ("us, %d elements of %s, %d threads"):format(options.size, options.dtype, options.threads)
print(("%-60s %12s %12s %8s"):format(title, "ours", "peer", "ratio"))
for _, row in ipairs(all) do
  if ratio(row) >= options.only_over then
    print(("%-60s %12.1f %12.1f %8.2f"):format(row, ours[row] or 0 / 0, peer[row] or 0 / 0, ratio(row)))
  end
end
