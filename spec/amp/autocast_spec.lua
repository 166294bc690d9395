--- Autocast: which op computes in which precision, blocks and islands, kept casts, gradients. Numbers of
--- scripts/fixtures/amp.py.
local accelhost = require "accelhost"
local fixture = require("spec.support.fixtures").load "amp"
local gradcheck = require "spec.support.gradcheck"

local nn, F, optim, autocast = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.autocast

-- Numbers that halves hold, the same in both languages.
local function grid(...)
  local count = 1
  for i = 1, select("#", ...) do count = count * select(i, ...) end
  return ((accelhost.arange(count) * 37 % 61):to "float32" / 16 - 1.75):reshape(...)
end

local function layer(make)
  accelhost.manual_seed(1)
  return make()
end

local function weighed(tensor)
  local flat = tensor:detach():to "float64":reshape(-1)
  return (flat * accelhost.arange(flat:numel(), {dtype = "float64"}):sin()):sum():item()
end

-- name -> a function of the fixture: `c` casts to the dtype of the inputs.
local function ops(c)
  local A, v, b, s = c(grid(4, 4)), c(grid(4)), c(grid(2, 4, 6, 6)), c(grid(2, 3, 8))
  local W, spd, q = grid(4, 4) / 4, c(accelhost.eye(4) * 4 + 1), c(grid(1, 2, 4, 8) / 2)
  local labels, ones4 = accelhost.tensor({0, 3, 1, 2}, {dtype = "int64"}), accelhost.ones(4)
  local target, sign = grid(4, 4):abs() % 1, accelhost.tensor{1, -1, 1, -1}
  local list = {
    matmul = function() return A:matmul(W) end,
    mm = function() return A:mm(W) end,
    bmm = function() return A:unsqueeze(0):bmm(W:unsqueeze(0)) end,
    addmm = function() return accelhost.addmm(W, A, W) end,
    baddbmm = function() return accelhost.baddbmm(W:unsqueeze(0), A:unsqueeze(0), W:unsqueeze(0)) end,
    addbmm = function() return accelhost.addbmm(W, A:unsqueeze(0), W:unsqueeze(0)) end,
    linear = function() return F.linear(A, W, ones4) end,
    conv1d = function() return F.conv1d(s, grid(2, 3, 3) / 4, ones4:narrow(0, 0, 2)) end,
    conv2d = function() return F.conv2d(b, grid(3, 4, 3, 3) / 4, ones4:narrow(0, 0, 3), {padding = 1}) end,
    conv3d = function() return F.conv3d(b:unsqueeze(0), grid(1, 2, 2, 3, 3) / 4) end,
    conv_transpose2d = function() return F.conv_transpose2d(b, grid(4, 2, 3, 3) / 4) end,
    conv_transpose1d = function() return F.conv_transpose1d(s, grid(3, 2, 3) / 4) end,
    prelu = function() return F.prelu(A, accelhost.tensor{0.25}) end,
    scaled_dot_product_attention = function() return F.scaled_dot_product_attention(q, q, q) end,
    einsum = function() return accelhost.einsum("ij,jk->ik", A, W) end,
    tensordot = function() return accelhost.tensordot(A, W, 1) end,
    inner = function() return accelhost.inner(A, W) end,
    vecdot = function() return accelhost.linalg.vecdot(v, grid(4)) end,
    multi_dot = function() return accelhost.linalg.multi_dot{A, W, A} end,
    outer = function() return accelhost.outer(v, grid(4)) end,
    softmax = function() return F.softmax(A, 1) end,
    log_softmax = function() return F.log_softmax(A, 1) end,
    exp = function() return A:exp() end,
    sum = function() return A:sum() end,
    relu = function() return F.relu(A) end,
    add = function() return A + W end,
    prod = function() return A:prod(1) end,
    trace = function() return A:trace() end,
    cdist = function() return accelhost.cdist(A, c(grid(4, 4) / 4)) end,
    quantile = function() return A:quantile(0.5) end,
    inverse = function() return accelhost.linalg.inv(spd) end,
    cholesky = function() return accelhost.linalg.cholesky(spd) end,
    solve = function() return accelhost.linalg.solve(spd, W) end,
    cross_entropy = function() return F.cross_entropy(A, labels) end,
    nll_loss = function() return F.nll_loss(A, labels) end,
    mse_loss = function() return F.mse_loss(A, target) end,
    l1_loss = function() return F.l1_loss(A, target) end,
    smooth_l1_loss = function() return F.smooth_l1_loss(A, target) end,
    huber_loss = function() return F.huber_loss(A, target) end,
    kl_div = function() return F.kl_div(A, target) end,
    poisson_nll_loss = function() return F.poisson_nll_loss(A, target) end,
    binary_cross_entropy = function() return F.binary_cross_entropy(A:sigmoid(), target) end,
    binary_cross_entropy_with_logits = function() return F.binary_cross_entropy_with_logits(A, target) end,
    margin_ranking_loss = function() return F.margin_ranking_loss(v, grid(4) / 2, sign) end,
    hinge_embedding_loss = function() return F.hinge_embedding_loss(v, sign) end,
    soft_margin_loss = function() return F.soft_margin_loss(v, sign) end,
    cosine_embedding_loss = function() return F.cosine_embedding_loss(A, target, sign) end,
    triplet_margin_loss = function() return F.triplet_margin_loss(A, target, target + 1) end,
    multi_margin_loss = function() return F.multi_margin_loss(A, labels) end,
    multilabel_margin_loss = function()
      return F.multilabel_margin_loss(A, accelhost.tensor({{0, -1, 2, 1}}, {dtype = "int64"}):expand(4, 4))
    end,
    grid_sample = function() return F.grid_sample(b, grid(2, 3, 3, 2) / 2, {align_corners = false}) end,
    pad_reflect = function() return F.pad(b, {1, 1, 1, 1}, {mode = "reflect"}) end,
    pad_replicate = function() return F.pad(b, {1, 1, 1, 1}, {mode = "replicate"}) end,
    pad_constant = function() return F.pad(b, {1, 1, 1, 1}) end,
    pad_circular = function() return F.pad(b, {1, 1, 1, 1}, {mode = "circular"}) end,
    max_pool2d = function() return F.max_pool2d(b, 2) end,
    avg_pool2d = function() return F.avg_pool2d(b, 2) end,
    max_pool3d = function() return F.max_pool3d(b:unsqueeze(0), 2) end,
    avg_pool3d = function() return F.avg_pool3d(b:unsqueeze(0), 2) end,
    adaptive_avg_pool3d = function() return F.adaptive_avg_pool3d(b:unsqueeze(0), 2) end,
    max_unpool2d = function()
      local values, places = F.max_pool2d(b, 2, {return_indices = true})
      return F.max_unpool2d(values, places, 2)
    end,
    interpolate = function() return F.interpolate(b, {scale_factor = 2}) end,
    layer_norm = function() return F.layer_norm(b, {6}, grid(6), grid(6)) end,
    group_norm = function() return F.group_norm(b, 2, grid(4), grid(4)) end,
    batch_norm = function() return F.batch_norm(b, accelhost.zeros(4), ones4:clone(), grid(4), grid(4), true) end,
    rms_norm = function() return F.rms_norm(b, {6}, grid(6)) end,
    embedding = function() return F.embedding(labels, W) end,
    cat = function() return accelhost.cat{A, W} end,
    stack = function() return accelhost.stack{A, W} end,
    index_copy = function()
      return accelhost.index_copy(A, 0, accelhost.tensor({1}, {dtype = "int64"}), grid(1, 4))
    end,
    mv = function() return c(W):mv(v) end,
    dot = function() return v:dot(c(grid(4) / 2)) end,
    addmm_ = function() return A:clone():addmm_(c(W), c(W)) end,
    TransformerEncoderLayer = function()
      return layer(function() return nn.TransformerEncoderLayer(8, 2, 16, 0, {batch_first = true}) end)(s)
    end,
  }
  for _, kind in ipairs {"LSTM", "GRU", "RNN"} do
    list[kind] = function() return (layer(function() return nn[kind](8, 4) end)(s)) end
    list[kind .. "Cell"] = function() return (layer(function() return nn[kind .. "Cell"](8, 4) end)(s:select(0, 0))) end
  end
  return list
end

-- Tolerances of a sum of many fp16 or bf16 numbers that is rounded at other places.
local slack = {bfloat16 = 0.03, float16 = 0.004}

for _, dtype in ipairs {"bfloat16", "float16"} do
  describe("autocast to " .. dtype, function()
    for at, inputs in ipairs {"float32", dtype} do
      it(("returns PyTorch's dtypes and, but for rounding, its numbers on %s inputs"):format(inputs), function()
        local list = ops(function(tensor) return tensor:to(inputs) end)
        for name, rows in pairs(fixture[dtype]) do
          local expected = rows[at]
          if expected then
            local result = autocast("cpu", {dtype = dtype}, list[name])
            assert.equal(name .. " " .. expected[1], name .. " " .. result.dtype)
            local room = (expected[1] == "float32" and inputs == "float32" and 1e-5 or slack[dtype])
            if name:find "Cell$" or name == "GRU" or name:find "Transformer" then room = slack[dtype] end
            local difference = math.abs(weighed(result) - expected[2]) / math.max(1, math.abs(expected[2]))
            assert.truthy(difference <= room, ("%s: %g instead of %g"):format(name, weighed(result), expected[2]))
          end
        end
      end)
    end

    it("covers every case of the fixture", function()
      local list = ops(function(tensor) return tensor end)
      for name in pairs(fixture[dtype]) do assert.truthy(list[name], name) end
      for name in pairs(list) do assert.truthy(fixture[dtype][name], name) end
    end)
  end)
end

local Small = nn.Module:extend "Small"

function Small:init()
  self.conv, self.bn = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
  self.fc1, self.norm, self.fc2 = nn.Linear(36, 16), nn.LayerNorm(16), nn.Linear(16, 4)
end

function Small:forward(x)
  x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
  return self.fc2(self.norm(F.relu(self.fc1(x:flatten(1)))))
end

describe("training in mixed precision", function()
  for dtype, expected in pairs(fixture.train) do
    it("has PyTorch's losses within the rounding of " .. dtype, function()
      accelhost.manual_seed(5)
      local model = Small()
      local optimizer = optim.SGD(model:parameters(), {lr = 0.05, momentum = 0.9})
      local x, y = accelhost.randn(8, 1, 8, 8), accelhost.arange(8) % 4
      local scaler = accelhost.amp.GradScaler("cpu",
        {init_scale = 2 ^ 10, growth_interval = 3, enabled = dtype == "float16"})
      for step, wanted in ipairs(expected.losses) do
        local loss = autocast("cpu", {dtype = dtype}, function() return F.cross_entropy(model(x), y) end)
        optimizer:zero_grad()
        scaler:scale(loss):backward()
        for name, parameter in model:named_parameters() do assert.equal("float32", parameter.grad.dtype, name) end
        scaler:step(optimizer)
        scaler:update()
        assert.near(wanted, loss:item(), slack[dtype], "step " .. step)
      end
      assert.equal(expected.scale, scaler:get_scale())
    end)
  end
end)

describe("an autocast block", function()
  local a = grid(4, 4)
  local function product() return a:mm(a).dtype end

  it("nests, with islands and other dtypes, and reports its state", function()
    local seen = autocast("cpu", function()
      assert.is_true(accelhost.is_autocast_enabled "cpu")
      local island = autocast("cpu", {enabled = false}, function()
        assert.is_false(accelhost.is_autocast_enabled())
        return {product(), autocast("cpu", product)}
      end)
      local half = autocast("cpu", "float16", function() return {product(), accelhost.get_autocast_dtype "cpu"} end)
      return {product(), island[1], island[2], half[1], half[2], product()}
    end)
    assert.same({"bfloat16", "float32", "bfloat16", "float16", "float16", "bfloat16"}, seen)
    assert.equal("float32", product())
    assert.equal("bfloat16", accelhost.get_autocast_dtype())
  end)

  it("passes arguments and all results on, nils included", function()
    local function count(...) return select("#", ...), ... end
    local counted, first, second, third = autocast("cpu", count, 1, nil, 2)
    assert.same({3, 1, 2, true}, {counted, first, third, second == nil})
    assert.equal("bfloat16", autocast("cpu", nn.Linear(4, 4), a).dtype)
  end)

  it("ends with an error, too", function()
    assert.has_error(function() autocast("cpu", function() error("stop", 0) end) end, "stop")
    assert.is_false(accelhost.is_autocast_enabled())
    assert.equal("float32", product())
  end)

  it("does not cast float64, integers and in-place ops", function()
    autocast("cpu", function()
      local wide, whole = a:to "float64", a:to "int64"
      assert.equal("float64", wide:mm(wide).dtype)
      assert.equal("int64", whole:mm(whole).dtype)
      assert.equal("float32", a:clone():addmm_(a, a).dtype)
      assert.equal("float64", accelhost.cat{wide, a}.dtype)
    end)
  end)

  it("refuses unknown arguments", function()
    local fn = function() end
    assert.error_matches(function() autocast("meta", fn) end, "autocast: device_type: expected 'cpu'.* got 'meta'")
    assert.error_matches(function() autocast("cpu", {dtype = "float64"}, fn) end,
      "autocast: dtype: expected bfloat16 or float16, got float64")
    assert.error_matches(function() autocast("cpu", {dtype = "bfloat16"}) end, "autocast: expected a function to run")
    assert.error_matches(function() autocast("cpu", {dtpye = "bfloat16"}, fn) end, "dtpye")
    assert.error_matches(function() accelhost.set_autocast_dtype("cpu", "int64") end, "expected bfloat16 or float16")
  end)

  it("can be set for the ops that follow", function()
    accelhost.set_autocast_enabled("cpu", true)
    accelhost.set_autocast_dtype("cpu", "float16")
    local seen = product()
    accelhost.set_autocast_enabled("cpu", false)
    accelhost.set_autocast_dtype("cpu", "bfloat16")
    assert.same({"float16", "float32"}, {seen, product()})
  end)
end)

describe("a weight under autocast", function()
  local x = grid(4, 4)

  local function casts(options, fn)
    local weight = nn.Parameter(grid(4, 4))
    local first, second
    autocast("cpu", options, function()
      first = F.linear(x, weight)
      if fn then fn(weight) end
      second = F.linear(x, weight)
    end)
    return first, second, weight
  end

  it("is cast once in a block, and its gradient is the sum over its uses", function()
    local first, second, weight = casts()
    local single = nn.Parameter(grid(4, 4))
    autocast("cpu", function() return F.linear(x, single) end):sum():backward()
    first:sum():backward()
    second:sum():backward()
    assert.equal("float32", weight.grad.dtype)
    assert.is_true(accelhost.allclose(weight.grad, single.grad * 2))
  end)

  it("is cast again when it was changed in between", function()
    local first, second = casts({}, function(weight) accelhost.no_grad(function() weight:zero_() end) end)
    assert.is_true(first:abs():sum():item() > 0)
    assert.equal(0, second:abs():sum():item())
  end)

  it("gets its gradient though it was first used under no_grad", function()
    local weight = nn.Parameter(grid(4, 4))
    local loss = autocast("cpu", function()
      accelhost.no_grad(function() F.linear(x, weight) end)
      return F.linear(x, weight):sum()
    end)
    loss:backward()
    assert.is_true(weight.grad ~= nil)
  end)

  it("is cast at each use without the cache", function()
    local _, second = casts({cache_enabled = false}, function(weight) weight.data:zero_() end)
    assert.equal(0, second:abs():sum():item())
    local _, kept = casts({cache_enabled = true}, function(weight) weight.data:zero_() end)
    assert.is_true(kept:abs():sum():item() > 0) -- t.data counts its writes apart
    autocast("cpu", function()
      assert.is_true(accelhost.is_autocast_cache_enabled())
      accelhost.clear_autocast_cache()
    end)
  end)

  it("is cast as products use it, once in a block, and has its gradient through that", function()
    local lower = require("accelhost._C").autocast.lower
    local weight, whole = nn.Parameter(grid(4, 4)), accelhost.arange(3)
    assert.equal(weight, lower(weight))
    local loss = autocast("cpu", {dtype = "bfloat16"}, function()
      local half = lower(weight)
      assert.equal("bfloat16", half.dtype)
      assert.equal(half, lower(weight))
      assert.equal(half, lower(half))
      assert.equal(whole, lower(whole))
      assert.equal("float64", lower(x:double()).dtype)
      return F.linear(x, half:t()):float():sum() + F.linear(x, weight):float():sum()
    end)
    loss:backward()
    local sums = x:sum(0)
    for i = 0, 3 do
      for j = 0, 3 do
        assert.is_true(math.abs(sums[i]:item() + sums[j]:item() - weight.grad[i][j]:item()) < 0.1)
      end
    end
  end)

  it("is kept for hundreds of weights", function()
    local weights, outputs = {}, {}
    for i = 1, 300 do weights[i] = nn.Parameter(grid(2, 4) * i) end
    autocast("cpu", function()
      for _ = 1, 2 do
        for i, weight in ipairs(weights) do outputs[i] = F.linear(x, weight) end
      end
    end)
    for i, weight in ipairs(weights) do
      assert.is_true(accelhost.allclose(outputs[i]:to "float32", F.linear(x, weight), {rtol = 0.02, atol = 0.02 * i}))
    end
  end)
end)

describe("gradients under autocast", function()
  it("are computed in the dtypes of the forward, wherever backward runs", function()
    local weight, x = nn.Parameter(grid(4, 4)), grid(4, 4)
    local loss
    accelhost.autocast("cpu", {enabled = false}, function() loss = F.linear(x, weight):pow(2):sum() end)
    loss:backward()
    local plain = weight.grad:clone()
    weight.grad = nil
    accelhost.autocast("cpu", function()
      loss = autocast("cpu", {enabled = false}, function() return F.linear(x, weight):pow(2):sum() end)
      loss:backward()
    end)
    assert.is_true(accelhost.equal(plain, weight.grad))
  end)

  it("can be differentiated again", function()
    local x = grid(3, 3):requires_grad_()
    local y = autocast("cpu", function() return x:mm(x):to "float32":pow(2):sum() end)
    local first = accelhost.autograd.grad(y, {x}, {create_graph = true})[1]
    local second = accelhost.autograd.grad(first:sum(), {x})[1]
    local plain = x:mm(x):pow(2):sum()
    local exact = accelhost.autograd.grad(accelhost.autograd.grad(plain, {x}, {create_graph = true})[1]:sum(), {x})[1]
    assert.equal("float32", second.dtype)
    assert.is_true(accelhost.allclose(second, exact, {rtol = 0.05, atol = 0.5}))
  end)

  it("of a mixed normalisation are right, and those of its parameters float32", function()
    local weight, bias = grid(6):requires_grad_(), grid(6):requires_grad_()
    local x = grid(4, 6):to "bfloat16":requires_grad_()
    F.layer_norm(x, {6}, weight, bias):to "float32":pow(2):sum():backward()
    local wide, exact = x:detach():to "float32":requires_grad_(), grid(6):requires_grad_()
    F.layer_norm(wide, {6}, exact, bias:detach()):pow(2):sum():backward()
    assert.same({"bfloat16", "float32"}, {x.grad.dtype, weight.grad.dtype})
    assert.is_true(accelhost.allclose(weight.grad, exact.grad, {rtol = 0.02, atol = 0.1}))
    assert.is_true(accelhost.allclose(x.grad:to "float32", wide.grad, {rtol = 0.02, atol = 0.1}))
  end)

  it("through checkpoint are those without it", function()
    local weight, x = nn.Parameter(grid(4, 4)), grid(4, 4)
    local function block(input) return F.linear(input, weight):relu() end
    autocast("cpu", block, x):sum():backward()
    local plain = weight.grad:clone()
    weight.grad = nil
    autocast("cpu", accelhost.utils.checkpoint.checkpoint, block, x:clone():requires_grad_()):sum():backward()
    assert.is_true(accelhost.equal(plain, weight.grad))
  end)

  it("are right in float64 inside a block", function()
    local x = (grid(3, 3) / 2):to "float64":requires_grad_()
    assert.is_true(autocast("cpu", gradcheck.gradcheck, function(input) return input:mm(input) end, {x}))
  end)
end)

describe("linear maps of many rows under autocast", function()
  -- The result and the gradients of a call with float32 tensors under autocast, or of their copies in bfloat16.
  local function both(call, x, w, b)
    local function one(run, cast)
      local leaf = {}
      for i, t in ipairs {x, w, b} do leaf[i] = t:detach():clone():requires_grad_() end
      local y = run(call, cast(leaf[1]), cast(leaf[2]), leaf[3] and cast(leaf[3]))
      accelhost.manual_seed(7)
      y:backward(accelhost.randn(y:shape()):to "bfloat16")
      local made = {y}
      for i, t in ipairs(leaf) do made[i + 1] = t.grad end
      return made
    end
    local function plain(fn, ...) return fn(...) end
    local function same(t) return t end
    return one(function(...) return autocast("cpu", {dtype = "bfloat16"}, ...) end, same),
      one(plain, function(t) return t:to "bfloat16" end)
  end

  local function near(expected, got)
    for i, tensor in ipairs(expected) do
      assert.equal(i == 1 and "bfloat16" or "float32", got[i].dtype)
      local wide = tensor:float()
      assert.is_true((wide - got[i]:float()):abs():max():item() <= 0.01 * wide:abs():max():item(), "tensor " .. i)
    end
  end

  it("are those of weights in bfloat16, with gradients in float32", function()
    accelhost.manual_seed(1)
    local C, r = require "accelhost._C", accelhost.randn
    for _, shape in ipairs {{64, 64, 64}, {70, 33, 31}, {100, 1, 5}, {65, 50, 2049}, {130, 129, 257}, {64, 7, 1}} do
      local rows, out, width = unpack(shape)
      near(both(F.linear, r(rows, width), r(out, width), r(out)))
      near(both(F.linear, r(2, rows, width), r(out, width)))
      near(both(function(x, w) return F.linear(x:t(), w) end, r(width, rows), r(out, width)))
      near(both(function(x, w) return F.linear(x, w:t()) end, r(rows, width), r(width, out)))
      near(both(function(x, w, b) return (C.linear_gelu(x, w, b)) end, r(rows, width), r(out, width), r(out)))
      near(both(function(x, w, b) return C.gelu_linear(x, w, b, "tanh") end, r(rows, width), r(out, width), r(out)))
      near(both(function(x, w, b) return C.gelu_linear(x:t(), w, b, "none") end, r(width, rows), r(out, width), r(out)))
      near(both(function(x, w) return C.linear_of_gelu(F.gelu(x, {approximate = "tanh"}), x, w) end, r(rows, width),
        r(out, width)))
    end
  end)

  it("have the same bits for any number of threads", function()
    accelhost.manual_seed(2)
    local x, w, b = accelhost.randn(300, 190), accelhost.randn(210, 190), accelhost.randn(210)
    local before, first = accelhost.get_num_threads(), nil
    for threads = 1, 3 do
      accelhost.set_num_threads(threads)
      local made = both(F.linear, x, w, b)
      first = first or made
      for i, tensor in ipairs(made) do assert.is_true(accelhost.equal(first[i], tensor), "tensor " .. i) end
    end
    accelhost.set_num_threads(before)
  end)

  it("add their gradients, also of a table that is shared, and have second derivatives", function()
    accelhost.manual_seed(3)
    local table_of = accelhost.randn(40, 24):requires_grad_()
    local words = accelhost.randint(0, 40, {80})
    local function loss() return F.linear(F.embedding(words, table_of), table_of):float():pow(2):mean() end
    autocast("cpu", {dtype = "bfloat16"}, loss):backward()
    local once = table_of.grad:clone()
    autocast("cpu", {dtype = "bfloat16"}, loss):backward()
    assert.is_true(accelhost.allclose(table_of.grad, once * 2, {rtol = 1e-4, atol = 1e-6}))
    local exact = accelhost.autograd.grad(loss(), {table_of})[1]
    assert.is_true((exact - once):abs():max():item() <= 0.02 * exact:abs():max():item())

    local x, w = accelhost.randn(64, 8):requires_grad_(), accelhost.randn(5, 8):requires_grad_()
    local function slope(run)
      local y = run(F.linear, x, w):float():pow(3):sum()
      local first = accelhost.autograd.grad(y, {x, w}, {create_graph = true})
      return accelhost.autograd.grad(first[1]:pow(2):sum() + first[2]:pow(2):mean(), {x, w})
    end
    local wide = slope(function(fn, ...) return fn(...) end)
    for i, got in ipairs(slope(function(...) return autocast("cpu", {dtype = "bfloat16"}, ...) end)) do
      assert.is_true((got - wide[i]):abs():max():item() <= 0.05 * wide[i]:abs():max():item(), "gradient " .. i)
    end
  end)

  it("outside a block refuse a weight of another dtype", function()
    assert.error_matches(function() F.linear(accelhost.ones(64, 4):bfloat16(), accelhost.ones(3, 4)) end,
      "linear: dtypes differ: bfloat16 and float32")
    local C = require "accelhost._C"
    assert.error_matches(function() C.matmul_rounded(accelhost.ones(3, 4), accelhost.ones(4, 2)) end,
      "matmul_rounded: expected bfloat16 and float32, got float32 and float32")
    assert.error_matches(function() C.matmul_rounded(accelhost.ones(3, 4):bfloat16(), accelhost.ones(3, 2)) end,
      "matmul_rounded: expected rows and a matrix, got %(3, 4%) x %(3, 2%)")
  end)
end)

describe("a function with its own rule under autocast", function()
  local function square(options)
    local Square, seen = accelhost.autograd.Function:extend "Square", {}
    Square.forward = accelhost.amp.custom_fwd(function(ctx, x)
      ctx:save_for_backward(x)
      seen.forward, seen.input, seen.product = accelhost.is_autocast_enabled(), x.dtype, x:mm(x).dtype
      return x * x
    end, options)
    Square.backward = accelhost.amp.custom_bwd(function(ctx, grad)
      local x = ctx.saved_tensors[1]
      seen.backward, seen.gradient = accelhost.is_autocast_enabled(), x:mm(x).dtype
      return grad * x * 2
    end)
    return Square, seen
  end

  it("runs its backward in the precision of its forward", function()
    local Square, seen = square()
    local x = grid(3, 3):requires_grad_()
    autocast("cpu", {dtype = "float16"}, Square.apply, x):sum():backward()
    assert.same({forward = true, input = "float32", product = "float16", backward = true, gradient = "float16"}, seen)
    assert.is_true(accelhost.equal(x.grad, x:detach() * 2))
  end)

  it("gets its inputs in cast_inputs, with autocast off", function()
    local Square, seen = square {cast_inputs = "float32"}
    local x = grid(3, 3):to "bfloat16":requires_grad_()
    autocast("cpu", Square.apply, x):sum():backward()
    assert.same({forward = false, input = "float32", product = "float32", backward = false, gradient = "float32"}, seen)
    local plain
    Square, plain = square {cast_inputs = "float32"}
    Square.apply(x)
    assert.equal("bfloat16", plain.input)
  end)
end)
