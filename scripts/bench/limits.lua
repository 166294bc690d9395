--- Shares of this machine's limits that ops and training steps reach on one thread: ops that memory binds next to a
--- copy, steps next to the peak of a product. Two tables in Markdown.
--
-- usage: accelhost scripts/bench/limits.lua [--rows PATTERN] [--repeat 3] [--no_peer]
--
-- Bytes are those that an op must read and write, each tensor once; tensors are larger than the caches. Operations are
-- the multiplications and additions of products and convolutions as they are defined, so that a filtering with fewer
-- of them may exceed the peak. Times are minima of processor time; the peer is PyTorch (peers/limits.py).
local accelhost = require "accelhost"
local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/ours/?.lua;" .. package.path
local nets = require "nets"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim

local options = accelhost.parse_args {
  description = "Measures ops and training steps next to the machine's limits.",
  {"rows", "", "a Lua pattern: which rows"},
  {"repeat", 3, "rounds, in turn with the peer's", integer = true, minimum = 1},
  {"no_peer", false, "our side only"},
}
accelhost.set_num_threads(1)

local function seconds_of(run, least)
  run()
  local best, spent, rounds = math.huge, 0, 0
  while spent < least or rounds < 3 do
    local begin = os.clock()
    run()
    local time = os.clock() - begin
    best, spent, rounds = math.min(best, time), spent + time, rounds + 1
  end
  return best
end

local ROWS, WIDTH, WORDS = 16384, 1024, 50257
local MIB = 2 ^ 20

-- {row, bytes, make() -> run}; the runs of peers/limits.py have the same names.
local memory_rows = {
  {"copy", 8 * ROWS * WIDTH, function(x)
    local y = accelhost.empty_like(x)
    return function() y:copy_(x) end
  end},
  {"layer_norm", 8 * ROWS * WIDTH, function(x)
    local layer = nn.LayerNorm(WIDTH)
    return function() layer(x):free() end
  end},
  {"softmax", 8 * ROWS * WIDTH, function(x) return function() F.softmax(x, 1):free() end end},
  {"gelu", 8 * ROWS * WIDTH, function(x) return function() F.gelu(x):free() end end},
  {"dropout", 8 * ROWS * WIDTH, function(x) return function() F.dropout(x, 0.1):free() end end},
}
-- {row, bytes of the gradient alone, make() -> leaf, forward}
local gradient_rows = {
  {"gradient of layer_norm", 12 * ROWS * WIDTH, function(x)
    local layer = nn.LayerNorm(WIDTH)
    return x, function(leaf) return layer(leaf) end
  end},
  {"gradient of softmax", 12 * ROWS * WIDTH, function(x) return x, function(leaf) return F.softmax(leaf, 1) end end},
  {"gradient of gelu", 12 * ROWS * WIDTH, function(x) return x, F.gelu end},
  {"gradient of dropout", 8 * ROWS * WIDTH, function(x) return x, function(leaf) return F.dropout(leaf, 0.1) end end},
}

local function gradient_run(leaf, forward, arrived)
  leaf = leaf:detach():requires_grad_()
  return function()
    local y = forward(leaf)
    local begin = os.clock()
    y:backward(arrived)
    local time = os.clock() - begin
    leaf.grad:free()
    leaf.grad = nil
    return time
  end
end

-- The best time that `run` returns of itself.
local function best_of(run, count)
  local best = math.huge
  run()
  for _ = 1, count do best = math.min(best, run()) end
  return best
end

-- The loss of a vocabulary with its gradient: the logits are read twice and their gradient is written.
local function cross_entropy_run()
  local logits = accelhost.randn(512, WORDS):requires_grad_()
  local labels = accelhost.randint(0, WORDS, {512})
  return function()
    F.cross_entropy(logits, labels):backward()
    logits.grad:free()
    logits.grad = nil
  end
end

-- The gradient of a table of words in the arena of a prepared model: the table is written.
local function embedding_run()
  local accelerator = accelhost.Accelerator {cpu = true}
  local table_ = accelerator:prepare(nn.Embedding(WORDS, 512))
  local ids, arrived = accelhost.randint(0, WORDS, {1024}), accelhost.randn(1024, 512)
  return function()
    table_:zero_grad()
    local y = table_(ids)
    local begin = os.clock()
    y:backward(arrived)
    return os.clock() - begin
  end
end

-- Clipping and AdamW: gradients are read twice; parameters and two averages are read and written.
local function adamw_run()
  local weight = nn.Parameter(accelhost.randn(ROWS, WIDTH))
  local optimizer = optim.AdamW({weight}, {lr = 1e-3})
  weight.grad = accelhost.randn(ROWS, WIDTH)
  return function()
    nn.utils.clip_grad_norm_({weight}, 1)
    optimizer:step()
  end
end

local function memory_times()
  local times, x = {}, accelhost.randn(ROWS, WIDTH)
  local function wanted(name) return name == "copy" or name:find(options.rows) end
  accelhost.no_grad(function()
    for _, row in ipairs(memory_rows) do
      if wanted(row[1]) then times[row[1]] = seconds_of(row[3](x), 0.3) end
    end
  end)
  for _, row in ipairs(gradient_rows) do
    if wanted(row[1]) then
      local leaf, forward = row[3](x)
      times[row[1]] = best_of(gradient_run(leaf, forward, x), 8)
    end
  end
  if wanted "cross_entropy and gradient" then
    times["cross_entropy and gradient"] = seconds_of(cross_entropy_run(), 0.5)
  end
  if wanted "gradient of embedding" then times["gradient of embedding"] = best_of(embedding_run(), 10) end
  if wanted "clipping and AdamW" then times["clipping and AdamW"] = seconds_of(adamw_run(), 0.5) end
  return times
end

local table_rows = {}
for _, row in ipairs(memory_rows) do table_rows[#table_rows + 1] = {row[1], row[2]} end
for _, row in ipairs(gradient_rows) do table_rows[#table_rows + 1] = {row[1], row[2]} end
table_rows[#table_rows + 1] = {"cross_entropy and gradient", 12 * 512 * WORDS}
table_rows[#table_rows + 1] = {"gradient of embedding", 4 * WORDS * 512}
table_rows[#table_rows + 1] = {"clipping and AdamW", 32 * ROWS * WIDTH}

local function peer_times()
  local times = {}
  if options.no_peer then return times end
  local command = "OMP_NUM_THREADS=1 build/bench-env/bin/python3 %s/peers/limits.py '%s'"
  local pipe = io.popen(command:format(here, options.rows))
  for line in pipe:lines() do
    local name, value = line:match "^(.-)\t(%S+)$"
    if name then times[name] = tonumber(value) end
  end
  pipe:close()
  return times
end

local function keep_minima(minima, times)
  for name, time in pairs(times) do minima[name] = math.min(time, minima[name] or math.huge) end
end

local ours, peers = {}, {}
for _ = 1, options["repeat"] do
  keep_minima(ours, memory_times())
  keep_minima(peers, peer_times())
end
local copy_rate = 8 * ROWS * WIDTH / ours.copy
print(("A copy moves %.1f GB/s.\n"):format(copy_rate / 1e9))
print "| | MiB | ours, ms | PyTorch, ms | limit, ms | share of the copy's rate |"
print "| --- | --- | --- | --- | --- | --- |"
for _, row in ipairs(table_rows) do
  local name, bytes = row[1], row[2]
  local time, limit = ours[name], bytes / copy_rate
  if time and name ~= "copy" then
    print(("| %s | %d | %.1f | %s | %.1f | %.0f %% |"):format(name, bytes / MIB, 1e3 * time,
      peers[name] and ("%.1f"):format(1e3 * peers[name]) or "-", 1e3 * limit, 100 * limit / time))
  end
end

-- The best rate of a product, in operations a second.
local function product_peak(dtype)
  local best = 0
  for _, size in ipairs {512, 1024, 2048} do
    local a, b = accelhost.randn(size, size):to(dtype), accelhost.randn(size, size):to(dtype)
    best = math.max(best, 2 * size ^ 3 / seconds_of(function() (a:matmul(b)):free() end, 0.3))
  end
  return best
end

-- The operations of a step of a linear map: forward, gradient of the weight and, unless it is the first, of the input.
local function linear(rows, inputs, outputs, is_first) return (is_first and 4 or 6) * rows * inputs * outputs end
-- Of attention: two products forward, four backward; `part` of the scores is computed.
local function attention(count, tokens, width, part) return 12 * count * tokens ^ 2 * width * part end
local function transformer(layers, count, tokens, width, part)
  return layers * (linear(count * tokens, width, 12 * width) + attention(count, tokens, width, part))
end

local step_rows = {
  {"bert_tiny", transformer(2, 32, 64, 128, 1)},
  {"gpt", transformer(6, 12, 256, 384, 0.5) + linear(12 * 256, 384, 65)},
  {"char_gpt", transformer(4, 16, 128, 128, 0.5) + linear(16 * 128, 128, 65)},
  {"mnist_cnn", linear(64 * 26 ^ 2, 9, 32, true) + linear(64 * 24 ^ 2, 9 * 32, 64) + linear(64, 9216, 128)},
}

local function step_run(name)
  local net = nets[name]
  accelhost.manual_seed(1)
  local accelerator = accelhost.Accelerator {cpu = true}
  local model = net.make()
  local optimizer
  model, optimizer = accelerator:prepare(model, optim.AdamW(model:parameters(), {lr = 1e-3}))
  local input, labels = net.batch()
  return function()
    local loss = net.loss(model, input, labels)
    optimizer:zero_grad()
    accelerator:backward(loss)
    optimizer:step()
  end
end

local peak = product_peak "float32"
print(("\nA product reaches %.0f GFLOP/s in float32, %.0f in bfloat16.\n"):format(peak / 1e9,
  product_peak "bfloat16" / 1e9))
print "| step | GFLOP | ms | GFLOP/s | share of the peak |\n| --- | --- | --- | --- | --- |"
for _, row in ipairs(step_rows) do
  local name, operations = row[1], row[2]
  if name:find(options.rows) then
    local time = seconds_of(step_run(name), 2)
    print(("| %s | %.2f | %.1f | %.0f | %.0f %% |"):format(name, operations / 1e9, 1e3 * time,
      operations / time / 1e9, 100 * operations / time / peak))
  end
end
