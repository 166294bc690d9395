--- Attention on a card by each of its ways, on shapes of language models: largest errors against float64 on the CPU, of
--- output and gradients of query, key and value, and microseconds, forward and with backward.
--- usage: accelhost scripts/gpu/attention.lua [own] [forward] [cudnn] [unordered] (default: all four)
---
--- Each way ($ACCELHOST_CUDA_ATTENTION) is a separate process. "path" names the kernels that ran, forward and
--- backward: own where the bits are those of the way own, or of forward, whose gradients are by the program's own
--- kernels; cuDNN elsewhere, and ? where the ways to compare with were not requested. "same": a second run returned the
--- same bits. Errors are relative to the largest element. The exit status is 1 when one exceeds 0.02, or a way that
--- adds up in a fixed order did not return the same bits.
local accelhost = require "accelhost"
local F = accelhost.nn.functional

local simulated = os.getenv "ACCELHOST_CUDA" == "sim"

-- Batch, heads, heads of keys, queries, keys, width. packed: views of one (batch, tokens, 3, heads, width). Errors are
-- of the first batch and the first heads alone, so that the CPU keeps up.
local cases = {
  {"gpt2", 16, 12, 12, 1024, 1024, 64, causal = true},
  {"gpt2 packed", 16, 12, 12, 1024, 1024, 64, causal = true, packed = true},
  {"gpt2 float16", 16, 12, 12, 1024, 1024, 64, causal = true, dtype = "float16"},
  {"not causal", 16, 12, 12, 1024, 1024, 64},
  {"width 128", 4, 16, 16, 2048, 2048, 128, causal = true},
  {"width 256", 2, 8, 8, 1024, 1024, 256, causal = true},
  {"grouped", 4, 16, 4, 1024, 1024, 128, causal = true},
  {"unequal", 8, 12, 12, 256, 1024, 64},
  {"odd lengths", 8, 12, 12, 197, 197, 64},
}
if simulated then
  cases = {
    {"small", 2, 2, 2, 64, 64, 16, causal = true},
    {"small packed", 2, 2, 2, 64, 64, 16, causal = true, packed = true},
    {"small grouped", 2, 4, 2, 64, 128, 16},
  }
end

local function draw(case)
  local _, b, h, g, l, s, e = unpack(case)
  local dtype = case.dtype or "bfloat16"
  accelhost.manual_seed(1)
  local function normal(shape) return accelhost.randn(shape, {device = "cpu"}):to(dtype) end
  if case.packed then return {normal {b, l, 3, h, e}}, normal {b, h, l, e} end
  return {normal {b, h, l, e}, normal {b, g, s, e}, normal {b, g, s, e}}, normal {b, h, l, e}
end

local function attend(case, leaves)
  local q, k, v = leaves[1], leaves[2], leaves[3]
  if case.packed then
    q, k, v = q:select(2, 0):transpose(1, 2), q:select(2, 1):transpose(1, 2), q:select(2, 2):transpose(1, 2)
  end
  return F.scaled_dot_product_attention(q, k, v, {is_causal = case.causal, enable_gqa = case[3] ~= case[4]})
end

-- The output and the gradients of query, key and value, as (batch, heads, tokens, width), where they were computed.
local function results(case, given, grad)
  local leaves = {}
  for i, t in ipairs(given) do leaves[i] = t:detach():requires_grad_() end
  local y = attend(case, leaves)
  y:backward(grad)
  local out = {y:detach()}
  for i, t in ipairs(leaves) do out[i + 1] = t.grad end
  if case.packed then
    local packed = out[2]
    for i = 0, 2 do out[i + 2] = packed:select(2, i):transpose(1, 2) end
  end
  return out
end

-- One sequence, and the heads of the first group.
local function first(case, t, of_keys)
  local heads = of_keys and 1 or case[3] / case[4]
  return t:narrow(0, 0, 1):narrow(1, 0, heads):to "cpu"
end

local function errors(case, given, grad, there)
  local small = {}
  if case.packed then
    for i = 0, 2 do small[i + 1] = first(case, given[1]:select(2, i):transpose(1, 2)):to "float64" end
  else
    for i = 1, 3 do small[i] = first(case, given[i], i > 1):to "float64" end
  end
  local like = {causal = case.causal, [3] = case[3] / case[4], [4] = 1}
  local here, all = results(like, small, first(case, grad):to "float64"), {}
  for i, t in ipairs(here) do
    local off = (t - first(case, there[i], i > 2):to "float64"):abs():max() / t:abs():max()
    all[i] = ("%.1e"):format(off:item())
  end
  return table.concat(all, " ")
end

local function microseconds(fn)
  local runs = simulated and 1 or 50
  for _ = 1, simulated and 0 or 5 do fn() end
  accelhost.synchronize "cuda"
  local event = accelhost.cuda.Event
  local from, to = event {enable_timing = true}, event {enable_timing = true}
  from:record()
  for _ = 1, runs do fn() end
  to:record()
  accelhost.synchronize "cuda"
  return from:elapsed_time(to) / runs * 1000
end

-- A number that other bits would change, of the output and of all gradients.
local function marks(there)
  local of = {}
  for i, t in ipairs(there) do
    local numbers = t:to "float64"
    of[i] = (numbers * accelhost.arange(numbers:numel(), {device = "cuda"}):to "float64":reshape(numbers:shape()))
      :sum():item()
  end
  return ("%.17g"):format(of[1]), ("%.17g %.17g %.17g"):format(of[2], of[3], of[4])
end

-- In the process of one way: a line per case, its fields apart by tabs.
local function measure()
  for _, case in ipairs(cases) do
    local given, grad = draw(case)
    local leaves = {}
    for i, t in ipairs(given) do leaves[i] = t:to "cuda" end
    local slope = grad:to "cuda"
    local there = results(case, leaves, slope)
    local output, gradients = marks(there)
    local again, gradients_again = marks(results(case, leaves, slope))
    local off = errors(case, given, grad, there)
    local forward = accelhost.no_grad(function()
      return microseconds(function() attend(case, leaves):free() end)
    end)
    local both = microseconds(function()
      for _, t in ipairs(results(case, leaves, slope)) do t:free() end
    end)
    print(table.concat({case[1], output, gradients, tostring(output == again and gradients == gradients_again), off,
      ("%.1f"):format(forward), ("%.1f"):format(both)}, "\t"))
  end
end

local function fields(line)
  local all = {}
  for text in (line .. "\t"):gmatch "([^\t]*)\t" do all[#all + 1] = text end
  return all
end

-- The kernels that computed a field, 2 the output or 3 the gradients: own if a line of `like` has the same.
local function whose(field, text, like)
  for _, line in ipairs(like) do
    if fields(line)[field] == text then return "own" end
  end
  return "cuDNN"
end

local missed = 0
local function show(way, lines, own, forward)
  for i, line in ipairs(lines) do
    local all = fields(line)
    local output = own and whose(2, all[2], {own[i]}) or "?"
    local gradients = way == "own" and "own" or own and forward and whose(3, all[3], {own[i], forward[i]}) or "?"
    print(("%-10s %-14s %-12s %-6s %-32s %9s %9s"):format(way, all[1], output .. "/" .. gradients, all[4], all[5],
      all[6], all[7]))
    local fine = all[4] == "true" or way == "unordered"
    for number in all[5]:gmatch "[^%s,]+" do fine = fine and (tonumber(number) or 1) <= 0.02 end
    missed = missed + (fine and 0 or 1)
  end
end

if arg[1] == "measure" then return measure() end
local program = io.popen "readlink /proc/$PPID/exe":read "*l"
local ways = #arg > 0 and {unpack(arg)} or {"own", "forward", "cudnn", "unordered"}
local lines_of = {}
print(("%-10s %-14s %-12s %-6s %-32s %9s %9s"):format("way", "case", "path", "same", "errors: output, dq, dk, dv",
  "us fwd", "us both"))
for _, way in ipairs(ways) do
  local pipe = io.popen(("ACCELHOST_CUDA_ATTENTION=%s '%s' '%s' measure 2>&1"):format(way, program, arg[0]))
  local lines = {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  pipe:close()
  if #lines ~= #cases then
    print(way .. " failed: " .. table.concat(lines, "\n"))
    missed = missed + 1
  else
    lines_of[way] = lines
    show(way, lines, lines_of.own, lines_of.forward)
  end
end
print(("%d of %d too far off or not repeated"):format(missed, #ways * #cases))
os.exit(missed == 0 and 0 or 1)
